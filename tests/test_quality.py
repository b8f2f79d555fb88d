"""Lint, types, import contracts and the shape of the tree, so that one command judges everything."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("app", "engine", "kernels")
# Rooms that may exceed 400 lines: kernels whose launch code and body belong together.
_LONG_ROOMS = re.compile(r"kernels/\w+/triton\w*\.py")


def _tool(*arguments: str) -> None:
    result = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{' '.join(arguments)}\n{result.stdout}\n{result.stderr}"


def _sources() -> list[Path]:
    return sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))


def test_lint_is_clean() -> None:
    _tool("-m", "ruff", "check", ".")


def test_format_is_clean() -> None:
    _tool("-m", "ruff", "format", "--check", ".")


def test_types_are_clean() -> None:
    _tool("-m", "mypy")


def test_floors_import_downwards_only() -> None:
    _tool("-c", "from importlinter.cli import lint_imports_command; lint_imports_command()")


def test_rooms_stay_readable() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in _sources()
        if (lines := path.read_text(encoding="utf-8").count("\n")) > 400
    }
    assert not {room: n for room, n in long.items() if not _LONG_ROOMS.fullmatch(room)}


def test_every_room_says_what_it_owns() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in _sources()
        if path.read_text(encoding="utf-8").strip()
        and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not silent


def _users(pattern: str, allowed: str) -> list[str]:
    """Files whose code matches `pattern` outside of the rooms where that is allowed."""
    found = re.compile(pattern)
    names = [str(p.relative_to(ROOT)) for p in _sources() if found.search(p.read_text(encoding="utf-8"))]
    return [name for name in names if not re.match(allowed, name)]


@pytest.mark.parametrize(
    ("what", "pattern", "allowed"),
    [
        ("environment", r"os\.environ|os\.getenv", r"app/settings\.py"),
        ("GPU memory", r"torch\.cuda\.(mem_get_info|memory_|max_memory)", r"engine/memory/"),
        ("safetensors", r"^\s*(import|from) safetensors(?m)", r"engine/(checkpoint|state)/"),
        ("pickle", r"torch\.load\(|import pickle|weights_only", r"$^"),
        ("sqlite", r"^\s*(import|from) sqlite3(?m)", r"app/store/|engine/state/"),
        ("gradio", r"^\s*(import|from) gradio(?m)", r"app/ui/"),
    ],
)
def test_each_dependency_has_its_room(what: str, pattern: str, allowed: str) -> None:
    pattern = f"(?m){pattern.removesuffix('(?m)')}"
    assert not _users(pattern, allowed), what


def test_kernels_package_does_not_shadow_hugging_face_kernels() -> None:
    assert (ROOT / "kernels/__init__.py").read_text(encoding="utf-8") == ""
    _tool("-c", "import transformers, kernels.formats, engine.api; from transformers import AutoModelForCausalLM")


def test_command_line_help_is_quick_to_import() -> None:
    _tool("-c", "import sys, app.__main__; assert not {'torch', 'gradio'} & set(sys.modules), 'heavy import'")


def test_readme_draws_the_tree_that_is_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    drawn = re.findall(r"^(app|engine|kernels|assets|tests)/(\S*)\s", text, flags=re.MULTILINE)
    assert len(drawn) > 10
    missing = [f"{floor}/{rest}" for floor, rest in drawn if not (ROOT / floor / rest).exists()]
    assert not missing
    rooms = {p.name for p in (ROOT / "engine").iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    assert rooms <= {rest.strip("/") for floor, rest in drawn if floor == "engine"}


def test_wheel_holds_the_demo_model_and_finds_it(tmp_path: Path) -> None:
    _tool("-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path))
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = (
        f"import sys; sys.path[:] = [p for p in sys.path if p not in ('', {str(ROOT)!r})];"
        f"sys.path.insert(0, {str(tmp_path / 'site')!r});"
        "import app.assets as a; from pathlib import Path;"
        f"assert a.__file__.startswith({str(tmp_path)!r}), a.__file__;"
        "assert (a.demo_model() / 'config.json').exists()"
    )
    result = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
