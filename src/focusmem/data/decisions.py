"""Makes training decisions from stored trajectories, with the memory that the agent would have had at each decision.

Prompts, found trajectories and the history that has left the prompt are made as the agent makes them.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from focusmem.agent.prompt import PromptBuilder, recent_events
from focusmem.bank.folder import BankFolder
from focusmem.data.config import DataConfig
from focusmem.data.finding import Found, FoundForTrajectory
from focusmem.evidence import Serialiser, episodic_items, working_items
from focusmem.files import sha256_hex
from focusmem.schemas import EvidenceItem, StoredTrajectory, action_to_json, load_trajectory
from focusmem.seeds import derive_seed
from focusmem.training.batch import Decision, ItemUse, TrainingBatch, TrainingItem
from focusmem.training.lessons import LessonStore


@dataclass(frozen=True)
class TrajectoryDecisions:
    """A `TrajectorySource` over folders on disk. It holds no screenshots, so it can be sent to worker processes."""

    found: Sequence[FoundForTrajectory]
    config: DataConfig
    sites: Mapping[str, str]
    """The site of each trajectory of the bank, by id. Misleading trajectories come from another site if possible."""
    lessons: LessonStore | None = None

    @cached_property
    def digest(self) -> str:
        """Equal if equal numbers give equal decisions."""
        config, found = self.config, [one.model_dump_json() for one in self.found]
        settings = (
            config.use, config.max_steps, config.negative_share, config.prompts, config.shows_errors, config.seed
        )  # fmt: skip
        return sha256_hex(repr((found, settings)).encode())

    @cached_property
    def bank(self) -> BankFolder:
        return BankFolder(self.config.bank_folder)

    @cached_property
    def prompt(self) -> PromptBuilder:
        return PromptBuilder(self.config.wording("agent"), shows_errors=self.config.shows_errors)

    @cached_property
    def serialise(self) -> Serialiser:
        return Serialiser(self.config.wording("evidence"), shows_errors=self.config.shows_errors)

    @property
    def num_trajectories(self) -> int:
        return len(self.found)

    def num_decisions(self, trajectory: int) -> int:
        return len(self.found[trajectory].decisions)

    def decisions(self, trajectory: int, numbers: tuple[int, ...]) -> TrainingBatch:
        own = self.found[trajectory]
        stored = load_trajectory(Path(own.folder))
        read: dict[str, StoredTrajectory] = {}  # a trajectory that several decisions found is read once
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
        prompt = self.prompt(
            instruction=record.instruction,
            recent=recent_events(record.steps[:at], stored.screenshots, self.config.use.num_recent),
            screenshot=stored.screenshots[step.screenshot.sha256],
            actions_left=max(1, self.config.max_steps - at),
            presses_enter=record.presses_enter is True,
        )
        return Decision(prompt=prompt, reply=action_to_json(step.action), uses=tuple(uses))

    def _evidence(
        self, own: FoundForTrajectory, one: Found, stored: StoredTrajectory, read: dict[str, StoredTrajectory]
    ) -> Iterator[tuple[EvidenceItem, StoredTrajectory, bool]]:
        """Yields each item, the trajectory that it is from, and whether it was added to mislead."""
        use, hits = self.config.use, list(one.hits)[: self.config.use.num_episodic]
        negative = self._negative(own, one)
        if negative is not None:  # after the last hit, so that no hit is lost: Algorithm 2 takes the union
            hits = [*hits, (negative, 0.0)]
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
        """A misleading trajectory, or None. No decision of this trajectory found it, and it is from another site if
        there is such a one.
        """
        if not self.config.use.num_episodic:
            return None
        draw = random.Random(derive_seed(self.config.seed, "misled", own.folder, one.step)).random()
        if draw >= self.config.negative_share:
            return None
        known = {name for decision in own.decisions for name, _ in decision.hits}
        elsewhere = [name for name, site in self.sites.items() if site != own.site and name not in known]
        others = elsewhere or [name for name in self.sites if name not in known]
        # The same for the whole trajectory, so that its decisions share it.
        return random.Random(derive_seed(self.config.seed, "negative", own.folder)).choice(others) if others else None

    def _training_item(self, item: EvidenceItem, source: StoredTrajectory) -> TrainingItem:
        name = item.trajectory_id or f"{source.trajectory.trajectory_id} {item.item_id}"
        made = TrainingItem(item_id=name, role=item.role, prompt=self.serialise(item, source.screenshots))
        return made if self.lessons is None else replace(made, lesson=self.lessons.read(made.digest, name=name))

    def to_teach(self, trajectory: int) -> TrainingBatch:
        """The items of a trajectory that the teacher is asked about: all items except those that were added to mislead.

        A growing chunk acts at every size, so it is taught at every size that a decision uses. This adds at most one
        lesson for each decision whose history has begun to expire (docs/paper.md).
        """
        own = self.found[trajectory]
        stored, read = load_trajectory(Path(own.folder)), dict[str, StoredTrajectory]()
        taught = [
            self._training_item(item, source)
            for one in own.decisions
            for item, source, is_negative in self._evidence(own, one, stored, read)
            if not is_negative
        ]
        return TrainingBatch(items=tuple({item.digest: item for item in taught}.values()))
