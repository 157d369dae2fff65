"""The seam: what an agent needs from a browser, independent of how pages are drawn."""

from dataclasses import dataclass
from typing import Annotated, Final, Protocol

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from focusmem.errors import ConfigError
from focusmem.schemas.action import AnyAction
from focusmem.schemas.observation import Observation
from focusmem.settings import checked_dataclass

SCROLL_SHARE: Final = 0.75
"""Share of the view's height that one scroll moves, so that a part of the previous view stays visible."""


@dataclass(frozen=True, slots=True)
class Performed:
    """The result of an action. An action that could not be performed raises nothing: `error` tells the policy why."""

    click_point: tuple[int, int] | None = None
    """Where a description was found, in pixels of the view before the action."""
    error: str | None = None
    """A sentence for the policy."""


class Browser(Protocol):
    """Serves one episode after another; `open` begins each. A dead browser or an exceeded time limit
    raises WorldError.
    """

    async def open(self, url: str) -> None:
        """Begin an episode at this address, with no state of an earlier episode. Raises BlockedError if the site
        refuses.
        """

    async def observe(self) -> Observation:
        """Return the screenshot, the address and the controls in view."""

    async def perform(self, action: AnyAction, point: tuple[int, int] | None = None) -> Performed:
        """Perform an action, and wait until the page has reacted. With a point, a pixel of the view, the action takes
        place there, and its description is not looked up.
        """

    async def close(self) -> None:
        """Release all resources. Allowed at any time and more than once."""

    async def abandon(self) -> None:
        """Close a browser that does not respond: its process is ended as well, unless other episodes use it."""


@checked_dataclass(frozen=True, kw_only=True)
class BrowserLimits:
    """The size of the view, and time limits."""

    width: PositiveInt = 1280
    """Width of the view, in the page's pixels."""
    height: PositiveInt = 720
    scale: Annotated[float, Field(ge=0.5, le=4)] = 1.0
    """Screenshot pixels for each pixel of the page, in width and in height. A larger scale shows small pages in more
    detail.
    """
    scroll_pixels: PositiveInt | None = None
    """Distance of one scroll, in pixels. None uses a share of the height."""
    load_s: NonNegativeFloat = 5.0
    """How long a page may continue to load after its content has arrived. After that it is observed in its current
    state."""
    settle_s: NonNegativeFloat = 0.5
    """Time for the page's scripts after each action."""
    wait_s: NonNegativeFloat = 2.0
    """Duration of the action `wait`."""
    action_s: PositiveFloat = 30.0
    """Limit of one action, of one observation, or of opening the first page."""
    step_s: PositiveFloat = 60.0
    """Limit from one observation to the next, without the policy's time."""
    episode_s: PositiveFloat = 1800.0
    """Limit from `open` on, the policy's time included."""

    def __post_init__(self) -> None:
        waits = self.load_s + self.settle_s + self.wait_s
        if self.action_s <= waits:
            raise ConfigError(
                f"BrowserLimits.action_s is {self.action_s}; it has to exceed load_s + settle_s + wait_s, {waits:g}."
            )

    @property
    def screenshot_size(self) -> tuple[int, int]:
        """Width and height of every screenshot. Click points and controls are given in its pixels."""
        return int(self.width * self.scale), int(self.height * self.scale)

    @property
    def scroll(self) -> int:
        """How far one scroll goes, in pixels."""
        return self.scroll_pixels or round(SCROLL_SHARE * self.height)
