"""A person's picture file as an upright RGB image. Knows Pillow and its dangers, nothing about models."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

from PIL import Image, ImageOps

from engine.errors import BadImage

MAX_SIDE_PIXELS = 20_000
MAX_PIXELS = 64_000_000
MAX_FILE_BYTES = 1 << 30
# Formats that Pillow hands to another program or to the system; a file from a stranger must not start anything.
_FOREIGN = ("EPS", "WMF")


def open_picture(source: Path | bytes) -> Image.Image:
    """Decode completely: first frame, EXIF orientation applied, transparency on white, any mode to 8-bit RGB.

    Raises BadImage with the reason for files that are not pictures, are cut off, or are too large.
    """
    name = source.name if isinstance(source, Path) else "the picture"
    data = _read(source) if isinstance(source, Path) else source
    if not data:
        raise BadImage(f"{name} is an empty file.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit is below
            image = Image.open(io.BytesIO(data))
            width, height = image.size
            if image.format in _FOREIGN:
                raise BadImage(f"{name} is a {image.format} drawing; save it as PNG or JPEG first.")
            if max(width, height) > MAX_SIDE_PIXELS or width * height > MAX_PIXELS:
                raise BadImage(
                    f"{name} is too large: {width} x {height} pixels; at most {MAX_SIDE_PIXELS:,} a side "
                    f"and {MAX_PIXELS // 1_000_000} million in all."
                )
            image.seek(0)
            image.load()
            return _rgb(_upright(image))
    except BadImage:
        raise
    except Image.DecompressionBombError as problem:
        raise BadImage(f"{name} is too large to open.") from problem
    except Image.UnidentifiedImageError as problem:
        raise BadImage(f"{name} is not a picture this program can open.") from problem
    except Exception as problem:  # Pillow's decoders raise anything for damaged files
        raise BadImage(f"{name} is damaged or cut off and cannot be opened.") from problem


def _read(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise BadImage(f"{path.name} is not a file.")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise BadImage(f"{path.name} is too large: at most {MAX_FILE_BYTES >> 20:,} MiB.")
        return path.read_bytes()
    except OSError as problem:
        raise BadImage(f"Cannot read {path.name}: {problem.strerror}.") from problem


def _upright(image: Image.Image) -> Image.Image:
    """Turned as its EXIF says; a picture whose EXIF is damaged is taken as it lies."""
    try:
        return ImageOps.exif_transpose(image)
    except MemoryError:
        raise
    except Exception:
        return image


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode in ("I;16", "I;16B", "I;16L", "I;16N", "I"):
        image = image.convert("I").point(lambda v: v / 257.0).convert("L")
    elif image.mode == "F":
        image = image.convert("L")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, rgba).convert("RGB")
    return image.convert("RGB")
