"""The pictures of a page. Each screenshot is stored once, reduced in size, and named by the digest of the original."""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from PIL import Image

from focusmem.errors import UserError
from focusmem.schemas import Screenshot

MAX_SIDE: Final = 1600
"""Maximum of the longer side in pixels; larger screenshots are scaled down."""
LOSSLESS_BYTES: Final = 60_000
"""Up to this size a picture is lossless. Larger ones are mostly photographs, where a little loss saves much."""
QUALITY: Final = 80


@dataclass(frozen=True, slots=True)
class Pictures:
    """Holds WebP files. The key of each file is the digest of the screenshot that it was made from."""

    files: dict[str, bytes]
    missing: dict[str, str]
    """Why a screenshot could not be read, by its digest."""

    @classmethod
    def none(cls) -> "Pictures":
        return cls({}, {})

    def add(self, digest: str, screenshots: Mapping[str, Screenshot]) -> bool:
        """Adds a picture; returns whether the page has it. It is read and encoded only once."""
        if digest in self.files:
            return True
        try:
            self.files[digest] = small_picture(screenshots[digest].image())
        except KeyError:
            return False
        except UserError as error:
            self.missing.setdefault(digest, str(error))
            return False
        return True

    @property
    def num_bytes(self) -> int:
        return sum(map(len, self.files.values()))

    def named(self) -> Iterator[tuple[str, bytes]]:
        """The pictures as named files."""
        for digest, data in self.files.items():
            yield f"{digest}.webp", data


def small_picture(image: Image.Image) -> bytes:
    image.thumbnail((MAX_SIDE, MAX_SIDE))  # makes pictures smaller, never larger
    exact = _webp(image, lossless=True)
    if len(exact) <= LOSSLESS_BYTES:
        return exact
    return min(exact, _webp(image, lossless=False), key=len)


def _webp(image: Image.Image, *, lossless: bool) -> bytes:
    buffer = io.BytesIO()
    # For lossless pictures, `quality` means effort. Higher methods take twice the time and save almost nothing.
    image.save(buffer, format="WEBP", lossless=lossless, quality=QUALITY, method=1)
    return buffer.getvalue()
