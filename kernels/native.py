"""Builds and loads the C sources that lie beside the operators. Knows compilers and files, not what the code computes.

A library is compiled at its first use with the system's C compiler for this very processor, kept in a per-user
directory under a name that hashes source, compiler, flags and processor, and loaded with ctypes. Without a compiler
`library` raises Unsuitable and the operators stay with torch.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import torch
from platformdirs import user_cache_path

from kernels.choose import Unsuitable

_log = logging.getLogger(__name__)
_HEADERS = [Path(__file__).with_name(name) for name in ("vectors.h", "pool.h")]
_POOL = Path(__file__).with_name("pool.c")  # threads that all libraries share
_FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fPIC", "-pthread", "-fopenmp", "-fno-math-errno")
_ONE_THREAD = 100_000  # floating-point operations

_loaded: dict[tuple[Path, tuple[str, ...]], ctypes.CDLL | Unsuitable] = {}


def library(source: Path, *flags: str) -> ctypes.CDLL:
    """The shared library of a C file, compiled if it is not in the cache; raises Unsuitable with the reason."""
    key = (source, flags)
    if key not in _loaded:
        try:
            _loaded[key] = _load(source, flags)
        except (OSError, subprocess.SubprocessError) as error:
            _loaded[key] = Unsuitable(f"{source.parent.name}/{source.name} could not be compiled: {error}")
        except Unsuitable as reason:
            _loaded[key] = reason
    found = _loaded[key]
    if isinstance(found, Unsuitable):
        raise found
    return found


def _load(source: Path, flags: tuple[str, ...]) -> ctypes.CDLL:
    compiler = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if compiler is None:
        raise Unsuitable("there is no C compiler (cc, gcc or clang)")
    text = b"".join(path.read_bytes() for path in (source, *_HEADERS))
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True, timeout=30).stdout
    identity = repr((text, version, _FLAGS, flags, _processor())).encode()
    target = _directory() / f"{source.parent.name}-{hashlib.sha256(identity).hexdigest()[:24]}.so"
    if not target.exists():
        _compile(compiler, source, flags, target)
    if source != _POOL:
        library(_POOL)
    return ctypes.CDLL(str(target), ctypes.RTLD_GLOBAL if source == _POOL else ctypes.DEFAULT_MODE)


def _compile(compiler: str, source: Path, flags: tuple[str, ...], target: Path) -> None:
    """Compile to a temporary name and rename, so that another process never sees half a file.

    The OpenMP runtime is left unlinked: torch has loaded one with global symbols, and using the same one keeps
    both sides on the same threads.
    """
    _log.info(
        "compiling the CPU kernels of %s with %s, once for this machine, into %s", source.parent.name, compiler, target
    )
    start = time.monotonic()
    with tempfile.TemporaryDirectory(dir=target.parent) as place:
        parts = (str(Path(place) / "part.o"), str(Path(place) / "part.so"))
        build = (
            [compiler, *_FLAGS, *flags, "-c", str(source), "-o", parts[0]],
            [compiler, "-shared", parts[0], "-o", parts[1], "-lm", "-pthread"],
        )
        for command in build:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
            if done.returncode:
                raise Unsuitable(
                    f"{compiler} failed on {source.parent.name}/{source.name}: {done.stderr.strip()[:400]}"
                )
        Path(parts[1]).replace(target)
    _log.info("compiled in %.1f s", time.monotonic() - start)


def _directory() -> Path:
    """The cache directory; refused unless this user alone can write to it, since its content is executed."""
    directory = user_cache_path("dayzero", appauthor=False) / "kernels"
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    state = directory.stat()
    if hasattr(os, "getuid") and (state.st_uid != os.getuid() or state.st_mode & 0o022):
        raise Unsuitable(f"{directory} can be written to by other users")
    return directory


def _processor() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() + platform.machine()
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(wanted)))


def threads(operations: int) -> int:
    """How many threads to use: one for work of a few microseconds, which is over before another looks."""
    return 1 if operations < _ONE_THREAD else torch.get_num_threads()
