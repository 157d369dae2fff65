"""An observation: the screenshot, and the page's own description of the controls in it."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from focusmem.schemas.record import NonEmptyText, Record
from focusmem.schemas.screenshot import MAX_PIXELS, Screenshot

ControlKind = Literal["link", "button", "field"]

_Place = Annotated[int, Field(ge=0, le=MAX_PIXELS)]
_Extent = Annotated[int, Field(ge=1, le=MAX_PIXELS)]


class ControlInfo(Record):
    """The visible part of an element that can be clicked or typed into."""

    name: NonEmptyText
    """The accessible name."""
    kind: ControlKind
    """Whether it leads to a page (link), does something (button) or takes text (field)."""
    left: _Place
    """The left edge, in pixels of the screenshot. The next three fields have the same unit."""
    top: _Place
    width: _Extent
    height: _Extent

    @property
    def centre(self) -> tuple[int, int]:
        """The point where it is clicked."""
        return self.left + self.width // 2, self.top + self.height // 2


@dataclass(frozen=True, slots=True)
class Observation:
    screenshot: Screenshot
    url: str
    title: str
    controls: tuple[ControlInfo, ...]
    """The controls in view, from top to bottom."""
    reward: float | None = None
    """The reward that the page has given so far; None if it gives none. Only suites with automatic rewards fill it."""
    is_over: bool = False
    """Whether the page itself has ended the task, so that further actions would change nothing."""
