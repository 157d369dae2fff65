"""The seam: a grounder finds the point in the view that a description means."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from focusmem.errors import GroundingError
from focusmem.schemas.observation import ControlInfo
from focusmem.schemas.screenshot import Screenshot

Space = Literal["pixels", "per_mille"]
"""The unit of a point's numbers: pixels of the view, or thousandths of its width and height."""

MARGIN: Final = 0.05
"""A point may lie outside the view by this share, because models overshoot edges. A point further out is an error;
usually its space is wrong (pixels taken for thousandths).
"""


@dataclass(frozen=True, slots=True)
class Point:
    """A place, counted from the top left corner, in the given space."""

    x: float
    y: float
    space: Space

    def pixel(self, width: int, height: int) -> tuple[int, int]:
        """The pixel that holds the point in a view of this size; a point just outside is moved to the edge."""
        return self._along(self.x, width), self._along(self.y, height)

    def _along(self, value: float, size: int) -> int:
        place = value if self.space == "pixels" else value * size / 1000
        if not -MARGIN * size <= place <= (1 + MARGIN) * size:  # also false for NaN
            raise GroundingError(
                f"The point ({self.x:g}, {self.y:g}) in {self.space.replace('_', ' ')} is far outside of the view."
            )
        return min(max(math.floor(place), 0), size - 1)


class View(Protocol):
    """The information a grounder may use. Each part is computed only on request."""

    async def controls(self) -> Sequence[ControlInfo]:
        """The controls in view, according to the page."""

    async def screenshot(self) -> Screenshot:
        """The pixels of the view."""


class Grounder(Protocol):
    async def find(self, description: str, view: View, *, is_field: bool = False) -> Point | str:
        """The element's place, or a sentence for the policy that says why there is none.

        With `is_field`, text will be typed into the element. A grounder that fails raises GroundingError.
        """
