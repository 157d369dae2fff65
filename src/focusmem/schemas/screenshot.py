"""A screenshot in memory, and the reference to it that records store."""

import io
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Self

from PIL import Image, UnidentifiedImageError
from pydantic import Field

from focusmem.errors import RecordError
from focusmem.files import sha256_hex
from focusmem.schemas.record import Digest, Record

MAX_PIXELS = 64_000_000
MAX_PNG_BYTES = 64 * 2**20
MAX_PNG_PARTS = 20_000
"""Limit of parts (chunks) in a PNG. The decoder spends a few microseconds on every part, even on an empty part.
Encoders write parts of at least 8 KiB. The largest allowed file has fewer than half as many parts of this size.
"""
SUPPORTED_MODES = ("RGB", "RGBA", "L", "LA", "P", "1")

_COMPRESSION = 2
"""Compression level of PNGs that we encode: twice as fast as the usual 6, and the files are an eighth larger."""
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


class ScreenshotRef(Record):
    """A reference to a screenshot by its content; the pixels are stored elsewhere."""

    sha256: Digest
    """The digest of the PNG file."""
    width: Annotated[int, Field(ge=1, le=MAX_PIXELS)]
    """In pixels."""
    height: Annotated[int, Field(ge=1, le=MAX_PIXELS)]
    """In pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screenshot:
    """An immutable PNG. Make one with `from_png` or `from_image`; two are equal when their bytes are."""

    png: bytes = field(compare=False, repr=False)
    digest: str
    width: int = field(compare=False)
    height: int = field(compare=False)

    @classmethod
    def from_png(cls, data: bytes) -> Self:
        """Checks that the bytes are one whole picture of a reasonable size, and keeps them unchanged."""
        if not isinstance(data, bytes):
            raise RecordError(f"A screenshot is made from the bytes of a PNG file, not from {_kind(data)}.")
        width, height = _check_structure(data)
        try:
            _decode(data)
        except UnidentifiedImageError:
            raise RecordError("This PNG cannot be decoded: its header is invalid.") from None
        # Pillow reports broken pictures in all these ways, depending on which part is broken.
        except (OSError, SyntaxError, ValueError, struct.error, zlib.error) as error:
            raise RecordError(f"This PNG cannot be decoded: {error}.") from error
        return cls(png=data, digest=sha256_hex(data), width=width, height=height)

    @classmethod
    def from_image(cls, image: Image.Image) -> Self:
        """Encode a picture as an RGB PNG. Only the pixels count: transparency and metadata are dropped."""
        if not isinstance(image, Image.Image):
            raise RecordError(f"A screenshot is made from a PIL image, not from {_kind(image)}.")
        _check_mode(image)
        _check_size(*image.size)
        if getattr(image, "n_frames", 1) != 1:
            raise RecordError("This image has several frames; pass one of them, as image.copy().")
        try:
            pixels = _as_rgb(image)
        except OSError as error:
            raise RecordError(f"This image cannot be decoded: {error}.") from error
        pixels.info = {}
        buffer = io.BytesIO()
        pixels.save(buffer, format="PNG", compress_level=_COMPRESSION)
        data = buffer.getvalue()
        return cls(png=data, digest=sha256_hex(data), width=pixels.width, height=pixels.height)

    def image(self) -> Image.Image:
        """A fresh RGB copy of the pixels."""
        return _as_rgb(_decode(self.png))

    def ref(self) -> ScreenshotRef:
        return ScreenshotRef(sha256=self.digest, width=self.width, height=self.height)


def _check_structure(data: bytes) -> tuple[int, int]:
    """Checks everything that can be checked without decompressing pixels; returns width and height."""
    if not data.startswith(_SIGNATURE):
        raise RecordError("This is not a PNG: it does not begin with the PNG signature.")
    if len(data) > MAX_PNG_BYTES:
        raise RecordError(f"This PNG is too large: {len(data)} bytes, at most {MAX_PNG_BYTES} are allowed.")
    width = height = 0
    for index, (name, content) in enumerate(_chunks(data)):
        if index == MAX_PNG_PARTS:
            raise RecordError(f"This PNG has too many parts (chunks): at most {MAX_PNG_PARTS} are read.")
        if (name == b"IHDR") != (index == 0) or (name == b"IHDR" and len(content) != 13):
            raise RecordError("This PNG is damaged: it should begin with one header (IHDR).")
        if name == b"IHDR":
            width, height = struct.unpack(">II", content[:8])
            _check_size(width, height)
        if name == b"acTL":
            raise RecordError("This PNG is an animation; a screenshot is a single frame.")
    return width, height


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """The chunks of a PNG, each with its checksum verified, up to the end chunk, which must be last in the file."""
    view, start = memoryview(data), len(_SIGNATURE)
    while start + 12 <= len(data):
        length = int.from_bytes(view[start : start + 4])
        end = start + 8 + length
        if end + 4 > len(data):
            break
        name = bytes(view[start + 4 : start + 8])
        if zlib.crc32(view[start + 4 : end]) != int.from_bytes(view[end : end + 4]):
            raise RecordError(f"This PNG is damaged: the checksum of the part at byte {start} is wrong.")
        yield name, view[start + 8 : end]
        start = end + 4
        if name == b"IEND":
            if start != len(data):
                raise RecordError(f"This PNG has {len(data) - start} bytes after its end.")
            return
    raise RecordError("This PNG is cut off: its end is missing.")


def _decode(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data), formats=["PNG"])
    _check_mode(image)
    image.load()
    return image


def _as_rgb(image: Image.Image) -> Image.Image:
    if "transparency" in image.info:
        # Direct conversion to RGB gives the same colours, but Pillow then warns about palettes with transparency.
        image = image.convert("RGBA")
    return image.convert("RGB")


def _check_mode(image: Image.Image) -> None:
    if image.mode not in SUPPORTED_MODES:
        known = ", ".join(SUPPORTED_MODES)
        raise RecordError(f"A screenshot has a mode among {known}, not {image.mode}; convert it to RGB first.")


def _check_size(width: int, height: int) -> None:
    if width < 1 or height < 1:
        raise RecordError(f"A screenshot needs pixels, but this one is {width}x{height}.")
    if width * height > MAX_PIXELS:
        raise RecordError(f"A screenshot has at most {MAX_PIXELS} pixels, but this one is {width}x{height}.")


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
