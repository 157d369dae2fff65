"""Puts words, boxes and controls on a page from top to bottom."""

from collections.abc import Iterable, Iterator

from focusmem.lab.world.scene import (
    VIEW_HEIGHT,
    VIEW_WIDTH,
    Box,
    Colour,
    Control,
    Drawn,
    Font,
    Rectangle,
    Scene,
    Shape,
    Word,
)

_MARGIN = 14
_BUTTON_FONT, _SMALL_BUTTON_FONT = Font(14, True), Font(12, True)


class PageBuilder:
    """`top` is the position of the next element."""

    def __init__(self, background: Colour) -> None:
        self.top = 0
        self._background = background
        self._drawn: list[Drawn] = []
        self._controls: list[Control] = []

    def skip(self, pixels: int) -> None:
        self.top += pixels

    def rectangle(self, box: Box, fill: Colour, outline: Colour | None = None) -> None:
        self._drawn.append(Rectangle(box, fill, outline))

    def shapes(self, shapes: Iterable[Shape]) -> None:
        self._drawn.extend(shapes)

    def text(self, text: str, font: Font, colour: Colour, *, gap: int = 4) -> None:
        """A paragraph over the width of the page."""
        self.top = self._wrapped(_MARGIN, self.top, text, font, colour, VIEW_WIDTH - 2 * _MARGIN) + gap

    def text_at(self, left: int, top: int, text: str, font: Font, colour: Colour) -> int:
        """Puts one line of text at any position. Returns the position of its right end."""
        for word in text.split():
            self._drawn.append(Word(left, top, word, font, colour))
            left += font.width(word) + font.space
        return left - font.space

    def link(self, text: str, href: str, font: Font, colour: Colour, *, gap: int = 4) -> None:
        self.link_at(_MARGIN, self.top, text, href, font, colour)
        self.top += font.line_height + gap

    def link_at(self, left: int, top: int, text: str, href: str, font: Font, colour: Colour) -> None:
        right = self.text_at(left, top, text, font, colour)
        self.rectangle(Box(left, top + font.line_height - 2, right - left, 1), colour)
        self._controls.append(Control(Box(left, top, right - left, font.line_height), "link", text, href))

    def button(
        self,
        left: int,
        top: int,
        text: str,
        href: str,
        fill: Colour,
        *,
        is_small: bool = False,
        width: int | None = None,
    ) -> int:
        """Returns the button's right edge."""
        font = _SMALL_BUTTON_FONT if is_small else _BUTTON_FONT
        words = sum(font.width(word) for word in text.split()) + font.space * (len(text.split()) - 1)
        box = Box(left, top, width or words + 20, font.line_height + (4 if is_small else 6))
        self.rectangle(box, fill)
        colour = (255, 255, 255) if sum(fill) < 480 else (24, 24, 30)
        self.text_at(left + (box.width - words) // 2, top + (2 if is_small else 3), text, font, colour)
        self._controls.append(Control(box, "button", text, href))
        return box.right

    def field(self, box: Box, name: str, href: str) -> None:
        self._controls.append(Control(box, "field", name, href))

    def control_only(self, box: Box, name: str, href: str) -> None:
        """A link over elements that are drawn already."""
        self._controls.append(Control(box, "link", name, href))

    def finish(self, title: str, *, height: int | None = None) -> Scene:
        return Scene(
            title=title,
            height=height or max(VIEW_HEIGHT, self.top + _MARGIN),
            background=self._background,
            drawn=tuple(self._drawn),
            controls=tuple(self._controls),
        )

    def _wrapped(self, left: int, top: int, text: str, font: Font, colour: Colour, width: int) -> int:
        x = left
        for word in _that_fit(text.split(), font, width):
            size = font.width(word)
            if x > left and x + size > left + width:
                x, top = left, top + font.line_height
            self._drawn.append(Word(x, top, word, font, colour))
            x += size + font.space
        return top + font.line_height


def _that_fit(words: Iterable[str], font: Font, width: int) -> Iterator[str]:
    """Cuts words that are wider than a line; a visitor may type such words."""
    for word in words:
        while font.width(word) > width:
            num = next(num for num in range(len(word), 0, -1) if num == 1 or font.width(word[:num]) <= width)
            yield word[:num]
            word = word[num:]
        yield word
