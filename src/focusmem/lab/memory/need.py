"""Which decisions need memory: those at which the policy, left alone, would hardly do what the expert did.

Most steps of an episode are plain to see, and teach a memory nothing. Which ones are not is worked out once, before
training.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch.utils.data import Dataset

from focusmem.agent.prompt import NUM_RECENT
from focusmem.errors import StorageError, TrainingError
from focusmem.files import write_whole
from focusmem.lab.memory.decisions import LabDecisions
from focusmem.lab.memory.embedder import DrawnRows, embedded_rows
from focusmem.lab.policy.drawing import drawn_ahead, placeholder
from focusmem.model.backbone import Backbone
from focusmem.progress import Progress
from focusmem.schemas import action_to_json
from focusmem.training.pathway import reply_nats

_TRAJECTORIES_AT_ONCE = 16
_MAX_TOKENS = 65_536


@dataclass(frozen=True)
class Surprise:
    """By trajectory and step: minus the logarithm of the chance that the policy alone gives the expert's action."""

    nats: Sequence[Sequence[float]]

    @property
    def is_finite(self) -> bool:
        return all(math.isfinite(nats) for own in self.nats for nats in own)

    def repeats(self, times: int, *, above: float) -> Mapping[tuple[int, int], int]:
        """For batches: decisions that surprise come so many times as often as the others."""
        return {
            (trajectory, step): times
            for trajectory, own in enumerate(self.nats)
            for step, nats in enumerate(own)
            if nats > above
        }

    def save(self, path: Path) -> None:
        write_whole(path, json.dumps([[round(nats, 4) for nats in own] for own in self.nats]).encode())

    @classmethod
    def load(cls, path: Path) -> "Surprise":
        try:
            found = cls([[float(nats) for nats in own] for own in json.loads(path.read_bytes())])
        except (OSError, ValueError, TypeError) as error:
            raise StorageError(f"Could not read which decisions need memory from {path}: {error}") from error
        if not found.is_finite:
            raise StorageError(f"{path} holds numbers that are none. Delete it, and prepare again.")
        return found


def surprise_of(policy: Backbone, source: LabDecisions, *, num_workers: int = 0) -> Surprise:
    """Ask the policy alone about every decision of the source's episodes."""
    data = _Alone(policy, source)
    found: list[list[float]] = []
    with Progress("need", total=source.num_trajectories) as line:
        for sizes, drawn in drawn_ahead(data, num_workers):
            nats = iter(reply_nats(policy, embedded_rows(policy, drawn), max_tokens=_MAX_TOKENS))
            found += [[next(nats) for _ in range(size)] for size in sizes]
            line.step(len(sizes))
    surprise = Surprise(found)
    if not surprise.is_finite:
        raise TrainingError("The policy alone gives chances that are no numbers, so nobody can say what needs memory.")
    return surprise


class _Alone(Dataset[tuple[list[int], DrawnRows]]):
    """The decisions of some trajectories at a time, without anything in front, and how many each has."""

    def __init__(self, policy: Backbone, source: LabDecisions) -> None:
        self.chat, self.source = policy.chat, source

    def __len__(self) -> int:
        return -(-self.source.num_trajectories // _TRAJECTORIES_AT_ONCE)

    def __getitem__(self, number: int) -> tuple[list[int], DrawnRows]:
        start = number * _TRAJECTORIES_AT_ONCE
        stop = min(start + _TRAJECTORIES_AT_ONCE, self.source.num_trajectories)
        rollouts = [self.source.rollout(place) for place in range(start, stop)]
        asked = [(rollout, at) for rollout in rollouts for at in range(len(rollout.steps))]
        prompts = [self.source.corpus.prompt_at(rollout.task, rollout.steps, at) for rollout, at in asked]
        replies = [action_to_json(rollout.steps[at].action) for rollout, at in asked]
        shown = (step for rollout, at in asked for step in rollout.steps[max(0, at - NUM_RECENT) : at + 1])
        views = {placeholder(step).digest: step for step in shown}
        drawn = DrawnRows.of(self.chat, prompts, views, self.source.world, replies=replies)
        return [len(rollout.steps) for rollout in rollouts], drawn
