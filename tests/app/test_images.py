"""Pictures a person adds: what is accepted, and the sentence for what is not."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from conftest import png_bytes
from PIL import Image

from app.images import PREVIEW_SIDE_PIXELS, check_picture, read_picture
from app.refusals import Refusal


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def header_only_png(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds almost no data."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(b"\0" * 64))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + data + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "'it.png' is empty"),
        (b"hello, not a picture", "not a picture"),
        (png_bytes((64, 64))[:-40], "damaged or cut off"),
        (header_only_png(20_001, 10), "20,001 x 10 pixels"),
        (header_only_png(9_000, 9_000), "81 megapixels"),
        (header_only_png(19_000, 19_000), "megapixels"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a picture"),
    ],
)
def test_refusals_name_the_file(content, words):
    with pytest.raises(Refusal, match=words) as caught:
        check_picture(content, "it.png")
    assert "'it.png'" in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(Refusal, match=r"no file 'gone.png'"):
        read_picture(tmp_path / "gone.png")
    with pytest.raises(Refusal, match="no file"):
        read_picture(tmp_path)


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGB", "RGBA", "CMYK", "I;16", "I", "F", "YCbCr"])
def test_every_mode_gets_a_preview(mode):
    if mode in ("I;16", "I", "F"):
        values = np.linspace(0, 60_000, 32 * 16).reshape(16, 32)
        dtype = {"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode]
        image = Image.fromarray(values.astype(dtype))
    else:
        image = Image.new("RGBA", (32, 16), (200, 10, 10, 128)).convert("RGB" if mode == "CMYK" else "RGBA")
        image = image.convert("RGB").convert(mode) if mode in ("CMYK", "YCbCr", "P", "1", "L") else image.convert(mode)
    kind = {"CMYK": "TIFF", "I;16": "TIFF", "I": "TIFF", "F": "TIFF", "YCbCr": "JPEG"}.get(mode, "PNG")
    picture = check_picture(encoded(image, kind), "x")
    assert (picture.width, picture.height) == (32, 16)
    with Image.open(io.BytesIO(picture.preview)) as preview:
        assert preview.size == (32, 16)
        if mode == "I;16":
            assert preview.convert("L").getextrema()[1] > 200 and preview.convert("L").getextrema()[0] < 40


def test_exif_orientation_and_original_bytes():
    image = Image.new("RGB", (40, 20), "green")
    exif = Image.Exif()
    exif[0x0112] = 6
    content = encoded(image, "JPEG", exif=exif)
    picture = check_picture(content, "turned.jpg")
    assert (picture.width, picture.height) == (20, 40)
    assert picture.content == content and picture.mime == "image/jpeg"


def test_animations_and_large_pictures():
    frames = [Image.new("RGB", (30, 30), color) for color in ("red", "blue")]
    gif = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert check_picture(gif, "a.gif").width == 30
    large = check_picture(png_bytes((3000, 1500)), "large.png")
    with Image.open(io.BytesIO(large.preview)) as preview:
        assert preview.size == (PREVIEW_SIDE_PIXELS, PREVIEW_SIDE_PIXELS // 2)
