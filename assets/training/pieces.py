"""Large files in pieces, for machines that take and give back only small ones.

python -m assets.training.pieces split FILE FOLDER --mib 15       FILE.0, FILE.1, ... and their digests
python -m assets.training.pieces join FOLDER/NAME OUT             checks the digest of the whole
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path


def split(file: Path, folder: Path, mib: int) -> list[Path]:
    """Write the pieces; the digest of the whole is the content of NAME.digest."""
    data, size = file.read_bytes(), mib << 20
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for number, start in enumerate(range(0, max(len(data), 1), size)):
        made.append(folder / f"{file.name}.{number}")
        made[-1].write_bytes(data[start : start + size])
    (folder / f"{file.name}.digest").write_text(hashlib.blake2b(data).hexdigest())
    return made


def join(stem: Path, out: Path) -> None:
    """Put FOLDER/NAME.0, .1, ... together again."""
    parts, number = [], 0
    while (piece := stem.with_name(f"{stem.name}.{number}")).exists():
        parts.append(piece.read_bytes())
        number += 1
    data = b"".join(parts)
    wanted = stem.with_name(f"{stem.name}.digest").read_text()
    assert hashlib.blake2b(data).hexdigest() == wanted, (
        f"{number} pieces of {stem.name} do not make the file that was split"
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(data)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m assets.training.pieces", description=__doc__)
    parser.add_argument("step", choices=("split", "join"))
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--mib", type=int, default=15)
    wishes = parser.parse_args(arguments)
    if wishes.step == "split":
        print(*(p.name for p in split(wishes.source, wishes.target, wishes.mib)))
    else:
        join(wishes.source, wishes.target)


if __name__ == "__main__":
    main()
