"""The frozen policy as teacher: it reads each item raw, describes it, and answers the functional questions of its role.

Paper, Appendix A.2 and B.2. None of this depends on trained weights, so it is done once, before stage A, and kept.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from pydantic import PositiveInt
from torch import Tensor

from focusmem.model.backbone import Backbone, VisionFeatures
from focusmem.model.generation import GenerationConfig, generate
from focusmem.model.inputs import TokenRow, alike_in_length
from focusmem.progress import Progress
from focusmem.settings import checked_dataclass
from focusmem.training.batch import TrainingBatch, TrainingData, TrainingItem
from focusmem.training.lessons import Description, LessonStore
from focusmem.training.pathway import Look, brought_along
from focusmem.training.questions import DESCRIBE, SUBTYPES, Discarded, Questions, read_answer

_NUM_WRITERS = 8


@checked_dataclass(frozen=True, kw_only=True)
class TeacherConfig:
    prompts: Path | None = None
    """A folder with other wordings of the questions."""
    max_new_tokens: PositiveInt = 384
    """Maximum tokens of an answer; longer answers are cut off. A cut description is kept. A functional answer without a
    complete object is discarded."""
    max_batch_tokens: PositiveInt = 65_536
    """Maximum tokens, padding included, of the questions that are read together, each after its item. Questions are
    collected until this number is reached."""


@dataclass
class TeacherCounts:
    num_made: int = 0
    num_found: int = 0
    """The number of items that already had a lesson."""
    num_targets: int = 0
    """The number of functional answers of all these items that can be learnt from."""
    discarded: Counter[str] = field(default_factory=Counter)
    """Discarded answers, by subtype."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Discarded answers, by reason."""


def lesson_store(folder: Path, backbone: Backbone, config: TeacherConfig | None = None) -> LessonStore:
    """Where the lessons of this policy are kept. Data for stage A reads them from here."""
    config = config or TeacherConfig()
    identity = backbone.identity()
    policy = f"{identity.architecture} {identity.weights} {config.max_new_tokens}"
    return LessonStore(folder, policy=policy, questions=Questions(config.prompts))


class Teacher:
    """Asks the frozen policy about each item. Decoding hundreds of replies together takes as long as decoding one, so
    questions are collected first.
    """

    def __init__(
        self, backbone: Backbone, folder: Path, config: TeacherConfig | None = None, *, look: Look | None = None
    ) -> None:
        """Lessons are stored in `folder`. `look` computes features of pictures that batches carry, as in training."""
        self.backbone, self.config, self.look = backbone, config or TeacherConfig(), look
        self.store = lesson_store(folder, backbone, self.config)

    def prepare(self, data: TrainingData) -> TeacherCounts:
        """Makes a lesson for every item of the data that has none yet."""
        counts, known, waiting = TeacherCounts(), set[str](), list[_Answers]()
        with Progress("teach", total=data.num_batches) as line:
            for number in range(data.num_batches):
                batch = data.batch(number)
                items = {item.digest: item for item in batch.items if item.digest not in known}
                known |= items.keys()
                waiting += self._ask(batch, self._missing(list(items.values()), counts))
                is_last = number == data.num_batches - 1
                if is_last or sum(one.num_waiting_tokens for one in waiting) >= self.config.max_batch_tokens:
                    self._say(waiting, counts)
                    waiting = []
                num_discarded = counts.discarded.total()
                line.step(note=f"{counts.num_made} made  {counts.num_found} found  {num_discarded} answers discarded")
        return counts

    def _missing(self, items: Sequence[TrainingItem], counts: TeacherCounts) -> list[TrainingItem]:
        missing = []
        for item in items:
            discarded = self.store.discarded(item.digest)
            if discarded is None:
                missing.append(item)
            else:
                counts.num_found += 1
                _count(counts, item, discarded)
        return missing

    def _ask(self, batch: TrainingBatch, items: Sequence[TrainingItem]) -> list["_Answers"]:
        """The questions about some items of a batch, with the features of their pictures."""
        if not items:
            return []
        seen = brought_along(batch.pixels, self.look, self.backbone)
        return [self._asked(item, seen).apart() for item in items]

    @torch.no_grad()
    def _say(self, answers: Sequence["_Answers"], counts: TeacherCounts) -> None:
        """Generates the missing answers. Then it reads the descriptions once more to get their hidden states."""
        config = GenerationConfig(max_new_tokens=self.config.max_new_tokens)
        asked = [(one, name) for one in answers for name in one.waiting]
        lengths = [len(one.rows[name].ids) for one, name in asked]
        max_tokens = self.config.max_batch_tokens
        # Padding is unimportant here: the number of passes of a group is the number of tokens of its longest answer.
        for group in alike_in_length(lengths, max_tokens=max_tokens, max_padding=max_tokens):
            some = [asked[place] for place in group]
            seen = {digest: features for one, _ in some for digest, features in one.seen.items()}
            rows = [one.rows[name] for one, name in some]
            replies = generate(self.backbone, self.backbone.embed(rows, seen=seen), config)
            full = [self._with_reply(row, ids) for row, ids in zip(rows, replies, strict=True)]
            described = [place for place, (_, name) in enumerate(some) if name == DESCRIBE]
            states: dict[int, Tensor] = {}
            if described:
                embedded = self.backbone.embed([full[place] for place in described], seen=seen)
                hidden_MD = self.backbone.target_hidden(embedded)
                sizes = [full[place].num_target for place in described]
                states = dict(zip(described, torch.split(hidden_MD, sizes), strict=True))
            for place, (one, name) in enumerate(some):
                one.take(name, full[place], states.get(place))
        self._keep(answers, counts)

    def _asked(self, item: TrainingItem, seen: Mapping[str, VisionFeatures]) -> "_Answers":
        """An item with all questions about it and the features of its pictures."""
        questions = self.store.questions
        rows = {
            name: self.backbone.tokenise(questions.ask_about(item.prompt, name))
            for name in (DESCRIBE, *SUBTYPES[item.role])
        }
        own = {picture.digest for picture in rows[DESCRIBE].pictures}
        return _Answers(item, rows, {digest: seen[digest] for digest in own & seen.keys()}, list(rows))

    def _with_reply(self, row: TokenRow, reply: Sequence[int]) -> TokenRow:
        """A question with its answer, and the end mark unless the answer was cut off."""
        was_cut = len(reply) == self.config.max_new_tokens
        ids = (*reply, *(() if was_cut else (self.backbone.special["<|im_end|>"],)))
        return TokenRow((*row.ids, *ids), row.pictures, num_target=len(ids))

    def _keep(self, answers: Sequence["_Answers"], counts: TeacherCounts) -> None:
        """Stores whole lessons."""
        with ThreadPoolExecutor(_NUM_WRITERS) as pool:  # each waits for the disk
            for one, discarded in zip(answers, pool.map(self._store, answers), strict=True):
                counts.num_made += 1
                _count(counts, one.item, discarded)

    def _store(self, one: "_Answers") -> dict[str, Discarded]:
        """Writes a lesson, and returns what was wrong with the discarded answers."""
        texts = {name: self.backbone.text_of(ids).strip() for name, ids in one.said.items()}
        text = texts.pop(DESCRIBE).replace("\0", "")  # for people; training uses the ids
        assert one.states_MD is not None, "a description comes with its states"
        description = Description(self.store.questions.ask(DESCRIBE), text, one.said[DESCRIBE], one.states_MD)
        answers = {name: read_answer(name, text) for name, text in texts.items()}
        discarded = {name: answer for name, answer in answers.items() if isinstance(answer, Discarded)}
        targets = {name: answer for name, answer in answers.items() if isinstance(answer, str)}
        self.store.write(one.item.digest, description, targets=targets, discarded=discarded)
        return discarded


@dataclass
class _Answers:
    """The questions about one item, and the answers so far."""

    item: TrainingItem
    rows: dict[str, TokenRow]
    """The questions, each after the raw item."""
    seen: dict[str, VisionFeatures]
    waiting: list[str]
    """Questions without an answer."""
    said: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Tokens of the answers, with the end mark unless the limit cut them off."""
    states_MD: Tensor | None = None
    """The hidden states from which the tokens of the description are predicted."""

    @property
    def num_waiting_tokens(self) -> int:
        return sum(len(self.rows[name].ids) for name in self.waiting)

    def apart(self) -> "_Answers":
        """The same questions with copied features. A view of one picture would keep the features of the whole batch in
        memory.
        """
        copies = {
            digest: VisionFeatures(one.main_VD.clone(), one.deep_LVD.clone(), one.grid)
            for digest, one in self.seen.items()
        }
        return replace(self, seen=copies)

    def take(self, name: str, row: TokenRow, states_MD: Tensor | None) -> None:
        self.waiting.remove(name)
        self.said[name] = tuple(row.ids[len(row.ids) - row.num_target :])
        if name == DESCRIBE:
            assert states_MD is not None, "a description comes with its states"
            self.states_MD = states_MD.cpu()


def _count(counts: TeacherCounts, item: TrainingItem, discarded: Mapping[str, Discarded]) -> None:
    counts.num_targets += len(SUBTYPES[item.role]) - len(discarded)
    counts.discarded.update(discarded.keys())
    counts.reasons.update(one.reason for one in discarded.values())
