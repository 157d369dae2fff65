"""What the laboratory's policy learns from: examples drawn without end, each from its own seed.

Nothing is stored. An example is a prompt, replies to learn in it, and the views its screenshots show; a batch is made
of examples of one kind, so that little is lost to padding, and is drawn again from its number alone.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from focusmem.agent.prompt import NUM_RECENT, PromptBuilder, RecentEvent
from focusmem.evidence import Serialiser
from focusmem.files import sha256_hex
from focusmem.lab.answers import QUESTIONS, answer_to, notes
from focusmem.lab.rollout import Rollout, RolloutStep, roll_out
from focusmem.lab.scene import VIEW_HEIGHT, VIEW_WIDTH
from focusmem.lab.session import PageSession
from focusmem.lab.solvers import Solver
from focusmem.lab.tasks import KINDS, MAX_STEPS, USES, LabTask, make_task
from focusmem.lab.world import World
from focusmem.model.chat import ChatTokenizer
from focusmem.model.inputs import text_and_image_positions
from focusmem.schemas import EvidenceItem, Prompt, Role, Screenshot, Step, Turn, action_to_json, make_action
from focusmem.seeds import derive_seed
from focusmem.templates import Templates

PROMPTS = Path(__file__).parent / "prompts"
CHUNK_EVENTS = 4
"""W: events per working chunk."""

_ROUND_TO = 128
_NO_ACTION = make_action("wait")
_QUESTION_NAMES = sorted({name for names in QUESTIONS.values() for name in names} | {"transcribe"})


@dataclass(frozen=True)
class Example:
    ids: tuple[int, ...]
    is_target: tuple[bool, ...]
    views: tuple[RolloutStep, ...]
    """What each screenshot shows, in order."""
    tag: str = ""
    """What it is an example of, for scores apart: the kind, what stands in front, the action."""


@dataclass(frozen=True)
class CorpusBatch:
    """B rows padded to S tokens; each different picture once."""

    ids_BS: torch.Tensor
    is_target_BS: torch.Tensor
    positions_3BS: torch.Tensor
    pixels_NHWC: torch.Tensor
    picture_of_place: torch.Tensor
    """For each place of a screenshot in the batch, row by row, which picture it is."""
    tags: tuple[str, ...]
    """One per row."""

    def pin_memory(self) -> "CorpusBatch":
        """Called by the loader, so that copying to a GPU need not wait."""
        return self._each(lambda tensor: tensor.pin_memory())

    def to(self, device: torch.device) -> "CorpusBatch":
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def _each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> "CorpusBatch":
        return CorpusBatch(
            ids_BS=change(self.ids_BS),
            is_target_BS=change(self.is_target_BS),
            positions_3BS=change(self.positions_3BS),
            pixels_NHWC=change(self.pixels_NHWC),
            picture_of_place=change(self.picture_of_place),
            tags=self.tags,
        )


@dataclass(frozen=True)
class Mix:
    """What the examples of one batch have in common, so that their lengths are alike and little is lost to padding."""

    help: str
    """What stands in front: none, notes or record."""
    num_records: int
    has_history: bool
    """Whether the events that left the window are shown raw as well."""
    role: Role
    """Which kind of record is asked about."""

    @classmethod
    def draw(cls, rng: random.Random) -> "Mix":
        help_kind = rng.choice(("none", "none", "record", "record", "record", "notes"))
        return cls(
            help=help_kind,
            num_records=rng.choice((1, 1, 1, 2, 2, 3)) if help_kind == "record" else 0,
            has_history=rng.random() < 0.5,
            role=rng.choice(("episodic", "working")),
        )


@dataclass(frozen=True)
class Texts:
    """The laboratory's own wording of all prompts."""

    prompt: PromptBuilder
    serialise: Serialiser
    questions: Templates

    @classmethod
    def load(cls) -> "Texts":
        questions = Templates(PROMPTS / "questions", slots={name: set() for name in _QUESTION_NAMES})
        return cls(PromptBuilder(PROMPTS / "agent"), Serialiser(PROMPTS / "evidence"), questions)


class Corpus:
    """Draws examples of one world's split."""

    def __init__(self, world: World, chat: ChatTokenizer, *, split: str = "p", num_sites: int = 4000) -> None:
        self.world, self.chat, self.split, self.num_sites = world, chat, split, num_sites
        self.texts = Texts.load()

    # Examples, by kind. What is costly (an episode, its pictures) serves several examples.

    def examples(self, kind: str, rng: random.Random, mix: Mix) -> list[Example]:
        return self._MAKERS[kind](self, rng, mix)

    def _transcriptions(self, rng: random.Random, mix: Mix) -> list[Example]:
        rollout = self._rollout(rng)
        question = self.texts.questions.fill("transcribe")
        return [
            self._asked(
                (Turn("user", (_placeholder(step), question)),), self._words_in_view(step), [step], "transcription"
            )
            for step in rng.sample(rollout.steps, min(4, len(rollout.steps)))
        ]

    def _episodes(self, rng: random.Random, mix: Mix) -> list[Example]:
        """A whole episode in one row, every action a target; sometimes with a record or notes in front."""
        found = self._situation(rng, mix)
        turns: list[Turn] = [*found.front, Turn("user", (f"Task: {found.task.task.instruction}",))]
        for step in found.rollout.steps:
            turns += [Turn("user", (_placeholder(step),)), Turn("assistant", (_said(step),))]
        return [self._dialogue(turns, [*found.views, *found.rollout.steps], f"episode/{found.help}")]

    def _decisions(self, rng: random.Random, mix: Mix) -> list[Example]:
        """Steps exactly as the agent is asked, with what memory would hold shown raw in front."""
        found = self._situation(rng, mix)
        steps = found.rollout.steps
        return [self._decision(found, at, mix) for at in sorted(rng.sample(range(len(steps)), min(3, len(steps))))]

    def _decision(self, found: "_Situation", at: int, mix: Mix) -> Example:
        steps = found.rollout.steps
        front, views, help_kind = [*found.front], [*found.views], found.help
        expired = steps[: max(0, at - NUM_RECENT)]
        if expired and mix.has_history:
            help_kind += "+history"
            for start in range(0, len(expired), CHUNK_EVENTS):
                front += self._record(found.rollout, expired[start : start + CHUNK_EVENTS], "working")
            views += expired
        prompt = (*front, *self._asked_at(found.task, steps, at))
        recent = steps[max(0, at - NUM_RECENT) : at]
        tag = f"decision/{help_kind}/{found.task.kind}/{steps[at].action.name}"
        return self._asked(prompt, _said(steps[at]), [*views, *recent, steps[at]], tag)

    def _questions(self, rng: random.Random, mix: Mix) -> list[Example]:
        """A record, and questions about it."""
        rollout = self._rollout(rng)
        role = mix.role
        steps: Sequence[RolloutStep] = rollout.steps
        if role == "working":
            start = rng.randrange(max(1, len(steps) - 1))
            steps = steps[start : start + rng.randrange(1, CHUNK_EVENTS + 1)]
        record = self._record(rollout, steps, role)
        made = []
        for question in rng.sample(QUESTIONS[role], 2):
            prompt = (*record, Turn("user", (self.texts.questions.fill(question),)))
            reply = answer_to(self.world, question, rollout, steps)
            made.append(self._asked(prompt, reply, list(steps), f"question/{question}"))
        return made

    _MAKERS: ClassVar[dict[str, Callable[["Corpus", random.Random, Mix], list[Example]]]] = {
        "transcription": _transcriptions,
        "episode": _episodes,
        "decision": _decisions,
        "question": _questions,
    }

    def _words_in_view(self, step: RolloutStep) -> str:
        words = self.world.scene(step.path).words()
        return " ".join(word.text for word in words if word.is_readable(step.scroll))

    # Situations

    def _situation(self, rng: random.Random, mix: Mix) -> "_Situation":
        """A task, how it went, and what stands in front of the prompt.

        Who could know the site's ways (a record or notes are in front) acts like the expert. Who could not acts like
        the explorer half of the time, so that the policy has both a prior and a way to recover.
        """
        task = self._task(rng)
        if mix.help == "none":
            is_expert = rng.random() < 0.5
            solver = Solver.expert(self.world, task) if is_expert else Solver.explorer(self.world, task, rng)
            return _Situation(task, roll_out(self.world, task, solver), "none", [], [])
        rollout = roll_out(self.world, task, Solver.expert(self.world, task))
        if mix.help == "notes":
            # Notes tell what an expert would have used, and something more.
            other = self._rollout(rng, site_id=task.site_id)
            text = notes(self.world, [*rollout.steps, *other.steps])
            return _Situation(task, rollout, "notes", [Turn("user", (text,))], [])
        front: list[Turn] = []
        views: list[RolloutStep] = []
        for _ in range(mix.num_records):
            shown = self._helpful(task, rng) if rng.random() < 0.8 else self._rollout(rng)
            front += self._record(shown, shown.steps, "episodic")
            views += shown.steps
        return _Situation(task, rollout, "record", front, views)

    def _helpful(self, task: LabTask, rng: random.Random) -> Rollout:
        """Another task on the same site; usually of a kind that shows the same facts."""
        family = self.world.site(task.site_id).family
        kinds = (task.kind,) if rng.random() < 0.5 else KINDS[family]
        return self._rollout(rng, site_id=task.site_id, kinds=kinds)

    def _rollout(
        self, rng: random.Random, *, site_id: str | None = None, kinds: Sequence[str] | None = None
    ) -> Rollout:
        task = self._task(rng, site_id=site_id, kinds=kinds)
        return roll_out(self.world, task, Solver.expert(self.world, task))

    def _task(self, rng: random.Random, *, site_id: str | None = None, kinds: Sequence[str] | None = None) -> LabTask:
        site_id = site_id or f"{self.split}-{rng.randrange(self.num_sites)}"
        kind = rng.choice(tuple(kinds or KINDS[self.world.site(site_id).family]))
        return make_task(self.world, site_id, kind, rng.choice(USES), rng.randrange(10**6))

    # From turns to tokens

    def _record(self, rollout: Rollout, steps: Sequence[RolloutStep], role: Role) -> Prompt:
        pictures = [_placeholder(step) for step in steps]
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
        return self.texts.serialise(item, {picture.digest: picture for picture in pictures})

    def _asked_at(self, task: LabTask, steps: Sequence[RolloutStep], at: int) -> Prompt:
        recent = [
            RecentEvent(number + 1, _placeholder(step), _said(step))
            for number, step in enumerate(steps[:at])
            if number >= at - NUM_RECENT
        ]
        return self.texts.prompt(
            instruction=task.task.instruction,
            recent=recent,
            screenshot=_placeholder(steps[at]),
            actions_left=MAX_STEPS - at,
        )

    def _asked(self, prompt: Prompt, reply: str, views: Sequence[RolloutStep], tag: str) -> Example:
        row = self.chat.tokenise(prompt, reply=reply)
        is_target = [False] * (len(row.ids) - row.num_target) + [True] * row.num_target
        return Example(row.ids, tuple(is_target), tuple(views), tag)

    def _dialogue(self, turns: Sequence[Turn], views: Sequence[RolloutStep], tag: str) -> Example:
        ids: list[int] = []
        is_target: list[bool] = []
        num_opening = len(self.chat.opening_ids("assistant"))
        num_break = len(self.chat.encode("\n"))
        for turn in turns:
            own = self.chat.turn_ids(turn)
            ids += own
            learnt = [turn.role == "assistant"] * len(own)
            learnt[:num_opening] = [False] * num_opening
            learnt[len(own) - num_break :] = [False] * num_break
            is_target += learnt
        return Example(tuple(ids), tuple(is_target), tuple(views), tag)

    # Batches

    def batch(self, kind: str, seed: int, *, max_tokens: int, max_row: int = 6_000) -> CorpusBatch:
        """Examples of one kind up to a number of tokens, padding included."""
        rng = random.Random(seed)
        mix = Mix.draw(rng)
        chosen: list[Example] = []
        longest = 0
        while True:
            for one in self.examples(kind, rng, mix):
                if len(one.ids) > max_row:
                    continue
                longest = max(longest, len(one.ids))
                if chosen and longest * (len(chosen) + 1) > max_tokens:
                    return self._collated(chosen)
                chosen.append(one)

    def _collated(self, examples: Sequence[Example]) -> CorpusBatch:
        # Few different sizes: kernels are planned and compiled per shape.
        size = -(-max(len(one.ids) for one in examples) // _ROUND_TO) * _ROUND_TO
        ids = np.full((len(examples), size), self.chat.special["<|endoftext|>"], dtype=np.int64)
        targets = np.zeros((len(examples), size), dtype=bool)
        positions = torch.zeros(3, len(examples), size, dtype=torch.int64)
        pictures: dict[RolloutStep, int] = {}
        places: list[int] = []
        grid = self.chat.token_grid(VIEW_WIDTH, VIEW_HEIGHT)
        image_token = self.chat.special["<|image_pad|>"]
        for row, one in enumerate(examples):
            ids[row, : len(one.ids)] = one.ids
            targets[row, : len(one.ids)] = one.is_target
            own, _ = text_and_image_positions(one.ids, image_token, [grid] * len(one.views))
            positions[:, row, : len(one.ids)] = own
            places += [pictures.setdefault(_seen(view), len(pictures)) for view in one.views]
        return CorpusBatch(
            ids_BS=torch.from_numpy(ids),
            is_target_BS=torch.from_numpy(targets),
            positions_3BS=positions,
            pixels_NHWC=torch.from_numpy(np.stack([self._pixels(view) for view in pictures])),
            picture_of_place=torch.tensor(places),
            tags=tuple(one.tag for one in examples),
        )

    def _pixels(self, view: RolloutStep) -> npt.NDArray[np.uint8]:
        return np.asarray(PageSession(self.world, view.path, scroll=view.scroll, typed=view.typed).image())


@dataclass(frozen=True)
class _Situation:
    task: LabTask
    rollout: Rollout
    help: str
    """What stands in front: none, record or notes."""
    front: Sequence[Turn]
    views: Sequence[RolloutStep]


class CorpusBatches(torch.utils.data.Dataset[CorpusBatch]):
    """Batches by number, for a loader with several processes."""

    def __init__(self, corpus: Corpus, kinds: Callable[[int], str], *, seed: int, max_tokens: int) -> None:
        self.corpus, self.kinds, self.seed, self.max_tokens = corpus, kinds, seed, max_tokens

    def __getitem__(self, number: int) -> CorpusBatch:
        kind = self.kinds(number)
        return self.corpus.batch(kind, derive_seed(self.seed, "batch", number), max_tokens=self.max_tokens)

    def __len__(self) -> int:
        return 2**31


def _said(step: RolloutStep) -> str:
    return action_to_json(step.action)


def _seen(step: RolloutStep) -> RolloutStep:
    """Steps that show the same picture are the same here, whatever was done in them."""
    return RolloutStep(step.path, step.scroll, step.typed, _NO_ACTION, None)


def _placeholder(step: RolloutStep) -> Screenshot:
    """Stands for a screenshot until its pixels are drawn; named by what it shows."""
    digest = sha256_hex(repr((step.path, step.scroll, step.typed)).encode())
    return Screenshot(png=b"", digest=digest, width=VIEW_WIDTH, height=VIEW_HEIGHT)
