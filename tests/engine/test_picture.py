"""Picture files: upright RGB or BadImage, whatever the bytes are; and how Hy4 cuts them into patches."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from engine.errors import BadImage
from engine.model.spec import HyVision
from engine.vision.grid_reader import GridReader
from engine.vision.picture import open_picture
from tests.engine.helpers import is_one_sentence

FUZZ = settings(max_examples=150, deadline=None)


def saved(image: Image.Image, kind: str = "PNG", **more: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **more)
    return buffer.getvalue()


def corners() -> Image.Image:
    """2 x 3 picture with a different colour in every corner."""
    image = Image.new("RGB", (2, 3))
    for at, colour in {(0, 0): (255, 0, 0), (1, 0): (0, 255, 0), (0, 2): (0, 0, 255), (1, 2): (255, 255, 0)}.items():
        image.putpixel(at, colour)
    return image


UNDO = {
    1: None, 2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}  # fmt: skip


@pytest.mark.parametrize("orientation", list(UNDO))
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_every_orientation_comes_out_upright(orientation: int, kind: str) -> None:
    undo = UNDO[orientation]
    stored = corners() if undo is None else corners().transpose(undo)
    exif = Image.Exif()
    exif[0x0112] = orientation
    lossless = {"lossless": True} if kind == "WEBP" else {}
    opened = open_picture(saved(stored, kind, exif=exif, **lossless))
    assert opened.size == (2, 3) and opened.tobytes() == corners().tobytes()


def test_a_jpeg_from_a_phone() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    wide = Image.new("RGB", (40, 20), "blue")
    wide.paste("red", (0, 0, 20, 20))
    opened = open_picture(saved(wide, "JPEG", exif=exif))
    assert opened.size == (20, 40)
    assert opened.getpixel((10, 5))[0] > 200 and opened.getpixel((10, 35))[2] > 200


def test_transparency_lies_on_white() -> None:
    half = Image.new("RGBA", (2, 1), (255, 0, 0, 0))
    half.putpixel((1, 0), (0, 0, 0, 128))
    opened = open_picture(saved(half))
    assert opened.mode == "RGB" and opened.getpixel((0, 0)) == (255, 255, 255)
    assert all(126 <= v <= 128 for v in opened.getpixel((1, 0)))


def test_gray_with_alpha() -> None:
    assert open_picture(saved(Image.new("LA", (1, 1), (0, 0)))).getpixel((0, 0)) == (255, 255, 255)
    assert open_picture(saved(Image.new("LA", (1, 1), (9, 255)))).getpixel((0, 0)) == (9, 9, 9)


def test_palette_with_and_without_transparency() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putpixel((1, 0), 1)
    assert open_picture(saved(image)).getpixel((1, 0)) == (0, 0, 255)
    clear = open_picture(saved(image, transparency=0))
    assert clear.getpixel((0, 0)) == (255, 255, 255) and clear.getpixel((1, 0)) == (0, 0, 255)
    assert open_picture(saved(image, "GIF", transparency=0)).getpixel((0, 0)) == (255, 255, 255)
    assert open_picture(saved(image, transparency=bytes([0, 255]))).getpixel((0, 0)) == (255, 255, 255)


def test_a_transparent_colour_in_rgb_and_gray() -> None:
    image = Image.new("RGB", (2, 1), (1, 2, 3))
    image.putpixel((1, 0), (9, 9, 9))
    opened = open_picture(saved(image, transparency=(1, 2, 3)))
    assert opened.getpixel((0, 0)) == (255, 255, 255) and opened.getpixel((1, 0)) == (9, 9, 9)
    assert open_picture(saved(Image.new("L", (1, 1), 7), transparency=7)).getpixel((0, 0)) == (255, 255, 255)


def sixteen(values: list[int], extra: bytes = b"") -> bytes:
    """A 16-bit gray PNG of one row, written by hand."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", len(values), 1, 16, 0, 0, 0, 0)
    body = zlib.compress(b"\0" + b"".join(struct.pack(">H", v) for v in values))
    trns = chunk(b"tRNS", extra) if extra else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + trns + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def test_sixteen_bits_are_scaled_not_clipped() -> None:
    opened = open_picture(sixteen([0, 257, 32896, 65535]))
    assert [opened.getpixel((x, 0)) for x in range(4)] == [(v,) * 3 for v in (0, 1, 128, 255)]


def test_sixteen_bits_with_a_transparent_value() -> None:
    opened = open_picture(sixteen([0, 32896, 65535], struct.pack(">H", 65535)))
    assert [opened.getpixel((x, 0)) for x in range(3)] == [(v,) * 3 for v in (0, 128, 255)]


@pytest.mark.parametrize(
    ("mode", "kind", "colour", "expected"),
    [("CMYK", "JPEG", (0, 0, 0, 0), (255, 255, 255)), ("CMYK", "TIFF", (0, 255, 255, 0), (255, 0, 0)),
     ("L", "JPEG", 100, (100,) * 3), ("1", "PNG", 1, (255,) * 3), ("RGB", "BMP", (1, 2, 3), (1, 2, 3)),
     ("F", "TIFF", 100.0, (100,) * 3), ("I", "TIFF", 257 * 7, (7,) * 3), ("YCbCr", "JPEG", (128, 128, 128), (128,) * 3),
     ("RGB", "PPM", (1, 2, 3), (1, 2, 3)), ("RGB", "ICO", (1, 2, 3), (1, 2, 3)), ("LAB", "TIFF", (255, 128, 128), None)],
)  # fmt: skip
def test_every_mode_becomes_rgb(mode: str, kind: str, colour: object, expected: tuple[int, ...] | None) -> None:
    opened = open_picture(saved(Image.new(mode, (16, 16), colour), kind))
    assert opened.mode == "RGB"
    if expected is not None:
        assert all(abs(a - b) <= 2 for a, b in zip(opened.getpixel((8, 8)), expected, strict=True))


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_frame_of_an_animation(kind: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue", "green")]
    opened = open_picture(saved(frames[0], kind, save_all=True, append_images=frames[1:]))
    assert opened.size == (8, 8) and opened.getpixel((4, 4))[0] > 200 and opened.getpixel((4, 4))[2] < 50


# ---------------------------------------------------------------- refused


def refused(source: Path | bytes, *words: str) -> None:
    with pytest.raises(BadImage) as caught:
        open_picture(source)
    assert is_one_sentence(caught.value), str(caught.value)
    for word in words:
        assert word in str(caught.value)


NOT_PICTURES = {
    "text": b"hello", "pdf": b"%PDF-1.4\n", "png head": b"\x89PNG\r\n\x1a\n", "svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "zip": b"PK\x03\x04" + bytes(50), "zeros": bytes(1000),
}  # fmt: skip


@pytest.mark.parametrize("case", list(NOT_PICTURES))
def test_not_a_picture(case: str) -> None:
    refused(NOT_PICTURES[case])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    refused(tmp_path / "no.png", "no.png")
    refused(tmp_path, tmp_path.name)
    (tmp_path / "empty.png").touch()
    refused(tmp_path / "empty.png", "empty.png", "empty")
    refused(b"", "empty")
    refused(Path("/dev/zero"), "zero")


def noisy(size: int = 64) -> Image.Image:
    values = torch.randint(0, 256, (size, size, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return Image.fromarray(values.numpy())


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP"])
def test_truncated_files(kind: str) -> None:
    data = saved(noisy(), kind)
    for keep in (1, 8, 30, len(data) // 2):
        refused(data[:keep])


def test_20001_pixels_a_side() -> None:
    refused(saved(Image.new("1", (20_001, 1))), "20001", "20,000")
    assert open_picture(saved(Image.new("1", (20_000, 1)))).size == (20_000, 1)


def bomb(width: int, height: int) -> bytes:
    data = bytearray(saved(Image.new("1", (8, 8))))
    data[16:24] = struct.pack(">II", width, height)
    data[29:33] = struct.pack(">I", zlib.crc32(bytes(data[12:29])))
    return bytes(data)


@pytest.mark.parametrize("size", [(19_999, 19_999), (2**31 - 1, 2**31 - 1), (9_000, 8_000), (15_000, 15_000)])
def test_decompression_bombs_are_refused_before_they_are_decoded(size: tuple[int, int]) -> None:
    refused(bomb(*size), "too large")


def test_no_program_is_started_for_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow hands EPS files to Ghostscript; a file from a stranger must not start anything."""
    import subprocess

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a program was started")

    for name in ("Popen", "run", "call", "check_call", "check_output"):
        monkeypatch.setattr(subprocess, name, forbidden)
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", "gs")
    head = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n"
    refused(head + b"showpage\n%%EOF\n")


KINDS = ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "ICO", "PPM"]


@FUZZ
@given(
    kind=st.sampled_from(KINDS),
    changes=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=12),
    keep=st.floats(0, 1),
)
def test_damaged_files_are_pictures_or_bad_images(kind: str, changes: list[tuple[int, int]], keep: float) -> None:
    data = bytearray(saved(noisy(16), kind))
    for at, value in changes:
        data[at % len(data)] = value
    _try(bytes(data[: max(int(len(data) * keep), 1)]))


@FUZZ
@given(data=st.binary(max_size=200))
@example(data=b"MM\0*\0\0\0\x08\0\x01\x01\x12")
def test_garbage_is_a_bad_image(data: bytes) -> None:
    _try(data)


@FUZZ
@given(exif=st.binary(min_size=1, max_size=60))
def test_garbage_in_exif_does_not_matter(exif: bytes) -> None:
    _try(saved(Image.new("RGB", (8, 8)), "JPEG", exif=b"Exif\0\0" + exif))
    _try(saved(Image.new("RGB", (8, 8)), "PNG", exif=b"MM\0*" + exif))


def _try(data: bytes) -> None:
    try:
        assert open_picture(data).mode == "RGB"
    except BadImage as error:
        assert is_one_sentence(error)


# ---------------------------------------------------------------- Hy4's grid


@pytest.fixture(scope="module")
def reader() -> GridReader:
    vision = HyVision(64, 128, 1, 4, 16, 2, 2048, 1e-5, 1e-5)
    return GridReader(vision, 5, {})


def hy_processor() -> Callable[[Image.Image], tuple[torch.Tensor, list[int]]]:
    from transformers.models.hy_v4_vl.image_processing_pil_hy_v4_vl import HYV4VLImageProcessorPil

    processor = HYV4VLImageProcessorPil()

    def run(image: Image.Image) -> tuple[torch.Tensor, list[int]]:
        made = processor(images=[image], return_tensors="pt")
        return torch.as_tensor(made["pixel_values"]), made["image_grid_thw"][0].tolist()

    return run


@pytest.mark.parametrize("size", [(500, 300), (1, 1), (3000, 100), (2047, 2049), (33, 4000), (640, 480), (513, 511)])
def test_the_grid_is_transformers_grid(reader: GridReader, size: tuple[int, int]) -> None:
    image = Image.new("RGB", size, (10, 200, 30))
    prepared = reader.prepare(image)
    pixels, grid = hy_processor()(image)
    assert [1, *prepared.grid] == grid
    assert prepared.pixels.shape == pixels.shape
    assert float((prepared.pixels - pixels.float()).abs().max()) < 0.02
    assert len(reader.token_ids(prepared.grid)) == (grid[1] // 2) * (grid[2] // 2 + 1)


def test_too_narrow_pictures_are_refused(reader: GridReader) -> None:
    with pytest.raises(BadImage, match="narrow") as caught:
        reader.prepare(Image.new("RGB", (2010, 10)))
    assert is_one_sentence(caught.value)
    assert reader.prepare(Image.new("RGB", (2000, 10))).grid[0] >= 2


@settings(max_examples=40, deadline=None)
@given(width=st.integers(1, 3000), height=st.integers(1, 3000))
def test_any_size_fits_the_budget(reader: GridReader, width: int, height: int) -> None:
    if max(width, height) <= 200 * min(width, height):
        rows, columns = reader._fit(height, width)
        assert rows % 32 == 0 and columns % 32 == 0 and rows > 0 and columns > 0
        assert rows * columns <= 2048 * 2048
    else:
        with pytest.raises(BadImage):
            reader._fit(height, width)


def test_padding_to_a_square_keeps_the_picture_whole() -> None:
    vision = HyVision(64, 128, 1, 4, 16, 2, 256, 1e-5, 1e-5)
    size = {"shortest_edge": 128 * 128, "longest_edge": 128 * 128}
    square = GridReader(vision, 5, {"pad_to_square": [255, 255, 255], "size": size})
    for shape in ((300, 100), (100, 300), (128, 128), (1, 400)):
        assert square.prepare(Image.new("RGB", shape)).grid == (8, 8)


def test_equal_pixels_have_equal_digests_and_others_not(reader: GridReader) -> None:
    red, blue = Image.new("RGB", (40, 40), "red"), Image.new("RGB", (40, 40), "blue")
    assert reader.prepare(red).digest == reader.prepare(red.copy()).digest != reader.prepare(blue).digest


def test_positions_of_a_grid(reader: GridReader) -> None:
    positions, after = reader.positions((4, 6), 10)
    assert positions.shape == (3, 2 * 4) and after == 14
    assert positions[0].tolist() == [10] * 8
    assert positions[1].tolist() == [10] * 4 + [11] * 4
    assert positions[2].tolist() == [10, 11, 12, 13] * 2
