"""Batches of several decisions per trajectory, because these share most of their items."""

import random
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from pydantic import PositiveInt

from focusmem.files import sha256_hex
from focusmem.seeds import derive_seed
from focusmem.settings import checked_dataclass
from focusmem.training.batch import TrainingBatch


class TrajectorySource(Protocol):
    """Trajectories by number. Each has one decision for each of its steps that is learnt from.

    A source may have a `digest`. A source without one is identified by the numbers of decisions of its trajectories.
    """

    @property
    def num_trajectories(self) -> int: ...

    def num_decisions(self, trajectory: int) -> int: ...

    def decisions(self, trajectory: int, numbers: tuple[int, ...]) -> TrainingBatch:
        """These decisions of one trajectory, in this order, with the items they use."""
        ...


@checked_dataclass(frozen=True, kw_only=True)
class BatchingConfig:
    num_decisions: PositiveInt = 32
    """Decisions per batch, over all processes."""
    max_per_trajectory: PositiveInt = 8
    """Decisions of one trajectory that go into a batch together. More of them share more work; fewer of them make
    batches more varied.
    """
    num_epochs: PositiveInt = 1
    """The number of passes through all decisions."""
    seed: int = 0


@dataclass(frozen=True)
class TrajectoryBatches:
    """Every decision once per epoch, in an order given by the seed. An incomplete last batch is left out."""

    source: TrajectorySource
    config: BatchingConfig = field(default_factory=BatchingConfig)
    held_out: TrainingBatch | None = None
    """Decisions of other trajectories, on which vital signs are measured."""

    @cached_property
    def digest(self) -> str:
        """Equal if equal numbers give equal decisions, as far as the identity of the source shows this."""
        own = getattr(self.source, "digest", None)
        if own is None:
            own = [self.source.num_decisions(trajectory) for trajectory in range(self.source.num_trajectories)]
        return sha256_hex(repr((self.config, own)).encode())

    @property
    def shortage(self) -> str:
        """The reason why there are no batches."""
        return (
            f"a batch takes {self.config.num_decisions} decisions, and there are {len(self._order)} in all epochs "
            "together. Give more trajectories, a smaller BatchingConfig.num_decisions or a larger num_epochs."
        )

    @property
    def num_batches(self) -> int:
        return len(self._order) // self.config.num_decisions

    def batch(self, number: int) -> TrainingBatch:
        size = self.config.num_decisions
        chosen = self._order[number * size : (number + 1) * size]
        stretches: dict[int, list[int]] = {}
        for trajectory, decision in chosen:
            stretches.setdefault(trajectory, []).append(decision)
        return TrainingBatch.merged(
            self.source.decisions(trajectory, tuple(decisions)) for trajectory, decisions in stretches.items()
        )

    @cached_property
    def _order(self) -> list[tuple[int, int]]:
        """All decisions as pairs (trajectory, decision), in order. Decisions of one stretch stay together."""
        order: list[tuple[int, int]] = []
        for epoch in range(self.config.num_epochs):
            rng = random.Random(derive_seed(self.config.seed, "order", epoch))
            stretches = [
                stretch for trajectory in range(self.source.num_trajectories) for stretch in self._cut(trajectory, rng)
            ]
            rng.shuffle(stretches)
            order += [one for stretch in stretches for one in stretch]
        return order

    def _cut(self, trajectory: int, rng: random.Random) -> list[list[tuple[int, int]]]:
        """Cuts a trajectory's decisions into stretches of at most `max_per_trajectory`."""
        numbers = list(range(self.source.num_decisions(trajectory)))
        rng.shuffle(numbers)
        size = self.config.max_per_trajectory
        return [
            [(trajectory, number) for number in sorted(numbers[start : start + size])]
            for start in range(0, len(numbers), size)
        ]
