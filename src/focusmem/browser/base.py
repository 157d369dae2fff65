"""The seam: what an agent needs of a browser, whatever draws the pages."""

from dataclasses import dataclass
from typing import Final, Protocol

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from focusmem.errors import ConfigError
from focusmem.schemas.action import AnyAction
from focusmem.schemas.observation import Observation
from focusmem.settings import checked_dataclass

SCROLL_SHARE: Final = 0.75
"""Of the view's height, so that a reader keeps a part of what was in view."""


@dataclass(frozen=True, slots=True)
class Performed:
    """What came of an action. One that could not be done is no exception: the policy is told why."""

    click_point: tuple[int, int] | None = None
    """Where a description was found, in pixels of the view before the action."""
    error: str | None = None
    """A sentence for the policy."""


class Browser(Protocol):
    """One episode after the other, each begun by `open`. A dead browser and a passed limit raise WorldError."""

    async def open(self, url: str) -> None:
        """Begin an episode at this address, with nothing left of an earlier one. BlockedError when the site refuses."""

    async def observe(self) -> Observation:
        """Look at what is in view."""

    async def perform(self, action: AnyAction) -> Performed:
        """Do it, and wait until the page has taken notice."""

    async def close(self) -> None:
        """Give everything back; allowed at any time, and more than once."""

    async def abandon(self) -> None:
        """The same for a browser that no longer obeys: its process ends as well, unless others use it too."""


@checked_dataclass(frozen=True, kw_only=True)
class BrowserLimits:
    """How much of a page is seen, and how long anything may take."""

    width: PositiveInt = 1280
    """Of the view, and so of every screenshot, in pixels."""
    height: PositiveInt = 720
    scroll_pixels: PositiveInt | None = None
    """How far one scroll goes; None takes a share of the height."""
    load_s: NonNegativeFloat = 5.0
    """A page that has arrived may go on loading for so long before it is looked at as it is."""
    settle_s: NonNegativeFloat = 0.5
    """Left to the page's own scripts after each action."""
    wait_s: NonNegativeFloat = 2.0
    """What the action `wait` waits."""
    action_s: PositiveFloat = 30.0
    """One action, one look, or opening the first page."""
    step_s: PositiveFloat = 60.0
    """A look and all that follows until the next look, without the time the policy takes to think."""
    episode_s: PositiveFloat = 1800.0
    """From `open` on, thinking included."""

    def __post_init__(self) -> None:
        waits = self.load_s + self.settle_s + self.wait_s
        if self.action_s <= waits:
            raise ConfigError(
                f"BrowserLimits.action_s is {self.action_s}; it has to exceed load_s + settle_s + wait_s, {waits:g}."
            )

    @property
    def scroll(self) -> int:
        """How far one scroll goes, in pixels."""
        return self.scroll_pixels or round(SCROLL_SHARE * self.height)
