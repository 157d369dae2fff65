"""Ways for the laboratory's policy to remember: what stands in front of its prompt, and the reply it then gives.

For many episodes at once: a GPU answers sixty as fast as one.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from focusmem.agent.live_episode import LiveEpisode
from focusmem.agent.memory import AgentMemory, Situation
from focusmem.agent.mind import Reply, Seen
from focusmem.agent.prompt import NUM_RECENT, recent_events
from focusmem.bank.embedder import Moment
from focusmem.evidence import episodic_items, working_items
from focusmem.lab.memory.recall import Retrieval
from focusmem.lab.policy.texts import Texts
from focusmem.lab.world.answers import experience, notes
from focusmem.lab.world.experts import as_trajectory
from focusmem.lab.world.rollout import Rollout, roll_out, screenshot_of
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.tasks import KINDS, LabTask, make_task, task_of
from focusmem.lab.world.world import World
from focusmem.model.backbone import Backbone
from focusmem.model.front import ReadFront
from focusmem.model.generation import GenerationConfig, generate
from focusmem.schemas import OfferedItem, Prompt, Screenshot, StepNotes, StoredTrajectory, Task, Turn

Found = Sequence[tuple[StoredTrajectory, float]]
Shown = tuple[OfferedItem, Prompt]
"""An item, and the turns that show it."""


@dataclass
class Asking:
    """What all ways share: the prompt, and how long a reply may be."""

    texts: Texts = field(default_factory=Texts.load)
    shows_history: bool = False
    """Whether events that left the window are shown raw, in front."""
    max_new_tokens: int = 96

    @property
    def generation(self) -> GenerationConfig:
        return GenerationConfig(max_new_tokens=self.max_new_tokens)

    def prompt(self, episode: LiveEpisode, screenshot: Screenshot) -> Prompt:
        front: list[Turn] = []
        instruction = episode.task.instruction
        if self.shows_history:
            for item in working_items(episode.steps, instruction=instruction, num_recent=NUM_RECENT):
                front += self.texts.serialise(item, episode.screenshots)
        recent = recent_events(episode.steps, episode.screenshots)
        actions_left = episode.task.max_steps - len(episode.steps)
        asked = self.texts.prompt(
            instruction=instruction, recent=recent, screenshot=screenshot, actions_left=actions_left
        )
        return (*front, *asked)


@dataclass(frozen=True)
class RawFront:
    """What stands in front of a task's prompts, with what it was taken from."""

    items: tuple[OfferedItem, ...]
    read: ReadFront

    @property
    def names(self) -> tuple[str | None, ...]:
        return tuple(item.trajectory_id for item in self.items)

    def offered(self, found: Found) -> tuple[OfferedItem, ...]:
        """The items as a record; how alike they are changes from moment to moment, and the rest does not."""
        scores: Sequence[float | None] = [score for _, score in found] or [None] * len(self.items)
        return tuple(item.model_copy(update={"score": score}) for item, score in zip(self.items, scores, strict=True))


class RawMind:
    """Memory as it was seen: nothing, a few words, a demonstration, or what a retriever finds."""

    def __init__(
        self,
        policy: Backbone,
        kind: Literal["none", "notes", "replay", "retrieved"],
        world: World,
        asking: Asking | None = None,
        *,
        recall: Retrieval | None = None,
        num_found: int = 3,
    ) -> None:
        self.policy, self.kind, self.world, self.asking = policy, kind, world, asking or Asking()
        self.recall, self.num_found = recall, num_found
        self._fronts: dict[str, RawFront] = {}

    def ask(self, seen: Sequence[Seen]) -> list[Reply]:
        clock = _Clock(len(seen))
        prompts = [self.asking.prompt(episode, now.screenshot) for episode, now in seen]
        with clock.part("retrieve"):
            searches = [Search()] * len(seen) if self.recall is None else find(self.recall, seen, self.num_found)
        with clock.part("remember"):
            fronts = [self._front(episode.task, own.found) for (episode, _), own in zip(seen, searches, strict=True)]
        with clock.part("reply"):
            texts = self._answers(prompts, [None if front is None else front.read for front in fronts])
        return [
            Reply(
                text,
                StepNotes(
                    prompt=as_text(prompt),
                    offered=() if front is None else front.offered(own.found),
                    num_removed=own.num_removed,
                    num_prompt_tokens=len(self.policy.tokenise(prompt).ids),
                    num_memory_tokens=0 if front is None else front.read.length,
                    seconds=clock.seconds,
                ),
            )
            for text, prompt, front, own in zip(texts, prompts, fronts, searches, strict=True)
        ]

    def _answers(self, prompts: Sequence[Prompt], fronts: Sequence[ReadFront | None]) -> list[str]:
        """Prompts with something in front together, and those without."""
        texts = [""] * len(prompts)
        for has_front in (False, True):
            places = [place for place, front in enumerate(fronts) if (front is not None) == has_front]
            own = [front for front in fronts if front is not None] if has_front else []
            if places:
                for place, text in zip(places, self.answer([prompts[one] for one in places], own), strict=True):
                    texts[place] = text
        return texts

    def answer(self, prompts: Sequence[Prompt], fronts: Sequence[ReadFront]) -> list[str]:
        rows = self.policy.embed([self.policy.tokenise(prompt) for prompt in prompts])
        ids = generate(self.policy, rows, self.asking.generation, fronts=fronts or None)
        return [self.policy.text_of(one) for one in ids]

    def _front(self, task: Task, found: Found) -> RawFront | None:
        """What stands in front of a task's prompts, read again only when it is something else."""
        if self.kind == "none" or (self.kind == "retrieved" and not found):
            return None
        names = tuple(stored.trajectory.trajectory_id for stored, _ in found)
        kept = self._fronts.get(task.task_id)
        if kept is None or (found and kept.names != names):
            shown = self._raw(found) if self.kind == "retrieved" else self._demonstrated(task)
            turns = tuple(turn for _, own in shown for turn in own)
            [row] = self.policy.embed([self.policy.tokenise(turns, is_complete=True)])
            items = tuple(item for item, _ in shown)
            kept = self._fronts[task.task_id] = RawFront(items, ReadFront.read(self.policy, row))
        return kept

    def forget(self, task: Task) -> None:
        """An episode is over; its front is no longer needed."""
        self._fronts.pop(task.task_id, None)

    def _demonstrated(self, task: Task) -> list[Shown]:
        """A demonstration on the task's site, in a few words or raw."""
        shown = self.demonstration(task_of(self.world, task.task_id))
        if self.kind == "notes":
            turns = (Turn("user", (notes(self.world, shown.steps),)),)
            return [(self._item(0, shown.task.task.task_id, len(shown.steps), turns), turns)]
        return self._raw([(as_trajectory(shown, lambda step: screenshot_of(self.world, step)), 1.0)])

    def _raw(self, found: Found) -> list[Shown]:
        shown = []
        for item in episodic_items((stored.trajectory, score) for stored, score in found):
            turns = self.asking.texts.serialise(item, found[item.rank][0].screenshots)
            shown.append((self._item(item.rank, item.trajectory_id, len(item.steps), turns), turns))
        return shown

    def _item(self, rank: int, name: str | None, num_steps: int, turns: Prompt) -> OfferedItem:
        num_tokens = len(self.policy.tokenise(turns, is_complete=True).ids)
        return OfferedItem(
            role="episodic",
            rank=rank,
            trajectory_id=name,
            num_steps=num_steps,
            is_accepted=True,
            num_tokens=num_tokens,
        )

    def demonstration(self, task: LabTask, *, num_candidates: int = 16) -> Rollout:
        """The most telling of some bank trajectories on the task's site, as a perfect retriever would find it."""
        expert = roll_out(self.world, task, Solver.expert(self.world, task))
        needed = set(experience(self.world, expert.steps))
        kinds = KINDS[self.world.site(task.site_id).family]
        candidates = (
            make_task(self.world, task.site_id, kinds[number % len(kinds)], "bank", number)
            for number in range(num_candidates)
        )
        others = [one for one in candidates if not _asks_the_same(one, task)]
        rollouts = [roll_out(self.world, one, Solver.expert(self.world, one)) for one in others]
        return max(
            (one for one in rollouts if one.is_success),
            key=lambda one: len(needed & set(experience(self.world, one.steps))),
        )


def _asks_the_same(one: LabTask, other: LabTask) -> bool:
    """Whether who has solved one knows the answer to the other."""
    if one.task.annotations.instance == other.task.annotations.instance:
        return True
    if not one.entries and not other.entries:  # where all of a list are alike, the cheapest is also the dearest
        return one.task.answer == other.task.answer
    return one.fact == other.fact and bool(set(one.entries) & set(other.entries))


class LatentMind:
    """Memory as blocks of latent tokens: what the retriever finds, and the expired history."""

    def __init__(
        self, memory: AgentMemory, recall: Retrieval, asking: Asking | None = None, *, num_found: int = 3
    ) -> None:
        self.memory, self.recall, self.asking, self.num_found = memory, recall, asking or Asking(), num_found

    def ask(self, seen: Sequence[Seen]) -> list[Reply]:
        clock = _Clock(len(seen))
        prompts = [self.asking.prompt(episode, now.screenshot) for episode, now in seen]
        with clock.part("retrieve"):
            searches = find(self.recall, seen, self.num_found)
        with clock.part("remember"):
            situations = [
                Situation(episode.task.instruction, episode.steps, episode.screenshots, own.found)
                for (episode, _), own in zip(seen, searches, strict=True)
            ]
            remembered = self.memory.remember(prompts, situations)
        with clock.part("reply"):
            texts = self.memory.policy.reply(remembered.rows, self.asking.generation)
        num_tokens = self.memory.policy.config.compressor.num_tokens
        told = zip(
            texts, prompts, searches, remembered.rows, remembered.items, remembered.num_memory_tokens, strict=True
        )
        return [
            Reply(
                text,
                StepNotes(
                    prompt=as_text(prompt),
                    offered=tuple(one.offered(num_tokens) for one in items),
                    num_removed=own.num_removed,
                    num_prompt_tokens=row.length - num,
                    num_memory_tokens=num,
                    seconds=clock.seconds,
                ),
            )
            for text, prompt, own, row, items, num in told
        ]

    def forget(self, task: Task) -> None:
        """What was encoded stays: another episode may need it."""


@dataclass(frozen=True)
class Search:
    found: Found = ()
    num_removed: dict[str, int] = field(default_factory=dict)
    """By key of the leakage guard, those that removed something."""


def find(recall: Retrieval, seen: Sequence[Seen], top: int) -> list[Search]:
    """What the retriever finds for the present moment of each episode."""
    moments = [_moment(episode, now.screenshot) for episode, now in seen]
    hits = recall.find(moments, [episode.task for episode, _ in seen], top=top)
    return [
        Search(
            [(recall.load(hit.trajectory_id), hit.score) for hit in own.hits],
            {str(key): num for key, num in own.removed.num_by_key.items() if num},
        )
        for own in hits
    ]


def _moment(episode: LiveEpisode, screenshot: Screenshot) -> Moment:
    """What the retriever is asked with; a site is told by its looks here, not by its name."""
    return replace(Moment.of(episode.task, episode.steps, episode.screenshots, screenshot), site="")


def as_text(prompt: Prompt) -> tuple[str, ...]:
    """A prompt turn by turn, with screenshots named by their digest."""
    return tuple(
        f"{turn.role}: " + "".join(part if isinstance(part, str) else f"[{part.digest}]" for part in turn.parts)
        for turn in prompt
    )


class _Clock:
    """Time by part, shared out over the episodes of a batch."""

    def __init__(self, num_episodes: int) -> None:
        self.num_episodes = num_episodes
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # a GPU works on after a call has returned
        self.seconds[name] = (time.perf_counter() - started) / self.num_episodes
