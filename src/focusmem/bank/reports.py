"""What the bank tells about what it did."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """A trajectory that was left out, and why."""

    name: str
    """Its id, or its folder where the id could not be read."""
    reason: str


@dataclass(frozen=True, slots=True)
class Added:
    added: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    """Were in the bank already, with the same content."""
    failures: tuple[Failure, ...] = ()

    def __add__(self, other: "Added") -> "Added":
        return Added(self.added + other.added, self.known + other.known, self.failures + other.failures)


@dataclass(frozen=True, slots=True)
class Deleted:
    deleted: tuple[str, ...]
    missing: tuple[str, ...]
    """Asked for, but not in the bank."""


@dataclass(frozen=True, slots=True)
class Reembedded:
    num_trajectories: int
    """With a vector, when it was done."""
    num_embedded: int
    """In this call; the others had a vector of this embedder already."""
    failures: tuple[Failure, ...]
    """Trajectories that stay in the bank without a vector."""


@dataclass(frozen=True, slots=True)
class Exported:
    num_trajectories: int
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """What a list shows of a trajectory."""

    trajectory_id: str
    task_id: str
    instruction: str
    site: str
    outcome: str
    source: str
    num_steps: int
