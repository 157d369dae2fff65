"""The training examples of the laboratory's policy: an endless sequence, each drawn from its own seed.

Nothing is stored. An example is a prompt, texts to learn in it, and the views its screenshots show; a batch is drawn
again from its number alone.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from focusmem.agent.prompt import NUM_RECENT, RecentEvent
from focusmem.errors import ConfigError
from focusmem.evidence import CHUNK_EVENTS
from focusmem.lab.policy.drawing import placeholder
from focusmem.lab.policy.drills import decisive_views, searching, somewhere_on, sought, weighing, weighings
from focusmem.lab.policy.packing import CorpusBatch, Example, pack_examples
from focusmem.lab.policy.texts import Texts
from focusmem.lab.world.answers import QUESTIONS, answer_to, notes
from focusmem.lab.world.rollout import Rollout, RolloutStep, roll_out
from focusmem.lab.world.scene import Word
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.tasks import COMPARISONS, KINDS, MAX_STEPS, USES, LabTask, make_task
from focusmem.lab.world.world import World
from focusmem.model.chat import ChatTokenizer
from focusmem.schemas import EvidenceItem, Prompt, Role, Screenshot, Step, Turn, action_to_json
from focusmem.seeds import derive_seed

LEARNT = (
    "transcription",
    "line",
    "answer",
    "weighing",
    "comparison",
    "search",
    "episode",
    "decision",
    "question",
    "list",
    "entry",
    "probe",
    "record",
)
"""The kinds of tokens to learn. The last is an action in a record that precedes something else."""

_NUM_DECISIONS = {"none": 4, "notes": 4, "record": 2}
_NUM_WEIGHED = 4
_MAX_MISSES = 200


@dataclass(frozen=True)
class Mix:
    """The random choices behind a situation."""

    help: str
    """The help in front of the prompt: none, notes or record."""
    num_records: int
    has_history: bool
    """Whether events that have left the window are shown raw."""
    role: Role
    """The kind of record that questions are about."""

    @classmethod
    def draw(cls, rng: random.Random) -> "Mix":
        help_kind = rng.choice(("none", "none", "record", "record", "record", "notes"))
        return cls(
            help=help_kind,
            num_records=rng.choice((1, 1, 1, 2, 2, 3)) if help_kind == "record" else 0,
            has_history=rng.random() < 0.5,
            role=rng.choice(("episodic", "working")),
        )


class Corpus:
    """Draws examples of one world's split."""

    def __init__(
        self,
        world: World,
        chat: ChatTokenizer,
        *,
        split: str = "p",
        num_sites: int = 4000,
        picture: Callable[[RolloutStep], Screenshot] | None = None,
    ) -> None:
        """`picture` draws the view of a step. By default prompts contain placeholders, and batches draw the pixels."""
        self.world, self.chat, self.split, self.num_sites = world, chat, split, num_sites
        self.picture = picture or placeholder
        self.texts = Texts.load()

    # Examples, by kind. Costly things (an episode, its pictures) are used for several examples.

    def examples(self, kind: str, rng: random.Random, mix: Mix) -> list[Example]:
        return self._MAKERS[kind](self, rng, mix)

    def _transcriptions(self, rng: random.Random, mix: Mix) -> list[Example]:
        rollout = self._rollout(rng)
        question = self.texts.questions.fill("transcribe")
        return [
            self._asked(
                [Turn("user", (self.picture(step), question))], self._words_in_view(step), [step], "transcription"
            )
            for step in rng.sample(rollout.steps, min(4, len(rollout.steps)))
        ]

    def _lines(self, rng: random.Random, mix: Mix) -> list[Example]:
        """Completions of some lines of a page, given their first words. They teach to find a place by its words."""
        rollout = self._rollout(rng)
        made = []
        for step in rng.sample(rollout.steps, min(4, len(rollout.steps))):
            lines = [line for line in self._lines_in_view(step) if len(line) > 1]
            turns = [Turn("user", (self.picture(step),))]
            for line in rng.sample(lines, min(6, len(lines))):
                num_told = rng.randrange(1, min(3, len(line)))
                turns.append(Turn("user", (f"Read on: {' '.join(line[:num_told])}",)))
                turns.append(Turn("assistant", (" ".join(line[num_told:]),)))
            if len(turns) > 1:
                made.append(self._row(turns, [step], "line"))
        return made

    def _answers(self, rng: random.Random, mix: Mix) -> list[Example]:
        """Examples with only the last step of an episode. The answer is on the page and has to be read."""
        rollout = self._rollout(rng)
        if rollout.task.kind in COMPARISONS:
            return []
        last = rollout.steps[-1]
        turns = [
            Turn("user", (f"Task: {rollout.task.task.instruction}",)),
            Turn("user", (self.picture(last),)),
            Turn("assistant", (_said(last),)),
        ]
        return [self._row(turns, [last], f"answer/{rollout.task.kind}")]

    def _weighings(self, rng: random.Random, mix: Mix) -> list[Example]:
        """Comparisons of two numbers only."""
        site = self.world.site(f"{self.split}-{rng.randrange(self.num_sites)}")
        return [self._row(weighings(site, rng), [], "weighing") for _ in range(_NUM_WEIGHED)]

    def _comparisons(self, rng: random.Random, mix: Mix) -> list[Example]:
        """Comparisons without an episode: several with both values in words, and one with the two views that
        show them.
        """
        site_id = f"{self.split}-{rng.randrange(self.num_sites)}"
        kinds = [kind for kind in KINDS[self.world.family(site_id)] if kind in COMPARISONS]
        tasks = [self._task(rng, site_id=site_id, kinds=kinds) for _ in range(_NUM_WEIGHED)]
        made = [self._row(weighing(self.world, task), [], "comparison/words") for task in tasks]
        rollout = self._rollout(rng, site_id=site_id, kinds=kinds)
        if rollout.is_success:
            views = decisive_views(self.world, rollout)
            turns = [
                Turn("user", (f"Task: {rollout.task.task.instruction}",)),
                *(Turn("user", (self.picture(view),)) for view in views),
                Turn("assistant", (_said(rollout.steps[-1]),)),
            ]
            made.append(self._row(turns, views, "comparison/views"))
        return made

    def _searches(self, rng: random.Random, mix: Mix) -> list[Example]:
        """Whether an element is in view, and where to scroll if it is not."""
        rollout = self._rollout(rng)
        made = []
        for step in rng.sample(rollout.steps, min(4, len(rollout.steps))):
            view = somewhere_on(self.world, step, rng)
            found = sought(self.world, view, rng)
            if found:
                turns = searching(Turn("user", (self.picture(view),)), found)
                made.append(self._row(turns, [view], "search"))
        return made

    def _episodes(self, rng: random.Random, mix: Mix) -> list[Example]:
        """A whole episode in one row. Every action is a target. Sometimes a record or notes precede the episode."""
        found = self._situation(rng, mix)
        turns: list[Turn] = [*found.front, Turn("user", (f"Task: {found.task.task.instruction}",))]
        for step in found.rollout.steps:
            turns += [Turn("user", (self.picture(step),)), _acted(step)]
        return [self._row(turns, [*found.views, *found.rollout.steps], f"episode/{found.help}")]

    def _decisions(self, rng: random.Random, mix: Mix) -> list[Example]:
        """Decisions with the agent's exact prompt, and the contents of memory shown raw in front."""
        found = self._situation(rng, mix)
        steps = found.rollout.steps
        num = min(_NUM_DECISIONS[mix.help], len(steps))
        places = set(rng.sample(range(len(steps)), num))
        if found.task.kind in COMPARISONS or rng.random() < 0.4:
            places.add(len(steps) - 1)  # the answer
        return [self._decision(found, at, mix) for at in sorted(places)]

    def _decision(self, found: "Situation", at: int, mix: Mix) -> Example:
        steps = found.rollout.steps
        front, views, help_kind = [*found.front], [*found.views], found.help
        expired = steps[: max(0, at - NUM_RECENT)]
        if expired and mix.has_history:
            help_kind += "+history"
            front += self._history(found.rollout, at)
            views += expired
        prompt = [*front, *self.prompt_at(found.task, steps, at)]
        recent = steps[max(0, at - NUM_RECENT) : at]
        wanted = steps[at].wanted or steps[at].action
        tag = f"decision/{help_kind}/{found.task.kind}/{wanted.name}"
        return self._asked(prompt, _should_say(steps[at]), [*views, *recent, steps[at]], tag)

    def _history(self, rollout: Rollout, at: int) -> list[Turn]:
        """The events that have left the prompt at a step, raw, chunk by chunk."""
        expired = rollout.steps[: max(0, at - NUM_RECENT)]
        chunks = (expired[start : start + CHUNK_EVENTS] for start in range(0, len(expired), CHUNK_EVENTS))
        return [turn for chunk in chunks for turn in self._record(rollout, chunk, "working")]

    def _questions(self, rng: random.Random, mix: Mix, *, site_id: str | None = None) -> list[Example]:
        """A record, and questions about it."""
        rollout, steps = self.some_record(rng, mix.role, site_id)
        made = []
        for question in rng.sample(QUESTIONS[mix.role], 2):
            prompt = self.question_about(rollout, steps, mix.role, question)
            reply = answer_to(self.world, question, rollout, steps)
            made.append(self._asked(prompt, reply, list(steps), f"question/{question}"))
        return made

    def some_record(
        self, rng: random.Random, role: Role, site_id: str | None = None
    ) -> tuple[Rollout, Sequence[RolloutStep]]:
        """An expert's episode, and the part of it that a record of this role covers."""
        rollout = self._rollout(rng, site_id=site_id, can_slip=role == "working")
        if role == "episodic":
            return rollout, rollout.steps
        start = rng.randrange(max(1, len(rollout.steps) - 1))
        return rollout, rollout.steps[start : start + rng.randrange(1, CHUNK_EVENTS + 1)]

    def question_about(self, rollout: Rollout, steps: Sequence[RolloutStep], role: Role, question: str) -> Prompt:
        record = self._record(rollout, steps, role)
        return (*record, Turn("user", (self.texts.questions.fill(question),)))

    _MAKERS: ClassVar[dict[str, Callable[..., list[Example]]]] = {
        "transcription": _transcriptions,
        "line": _lines,
        "answer": _answers,
        "weighing": _weighings,
        "comparison": _comparisons,
        "search": _searches,
        "episode": _episodes,
        "decision": _decisions,
        "question": _questions,
    }

    def _words_in_view(self, step: RolloutStep) -> str:
        words = self.world.scene(step.path).words()
        return " ".join(word.text for word in words if word.is_readable(step.scroll))

    def _lines_in_view(self, step: RolloutStep) -> list[list[str]]:
        """Words by line, from left to right; a wide gap between words does not end a line."""
        lines: dict[int, list[Word]] = {}
        for word in self.world.scene(step.path).words():
            if word.is_readable(step.scroll):
                lines.setdefault(word.top, []).append(word)
        return [[word.text for word in sorted(line, key=lambda word: word.left)] for line in lines.values()]

    # Situations

    def _situation(self, rng: random.Random, mix: Mix) -> "Situation":
        """A task, an episode of it, and the help in front of the prompt.

        With help in front (a record or notes), the actions are the expert's. Without help they are the explorer's half
        of the time, so that the policy learns both a prior and how to recover.
        """
        task = self._task(rng)
        if mix.help == "none":
            if rng.random() < 0.5:
                rollout = roll_out(self.world, task, Solver.explorer(self.world, task, rng))
            else:
                rollout = self._by_expert(task, rng)
            return Situation(task, rollout, "none", [], [])
        rollout = self._by_expert(task, rng)
        if mix.help == "notes":
            # Notes hold the conventions that the expert used, and some more.
            other = self._rollout(rng, site_id=task.site_id)
            text = notes(self.world, [*rollout.steps, *other.steps])
            return Situation(task, rollout, "notes", [Turn("user", (text,))], [])
        front: list[Turn] = []
        views: list[RolloutStep] = []
        for _ in range(mix.num_records):
            shown = self._helpful(task, rng) if rng.random() < 0.8 else self._rollout(rng)
            front += self._record(shown, shown.steps, "episodic")
            views += shown.steps
        return Situation(task, rollout, "record", front, views)

    def _helpful(self, task: LabTask, rng: random.Random) -> Rollout:
        """Another task on the same site, usually of a kind that shows the same facts."""
        family = self.world.family(task.site_id)
        kinds = (task.kind,) if rng.random() < 0.5 else KINDS[family]
        return self._rollout(rng, site_id=task.site_id, kinds=kinds)

    def _rollout(
        self,
        rng: random.Random,
        *,
        site_id: str | None = None,
        kinds: Sequence[str] | None = None,
        can_slip: bool = False,
    ) -> Rollout:
        task = self._task(rng, site_id=site_id, kinds=kinds)
        if can_slip:
            return self._by_expert(task, rng)
        return roll_out(self.world, task, Solver.expert(self.world, task))

    def _by_expert(self, task: LabTask, rng: random.Random) -> Rollout:
        """An expert's episode. Half of the episodes contain random slips, which the expert then corrects."""
        slips = rng if rng.random() < 0.5 else None
        rollout = roll_out(self.world, task, Solver.expert(self.world, task), slips=slips)
        if task.request is None or rollout.is_success:
            return rollout
        # At an office, a slip may end the request, which nothing can set right.
        return roll_out(self.world, task, Solver.expert(self.world, task))

    def _task(self, rng: random.Random, *, site_id: str | None = None, kinds: Sequence[str] | None = None) -> LabTask:
        site_id = site_id or f"{self.split}-{rng.randrange(self.num_sites)}"
        kind = rng.choice(tuple(kinds or KINDS[self.world.family(site_id)]))
        return make_task(self.world, site_id, kind, rng.choice(USES), rng.randrange(10**6))

    # From turns to tokens

    def _record(self, rollout: Rollout, steps: Sequence[RolloutStep], role: Role) -> list[Turn]:
        pictures = [self.picture(step) for step in steps]
        item = EvidenceItem(
            item_id="shown",
            role=role,
            instruction=rollout.task.task.instruction,
            steps=tuple(
                Step(screenshot=picture.ref(), action=step.action)
                for step, picture in zip(steps, pictures, strict=True)
            ),
            rank=0,
        )
        prompt = self.texts.serialise(item, {picture.digest: picture for picture in pictures})
        opening, *events, closing = prompt
        return [
            opening,
            *(
                _Event(turn.role, turn.parts) if self._can_be_told(steps, at) else turn
                for at, turn in enumerate(events)
            ),
            closing,
        ]

    def _can_be_told(self, steps: Sequence[RolloutStep], at: int) -> bool:
        """Whether an action of a record can be learnt from what the record shows before it."""
        return steps[at].wanted is None

    def prompt_at(self, task: LabTask, steps: Sequence[RolloutStep], at: int) -> Prompt:
        """The agent's prompt at a step of an episode, without memory."""
        recent = [
            RecentEvent(number + 1, self.picture(step), _said(step), step.error)
            for number, step in enumerate(steps[:at])
            if number >= at - NUM_RECENT
        ]
        return self.texts.prompt(
            instruction=task.task.instruction,
            recent=recent,
            screenshot=self.picture(steps[at]),
            actions_left=MAX_STEPS - at,
        )

    def _asked(self, prompt: Sequence[Turn], reply: str, views: Sequence[RolloutStep], tag: str) -> Example:
        return self._row([*prompt, Turn("assistant", (reply,))], views, tag)

    def _row(self, turns: Sequence[Turn], views: Sequence[RolloutStep], tag: str) -> Example:
        """An example whose targets are all texts of the assistant, and the action in each event of a record."""
        ids: list[int] = []
        learnt: list[int] = []
        num_break = len(self.chat.encode("\n"))
        for turn in turns:
            own = self.chat.turn_ids(turn)
            place = self._learnt_as(turn, tag)
            start = self._start_of_text(own, turn) if place else len(own)
            ids += own
            learnt += [0] * start + [place] * (len(own) - start - num_break) + [0] * min(num_break, len(own) - start)
        # The row ends with the last turn's end mark, as when the policy acts.
        return Example(tuple(ids[:-num_break]), tuple(learnt[:-num_break]), tuple(views), tag)

    def _learnt_as(self, turn: Turn, tag: str) -> int:
        if isinstance(turn, _Slip):
            return 0
        if turn.role == "assistant":
            return LEARNT.index(tag.split("/")[0]) + 1
        return LEARNT.index("record") + 1 if isinstance(turn, _Event) else 0

    def _start_of_text(self, ids: Sequence[int], turn: Turn) -> int:
        """The position where the turn's text begins: after its opening, or after its screenshot."""
        if not _shows_picture(turn):
            return len(self.chat.opening_ids(turn.role))
        return len(ids) - ids[::-1].index(self.chat.special["<|vision_end|>"])

    # Batches

    def batch(self, shares: Mapping[str, float], seed: int, *, max_tokens: int, max_row: int = 6_000) -> CorpusBatch:
        """Examples of the given kinds, each with its share of the tokens, up to `max_tokens` in all."""
        rng = random.Random(seed)
        chosen: list[Example] = []
        used = dict.fromkeys(shares, 0)
        num_misses = 0
        while num_misses < (3 if chosen else _MAX_MISSES):
            kind = max(shares, key=lambda name: shares[name] * (1 + sum(used.values())) - used[name])
            for one in self.examples(kind, rng, Mix.draw(rng)):
                if len(one.ids) <= min(max_row, max_tokens - sum(used.values())):
                    chosen.append(one)
                    used[kind] += len(one.ids)
                else:
                    num_misses += 1
        if not chosen:
            raise ConfigError(f"max_tokens is {max_tokens}; not one example of {', '.join(shares)} is as short.")
        return pack_examples(self.world, self.chat, chosen, max_tokens)


class _Event(Turn):
    """A turn with an event of a record, whose action is a target."""


class _Slip(Turn):
    """A turn with a slip, which is not a target."""


@dataclass(frozen=True)
class Situation:
    task: LabTask
    rollout: Rollout
    help: str
    """The help in front of the prompt: none, record or notes."""
    front: Sequence[Turn]
    views: Sequence[RolloutStep]


class CorpusBatches(torch.utils.data.Dataset[CorpusBatch]):
    """Batches by number, for a loader with several processes."""

    def __init__(
        self, corpus: Corpus, shares: Callable[[int], Mapping[str, float]], *, seed: int, max_tokens: int
    ) -> None:
        self.corpus, self.shares, self.seed, self.max_tokens = corpus, shares, seed, max_tokens

    def __getitem__(self, number: int) -> CorpusBatch:
        seed = derive_seed(self.seed, "batch", number)
        return self.corpus.batch(self.shares(number), seed, max_tokens=self.max_tokens)

    def __len__(self) -> int:
        return 2**31


def _shows_picture(turn: Turn) -> bool:
    return any(isinstance(part, Screenshot) for part in turn.parts)


def _said(step: RolloutStep) -> str:
    return action_to_json(step.action)


def _should_say(step: RolloutStep) -> str:
    return action_to_json(step.wanted or step.action)


def _acted(step: RolloutStep) -> Turn:
    kind = _Slip if step.wanted else Turn
    return kind("assistant", (_said(step),))
