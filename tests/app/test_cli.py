"""The command line as its own process: every refusal is one sentence and exit code 2, help loads nothing heavy."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import png_bytes

from app import assets, models
from app.refusals import Refusal
from app.settings import parse_bytes
from app.store import Store

ROOT = Path(__file__).parents[2]

# The fake engine stands in for engine.api, so that the commands run without a model.
WITH_FAKE = """
import sys, types
sys.path.insert(0, {here!r})
import fake_engine
api = types.ModuleType("engine.api")
api.Engine = fake_engine.FakeEngine
api.delete_saved = lambda *values: None
api.plan_model = lambda path, settings: f"plan of {{path.name}} with {{settings.ram_budget_bytes}} {{settings.cuda_graphs}}"
sys.modules["engine.api"] = api
scoring = types.ModuleType("engine.scoring")
scoring.score_file = lambda model, prompt, out, settings: out.write_bytes(b"scored")
sys.modules["engine.scoring"] = scoring
from app.cli import main
code = main(sys.argv[1:])
assert "gradio" not in sys.modules
sys.exit(code)
"""


def run(*arguments, stdin=None, fake=True, cwd=ROOT, env=None):
    start = ["-c", WITH_FAKE.format(here=str(Path(__file__).parent))] if fake else ["-m", "app"]
    paths = {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *start, *map(str, arguments)],
        cwd=cwd, check=False, input=stdin, capture_output=True, text=True, timeout=180,
        env={**os.environ, **paths, **(env or {})},
    )  # fmt: skip


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


def refused(result, *words):
    assert result.returncode == 2, result
    assert result.stderr.count("\n") == 1 and "Traceback" not in result.stderr, result.stderr
    for word in words:
        assert word in result.stderr, result.stderr


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom app.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as e:\n    assert e.code == 0\n"
        "bad = {'torch', 'gradio', 'numpy', 'PIL', 'huggingface_hub'} & set(sys.modules)\nassert not bad, bad"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "ask" in result.stdout and "--data-dir" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "70000"], "between 0 and 65535"),
        (["--nonsense"], "--nonsense"),
        (["--threads", "0"], "whole number above zero"),
        (["--model", "/no/such/dir"], "no directory '/no/such/dir'"),
        (["ask"], "Ask something"),
        (["ask", " "], "Ask something"),
        (["ask", "x", "--image", "gone.png"], "'gone.png'"),
        (["ask", "x", "--max-tokens", "many"], "whole number"),
        (["ask", "x", "--temperature", "hot"], "temperature"),
        (["ask", "x", "--batch", "y.jsonl"], "not both"),
        (["ask", "--batch", "gone.jsonl"], "gone.jsonl"),
        (["ask", "x", "--ram-budget", "lots"], "'lots' is not a size"),
        (["score", "m"], "--prompt"),
        (["score", "m", "--prompt", "gone.json", "--out", "o"], "gone.json"),
        (["plan", "/no/such"], "no directory"),
        (["dance"], "dance"),
        (["ask", "x", "--conversation", "c", "--batch", "y.jsonl"], "not both"),
        (["ask", "x", "--conversation", " "], "needs a name"),
        (["ask", "x", "--conversation", "c", "--top-k", "4"], "--top-k is not kept"),
        (["ask", "x", "--conversation", "c", "--state-budget", "some"], "'some' is not a size"),
        (["kv", "polish"], "polish"),
        (["kv", "list", "--data-dir", "gone"], "no saved state"),
        (["kv", "prune", "--keep", "much"], "'much' is not a size"),
        (["export", "name"], "FILE.zip"),
        (["export", "name", "gone/x.zip", "--data-dir", "gone"], "can be written"),
    ],
)
def test_refusals(arguments, words):
    refused(run(*arguments, fake=False), words)


def test_ask_streams_the_answer(model, tmp_path):
    (tmp_path / "p.png").write_bytes(png_bytes())
    result = run("ask", "hello", "--model", model, "--image", tmp_path / "p.png", "--seed", "1")
    assert (result.returncode, result.stdout) == (0, "You said: hello I see 1 picture.\n")
    assert "tokens/s" in result.stderr
    thought = run("ask", "-", "--model", model, stdin="think long", env={"PYTHONIOENCODING": "utf-8"})
    assert thought.stdout.startswith("word0 ") and "Let me ponder." in thought.stderr
    limited = run("ask", "long", "--model", model, "--max-tokens", "3")
    assert limited.stdout == "word0 word1 word2 \n" and "token limit" in limited.stderr


def test_ask_turns_engine_errors_into_sentences(model, tmp_path):
    refused(run("ask", "fail", "--model", model), "9,000 tokens")
    refused(run("ask", "break", "--model", model), "unexpected trouble")
    (tmp_path / "broken").mkdir()
    refused(run("ask", "hello", "--model", tmp_path / "broken"), "no config.json")
    (tmp_path / "bad.png").write_bytes(b"x")
    refused(run("ask", "hello", "--model", model, "--image", tmp_path / "bad.png"), "bad.png")


def test_batch_keeps_the_order_and_names_bad_lines(model, tmp_path):
    (tmp_path / "p.png").write_bytes(png_bytes())
    lines = [
        json.dumps({"question": "long one", "max_tokens": 5}),
        "",
        "{broken",
        json.dumps({"question": "short", "image": "p.png", "system": "be kind", "temperature": 0}),
        json.dumps({"question": "fail"}),
        json.dumps({"question": "x", "image": "gone.png"}),
        json.dumps({"question": "x", "colour": 1}),
        json.dumps({"question": 5}),
        json.dumps({"question": "ünder\u2028line think"}, ensure_ascii=False),
    ]
    batch = tmp_path / "q.jsonl"
    batch.write_text("\n".join(lines) + "\n", "utf-8")
    result = run("ask", "--batch", batch, "--model", model)
    assert result.returncode == 2, result.stderr
    answers = [json.loads(line) for line in result.stdout.split("\n") if line]
    assert len(answers) == 8
    assert (answers[0]["finish_reason"], answers[0]["new_tokens"]) == ("length", 5)
    assert answers[1]["error"].startswith("line 3: not valid JSON")
    assert answers[2]["text"] == "You said: short I see 1 picture." and answers[2]["prompt_tokens"] == 1800
    assert set(answers[2]["timings"]) >= {"queue_ms", "prefill_ms", "decode_ms", "tokens_per_second"}
    for answer, words in zip(answers[3:7], ["9,000", "gone.png", "'colour'", "wrong type"], strict=True):
        assert words in answer["error"]
    assert answers[7]["text"] == "You said: ünder\u2028line think" and answers[7]["thinking"] == "Let me ponder."


def test_batch_of_good_lines_ends_with_zero(model, tmp_path):
    batch = tmp_path / "q.jsonl"
    batch.write_text("".join(json.dumps({"question": f"q{n}"}) + "\n" for n in range(20)), "utf-8")
    result = run("ask", "--batch", batch, "--model", model)
    assert result.returncode == 0
    assert [json.loads(line)["text"] for line in result.stdout.splitlines()] == [f"You said: q{n}" for n in range(20)]
    batch.write_text("\n \n")
    refused(run("ask", "--batch", batch, "--model", model), "holds no questions")


def test_score_and_plan(model, tmp_path):
    (tmp_path / "p.json").write_text("{}")
    assert run("score", model, "--prompt", tmp_path / "p.json", "--out", tmp_path / "o.st").returncode == 0
    assert (tmp_path / "o.st").read_bytes() == b"scored"
    result = run("--ram-budget", "2GB", "plan", model)
    assert (result.returncode, result.stdout) == (0, "plan of model with 2000000000 False\n")
    assert run("--cuda-graphs", "plan", model).stdout == "plan of model with None True\n"


def test_a_used_port_is_refused(model, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused(run("--model", model, "--port", port, "--data-dir", tmp_path / "d"), f"Port {port} is in use")
    refused(
        run("--model", model, "--host", "203.0.113.9", "--port", "0", "--data-dir", tmp_path / "d"), "not an address"
    )


def test_a_used_data_directory_is_refused(model, tmp_path):
    store = Store(tmp_path / "d")
    refused(run("--model", model, "--port", "0", "--no-browser", "--data-dir", tmp_path / "d"), "already running")
    store.close()
    (tmp_path / "file").write_text("x")
    refused(run("--model", model, "--port", "0", "--no-browser", "--data-dir", tmp_path / "file"), "cannot be used")


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_ctrl_c_is_quiet(model):
    start = WITH_FAKE.format(here=str(Path(__file__).parent))
    process = subprocess.Popen(
        [sys.executable, "-c", start, "ask", "forever", "--model", str(model)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.read(4) == "word"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in errors


def test_a_hub_id_offline_is_one_sentence(tmp_path):
    env = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    refused(run("ask", "x", "--model", "someone/something", env=env, fake=False), "someone/something", "local cache")


def test_only_data_files_are_asked_from_the_hub(monkeypatch, tmp_path):
    import huggingface_hub
    from huggingface_hub import errors

    asked = []

    def download(model_id, *, allow_patterns, ignore_patterns, local_files_only=False):
        asked.append((allow_patterns, ignore_patterns))
        if local_files_only:
            raise errors.LocalEntryNotFoundError("not here")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert models.find_model("a/b") == tmp_path
    allowed, ignored = asked[-1]
    assert {"*.py", "*.bin", "*.pt"} <= set(ignored) and not any(one.endswith(("py", "bin", "pt")) for one in allowed)


def test_a_cached_model_needs_no_network(monkeypatch, tmp_path):
    import huggingface_hub

    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "1.safetensors"}}')
    (tmp_path / "1.safetensors").write_bytes(b"")
    calls = []

    def download(model_id, **options):
        calls.append(options.get("local_files_only", False))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert models.find_model("a/b") == tmp_path and calls == [True]
    (tmp_path / "1.safetensors").unlink()
    models.find_model("a/b")
    assert calls == [True, True, False]


def test_assets_of_a_checkout_and_of_a_wheel(monkeypatch, tmp_path):
    assert assets.find_asset("page/page.css").is_file()
    (tmp_path / "_assets" / "demo").mkdir(parents=True)
    (tmp_path / "_assets" / "demo" / "config.json").write_text("{}")
    monkeypatch.setattr(assets, "_PLACES", (tmp_path / "gone", tmp_path / "_assets"))
    assert assets.demo_model() == tmp_path / "_assets" / "demo"
    with pytest.raises(Refusal, match="incomplete"):
        assets.find_asset("page/page.css")
    assert assets.sample_pictures() == []
    samples = tmp_path / "_assets" / "samples"
    samples.mkdir()
    (samples / "a.png").write_bytes(png_bytes())
    rows = [{"file": "a.png", "question": "What is it?"}, {"file": "gone.png", "question": "And this?"}]
    for content, found in ((json.dumps(rows), ["What is it?"]), ("{", []), ("[1]", [])):
        (samples / "samples.json").write_text(content)
        assert [one.question for one in assets.sample_pictures()] == found


def test_sizes():
    assert parse_bytes("24GiB") == 24 * 2**30 and parse_bytes("1.5g") == 1_500_000_000 and parse_bytes("12") == 12
    for bad in ("", "-1", "GB", "0", "12 apples"):
        with pytest.raises(Refusal):
            parse_bytes(bad)


def test_a_conversation_goes_on_in_the_terminal(model, tmp_path):
    (tmp_path / "p.png").write_bytes(png_bytes())
    place = ("--model", model, "--data-dir", tmp_path / "d")
    first = run("ask", "restore this", "--conversation", " My  talk", "--image", tmp_path / "p.png", *place)
    assert (first.returncode, first.stdout) == (0, "You said: restore this I see 1 picture.\n")
    assert "1,200 tokens restored in 45 ms, 600 read in " in first.stderr and "0 were live" in first.stderr
    again = run("ask", "notice think", "--conversation", "My talk", "--temperature", "0", "--system", "be kind", *place)
    assert again.returncode == 0 and "read again" in again.stderr and "Let me ponder." in again.stderr
    refused(run("ask", "fail", "--conversation", "My talk", *place), "9,000 tokens")
    limited = run("ask", "long", "--conversation", "Other", "--max-tokens", "2", *place)
    assert limited.stdout == "word0 word1 \n" and "token limit" in limited.stderr
    store = Store(tmp_path / "d")
    other, talk = store.list()
    assert (other.title, talk.title) == ("Other", "My talk")
    assert (talk.settings.temperature, talk.settings.system) == (0.0, "be kind")
    messages = store.path(talk.id)
    assert [m.text for m in messages if m.role == "user"] == ["restore this", "notice think", "fail"]
    assert messages[0].attachments[0].name == "p.png"
    refused(run("ask", "x", "--conversation", "Other", *place), "already running")
    refused(run("export", "Other", tmp_path / "x.zip", *place[2:]), "already running")
    store.close()


def test_export_and_import_in_the_terminal(tmp_path):
    store = Store(tmp_path / "one")
    store.add_user(store.create("To go").id, None, "hello")
    store.close()
    out = tmp_path / "x.zip"
    written = run("export", "To go", out, "--data-dir", tmp_path / "one", fake=False)
    assert written.returncode == 0 and "'To go'" in written.stdout and out.exists()
    taken = run("import", out, "--data-dir", tmp_path / "two", fake=False)
    assert (taken.returncode, taken.stdout) == (0, "Imported 'To go'.\n")
    store = Store(tmp_path / "two")
    assert [m.text for m in store.path(store.list()[0].id)] == ["hello"]
    store.close()
    refused(run("export", "Gone", out, "--data-dir", tmp_path / "one", fake=False), "no conversation 'Gone'")
    refused(run("import", tmp_path / "gone.zip", "--data-dir", tmp_path / "two", fake=False), "gone.zip")
