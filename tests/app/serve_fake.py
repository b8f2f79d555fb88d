"""The page with the fake engine, as its own process: `python serve_fake.py DATA_DIR PORT [LOAD_SECONDS]`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]


def main() -> None:
    from fake_engine import FakeEngine

    from app import settings
    from app.cli.page import bind
    from app.opening import OpeningModel
    from app.store import Store

    data_dir, port = Path(sys.argv[1]), int(sys.argv[2])
    load_s = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
    store = Store(data_dir)
    settings.keep_private(data_dir / "uploads")
    listener = bind("127.0.0.1", port)

    def open_engine(on_progress):
        engine = FakeEngine.open(Path("fake-model"), None, on_progress)
        threading.Event().wait(load_s)
        return engine

    model = OpeningModel("fake-model", open_engine).start()
    from app.ui.server import serve

    serve(store, model, listener, f"http://127.0.0.1:{port}", open_browser=False)


if __name__ == "__main__":
    main()
