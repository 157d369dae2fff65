"""What a bank reports about its trajectories and about what was done to it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import Field

from focusmem.bank.leakage import Query
from focusmem.schemas import LeftOut, Outcome, Trajectory
from focusmem.schemas.record import Identifier, NonEmptyText, Record, Text


@dataclass(frozen=True, slots=True)
class Failure:
    """A trajectory that was left out, and why."""

    name: str
    """Its id, or its folder if the id could not be read."""
    reason: str


@dataclass(frozen=True, slots=True)
class Added:
    added: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    """The trajectories that the bank already held with the same content."""
    failures: tuple[Failure, ...] = ()
    num_skipped: int = 0
    """Number of trajectories that were left out because of their outcome, and of episodes without a step."""
    shortened: tuple[tuple[str, LeftOut], ...] = ()
    """Added trajectories that the embedder did not read whole, by id, and what it left out."""
    newly_trusted: tuple[str, ...] = ()
    """The trusted sources that a new bank took over from an export."""

    def __add__(self, other: "Added") -> "Added":
        return Added(
            self.added + other.added,
            self.known + other.known,
            self.failures + other.failures,
            self.num_skipped + other.num_skipped,
            self.shortened + other.shortened,
            self.newly_trusted + other.newly_trusted,
        )


@dataclass(frozen=True, slots=True)
class Deleted:
    deleted: tuple[str, ...]
    missing: tuple[str, ...]
    """The ids that were asked for but are not in the bank."""


@dataclass(frozen=True, slots=True)
class Reembedded:
    num_trajectories: int
    """Trajectories with a vector at the end."""
    num_embedded: int
    """Trajectories that were embedded in this call. The others already had a vector of this embedder."""
    failures: tuple[Failure, ...]
    """Trajectories that stay in the bank without a vector."""
    shortened: tuple[tuple[str, LeftOut], ...] = ()
    """Trajectories of this call that the embedder did not read whole, by id, and what it left out."""


@dataclass(frozen=True, slots=True)
class Exported:
    num_trajectories: int
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    num_trajectories: int
    failures: tuple[Failure, ...]
    """All damage; a trajectory may be listed twice, for its files and for its vector."""


class Entry(Record):
    """What a bank knows about a trajectory without opening its folder."""

    trajectory_id: Identifier
    task_id: NonEmptyText
    instruction: NonEmptyText
    site: Text
    outcome: Outcome
    source: NonEmptyText
    num_steps: Annotated[int, Field(ge=1)]
    instance: Text | None = None
    template: Text | None = None
    num_frames_left_out: Annotated[int, Field(ge=0)] = 0
    """Number of its screenshots that the embedder did not read."""
    num_characters_left_out: Annotated[int, Field(ge=0)] = 0
    """Number of characters, cut from the end of its text, that the embedder did not read."""

    @classmethod
    def of(cls, trajectory: Trajectory, left_out: LeftOut | None = None) -> Self:
        """`left_out` is what the embedder did not read; None if it read everything."""
        left_out = left_out or LeftOut()
        return cls(
            trajectory_id=trajectory.trajectory_id,
            task_id=trajectory.task_id,
            instruction=trajectory.instruction,
            site=trajectory.site,
            outcome=trajectory.outcome,
            source=trajectory.source,
            num_steps=len(trajectory.steps),
            instance=trajectory.annotations.instance,
            template=trajectory.annotations.template,
            num_frames_left_out=left_out.num_frames,
            num_characters_left_out=left_out.num_characters,
        )

    @property
    def left_out(self) -> LeftOut:
        return LeftOut(num_frames=self.num_frames_left_out, num_characters=self.num_characters_left_out)

    @property
    def query(self) -> Query:
        """The fields that the leakage guard compares."""
        return Query(task_id=self.task_id, instruction=self.instruction, instance=self.instance, template=self.template)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The size of a bank, the sources of its trajectories, and the embedder that made its vectors."""

    path: str
    embedder: str
    width: int
    num_trajectories: int
    num_steps: int
    num_without_vector: int
    is_exact: bool
    """Whether searches compare the query with every vector."""
    num_catalogue_names: int
    trusted_sources: tuple[str, ...]
    """Empty if the bank trusts no source."""
    num_by_site: dict[str, int]
    num_by_outcome: dict[str, int]
    num_by_source: dict[str, int]

    @classmethod
    def of(
        cls,
        entries: Sequence[Entry],
        *,
        path: str,
        embedder: str,
        width: int,
        num_without_vector: int = 0,
        is_exact: bool = True,
        num_catalogue_names: int,
        trusted_sources: tuple[str, ...] = (),
    ) -> Self:
        return cls(
            path=path,
            embedder=embedder,
            width=width,
            num_trajectories=len(entries),
            num_steps=sum(entry.num_steps for entry in entries),
            num_without_vector=num_without_vector,
            is_exact=is_exact,
            num_catalogue_names=num_catalogue_names,
            trusted_sources=trusted_sources,
            num_by_site=_counts(entry.site for entry in entries),
            num_by_outcome=_counts(entry.outcome for entry in entries),
            num_by_source=_counts(entry.source for entry in entries),
        )


def _counts(values: Iterable[str]) -> dict[str, int]:
    return dict(Counter(values).most_common())
