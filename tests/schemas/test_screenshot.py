import io
import pickle
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from factories import make_screenshot
from focusmem.errors import RecordError
from focusmem.files import sha256_hex
from focusmem.schemas import Screenshot, ScreenshotRef
from focusmem.schemas.screenshot import MAX_PNG_PARTS
from schemas.strategies import FAST

HEADER = b"\x89PNG\r\n\x1a\n"


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(width: int, height: int, *chunks: bytes, depth: int = 8, colour: int = 2) -> bytes:
    """A PNG made by hand: its header says what it likes."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return HEADER + header + b"".join(chunks) + chunk(b"IEND", b"")


def pixels(width: int, height: int, bytes_per_row: int) -> bytes:
    return chunk(b"IDAT", zlib.compress((b"\0" + bytes(bytes_per_row)) * height))


@FAST
@given(st.integers(1, 20), st.integers(1, 20), st.randoms())
def test_pixels_survive(width, height, random):
    found = np.frombuffer(random.randbytes(width * height * 3), dtype=np.uint8).reshape(height, width, 3)
    screenshot = Screenshot.from_image(Image.fromarray(found))
    assert np.array_equal(np.asarray(screenshot.image()), found)
    assert Screenshot.from_png(screenshot.png) == screenshot
    assert (screenshot.width, screenshot.height) == (width, height)


def test_the_digest_is_that_of_the_bytes():
    screenshot = make_screenshot()
    assert screenshot.digest == sha256_hex(screenshot.png)
    assert screenshot.ref() == ScreenshotRef(sha256=screenshot.digest, width=96, height=64)


def test_equal_bytes_make_equal_screenshots():
    assert make_screenshot(1) == make_screenshot(1)
    assert len({make_screenshot(1), make_screenshot(1), make_screenshot(2)}) == 2
    assert pickle.loads(pickle.dumps(make_screenshot(1))) == make_screenshot(1)


def test_its_text_is_short():
    assert len(repr(make_screenshot())) < 200


def test_changing_the_image_leaves_the_screenshot_alone():
    screenshot = make_screenshot()
    screenshot.image().paste((0, 0, 0), (0, 0, 50, 50))
    assert screenshot.image().tobytes() == make_screenshot().image().tobytes()


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1"])
def test_each_supported_mode_is_read_as_rgb(mode):
    image = make_screenshot().image().convert(mode)
    expected = image.convert("RGB").tobytes()
    assert Screenshot.from_image(image).image().tobytes() == expected
    screenshot = Screenshot.from_png(encoded(image))
    assert screenshot.image().mode == "RGB"
    assert screenshot.image().tobytes() == expected


def test_transparency_is_dropped():
    image = Image.new("RGBA", (4, 4), (10, 20, 30, 0))
    assert Screenshot.from_image(image).image().getpixel((0, 0)) == (10, 20, 30)
    assert Screenshot.from_png(encoded(image)).image().getpixel((0, 0)) == (10, 20, 30)


def test_a_transparent_palette_is_read_without_a_warning():
    palette = make_screenshot().image().convert("P")
    data = encoded(palette, transparency=bytes(range(256)))
    assert Screenshot.from_png(data).image().tobytes() == palette.convert("RGB").tobytes()
    assert Screenshot.from_image(Image.open(io.BytesIO(data))).image().tobytes() == palette.convert("RGB").tobytes()


def test_metadata_does_not_change_the_digest():
    image = make_screenshot().image()
    image.info.update(icc_profile=b"profile", transparency=(1, 2, 3), dpi=(72, 72))
    assert Screenshot.from_image(image) == make_screenshot()


def test_every_cut_is_noticed():
    data = make_screenshot(width=8, height=8).png
    for cut in range(len(data)):
        with pytest.raises(RecordError):
            Screenshot.from_png(data[:cut])


def test_every_changed_byte_is_noticed():
    data = make_screenshot(width=8, height=8).png
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(RecordError):
            Screenshot.from_png(bytes(changed))


SMALL = Image.new("RGB", (8, 8))
ROWS = pixels(8, 8, 24)
REFUSED = {
    "nothing": (b"", "not a PNG"),
    "text": (b"hello", "not a PNG"),
    "JPEG": (encoded(SMALL, "JPEG"), "not a PNG"),
    "GIF": (encoded(SMALL, "GIF"), "not a PNG"),
    "only a signature": (HEADER, "cut off"),
    "animation": (
        encoded(SMALL, save_all=True, append_images=[Image.new("RGB", (8, 8), "red")]),
        "animation",
    ),
    "bomb": (
        png(100_000, 100_000, pixels(1, 1, 3)),
        "at most 64000000 pixels, but this one is 100000x100000",
    ),
    "long bomb": (png(2**31 - 1, 1, pixels(1, 1, 3)), "at most"),
    "no width": (png(0, 8, ROWS), "needs pixels"),
    "two headers": (
        png(8, 8, chunk(b"IHDR", struct.pack(">IIBBBBB", 9**5, 9**5, 8, 2, 0, 0, 0)), ROWS),
        "one header",
    ),
    "no header": (HEADER + ROWS + chunk(b"IEND", b""), "one header"),
    "short header": (HEADER + chunk(b"IHDR", b"12345678") + chunk(b"IEND", b""), "one header"),
    "no pixels": (png(8, 8), "cannot be decoded"),
    "pixels are noise": (png(8, 8, chunk(b"IDAT", b"noise")), "cannot be decoded"),
    "pixels are cut off": (png(8, 8, chunk(b"IDAT", zlib.compress(bytes(200))[:-6])), "cannot be decoded"),
    "unknown colours": (png(8, 8, ROWS, colour=5), "header is invalid"),
    "text bomb": (
        png(8, 8, chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(2**23))), ROWS),
        "cannot be decoded",
    ),
    "16 bits": (png(8, 8, pixels(8, 8, 16), depth=16, colour=0), "not I;16; convert it to RGB first"),
    "trailing bytes": (make_screenshot().png + b"PK", "2 bytes after its end"),
    "not bytes": (SMALL, "not from PIL.Image.Image"),
    "a path": ("shot.png", "not from str"),
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_screenshot_is_refused(data, message):
    with pytest.raises(RecordError, match=message):
        Screenshot.from_png(data)


def test_no_more_parts_are_looked_at_than_allowed():
    """Bytes after the limit may be noise; the error is about the number of parts only."""
    empty = chunk(b"teXt", b"")
    most = [ROWS, *[empty] * (MAX_PNG_PARTS - 3)]  # the header and the end count too
    assert Screenshot.from_png(png(8, 8, *most)).width == 8
    with pytest.raises(RecordError, match=f"too many parts .*at most {MAX_PNG_PARTS}"):
        Screenshot.from_png(png(8, 8, *most, empty))
    with pytest.raises(RecordError, match="too many parts"):
        Screenshot.from_png(png(8, 8, *most, empty, empty, b"noise" * 100))


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((4, 4, 3), np.uint8), r"not from numpy\.ndarray"),
        (b"bytes", "not from bytes"),
        (None, "not from NoneType"),
        (Image.new("CMYK", (4, 4)), "not CMYK; convert it to RGB first"),
        (Image.new("F", (4, 4)), "not F"),
        (Image.new("I;16", (4, 4)), "not I;16"),
        (Image.new("RGB", (0, 4)), "needs pixels"),
        (Image.new("1", (8001, 8000)), "at most"),
        (
            Image.open(io.BytesIO(encoded(SMALL, save_all=True, append_images=[Image.new("RGB", (8, 8), "red")]))),
            "several frames",
        ),
        (Image.open(io.BytesIO(make_screenshot().png[:-300])), "cannot be decoded"),
    ],
)
def test_what_cannot_become_a_screenshot_is_refused(image, message):
    with pytest.raises(RecordError, match=message):
        Screenshot.from_image(image)


@pytest.mark.parametrize("size", [(0, 5), (5, -1), (10**9, 5)])
def test_a_reference_has_a_reasonable_size(size):
    with pytest.raises(ValidationError):
        ScreenshotRef(sha256="a" * 64, width=size[0], height=size[1])
