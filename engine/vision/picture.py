"""A person's picture file as an upright RGB image. Knows Pillow and its dangers, nothing about models."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

from PIL import Image, ImageOps

from engine.errors import BadImage

MAX_SIDE_PIXELS = 20_000
MAX_PIXELS = 64_000_000


def open_picture(source: Path | bytes) -> Image.Image:
    """Decode completely: first frame, EXIF orientation applied, transparency on white, any mode to 8-bit RGB.

    Raises BadImage with the reason for files that are not pictures, are cut off, or are too large.
    """
    name = source.name if isinstance(source, Path) else "the picture"
    try:
        data = source.read_bytes() if isinstance(source, Path) else source
    except OSError as problem:
        raise BadImage(f"Cannot read {name}: {problem.strerror}.") from problem
    if not data:
        raise BadImage(f"{name} is an empty file.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit is below
            image = Image.open(io.BytesIO(data))
            width, height = image.size
            if max(width, height) > MAX_SIDE_PIXELS or width * height > MAX_PIXELS:
                raise BadImage(
                    f"{name} is too large: {width} x {height} pixels; at most {MAX_SIDE_PIXELS:,} a side "
                    f"and {MAX_PIXELS // 1_000_000} million in all."
                )
            image.seek(0)
            image.load()
            return _rgb(ImageOps.exif_transpose(image))
    except BadImage:
        raise
    except Image.DecompressionBombError as problem:
        raise BadImage(f"{name} is too large to open.") from problem
    except Image.UnidentifiedImageError as problem:
        raise BadImage(f"{name} is not a picture this program can open.") from problem
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError, MemoryError) as problem:
        raise BadImage(f"{name} is damaged or cut off and cannot be opened.") from problem


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
