"""A watcher, such as a live view, follows the episodes of a run while they run."""

from focusmem.agent.live_episode import LiveEpisode
from focusmem.schemas import Verdict


class Watcher:
    """A watcher that does nothing, as a base for others. Methods are called in the browsers' event loop, so they must
    return quickly.
    """

    def began(self, episode: LiveEpisode) -> None:
        """An attempt starts, for the first time or after it broke."""

    def replied(self, episode: LiveEpisode, text: str) -> None:
        """The policy has answered; the step is not yet part of the episode."""

    def broke(self, episode: LiveEpisode) -> None:
        """The world broke, and the attempt will be started again."""

    def ended(self, episode: LiveEpisode, verdict: Verdict) -> None:
        """The attempt is over and judged."""
