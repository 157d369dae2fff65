"""What retrieval finds at every step of the laboratory's training episodes, worked out once before training.

None of it depends on trained memory. Worker processes draw the pictures while the GPU embeds, as in pretraining.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

from focusmem.bank.embedder import QwenEmbedder
from focusmem.errors import StorageError
from focusmem.files import write_whole
from focusmem.lab.memory.decisions import NUM_EPISODIC, LabDecisions
from focusmem.lab.memory.embedder import DrawnRows, embed_drawn, moment_of
from focusmem.lab.memory.recall import LabBank, LabRecall
from focusmem.lab.policy.drawing import drawn_ahead, placeholder
from focusmem.lab.world.experts import as_trajectory
from focusmem.lab.world.rollout import Rollout
from focusmem.lab.world.world import World
from focusmem.progress import Progress
from focusmem.schemas import Prompt

_ROLLOUTS_AT_ONCE = 24


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
    records = _Drawn(
        embedder,
        bank.world,
        bank.rollouts.__getitem__,
        lambda rollout: [embedder.key_prompt(as_trajectory(rollout, placeholder))],
        len(bank.rollouts),
    )
    moments = _Drawn(
        embedder,
        source.world,
        source.rollout,
        lambda rollout: [embedder.query_prompt(moment_of(rollout, at)) for at in range(len(rollout.steps))],
        source.num_trajectories,
    )
    keys_ND = np.concatenate([vectors for _, vectors in _embedded(embedder, records, num_workers)])
    recall = LabRecall.of(bank, embedder, keys_ND)
    found: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for rollouts, vectors_QD in _embedded(embedder, moments, num_workers):
        asked = [(rollout.task, at) for rollout in rollouts for at in range(len(rollout.steps))]
        hits = recall.nearest(vectors_QD, [task.task for task, _ in asked], top=top)
        for (task, at), own in zip(asked, hits, strict=True):
            found[task.task.task_id, at] = [(bank.place_of[hit.trajectory_id], hit.score) for hit in own.hits]
    return StoredRecall(found)


class _Drawn(Dataset[tuple[list[Rollout], DrawnRows]]):
    """Some rollouts at a time, as rows of tokens and pixels."""

    def __init__(
        self,
        embedder: QwenEmbedder,
        world: World,
        rollout: Callable[[int], Rollout],
        prompts: Callable[[Rollout], list[Prompt]],
        num_rollouts: int,
    ) -> None:
        self.chat, self.world = embedder.backbone.chat, world
        self.rollout, self.prompts, self.num_rollouts = rollout, prompts, num_rollouts

    def __len__(self) -> int:
        return -(-self.num_rollouts // _ROLLOUTS_AT_ONCE)

    def __getitem__(self, number: int) -> tuple[list[Rollout], DrawnRows]:
        start = number * _ROLLOUTS_AT_ONCE
        places = range(start, min(start + _ROLLOUTS_AT_ONCE, self.num_rollouts))
        rollouts = [self.rollout(place) for place in places]
        prompts = [prompt for rollout in rollouts for prompt in self.prompts(rollout)]
        views = {placeholder(step).digest: step for rollout in rollouts for step in rollout.steps}
        return rollouts, DrawnRows.of(self.chat, prompts, views, self.world)


def _embedded(
    embedder: QwenEmbedder, data: _Drawn, num_workers: int
) -> Iterator[tuple[list[Rollout], npt.NDArray[np.float32]]]:
    with Progress("embed", total=data.num_rollouts) as line:
        for rollouts, drawn in drawn_ahead(data, num_workers):
            yield rollouts, embed_drawn(embedder.backbone, drawn)
            line.step(len(rollouts))
