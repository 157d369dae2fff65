"""What a memory learns from in the laboratory: an expert's decisions, with what the memory would hold at each of them.

Nothing is stored: prompts carry placeholders for screenshots, and a batch's pixels are drawn last, each picture once.
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Protocol

import torch
from pydantic import PositiveInt

from focusmem.agent.prompt import NUM_RECENT
from focusmem.bank.leakage import LeakageGuard
from focusmem.errors import ConfigError
from focusmem.evidence import CHUNK_EVENTS, episodic_items, working_items
from focusmem.files import sha256_hex
from focusmem.lab.policy.corpus import Corpus
from focusmem.lab.policy.drawing import all_pixels_of, made_side_by_side, placeholder
from focusmem.lab.world.answers import QUESTIONS, answer_to
from focusmem.lab.world.experts import as_trajectory
from focusmem.lab.world.misleading import mislead
from focusmem.lab.world.rollout import Rollout, RolloutStep, drawn_kind, sensible_rollout
from focusmem.lab.world.tasks import NUM_SITES, Split, Use, make_task
from focusmem.lab.world.world import World
from focusmem.model.chat import ChatTokenizer
from focusmem.schemas import EvidenceItem, Screenshot, Step, Task, Trajectory, action_to_json
from focusmem.seeds import derive_seed
from focusmem.settings import Share, checked_dataclass
from focusmem.training.batch import Decision, ItemUse, Pixels, TrainingBatch, TrainingItem
from focusmem.training.lessons import Description, FunctionalPair, Lesson
from focusmem.training.questions import DESCRIBE, Questions
from focusmem.training.trajectory_batches import TrajectoryBatches

NUM_EPISODIC = 3
_TRIES = 100


class Shelf(Protocol):
    """The trajectories of a split that a memory may hold. They are made beforehand, or when they are needed."""

    def rollout(self, place: int) -> Rollout: ...

    def trajectory(self, place: int) -> Trajectory: ...

    def places_of(self, site_id: str) -> Sequence[int]: ...

    def any_place(self, rng: random.Random) -> int: ...


class Recall(Protocol):
    """Finds trajectories of a bank for a moment of an episode."""

    def __call__(self, rollout: Rollout, at: int) -> Sequence[tuple[int, float]]:
        """The places of the found trajectories in the bank, with their scores, the best first."""
        ...


@checked_dataclass(frozen=True, kw_only=True)
class LabDecisionsConfig:
    split: Split = "m"
    use: Use = "memory"
    num_trajectories: PositiveInt = 2000
    """Expert episodes to learn from."""
    num_sites: PositiveInt | None = None
    """Episodes are drawn from this number of sites, counted from the first of the split. None uses all sites."""
    negative_share: Share = 0.5
    """Share of decisions that get a misleading trajectory of another site."""
    near_share: Share = 0.0
    """Share of these whose trajectory is a near miss: of another branch, which looks alike and has other values."""
    has_working: bool = True
    """Whether memory holds the expired history."""
    seed: int = 0

    def __post_init__(self) -> None:
        most = NUM_SITES[self.split]
        if self.num_sites is not None and self.num_sites > most:
            raise ConfigError(f"LabDecisionsConfig.num_sites is {self.num_sites}; the split has 1 to {most}.")


class SiteFirst:
    """A stand-in for a good retriever: trajectories of the same site in random order, then of other sites. Like any
    retriever, it leaves out those that would give the task away."""

    def __init__(self, bank: Shelf, *, seed: int = 0) -> None:
        self.bank, self.seed, self.guard = bank, seed, LeakageGuard()
        self._last: tuple[Task, Sequence[tuple[int, float]]] | None = None

    def __call__(self, rollout: Rollout, at: int) -> Sequence[tuple[int, float]]:
        task = rollout.task.task
        if self._last is None or self._last[0] is not task:  # it is asked about an episode's steps one after another
            self._last = task, self._found(rollout)
        return self._last[1]

    def _found(self, rollout: Rollout) -> Sequence[tuple[int, float]]:
        task = rollout.task.task
        rng = random.Random(derive_seed(self.seed, "recall", rollout.task.name))
        own = list(self.bank.places_of(rollout.task.site_id))
        others = (self.bank.any_place(rng) for _ in range(_TRIES))
        found: dict[int, float] = {}
        for place in chain(rng.sample(own, len(own)), others):
            if self.guard.screen([self.bank.trajectory(place)], [task]).kept:
                found.setdefault(place, 1.0 - 0.1 * len(found))
            if len(found) == NUM_EPISODIC:
                break
        return list(found.items())


class LabDecisions:
    """A `TrajectorySource`: trajectories by number, decisions by step."""

    def __init__(
        self,
        world: World,
        chat: ChatTokenizer,
        bank: Shelf,
        recall: Recall,
        config: LabDecisionsConfig | None = None,
        *,
        told: Questions | None = None,
    ) -> None:
        """If the questions `told` are given, items have lessons. The world gives the answers."""
        self.world, self.bank, self.recall, self.told = world, bank, recall, told
        self.config = config or LabDecisionsConfig()
        self.corpus = Corpus(world, chat, split=self.config.split, num_sites=NUM_SITES[self.config.split])
        self._views: dict[str, RolloutStep] = {}
        self._sources: dict[str, tuple[Rollout, int, int]] = {}
        self._rollouts: dict[int, Rollout] = {}

    @property
    def num_trajectories(self) -> int:
        return self.config.num_trajectories

    def rollout(self, number: int) -> Rollout:
        if number not in self._rollouts:
            self._rollouts[number] = self._make_rollout(number)
        return self._rollouts[number]

    def roll_out_all(self, num_workers: int) -> None:
        """All episodes at once, by worker processes, instead of one by one when they are needed."""
        made = made_side_by_side(self._make_rollout, self.num_trajectories, num_workers)
        self._rollouts = dict(enumerate(made))

    def forget(self) -> None:
        """Forgets the episodes so far. They are made again if they are needed again."""
        self._rollouts.clear()
        self._views.clear()
        self._sources.clear()

    def num_decisions(self, trajectory: int) -> int:
        return len(self.rollout(trajectory).steps)

    def decisions(self, trajectory: int, numbers: tuple[int, ...]) -> TrainingBatch:
        rollout = self.rollout(trajectory)
        items: dict[str, TrainingItem] = {}
        decisions = []
        for at in numbers:
            uses = []
            for item, source, is_negative in self._evidence(rollout, at):
                one = self.training_item(item, source)
                place = list(items).index(one.digest) if one.digest in items else len(items)
                items.setdefault(one.digest, one)
                uses.append(ItemUse(place, item.rank, is_negative))
            prompt = self.corpus.prompt_at(rollout.task, rollout.steps, at)
            self.note_views(rollout.steps[max(0, at - NUM_RECENT) : at + 1])
            reply = action_to_json(rollout.steps[at].action)
            decisions.append(Decision(prompt=prompt, reply=reply, uses=tuple(uses)))
        return TrainingBatch(items=tuple(items.values()), decisions=tuple(decisions))

    def drawn(self, batch: TrainingBatch) -> TrainingBatch:
        """The batch with the pixels of all its screenshots, each once."""
        prompts = [*(item.prompt for item in batch.items), *(one.prompt for one in batch.decisions)]
        shown = {
            part.digest: None
            for prompt in prompts
            for turn in prompt
            for part in turn.parts
            if isinstance(part, Screenshot)
        }
        pixels_NHWC = all_pixels_of(self.world, [self._views[digest] for digest in shown])
        return replace(batch, pixels=Pixels(tuple(shown), torch.from_numpy(pixels_NHWC)))

    # What a memory would hold

    def _evidence(self, rollout: Rollout, at: int) -> list[tuple[EvidenceItem, Rollout, bool]]:
        """Items, the episode that each is from, and whether it was added to mislead."""
        found = [(place, score) for place, score in self.recall(rollout, at)][:NUM_EPISODIC]
        sources = [self.bank.rollout(place) for place, _ in found]
        trajectories = [(self.bank.trajectory(place), score) for place, score in found]
        misled = self._negative(rollout, at, {place for place, _ in found})
        if misled is not None:  # after the last hit, so that no hit is lost: Algorithm 2 takes the union
            sources.append(misled)
            trajectories.append((as_trajectory(misled, placeholder).trajectory, 0.0))
        for source in sources:
            self.note_views(source.steps)
        episodic = episodic_items(trajectories)
        working: Sequence[EvidenceItem] = ()
        if self.config.has_working:
            own = as_trajectory(rollout, placeholder).trajectory
            working = working_items(own.steps[:at], instruction=own.instruction, num_recent=NUM_RECENT)
            self.note_views(rollout.steps[:at])
        last = len(episodic) - 1
        flagged = [
            (item, source, misled is not None and item.rank == last)
            for item, source in zip(episodic, sources, strict=True)
        ]
        return [*flagged, *((item, rollout, False) for item in working)]

    def _negative(self, rollout: Rollout, at: int, found: Collection[int]) -> Rollout | None:
        """A misleading trajectory that is not among the hits: of another site of the same family, or a near miss. All
        decisions of an episode share it.
        """
        task = rollout.task
        draw = random.Random(derive_seed(self.config.seed, "misled", task.name, at)).random()
        if draw >= self.config.negative_share:
            return None
        rng = random.Random(derive_seed(self.config.seed, "negative", task.name))
        if self.config.near_share and rng.random() < self.config.near_share:
            return mislead(self.world, task, "near", rng.randrange(_TRIES)).rollout
        for _ in range(_TRIES):
            place = self.bank.any_place(rng)
            other = self.bank.rollout(place)
            site_id = other.task.site_id
            if place in found:
                continue
            if site_id != task.site_id and self.world.family(site_id) == self.world.family(task.site_id):
                return other
        return None

    def training_item(self, item: EvidenceItem, source: Rollout) -> TrainingItem:
        """Converts an item of an episode to the form for training, with its lesson if there are lessons."""
        prompt = self.corpus.texts.serialise(item, {step.screenshot.sha256: _stand_in(step) for step in item.steps})
        name = item.trajectory_id or item.item_id
        family = self.world.family(source.task.site_id)
        made = TrainingItem(item_id=name, role=item.role, prompt=prompt, group=family)
        start = item.rank * CHUNK_EVENTS if item.role == "working" else 0
        self._sources[made.digest] = source, start, start + len(item.steps)
        return made if self.told is None else replace(made, lesson=self._told(made, self.told))

    def _told(self, item: TrainingItem, questions: Questions) -> Lesson:
        """A lesson with the world's answers."""
        answers = self._answers(item)
        text = answers.pop(DESCRIBE)
        chat = self.corpus.chat
        description = Description(questions.ask(DESCRIBE), text, (*chat.encode(text), chat.special["<|im_end|>"]), None)
        return Lesson(description, tuple(FunctionalPair(questions.ask(name), own) for name, own in answers.items()))

    def _answers(self, item: TrainingItem) -> dict[str, str]:
        rollout, start, stop = self._sources[item.digest]
        steps = rollout.steps[start:stop]
        return {name: answer_to(self.world, name, rollout, steps) for name in QUESTIONS[item.role]}

    def _make_rollout(self, number: int) -> Rollout:
        rng = random.Random(derive_seed(self.config.seed, "decisions", self.config.split, number))
        while True:
            num_sites = self.config.num_sites or NUM_SITES[self.config.split]
            site_id = f"{self.config.split}-{rng.randrange(num_sites)}"
            kind = drawn_kind(self.world, site_id, rng)
            task = make_task(self.world, site_id, kind, self.config.use, rng.randrange(10**6))
            rollout = sensible_rollout(self.world, task)
            if rollout is not None:
                return rollout

    # Pictures

    def note_views(self, steps: Sequence[RolloutStep]) -> None:
        """Notes views that a batch shows, so that they are drawn with the batch."""
        for step in steps:
            self._views[placeholder(step).digest] = step


def _stand_in(step: Step) -> Screenshot:
    ref = step.screenshot
    return Screenshot(png=b"", digest=ref.sha256, width=ref.width, height=ref.height)


class LabBatches(TrajectoryBatches):
    """Batches of laboratory decisions, with their pixels."""

    @cached_property
    def digest(self) -> str:
        """Equal if equal numbers give equal decisions."""
        assert isinstance(self.source, LabDecisions)
        return sha256_hex(f"{super().digest} {self.source.config!r}".encode())

    def batch(self, number: int) -> TrainingBatch:
        assert isinstance(self.source, LabDecisions)
        return self.source.drawn(super().batch(number))
