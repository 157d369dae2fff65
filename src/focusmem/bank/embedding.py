"""Embeds many trajectories and reports those that cannot be read or embedded."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from focusmem.bank.checksums import are_unit
from focusmem.bank.embedder import Embedder
from focusmem.bank.reports import Failure
from focusmem.bank.sketches import Vectors
from focusmem.errors import UserError
from focusmem.schemas import StoredTrajectory, load_trajectory

_BATCH_SIZE = 16

ItemT = TypeVar("ItemT")


def in_batches(items: Sequence[ItemT]) -> list[Sequence[ItemT]]:
    """Splits items into groups that are read and written together. All screenshots of a group are in memory at the same
    time.
    """
    return [items[start : start + _BATCH_SIZE] for start in range(0, len(items), _BATCH_SIZE)]


def load_each(
    folders: Iterable[Path], load: Callable[[Path], StoredTrajectory | None] = load_trajectory
) -> tuple[list[StoredTrajectory], tuple[Failure, ...]]:
    """The trajectories that can be read, and the failures. Folders for which `load` returns None are left out."""
    items, failures = [], []
    for folder in folders:
        try:
            stored = load(folder)
        except UserError as error:
            failures.append(Failure(str(folder), str(error)))
        else:
            items += [] if stored is None else [stored]
    return items, tuple(failures)


def embed_each(
    items: Sequence[StoredTrajectory], embedder: Embedder
) -> tuple[list[StoredTrajectory], Vectors, tuple[Failure, ...]]:
    """The items that were embedded, their vectors, and the failures. After a failure each item is tried alone."""
    nothing = np.empty((0, embedder.width), dtype=np.float32)
    if not items:
        return [], nothing, ()
    try:
        return _only_sound(items, embedder.embed_trajectories(items))
    except UserError as error:
        if len(items) == 1:
            return [], nothing, (Failure(items[0].trajectory.trajectory_id, str(error)),)
    parts = [embed_each([item], embedder) for item in items]
    return (
        [item for part in parts for item in part[0]],
        np.concatenate([part[1] for part in parts]),
        tuple(failure for part in parts for failure in part[2]),
    )


def _only_sound(
    items: Sequence[StoredTrajectory], vectors_ND: Vectors
) -> tuple[list[StoredTrajectory], Vectors, tuple[Failure, ...]]:
    is_sound_N = are_unit(vectors_ND)
    reason = "The embedder gave it a vector that is not of length one, or not of numbers."
    failures = [
        Failure(item.trajectory.trajectory_id, reason)
        for item, is_sound in zip(items, is_sound_N, strict=True)
        if not is_sound
    ]
    kept = [item for item, is_sound in zip(items, is_sound_N, strict=True) if is_sound]
    return kept, vectors_ND[is_sound_N], tuple(failures)
