"""A page as boxes, words and pictures with exact positions. Both views draw it.

Positions are whole pixels from the page's top left corner. Text is laid out word by word, so that every word has the
same position in both views even if a browser spaces letters slightly differently.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from PIL import ImageFont

VIEW_WIDTH, VIEW_HEIGHT = 448, 288
"""Size of a screenshot: 14 by 9 tokens of 32 pixels."""
SCROLL_PIXELS = 208
"""Distance of one scroll; a little less than the view, so that nothing is skipped."""

Colour = tuple[int, int, int]

# Ascent and descent of the font, in units of its size.
_ASCENT, _DESCENT = 1901 / 2048, 483 / 2048


@dataclass(frozen=True)
class Box:
    left: int
    top: int
    width: int
    height: int

    @property
    def right(self) -> int:
        return self.left + self.width

    @property
    def bottom(self) -> int:
        return self.top + self.height

    @property
    def centre(self) -> tuple[int, int]:
        return self.left + self.width // 2, self.top + self.height // 2

    def holds(self, x: int, y: int) -> bool:
        return self.left <= x < self.right and self.top <= y < self.bottom

    def moved(self, dx: int, dy: int) -> "Box":
        return Box(self.left + dx, self.top + dy, self.width, self.height)

    def visible_from(self, scroll: int) -> "Box | None":
        """The part of the box inside the view at a scroll position, in pixels of the view; None if there is none."""
        left, right = max(0, self.left), min(VIEW_WIDTH, self.right)
        top, bottom = max(0, self.top - scroll), min(VIEW_HEIGHT, self.bottom - scroll)
        return Box(left, top, right - left, bottom - top) if bottom > top and right > left else None


@dataclass(frozen=True)
class Font:
    size: int
    is_bold: bool = False

    def width(self, text: str) -> int:
        return _text_width(self, text)

    @cached_property
    def line_height(self) -> int:
        return round(self.size * 1.4)

    @cached_property
    def baseline(self) -> int:
        """The baseline of letters, from the top of their line."""
        return self.baseline_in(self.line_height)

    def baseline_in(self, height: int) -> int:
        """The baseline in a line of another height, rounded as browsers do, so that both views agree to the pixel."""
        ascent, descent = round(_ASCENT * self.size), round(_DESCENT * self.size)
        return (height - ascent - descent) // 2 + ascent

    @cached_property
    def space(self) -> int:
        return max(3, round(self.size * 0.32))


@dataclass(frozen=True)
class Rectangle:
    box: Box
    fill: Colour
    outline: Colour | None = None


@dataclass(frozen=True)
class Word:
    left: int
    top: int
    text: str
    font: Font
    colour: Colour

    def is_in_view(self, scroll: int) -> bool:
        """Whether the word's whole line is visible."""
        return scroll <= self.top and self.top + self.font.line_height <= scroll + VIEW_HEIGHT

    def is_readable(self, scroll: int) -> bool:
        """Whether the word's letters are visible; the space below them may be cut off."""
        return scroll <= self.top < scroll + VIEW_HEIGHT - self.font.size


@dataclass(frozen=True)
class Shape:
    """One figure of a picture, in the page's pixels."""

    kind: Literal["polygon", "ellipse"]
    points: tuple[tuple[int, int], ...]
    """Corners of a polygon; the two opposite corners of an ellipse's box."""
    fill: Colour

    def is_in_view(self, scroll: int) -> bool:
        """Whether the whole figure is visible."""
        return all(scroll <= y < scroll + VIEW_HEIGHT for _, y in self.points)


Drawn = Rectangle | Word | Shape


@dataclass(frozen=True)
class Control:
    """Something that can be clicked or typed into."""

    box: Box
    kind: Literal["link", "button", "field"]
    name: str
    """The accessible name."""
    href: str
    """The path that a click opens; for a field, the path that Enter opens, with the text in place of `{text}`."""

    def __post_init__(self) -> None:
        if not self.href.startswith("/") or self.href.startswith("//"):
            raise ValueError(f"The control {self.name!r} leads to {self.href!r}, which is not a path of the world.")


@dataclass(frozen=True)
class Scene:
    title: str
    height: int
    background: Colour
    drawn: tuple[Drawn, ...]
    """From back to front."""
    controls: tuple[Control, ...]
    """From back to front: a control that covers the middle of another one gets its clicks. All lie over `drawn`."""

    @property
    def max_scroll(self) -> int:
        return max(0, self.height - VIEW_HEIGHT)

    def words(self) -> list[Word]:
        """All words in drawing order."""
        return [item for item in self.drawn if isinstance(item, Word)]

    def text(self) -> str:
        """All words in drawing order; for tests and for the transcription task."""
        return " ".join(word.text for word in self.words())


FIELD_FONT = Font(13)
FIELD_PADDING = 6
FIELD_TEXT: Colour = (20, 20, 28)


def font_file(is_bold: bool) -> Path:
    """DejaVu Sans as shipped with matplotlib, so that every machine draws with the same letters."""
    spec = find_spec("matplotlib")
    assert spec is not None
    assert spec.origin is not None
    name = "DejaVuSans-Bold.ttf" if is_bold else "DejaVuSans.ttf"
    return Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf" / name


@lru_cache(maxsize=64)
def loaded_font(font: Font) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(font_file(font.is_bold)), font.size, layout_engine=ImageFont.Layout.BASIC)


@lru_cache(maxsize=100_000)
def _text_width(font: Font, text: str) -> int:
    return -int(-loaded_font(font).getlength(text) // 1)
