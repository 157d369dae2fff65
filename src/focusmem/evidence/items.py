"""From trajectories and expired steps to evidence items. Memory shows episodic items first, then working items."""

from collections.abc import Iterable, Sequence

from focusmem.errors import ConfigError
from focusmem.schemas import EvidenceItem, Step, Trajectory

CHUNK_EVENTS = 4
"""W in the paper: the default number of events per working chunk."""


def episodic_items(hits: Iterable[tuple[Trajectory, float]]) -> tuple[EvidenceItem, ...]:
    """One item for each trajectory that was found, the best first, with the retriever's similarity."""
    return tuple(
        EvidenceItem(
            item_id=f"episodic {rank}",
            role="episodic",
            instruction=trajectory.instruction,
            steps=trajectory.steps,
            rank=rank,
            score=score,
            trajectory_id=trajectory.trajectory_id,
            source=trajectory.source,
        )
        for rank, (trajectory, score) in enumerate(hits)
    )


def working_items(
    steps: Sequence[Step], *, instruction: str, num_recent: int, chunk_events: int = CHUNK_EVENTS
) -> tuple[EvidenceItem, ...]:
    """The steps that have left the prompt, the earliest first.

    The borders of chunks are counted from the start of the episode. A full chunk therefore never changes; only the last
    chunk grows.
    """
    if chunk_events < 1 or num_recent < 0:
        raise ConfigError(
            f"Working memory has chunks of {chunk_events} events behind {num_recent} recent ones; a chunk needs at "
            "least one event, and the number of recent ones cannot be negative."
        )
    num_expired = max(0, len(steps) - num_recent)
    return tuple(
        EvidenceItem(
            item_id=f"working {rank}",
            role="working",
            instruction=instruction,
            steps=tuple(steps[start : min(start + chunk_events, num_expired)]),
            rank=rank,
        )
        for rank, start in enumerate(range(0, num_expired, chunk_events))
    )
