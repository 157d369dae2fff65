"""The seam of grounding: from the policy's words to a point in the view, whatever finds it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from focusmem.errors import GroundingError
from focusmem.schemas.observation import ControlInfo
from focusmem.schemas.screenshot import Screenshot

Space = Literal["pixels", "per_mille"]
"""What a point's numbers count: pixels of the view, or thousandths of its width and height."""

MARGIN: Final = 0.05
"""A point may lie outside by this share of the view: models overshoot edges. One further out is a mistake, most
likely of the space (pixels taken for thousandths)."""


@dataclass(frozen=True, slots=True)
class Point:
    """A place, counted from the top left corner. Its space travels with it, so that nobody can mix the two up."""

    x: float
    y: float
    space: Space

    def pixel(self, width: int, height: int) -> tuple[int, int]:
        """The pixel of a view of this size that holds the point; one a little outside is moved to the edge."""
        return self._along(self.x, width), self._along(self.y, height)

    def _along(self, value: float, size: int) -> int:
        place = value if self.space == "pixels" else value * size / 1000
        if not -MARGIN * size <= place <= (1 + MARGIN) * size:  # also where it is not a number
            raise GroundingError(
                f"The point ({self.x:g}, {self.y:g}) in {self.space.replace('_', ' ')} is far outside of the view."
            )
        return min(max(math.floor(place), 0), size - 1)


class View(Protocol):
    """What a grounder may look at; whatever it does not ask for is not made."""

    async def controls(self) -> Sequence[ControlInfo]:
        """What the page itself says is in view."""

    async def screenshot(self) -> Screenshot:
        """The pixels of the view."""


class Grounder(Protocol):
    async def find(self, description: str, view: View, *, is_field: bool = False) -> Point | str:
        """Where the element described is, or a sentence for the policy on why there is none.

        `is_field` says that it is to be typed into. A grounder that cannot do its work raises GroundingError.
        """
