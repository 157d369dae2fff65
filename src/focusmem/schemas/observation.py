"""What an agent gets when it looks: the pixels, and what the page itself says about them."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from focusmem.schemas.record import NonEmptyText, Record
from focusmem.schemas.screenshot import MAX_PIXELS, Screenshot

ControlKind = Literal["link", "button", "field"]

_Place = Annotated[int, Field(ge=0, le=MAX_PIXELS)]
_Extent = Annotated[int, Field(ge=1, le=MAX_PIXELS)]


class ControlInfo(Record):
    """Something in view that can be clicked or typed into; the part of it that can be seen."""

    name: NonEmptyText
    """What a screen reader would call it."""
    kind: ControlKind
    """What it is for: to go somewhere, to do something, to be typed into."""
    left: _Place
    """In pixels of the screenshot, like the three that follow."""
    top: _Place
    width: _Extent
    height: _Extent

    @property
    def centre(self) -> tuple[int, int]:
        """Where a click on it goes."""
        return self.left + self.width // 2, self.top + self.height // 2


@dataclass(frozen=True, slots=True)
class Observation:
    screenshot: Screenshot
    url: str
    title: str
    controls: tuple[ControlInfo, ...]
    """Only what is in view, from top to bottom."""
