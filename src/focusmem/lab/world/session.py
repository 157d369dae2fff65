"""A visit to the laboratory without a browser: fast, synchronous, and equal in behaviour to Chromium on the
HTML view.
"""

import re
from typing import Final, Protocol
from urllib.parse import quote, urlsplit

from PIL import Image

from focusmem.browser.addresses import check_address, full_address
from focusmem.browser.base import Performed
from focusmem.browser.grounding import find_control, find_field, not_found
from focusmem.browser.keys import read_key, unknown_key
from focusmem.lab.world import raster
from focusmem.lab.world.scene import SCROLL_PIXELS, VIEW_HEIGHT, Box, Control, Scene
from focusmem.schemas.action import AnyAction, Click, Goto, PressKey, Scroll, Type
from focusmem.schemas.observation import ControlInfo

HOST: Final = "lab.test"
ORIGIN: Final = f"http://{HOST}"
"""The world's address if no server is running."""

# Distances that Chromium scrolls on these keys, in a view of this height.
_PAGE, _LINE, _WHOLE = round(VIEW_HEIGHT * 0.875), 40, 10**9
_PAGE_KEYS: Final = {"PageDown": _PAGE, "PageUp": -_PAGE}
_SCROLL_KEYS: Final = {
    "Space": _PAGE,
    "Shift+Space": -_PAGE,
    "ArrowDown": _LINE,
    "ArrowUp": -_LINE,
    "End": _WHOLE,
    "Home": -_WHOLE,
}


class Pages(Protocol):
    """A world of scenes. An unknown path also has a scene; it says that the page does not exist."""

    def scene(self, path: str) -> Scene:
        """Equal paths give equal scenes."""


class PageSession:
    """The state of a visit: the page, the scroll position, and the texts of its fields."""

    path: str
    scene: Scene
    scroll: int
    _typed: dict[Control, str]
    _focused: Control | None

    def __init__(self, pages: Pages, path: str, *, scroll: int = 0, typed: tuple[tuple[str, str], ...] = ()) -> None:
        """`scroll` and `typed` restore the state of another visit."""
        self._pages = pages
        self._go(path)
        fields = {control.name: control for control in self.scene.controls if control.kind == "field"}
        for name, text in typed:
            self._put(fields[name], text)
        self._scroll_to(scroll)

    def typed(self) -> tuple[tuple[str, str], ...]:
        """The texts of the fields, by field name."""
        return tuple((field.name, text) for field, text in self._typed.items())

    def controls(self) -> tuple[ControlInfo, ...]:
        """The clickable elements in view, from top to bottom."""
        return tuple(info for info, _ in self._visible())

    def image(self) -> Image.Image:
        return raster.draw(self.scene, self.scroll, tuple(self._typed.items()), self._focused)

    def perform(self, action: AnyAction, point: tuple[int, int] | None = None) -> Performed:
        """If a point is given (a pixel of the view), a click or a typed text goes to this point, whatever the
        description is.
        """
        match action:
            case Click() if point is not None:
                return self._click_at(*point)
            case Click():
                return self._click(action.arguments.description)
            case Type() if point is not None:
                return self._type_at(action.arguments.text, *point)
            case Type():
                return self._type(action.arguments.text, action.arguments.description)
            case Scroll():
                down = action.arguments.direction == "down"
                self._scroll_to(self.scroll + (SCROLL_PIXELS if down else -SCROLL_PIXELS))
            case PressKey():
                return self._press(action.arguments.key)
            case Goto():
                return self._goto(action.arguments.url)
        return Performed()

    # Actions.

    def _click(self, description: str) -> Performed:
        visible = self._visible()
        found = find_control(description, [info for info, _ in visible])
        if found is None:
            return Performed(error=not_found(description))
        self._enter(_behind(found, visible))
        return Performed(found.centre)

    def _click_at(self, x: int, y: int) -> Performed:
        control = self._at(x, y)
        if control is None:
            self._focused = None
        else:
            self._enter(control)
        return Performed((x, y))

    def _enter(self, control: Control) -> None:
        """Performs a click on a control."""
        if control.kind == "field":
            self._focused = control
        else:
            self._go(control.href)

    def _at(self, x: int, y: int) -> Control | None:
        """The uppermost control at a pixel of the view."""
        above = reversed(self.scene.controls)
        return next((control for control in above if control.box.holds(x, y + self.scroll)), None)

    def _type(self, text: str, description: str | None) -> Performed:
        visible = self._visible()
        found = find_field(description, [info for info, _ in visible], has_focus=self._focused is not None)
        if isinstance(found, str):
            return Performed(error=found)
        field = self._focused if found is None else _behind(found, visible)
        assert field is not None
        self._write(field, text)
        return Performed(found.centre if found else None)

    def _type_at(self, text: str, x: int, y: int) -> Performed:
        field = self._at(x, y)
        self._click_at(x, y)
        if field is None or field.kind != "field":
            return Performed((x, y), "There is no field at this point.")
        self._write(field, text)
        return Performed((x, y))

    def _write(self, field: Control, text: str) -> None:
        self._put(field, re.sub(r"\r\n|\r|\n", " ", text))  # a field has one line
        self._reveal(field.box)

    def _press(self, text: str) -> Performed:
        key = read_key(text)
        if key is None:
            return Performed(error=unknown_key(text))
        if key in _PAGE_KEYS:
            self._scroll_to(self.scroll + _PAGE_KEYS[key])
        elif self._focused is not None:
            self._press_in_field(self._focused, key)
        elif key in _SCROLL_KEYS:
            self._scroll_to(self.scroll + _SCROLL_KEYS[key])
        return Performed()

    def _press_in_field(self, field: Control, key: str) -> None:
        """Keys work as in a browser, except those that move the caret: here it is always at the end."""
        text = self._typed.get(field, "")
        letter = " " if key == "Space" else key.removeprefix("Shift+")
        if key == "Enter":
            self._go(field.href.replace("{text}", quote(text, safe="")))
        elif key == "Tab":
            self._focused = None
        elif key == "Backspace":
            self._put(field, text[:-1])
        elif len(letter) == 1:
            self._put(field, text + letter)

    def _goto(self, text: str) -> Performed:
        url = full_address(text, ORIGIN + self.path)
        refusal = check_address(url, (HOST,))
        if refusal is None and url != "about:blank":
            split = urlsplit(url)
            self._go((split.path or "/") + (f"?{split.query}" if split.query else ""))
        elif refusal is None:
            refusal = "There is nothing at about:blank."
        return Performed(error=refusal)

    # State.

    def _go(self, path: str) -> None:
        # Written as a browser does: characters that are not allowed in an address are escaped, existing escapes stay.
        self.path = quote(path, safe="%/?&=+-._~!$'()*,;:@[]")
        self.scene = self._pages.scene(self.path)
        self.scroll = 0
        self._typed = {}
        self._focused = None

    def _put(self, field: Control, text: str) -> None:
        self._typed[field] = text
        self._focused = field

    def _scroll_to(self, top: int) -> None:
        self.scroll = min(max(0, top), self.scene.max_scroll)

    def _reveal(self, box: Box) -> None:
        """Scrolls as little as necessary to show the whole box."""
        if box.top < self.scroll:
            self._scroll_to(box.top)
        elif box.bottom > self.scroll + VIEW_HEIGHT:
            self._scroll_to(box.bottom - VIEW_HEIGHT)

    def _visible(self) -> list[tuple[ControlInfo, Control]]:
        """The controls in view whose middle is not covered by a later one."""
        found = []
        for index, control in enumerate(self.scene.controls):
            part = control.box.visible_from(self.scroll)
            if part is None:
                continue
            x, y = part.centre
            over = self.scene.controls[index + 1 :]
            if not any(other.box.holds(x, y + self.scroll) for other in over):
                found.append((_info(control, part), control))
        found.sort(key=lambda pair: (pair[0].top, pair[0].left))
        return found


def _info(control: Control, part: Box) -> ControlInfo:
    return ControlInfo(
        name=control.name, kind=control.kind, left=part.left, top=part.top, width=part.width, height=part.height
    )


def _behind(found: ControlInfo, visible: list[tuple[ControlInfo, Control]]) -> Control:
    return next(control for info, control in visible if info is found)
