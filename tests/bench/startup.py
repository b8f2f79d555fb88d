"""Time from `python -m app` to a page that answers, and to the loaded model, against the bare imports of gradio and torch.

python -m tests.bench.startup [--repeats 3]
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request


def import_seconds() -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import gradio, torch"], check=True)
    return time.perf_counter() - start


def page_seconds() -> float:
    """Until the page's own config answers with 200."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as data_dir:
        start = time.perf_counter()
        command = [sys.executable, "-m", "app", "--no-browser", "--port", str(port), "--data-dir", data_dir]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                while True:
                    try:
                        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
                            answer.read()
                            return time.perf_counter() - start
                    except (urllib.error.URLError, ConnectionError, TimeoutError):
                        assert process.poll() is None, "the app ended"
                        time.sleep(0.02)
            finally:
                process.terminate()


def ask_seconds() -> float:
    """Until `app ask` has printed its first characters."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "app", "ask", "Hello!", "--max-tokens", "8"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        elapsed = time.perf_counter() - start
        process.wait()
    return elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = range(parser.parse_args().repeats)
    bare = statistics.median(import_seconds() for _ in repeats)
    page = statistics.median(page_seconds() for _ in repeats)
    ask = statistics.median(ask_seconds() for _ in repeats)
    print(f"import gradio, torch   {bare:6.2f} s")
    print(f"usable page            {page:6.2f} s   {page - bare:+.2f} s beyond the imports")
    print(f"app ask, first text    {ask:6.2f} s")


if __name__ == "__main__":
    main()
