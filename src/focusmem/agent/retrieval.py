"""The seam: what finds trajectories for decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from focusmem.agent.decision import Decision
from focusmem.bank import Removal
from focusmem.schemas import Hit, StoredTrajectory


@dataclass(frozen=True)
class FoundTrajectory:
    hit: Hit
    stored: StoredTrajectory


@dataclass(frozen=True)
class Search:
    """What was found for one decision."""

    found: tuple[FoundTrajectory, ...] = ()
    """The best first."""
    num_removed: Mapping[str, int] = field(default_factory=dict)
    """How many trajectories the leakage guard removed, by key."""
    removed: Removal | None = None
    """The same with their names; None where nothing was searched."""


class Retriever(Protocol):
    @property
    def identity(self) -> str | None:
        """Equal for retrievers that find alike."""

    def find(self, decisions: Sequence[Decision], top: int) -> list[Search]:
        """At most `top` trajectories for each decision."""

    def load(self, trajectory_id: str) -> StoredTrajectory:
        """One that was found."""
