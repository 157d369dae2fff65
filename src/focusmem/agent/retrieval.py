"""The seam: a retriever finds trajectories for decisions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from focusmem.agent.decision import Decision
from focusmem.bank.leakage import Removal
from focusmem.schemas import Hit, LeftOut, StoredTrajectory


@dataclass(frozen=True)
class FoundTrajectory:
    hit: Hit
    stored: StoredTrajectory


@dataclass(frozen=True)
class Search:
    """What was found for one decision."""

    found: tuple[FoundTrajectory, ...] = ()
    """The best first."""
    removed: Removal | None = None
    """What the leakage guard removed before the search; None if nothing was searched."""
    left_out: LeftOut | None = None
    """The part of the decision that did not fit into the query; None if everything fitted."""

    @property
    def num_removed(self) -> dict[str, int]:
        """How many trajectories the leakage guard removed, for each key that matched any."""
        return {} if self.removed is None else {str(key): num for key, num in self.removed.num_by_key.items() if num}


class Retriever(Protocol):
    @property
    def identity(self) -> str | None:
        """Names the weights that decide which trajectories are found; None if there are no weights."""

    def find(self, decisions: Sequence[Decision], top: int, num_recent: int) -> list[Search]:
        """At most `top` trajectories for each decision, of which the prompt shows the `num_recent` latest events."""

    def load(self, trajectory_id: str) -> StoredTrajectory:
        """A trajectory that was found."""
