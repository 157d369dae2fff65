"""What decides: the seam between an episode and whatever answers it, be it a policy with memory or a script."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from focusmem.agent.live_episode import LiveEpisode
from focusmem.schemas import Observation, StepNotes, Task

Seen = tuple[LiveEpisode, Observation]
"""An episode, and what is on its screen now."""


@dataclass(frozen=True)
class Reply:
    text: str
    """The policy's own words; whether they are an action is found out later."""
    notes: StepNotes = field(default_factory=StepNotes)
    """What memory offered and what it cost, as far as the mind knows."""


class Mind(Protocol):
    """One that cannot answer raises: a WorldError ends the episodes that asked, anything else the run."""

    def ask(self, seen: Sequence[Seen]) -> list[Reply]:
        """A reply for each. Called from a thread that is not the browsers'."""

    def forget(self, task: Task) -> None:
        """An episode is over; what was kept for it is no longer needed."""
