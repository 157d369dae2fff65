"""What the laboratory's policy learns from: examples drawn without end, each from its own seed.

Nothing is stored. An example is a prompt, replies to learn in it, and the views its screenshots show; a batch is made
of examples of one kind, so that little is lost to padding, and is drawn again from its number alone.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from focusmem.agent.prompt import NUM_RECENT, PromptBuilder, RecentEvent
from focusmem.evidence import Serialiser
from focusmem.files import sha256_hex
from focusmem.lab.answers import QUESTIONS, answer_to, notes
from focusmem.lab.rollout import Rollout, RolloutStep, roll_out
from focusmem.lab.scene import VIEW_HEIGHT, VIEW_WIDTH, Word
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

_NO_ACTION = make_action("wait")
_QUESTION_NAMES = sorted({name for names in QUESTIONS.values() for name in names} | {"transcribe"})


@dataclass(frozen=True)
class Example:
    ids: tuple[int, ...]
    is_target: tuple[bool, ...]
    views: tuple[RolloutStep, ...]
    """What each screenshot shows, in order."""


@dataclass(frozen=True)
class CorpusBatch:
    """B rows padded to S tokens; each different picture once."""

    ids_BS: torch.Tensor
    is_target_BS: torch.Tensor
    positions_3BS: torch.Tensor
    pixels_NHWC: torch.Tensor
    picture_of_place: torch.Tensor
    """For each place of a screenshot in the batch, row by row, which picture it is."""
    kind: str


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

    # Examples, by kind

    def example(self, kind: str, rng: random.Random) -> Example:
        return self._MAKERS[kind](self, rng)

    def _transcription(self, rng: random.Random) -> Example:
        rollout = self._rollout(rng)
        step = rng.choice(rollout.steps)
        scene = self.world.scene(step.path)
        words = [
            item.text
            for item in scene.drawn
            if isinstance(item, Word) and step.scroll <= item.top <= step.scroll + VIEW_HEIGHT - item.font.size
        ]
        prompt = (Turn("user", (_placeholder(step), self.texts.questions.fill("transcribe"))),)
        return self._asked(prompt, " ".join(words), [step])

    def _episode(self, rng: random.Random) -> Example:
        """A whole episode in one row, every action a target; sometimes with a record or notes in front."""
        task, rollout, front, views = self._situation(rng)
        turns: list[Turn] = [*front, Turn("user", (f"Task: {task.task.instruction}",))]
        for step in rollout.steps:
            turns += [Turn("user", (_placeholder(step),)), Turn("assistant", (_said(step),))]
        return self._dialogue(turns, [*views, *rollout.steps])

    def _decision(self, rng: random.Random) -> Example:
        """One step exactly as the agent is asked, with what memory would hold shown raw in front."""
        task, rollout, front, views = self._situation(rng)
        at = rng.randrange(len(rollout.steps))
        expired = rollout.steps[: max(0, at - NUM_RECENT)]
        if expired and rng.random() < 0.5:
            chunks = [expired[start : start + CHUNK_EVENTS] for start in range(0, len(expired), CHUNK_EVENTS)]
            front = [*front, *(turn for chunk in chunks for turn in self._record(rollout, chunk, "working"))]
            views = [*views, *expired]
        prompt = (*front, *self._asked_at(task, rollout.steps, at))
        recent = rollout.steps[max(0, at - NUM_RECENT) : at]
        return self._asked(prompt, _said(rollout.steps[at]), [*views, *recent, rollout.steps[at]])

    def _question(self, rng: random.Random) -> Example:
        """A record, and one of the questions about it."""
        rollout = self._rollout(rng)
        role: Role = rng.choice(("episodic", "working"))
        steps: Sequence[RolloutStep] = rollout.steps
        if role == "working":
            start = rng.randrange(max(1, len(steps) - 1))
            steps = steps[start : start + rng.randrange(1, CHUNK_EVENTS + 1)]
        question = rng.choice(QUESTIONS[role])
        asked = Turn("user", (self.texts.questions.fill(question),))
        prompt = (*self._record(rollout, steps, role), asked)
        return self._asked(prompt, answer_to(self.world, question, rollout, steps), list(steps))

    _MAKERS: dict[str, Callable[["Corpus", random.Random], Example]] = {
        "transcription": _transcription,
        "episode": _episode,
        "decision": _decision,
        "question": _question,
    }

    # Situations

    def _situation(self, rng: random.Random) -> tuple[LabTask, Rollout, list[Turn], list[RolloutStep]]:
        """A task, how it went, and what stands in front of the prompt.

        Who could know the site's ways (a record or notes are in front) acts like the expert. Who could not acts like
        the explorer half of the time, so that the policy has both a prior and a way to recover.
        """
        task = self._task(rng)
        help_kind = rng.choice(("none", "none", "record", "record", "record", "notes"))
        if help_kind == "none":
            is_expert = rng.random() < 0.5
            solver = Solver.expert(self.world, task) if is_expert else Solver.explorer(self.world, task, rng)
            return task, roll_out(self.world, task, solver), [], []
        rollout = roll_out(self.world, task, Solver.expert(self.world, task))
        if help_kind == "notes":
            # Notes tell what an expert would have used, and something more.
            other = self._rollout(rng, site_id=task.site_id)
            text = notes(self.world, [*rollout.steps, *other.steps])
            return task, rollout, [Turn("user", (text,))], []
        front: list[Turn] = []
        views: list[RolloutStep] = []
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
            shown = self._helpful(task, rng) if rng.random() < 0.8 else self._rollout(rng)
            front += self._record(shown, shown.steps, "episodic")
            views += shown.steps
        return task, rollout, front, views

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

    def _task(
        self, rng: random.Random, *, site_id: str | None = None, kinds: Sequence[str] | None = None
    ) -> LabTask:
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

    def _asked(self, prompt: Prompt, reply: str, views: Sequence[RolloutStep]) -> Example:
        row = self.chat.tokenise(prompt, reply=reply)
        is_target = [False] * (len(row.ids) - row.num_target) + [True] * row.num_target
        return Example(row.ids, tuple(is_target), tuple(views))

    def _dialogue(self, turns: Sequence[Turn], views: Sequence[RolloutStep]) -> Example:
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
        return Example(tuple(ids), tuple(is_target), tuple(views))

    # Batches

    def batch(self, kind: str, seed: int, *, max_tokens: int, max_row: int = 6_000) -> CorpusBatch:
        """Examples of one kind up to a number of tokens, padding included."""
        rng = random.Random(seed)
        examples: list[Example] = []
        longest = 0
        while True:
            one = self.example(kind, rng)
            if len(one.ids) > max_row:
                continue
            longest = max(longest, len(one.ids))
            if examples and longest * (len(examples) + 1) > max_tokens:
                return self._collated(kind, examples)
            examples.append(one)

    def _collated(self, kind: str, examples: Sequence[Example]) -> CorpusBatch:
        size = max(len(one.ids) for one in examples)
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
            kind=kind,
        )

    def _pixels(self, view: RolloutStep) -> npt.NDArray[np.uint8]:
        return np.asarray(PageSession(self.world, view.path, scroll=view.scroll, typed=view.typed).image())


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
