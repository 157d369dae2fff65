"""What retrieval finds at every step of the laboratory's training episodes, worked out once before training.

None of it depends on trained memory. Worker processes draw the pictures while the GPU embeds, as in pretraining.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

from focusmem.bank.embedder import QwenEmbedder
from focusmem.bank.index import ExactIndex
from focusmem.bank.leakage import KeyColumns, LeakageGuard, Query
from focusmem.bank.retrieval import search_index
from focusmem.errors import StorageError
from focusmem.files import write_whole
from focusmem.lab.corpus import placeholder
from focusmem.lab.drawing import drawn_ahead
from focusmem.lab.embedder import DrawnRows, embed_drawn, moment_of
from focusmem.lab.experts import as_trajectory
from focusmem.lab.recall import LabBank
from focusmem.lab.rollout import Rollout
from focusmem.lab.world import World
from focusmem.progress import Progress
from focusmem.recipes.lab_decisions import NUM_EPISODIC, LabDecisions
from focusmem.schemas import Prompt

_ROLLOUTS_AT_ONCE = 8


@dataclass(frozen=True)
class StoredRecall:
    """A `Recall` that only looks things up."""

    found: Mapping[tuple[str, int], Sequence[tuple[int, float]]]
    """By task and step: places in the bank and scores, the best first."""

    def __call__(self, rollout: Rollout, at: int) -> Sequence[tuple[int, float]]:
        return self.found[rollout.task.task.task_id, at]

    def save(self, path: Path) -> None:
        rows = [[task, at, hits] for (task, at), hits in self.found.items()]
        write_whole(path, json.dumps(rows).encode())

    @classmethod
    def load(cls, path: Path) -> "StoredRecall":
        try:
            rows = json.loads(path.read_bytes())
            return cls({(task, at): [(place, score) for place, score in hits] for task, at, hits in rows})
        except (OSError, ValueError, TypeError) as error:
            raise StorageError(f"Could not read what retrieval found from {path}: {error}") from error


def prepare_recall(
    embedder: QwenEmbedder, source: LabDecisions, bank: LabBank, *, num_workers: int = 0, top: int = NUM_EPISODIC
) -> StoredRecall:
    """Search the bank for every moment of the source's episodes, with the leakage guard on."""
    guard = LeakageGuard()
    trajectories = [one.trajectory for one in bank.trajectories]
    names = np.array([one.trajectory_id for one in trajectories], dtype=object)
    columns = KeyColumns.of([guard.keys(Query.of(one)) for one in trajectories])
    keys = np.concatenate([vectors for _, vectors in _embedded(embedder, _Records(embedder, bank), num_workers)])
    index = ExactIndex(keys)
    found: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for rollouts, vectors_QD in _embedded(embedder, _Moments(embedder, source), num_workers):
        moments = [(rollout, at) for rollout in rollouts for at in range(len(rollout.steps))]
        for (rollout, at), vector_D in zip(moments, vectors_QD, strict=True):
            own = guard.keys(Query.of(rollout.task.task))
            hits = search_index(index, names, columns, vector_D, own, top).hits
            found[rollout.task.task.task_id, at] = [(bank.place_of[hit.trajectory_id], hit.score) for hit in hits]
    return StoredRecall(found)


class _Drawn(Dataset[tuple[list[Rollout], DrawnRows]]):
    """Some rollouts at a time, as rows of tokens and pixels."""

    def __init__(self, embedder: QwenEmbedder, world: World, num_rollouts: int) -> None:
        self.embedder, self.world, self.num_rollouts = embedder, world, num_rollouts

    def __len__(self) -> int:
        return -(-self.num_rollouts // _ROLLOUTS_AT_ONCE)

    def __getitem__(self, number: int) -> tuple[list[Rollout], DrawnRows]:
        start = number * _ROLLOUTS_AT_ONCE
        places = range(start, min(start + _ROLLOUTS_AT_ONCE, self.num_rollouts))
        rollouts = [self.rollout(place) for place in places]
        prompts = [prompt for rollout in rollouts for prompt in self.prompts(rollout)]
        views = {placeholder(step).digest: step for rollout in rollouts for step in rollout.steps}
        return rollouts, DrawnRows.of(self.embedder.backbone.chat, prompts, views, self.world)

    def rollout(self, place: int) -> Rollout:
        raise NotImplementedError

    def prompts(self, rollout: Rollout) -> list[Prompt]:
        raise NotImplementedError


class _Records(_Drawn):
    def __init__(self, embedder: QwenEmbedder, bank: LabBank) -> None:
        super().__init__(embedder, bank.world, len(bank.rollouts))
        self.bank = bank

    def rollout(self, place: int) -> Rollout:
        return self.bank.rollouts[place]

    def prompts(self, rollout: Rollout) -> list[Prompt]:
        return [self.embedder.key_prompt(as_trajectory(rollout, placeholder))]


class _Moments(_Drawn):
    def __init__(self, embedder: QwenEmbedder, source: LabDecisions) -> None:
        super().__init__(embedder, source.world, source.num_trajectories)
        self.source = source

    def rollout(self, place: int) -> Rollout:
        return self.source.rollout(place)

    def prompts(self, rollout: Rollout) -> list[Prompt]:
        return [self.embedder.query_prompt(moment_of(rollout, at)) for at in range(len(rollout.steps))]


def _embedded(
    embedder: QwenEmbedder, data: _Drawn, num_workers: int
) -> Iterator[tuple[list[Rollout], npt.NDArray[np.float32]]]:
    with Progress("embed", total=data.num_rollouts) as line:
        for rollouts, drawn in drawn_ahead(data, num_workers):
            yield rollouts, embed_drawn(embedder.backbone, drawn)
            line.step(len(rollouts))
