"""Decisions of stored trajectories to learn from, each with what memory would hold there: what a bank had for it, and
the history that has left the prompt. Prompts and items are made as an agent makes them.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from focusmem.agent.memory import MemoryUse
from focusmem.agent.prompt import PromptBuilder, recent_events
from focusmem.bank.folder import BankFolder
from focusmem.errors import ConfigError
from focusmem.evidence import Serialiser, episodic_items, working_items
from focusmem.files import sha256_hex
from focusmem.schemas import EvidenceItem, Record, Step, StoredTrajectory, action_to_json, load_trajectory
from focusmem.schemas.record import NonEmptyText, Text
from focusmem.seeds import derive_seed
from focusmem.training.batch import Decision, ItemUse, TrainingBatch, TrainingItem
from focusmem.training.lessons import LessonStore


class Found(Record):
    """One decision: which step of its trajectory, and what the bank had for it."""

    step: Annotated[int, Field(ge=0)]
    hits: tuple[tuple[NonEmptyText, float], ...]
    """Trajectories of the bank and how alike they are, the best first."""


class FoundForTrajectory(Record):
    """All decisions of a trajectory that are learnt from, as they are kept on disk."""

    schema_version: Literal[1] = 1
    folder: NonEmptyText
    """Where the trajectory lies."""
    site: Text
    decisions: tuple[Found, ...]


@dataclass(frozen=True, kw_only=True)
class DecisionsConfig:
    use: MemoryUse = field(default_factory=MemoryUse)
    """How much is remembered: as when acting."""
    max_steps: int = 15
    """The budget of actions that prompts speak of."""
    negative_share: float = 0.5
    """Of decisions, how many get a trajectory of another site put in to mislead, in place of the last one found."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.negative_share <= 1:
            raise ConfigError(f"DecisionsConfig.negative_share is {self.negative_share}; it must be in [0, 1].")
        if self.max_steps < 1:
            raise ConfigError(f"DecisionsConfig.max_steps is {self.max_steps}; it must be at least 1.")


@dataclass(frozen=True)
class Words:
    """What agent and encoder are told; `prompts` is a folder with other words than ours, as `Memory.load` takes it."""

    prompts: Path | None = None

    @cached_property
    def prompt(self) -> PromptBuilder:
        return PromptBuilder(self.prompts and self.prompts / "agent")

    @cached_property
    def serialise(self) -> Serialiser:
        return Serialiser(self.prompts and self.prompts / "evidence")


def steps_to_learn(steps: Sequence[Step]) -> list[int]:
    """Those at which something was done that worked. Mistakes are shown to the policy, but not taught."""
    return [number for number, step in enumerate(steps) if step.action is not None and step.error is None]


@dataclass(frozen=True)
class TrajectoryDecisions:
    """A `TrajectorySource` over folders on disk. Holds no screenshots, so that worker processes may carry it."""

    found: Sequence[FoundForTrajectory]
    bank: BankFolder
    sites: Mapping[str, str]
    """Of the bank's trajectories, by id; what misleads is taken from other sites than a trajectory's own."""
    words: Words = Words()
    config: DecisionsConfig = DecisionsConfig()
    lessons: LessonStore | None = None

    @cached_property
    def digest(self) -> str:
        """Equal where equal numbers give equal decisions."""
        found = [one.model_dump_json() for one in self.found]
        return sha256_hex(repr((found, self.config, self.words)).encode())

    @property
    def num_trajectories(self) -> int:
        return len(self.found)

    def num_decisions(self, trajectory: int) -> int:
        return len(self.found[trajectory].decisions)

    def decisions(self, trajectory: int, numbers: tuple[int, ...]) -> TrainingBatch:
        own = self.found[trajectory]
        stored = load_trajectory(Path(own.folder))
        read: dict[str, StoredTrajectory] = {}  # what several decisions found is read once
        items: dict[str, TrainingItem] = {}
        decisions = []
        for number in numbers:
            one, uses = own.decisions[number], []
            for item, source, is_negative in self._evidence(own, one, stored, read):
                made = self._training_item(item, source)
                items.setdefault(made.digest, made)
                uses.append(ItemUse(list(items).index(made.digest), item.rank, is_negative))
            decisions.append(self._decision(stored, one.step, uses))
        return TrainingBatch(items=tuple(items.values()), decisions=tuple(decisions))

    def _decision(self, stored: StoredTrajectory, at: int, uses: Sequence[ItemUse]) -> Decision:
        record, step = stored.trajectory, stored.trajectory.steps[at]
        assert step.action is not None, "only steps with an action are learnt from"
        prompt = self.words.prompt(
            instruction=record.instruction,
            recent=recent_events(record.steps[:at], stored.screenshots),
            screenshot=stored.screenshots[step.screenshot.sha256],
            actions_left=max(1, self.config.max_steps - at),
        )
        return Decision(prompt=prompt, reply=action_to_json(step.action), uses=tuple(uses))

    def _evidence(
        self, own: FoundForTrajectory, one: Found, stored: StoredTrajectory, read: dict[str, StoredTrajectory]
    ) -> Iterator[tuple[EvidenceItem, StoredTrajectory, bool]]:
        """Items, the trajectory each is from, and whether it was put in to mislead."""
        use, hits = self.config.use, list(one.hits)[: self.config.use.num_episodic]
        negative = self._negative(own, one)
        if negative is not None:  # so that there are never more than at acting
            hits = [*hits[: use.num_episodic - 1], (negative, 0.0)]
        for name, _ in hits:
            if name not in read:
                read[name] = self.bank.load(name)
        for item in episodic_items((read[name].trajectory, score) for name, score in hits):
            yield item, read[hits[item.rank][0]], hits[item.rank][0] == negative
        record = stored.trajectory
        for item in working_items(
            record.steps[: one.step],
            instruction=record.instruction,
            num_recent=use.num_recent,
            chunk_events=use.chunk_events,
        ):
            yield item, stored, False

    def _negative(self, own: FoundForTrajectory, one: Found) -> str | None:
        """Of another site; where the bank has none, one that no decision of this trajectory found."""
        if not self.config.use.num_episodic:
            return None
        draw = random.Random(derive_seed(self.config.seed, "misled", own.folder, one.step)).random()
        if draw >= self.config.negative_share:
            return None
        known = {name for decision in own.decisions for name, _ in decision.hits}
        elsewhere = [name for name, site in self.sites.items() if site != own.site and name not in known]
        others = elsewhere or [name for name in self.sites if name not in known]
        # One for the whole trajectory, so that its decisions share it.
        return random.Random(derive_seed(self.config.seed, "negative", own.folder)).choice(others) if others else None

    def _training_item(self, item: EvidenceItem, source: StoredTrajectory) -> TrainingItem:
        name = item.trajectory_id or f"{source.trajectory.trajectory_id} {item.item_id}"
        made = TrainingItem(item_id=name, role=item.role, prompt=self.words.serialise(item, source.screenshots))
        if self.lessons is None or not self.is_taught(item):
            return made
        return replace(made, lesson=self.lessons.read(made.digest, name=name))

    def is_taught(self, item: EvidenceItem) -> bool:
        """Whether the teacher speaks about an item: a growing chunk is left until it is full."""
        return item.role == "episodic" or len(item.steps) == self.config.use.chunk_events

    def to_teach(self, trajectory: int) -> TrainingBatch:
        """What the teacher is to speak about of a trajectory's items, whatever misleads left out."""
        own = self.found[trajectory]
        stored, read = load_trajectory(Path(own.folder)), dict[str, StoredTrajectory]()
        taught = [
            self._training_item(item, source)
            for one in own.decisions
            for item, source, is_negative in self._evidence(own, one, stored, read)
            if self.is_taught(item) and not is_negative
        ]
        return TrainingBatch(items=tuple({item.digest: item for item in taught}.values()))
