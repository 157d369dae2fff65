"""The experts' trajectories of a split with their vectors: a bank in memory, for machines without a vector store."""

import io
import random
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from focusmem.bank.embedder import Embedder
from focusmem.bank.forms import Moment
from focusmem.bank.leakage import Query, allowed
from focusmem.bank.numpy_bank import NumpyBank
from focusmem.bank.reports import Entry
from focusmem.errors import ConfigError, StorageError
from focusmem.files import sha256_hex, write_whole
from focusmem.intervals import grouped_interval
from focusmem.lab.memory.embedder import moment_of
from focusmem.lab.policy.drawing import placeholder
from focusmem.lab.world.experts import as_trajectory, expert_rollouts
from focusmem.lab.world.rollout import Rollout, RolloutStep, roll_out, screenshot_of
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.tasks import LabTask
from focusmem.lab.world.ways import needed_way, shown_ways
from focusmem.lab.world.world import World
from focusmem.progress import Progress
from focusmem.schemas import Screenshot, StoredTrajectory, Trajectory

_BATCH = 64


class LabBank:
    """The experts' episodes on a split's sites. A trajectory with its pictures is made when it is first needed."""

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
        """`picture` draws the screenshot of a step. `rollouts` holds the split's rollouts, if they exist already."""
        self.world = world
        self.rollouts: Sequence[Rollout] = rollouts or list(
            expert_rollouts(world, split, num_sites=num_sites, num_workers=num_workers)
        )
        if not self.rollouts:
            raise ConfigError(f"The bank of split '{split}' is empty; give it more sites.")
        self._draw = picture or (lambda step: screenshot_of(world, step))
        self._stored: dict[int, StoredTrajectory] = {}
        self.place_of = {one.task.name: place for place, one in enumerate(self.rollouts)}
        """The place of each trajectory, by its id."""
        self._places: dict[str, list[int]] = {}
        for place, rollout in enumerate(self.rollouts):
            self._places.setdefault(rollout.task.site_id, []).append(place)

    @property
    def trajectories(self) -> list[StoredTrajectory]:
        """All trajectories, with their pictures."""
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
        """The places of a site's trajectories; there may be none."""
        return self._places.get(site_id, ())

    def any_place(self, rng: random.Random) -> int:
        return rng.randrange(len(self.rollouts))


def searchable(bank: LabBank, embedder: Embedder, *, kept: Path | None = None) -> NumpyBank:
    """The bank with vectors of its trajectories. With `kept`, a folder, vectors are stored there and reused."""
    path = None if kept is None else kept / f"{_digest(bank, embedder)}.npy"
    vectors_ND = None if path is None else _read_vectors(path, len(bank.rollouts))
    if vectors_ND is None:
        vectors_ND = _embed(bank, embedder)
        if path is not None:
            _keep_vectors(path, vectors_ND)
    return with_vectors(bank, vectors_ND, embedder)


def with_vectors(bank: LabBank, vectors_ND: npt.NDArray[np.float32], embedder: Embedder) -> NumpyBank:
    """The bank with known vectors, a row for each rollout; `embedder` made them."""

    def load(trajectory_id: str) -> StoredTrajectory:
        if trajectory_id not in bank.place_of:
            raise StorageError(f"The laboratory's experts left no trajectory {trajectory_id!r}.")
        return bank.stored(bank.place_of[trajectory_id])

    items = (as_trajectory(rollout, placeholder) for rollout in bank.rollouts)
    entries = [Entry.of(item.trajectory, embedder.left_out_of_trajectory(item)) for item in items]
    return NumpyBank(
        entries,
        vectors_ND,
        load,
        embedder=embedder.identity,
        name="of the laboratory's experts",
        trusted_sources=sorted({entry.source for entry in entries}),
    )


def _embed(bank: LabBank, embedder: Embedder) -> npt.NDArray[np.float32]:
    vectors = []
    with Progress("embed", total=len(bank.rollouts)) as line:
        for start in range(0, len(bank.rollouts), _BATCH):
            places = range(start, min(start + _BATCH, len(bank.rollouts)))
            vectors.append(embedder.embed_trajectories([bank.stored(place) for place in places]))
            line.step(len(places))
    return np.concatenate(vectors)


def _digest(bank: LabBank, embedder: Embedder) -> str:
    """Equal for equal vectors. One trajectory stands for how pages are drawn."""
    steps = [(one.task.task.instruction, one.steps) for one in bank.rollouts]
    drawn = bank.trajectory(0).model_dump_json()
    return sha256_hex(repr((embedder.identity, steps, drawn)).encode())


def _read_vectors(path: Path, num: int) -> npt.NDArray[np.float32] | None:
    """The stored vectors. None if there are none or if they are damaged; they are then made again."""
    try:
        vectors_ND: npt.NDArray[np.float32] = np.load(path)
    except (OSError, ValueError, EOFError):
        return None
    return vectors_ND if len(vectors_ND) == num else None


def _keep_vectors(path: Path, vectors_ND: npt.NDArray[np.float32]) -> None:
    """Stores vectors. A failure is reported and does not stop the run; the next run makes the vectors again."""
    data = io.BytesIO()
    np.save(data, vectors_ND)
    try:
        write_whole(path, data.getvalue())
    except StorageError as error:
        sys.stderr.write(f"The bank's vectors are not kept for next time: {error}\n")


def recall_rate(
    bank: LabBank, recall: NumpyBank, embedder: Embedder, tasks: Sequence[LabTask], *, top: int = 3
) -> dict[str, Any]:
    """How often one of the `top` hits shows what the task needs, where the bank holds such a trajectory.

    `recall` is the bank with vectors. It is searched at every step of an expert's episode; a task counts at each of
    its steps.
    """
    shown = [shown_ways(bank.world, one.steps) for one in bank.rollouts]
    right_site = 0
    right_way: list[list[bool]] = []
    with Progress("recall", total=len(tasks)) as line:
        for task in tasks:
            helpful = _helpful(bank, recall, shown, task)
            line.step()
            if not helpful:
                continue
            right_way.append([])
            for vector_D in embedder.embed_queries(_moments(bank.world, task)):
                hits = recall.search(vector_D, Query.of(task.task), top).hits
                places = {bank.place_of[hit.trajectory_id] for hit in hits}
                right_way[-1].append(bool(places & helpful))
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


def _helpful(bank: LabBank, recall: NumpyBank, shown: Sequence[Collection[str]], task: LabTask) -> set[int]:
    """The places of trajectories that show what a task needs and that the leakage guard lets through."""
    way = needed_way(bank.world, task)
    is_allowed_N = allowed(recall.candidates.keys.matches(recall.guard.keys(Query.of(task.task))))
    return {place for place in bank.places_of(task.site_id) if way in shown[place] and is_allowed_N[place]}


def _moments(world: World, task: LabTask) -> list[Moment]:
    """Every step of an expert's episode."""
    rollout = roll_out(world, task, Solver.expert(world, task))
    return [moment_of(rollout, at, lambda step: screenshot_of(world, step)) for at in range(len(rollout.steps))]
