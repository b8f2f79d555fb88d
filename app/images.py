"""Checks pictures a person adds and makes small previews for the page. The engine gets the original bytes.

Knows Pillow only; where bytes are kept is the store's matter."""

from __future__ import annotations

import hashlib
import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.refusals import Refusal

MAX_PIXELS = 50_000_000
MAX_SIDE_PIXELS = 20_000
MAX_FILE_BYTES = 200_000_000
PREVIEW_SIDE_PIXELS = 1024


@dataclass(frozen=True)
class Picture:
    """A checked picture: its original bytes, their hash, and a WebP preview."""

    name: str
    content: bytes
    sha256: str
    mime: str
    width: int
    height: int
    preview: bytes


def read_picture(path: Path, name: str | None = None) -> Picture:
    """Read and check the file at `path`; `name` is what a person calls it. Raises Refusal with a sentence naming it."""
    name = name or path.name
    try:
        if not path.is_file():
            raise Refusal(f"There is no file '{name}'.")
        size_bytes = path.stat().st_size
        if size_bytes > MAX_FILE_BYTES:
            raise Refusal(f"'{name}' is larger than {MAX_FILE_BYTES // 10**6} MB.")
        content = path.read_bytes()
    except OSError as error:
        raise Refusal(f"'{name}' cannot be read: {error.strerror or error}.") from None
    return check_picture(content, name)


def check_picture(content: bytes, name: str) -> Picture:
    """The bytes as a checked picture, or a Refusal naming `name`."""
    if not content:
        raise Refusal(f"'{name}' is empty.")
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content)) as image:
                # Sizes come from the header: nothing is decoded before they are judged.
                width, height = image.size
                if max(width, height) > MAX_SIDE_PIXELS:
                    raise Refusal(
                        f"'{name}' is {width:,} x {height:,} pixels; the longest side may be {MAX_SIDE_PIXELS:,}."
                    )
                if width * height > MAX_PIXELS:
                    raise Refusal(
                        f"'{name}' has {width * height / 1e6:,.0f} megapixels; at most {MAX_PIXELS // 10**6} are read."
                    )
                mime = Image.MIME.get(image.format or "", "image/unknown")
                image.load()
                frame = ImageOps.exif_transpose(image)
                preview = _preview(frame)
                width, height = frame.size
    except Refusal:
        raise
    except Image.DecompressionBombError:
        raise Refusal(f"'{name}' has far more than {MAX_PIXELS // 10**6} megapixels.") from None
    except UnidentifiedImageError:
        raise Refusal(f"'{name}' is not a picture that can be read.") from None
    except MemoryError:
        raise Refusal(f"'{name}' is too large for the free memory.") from None
    except Exception:
        # Pillow's decoders raise many classes for a damaged file (OSError, SyntaxError, ValueError, struct.error).
        raise Refusal(f"'{name}' is damaged or cut off and cannot be read as a picture.") from None
    return Picture(name, content, hashlib.sha256(content).hexdigest(), mime, width, height, preview)


def _preview(image: Any) -> bytes:
    if image.mode in ("I", "I;16", "I;16B", "I;16L", "F"):
        # Pillow clips wide grey values when converting; scale them to what a screen shows.
        low, high = (float(value) for value in image.convert("F").getextrema())
        scale = 255.0 / ((high - low) or 1.0)
        image = image.convert("F").point(lambda value: value * scale - low * scale).convert("L")
    has_alpha = "A" in image.getbands() or "transparency" in image.info
    small = image.convert("RGBA" if has_alpha else "RGB")
    small.thumbnail((PREVIEW_SIDE_PIXELS, PREVIEW_SIDE_PIXELS))
    out = io.BytesIO()
    small.save(out, "WEBP", quality=85, method=2)
    return out.getvalue()
