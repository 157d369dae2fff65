"""The experts' trajectories of a split with their vectors, searched exactly: a bank that fits in memory.

The same guard and the same ranking as a bank on disk, for machines that have no vector store.
"""

import io
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from focusmem.bank.embedder import Embedder, Moment
from focusmem.bank.index import ExactIndex
from focusmem.bank.leakage import KeyColumns, LeakageGuard, Query
from focusmem.bank.retrieval import Hits, search_index
from focusmem.errors import ConfigError, StorageError
from focusmem.files import sha256_hex, write_whole
from focusmem.intervals import grouped_interval
from focusmem.lab.memory.embedder import moment_of
from focusmem.lab.world.experts import as_trajectory, expert_rollouts
from focusmem.lab.world.rollout import Rollout, RolloutStep, roll_out, screenshot_of
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.tasks import LabTask
from focusmem.lab.world.ways import needed_way, shown_ways
from focusmem.lab.world.world import World
from focusmem.progress import Progress
from focusmem.schemas import Screenshot, StoredTrajectory, Task, Trajectory

_BATCH = 64


class Retrieval(Protocol):
    """Where the laboratory's minds find trajectories: a split's in memory, or a bank on disk."""

    @property
    def embedder(self) -> Embedder:
        """What makes vectors of moments."""

    def find(self, moments: Sequence[Moment], tasks: Sequence[Task], *, top: int = 3) -> list[Hits]:
        """For each moment the nearest trajectories that share no key with its task."""

    def load(self, trajectory_id: str) -> StoredTrajectory:
        """One that was found."""


class LabBank:
    """Trajectories of a split's sites, in memory. `picture` draws what a step saw; each is drawn when it is needed."""

    def __init__(
        self,
        world: World,
        split: str,
        *,
        num_sites: int | None = None,
        picture: Callable[[RolloutStep], Screenshot] | None = None,
        num_workers: int = 0,
        rollouts: Sequence[Rollout] = (),
    ) -> None:
        """`rollouts` are the split's, where somebody has rolled them out already."""
        self.world = world
        self.rollouts: Sequence[Rollout] = rollouts or list(
            expert_rollouts(world, split, num_sites=num_sites, num_workers=num_workers)
        )
        if not self.rollouts:
            raise ConfigError(f"The bank of split '{split}' is empty; give it more sites.")
        self._draw = picture or (lambda step: screenshot_of(world, step))
        self._stored: dict[int, StoredTrajectory] = {}
        self.place_of = {one.task.task.task_id: place for place, one in enumerate(self.rollouts)}
        self._places: dict[str, list[int]] = {}
        for place, rollout in enumerate(self.rollouts):
            self._places.setdefault(rollout.task.site_id, []).append(place)

    @property
    def trajectories(self) -> list[StoredTrajectory]:
        """All of them, with their pictures."""
        return [self.stored(place) for place in range(len(self.rollouts))]

    def rollout(self, place: int) -> Rollout:
        return self.rollouts[place]

    def stored(self, place: int) -> StoredTrajectory:
        if place not in self._stored:
            self._stored[place] = as_trajectory(self.rollouts[place], self._draw)
        return self._stored[place]

    def trajectory(self, place: int) -> Trajectory:
        return self.stored(place).trajectory

    def places_of(self, site_id: str) -> Sequence[int]:
        """Where a site's trajectories stand; there may be none."""
        return self._places.get(site_id, ())

    def any_place(self, rng: random.Random) -> int:
        return rng.randrange(len(self.rollouts))


@dataclass(frozen=True)
class LabRecall:
    """A bank with the vectors that an embedder gave its trajectories."""

    bank: LabBank
    embedder: Embedder
    index: ExactIndex
    columns: KeyColumns
    guard: LeakageGuard

    @classmethod
    def build(cls, bank: LabBank, embedder: Embedder, *, kept: Path | None = None) -> "LabRecall":
        """With `kept`, a folder, vectors that were made once are read there, and new ones left there."""
        path = None if kept is None else kept / f"{_digest(bank, embedder)}.npy"
        vectors_ND = None if path is None else _read_vectors(path, len(bank.rollouts))
        if vectors_ND is None:
            vectors_ND = _embed(bank, embedder)
            if path is not None:
                _keep_vectors(path, vectors_ND)
        return cls.of(bank, embedder, vectors_ND)

    @classmethod
    def of(cls, bank: LabBank, embedder: Embedder, vectors_ND: npt.NDArray[np.float32]) -> "LabRecall":
        """A bank whose vectors are known already, in the order of its trajectories."""
        guard = LeakageGuard()
        columns = KeyColumns.of([guard.keys(Query.of(one.task.task)) for one in bank.rollouts])
        return cls(bank, embedder, ExactIndex(vectors_ND), columns, guard)

    def find(self, moments: Sequence[Moment], tasks: Sequence[Task], *, top: int = 3) -> list[Hits]:
        """The nearest trajectories that share no key with the task at hand."""
        return self.nearest(self.embedder.embed_queries(moments), tasks, top=top)

    def load(self, trajectory_id: str) -> StoredTrajectory:
        return self.bank.stored(self.bank.place_of[trajectory_id])

    def nearest(self, vectors_QD: npt.NDArray[np.float32], tasks: Sequence[Task], *, top: int = 3) -> list[Hits]:
        """The same for moments whose vectors are known already."""
        names = np.array(list(self.bank.place_of), dtype=object)
        return [
            search_index(self.index, names, self.columns, vector_D, self.guard.keys(Query.of(task)), top)
            for vector_D, task in zip(vectors_QD, tasks, strict=True)
        ]


def _embed(bank: LabBank, embedder: Embedder) -> npt.NDArray[np.float32]:
    vectors = []
    with Progress("embed", total=len(bank.rollouts)) as line:
        for start in range(0, len(bank.rollouts), _BATCH):
            places = range(start, min(start + _BATCH, len(bank.rollouts)))
            vectors.append(embedder.embed_trajectories([bank.stored(place) for place in places]))
            line.step(len(places))
    return np.concatenate(vectors)


def _digest(bank: LabBank, embedder: Embedder) -> str:
    """Equal for equal vectors: who embeds, what was done, and, by an example, how pages are drawn."""
    steps = [(one.task.task.instruction, one.steps) for one in bank.rollouts]
    drawn = bank.trajectory(0).model_dump_json()
    return sha256_hex(repr((embedder.identity, steps, drawn)).encode())


def _read_vectors(path: Path, num: int) -> npt.NDArray[np.float32] | None:
    """None where there are none, or where what is there cannot be read: they are then made again."""
    try:
        vectors_ND: npt.NDArray[np.float32] = np.load(path)
    except (OSError, ValueError, EOFError):
        return None
    return vectors_ND if len(vectors_ND) == num else None


def _keep_vectors(path: Path, vectors_ND: npt.NDArray[np.float32]) -> None:
    """Where they cannot be kept, that is said: it costs the next run a few minutes, not this one its life."""
    data = io.BytesIO()
    np.save(data, vectors_ND)
    try:
        write_whole(path, data.getvalue())
    except StorageError as error:
        sys.stderr.write(f"The bank's vectors are not kept for next time: {error}\n")


def recall_rate(recall: LabRecall, tasks: Sequence[LabTask], *, top: int = 3) -> dict[str, Any]:
    """How often a trajectory that shows what the task needs is among the first, where the bank holds one.

    Asked at every step of an expert's episode; a task counts at each of its steps.
    """
    world, bank = recall.bank.world, recall.bank
    shown = [shown_ways(world, one.steps) for one in bank.rollouts]
    right_site = 0
    right_way: list[list[bool]] = []
    with Progress("recall", total=len(tasks)) as line:
        for task in tasks:
            rollout = roll_out(world, task, Solver.expert(world, task))
            way = needed_way(world, task)
            keys = recall.guard.keys(Query.of(task.task))
            is_free = ~np.logical_or.reduce(list(recall.columns.matches(keys).values()))
            own = {
                place
                for place, one in enumerate(bank.rollouts)
                if one.task.site_id == task.site_id and way in shown[place] and is_free[place]
            }
            line.step()
            if not own:
                continue
            right_way.append([])
            moments = [
                moment_of(rollout, at, lambda step: screenshot_of(world, step)) for at in range(len(rollout.steps))
            ]
            for hits in recall.find(moments, [task.task] * len(moments), top=top):
                places = {bank.place_of[hit.trajectory_id] for hit in hits.hits}
                right_way[-1].append(bool(places & own))
                right_site += any(bank.rollouts[place].task.site_id == task.site_id for place in places)
    num_steps = sum(map(len, right_way))
    return {
        "top": top,
        "num_tasks": len(tasks),
        "num_tasks_with_one": len(right_way),
        "num_moments": num_steps,
        "right_way_rate": sum(map(sum, right_way)) / max(1, num_steps),
        "right_way_interval": list(grouped_interval(right_way)),
        "right_site_rate": right_site / max(1, num_steps),
    }
