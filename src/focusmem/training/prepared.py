"""A share of a batch as tokens: everything that a step needs besides weights, prepared without a GPU.

Shapes: M positions of descriptions, D policy width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from focusmem.errors import RecordError
from focusmem.model.chat import ChatTokenizer
from focusmem.model.compressor import ROLES
from focusmem.model.injection import Place
from focusmem.model.inputs import PackedRows, TokenRow
from focusmem.model.policy import MemoryPolicy
from focusmem.schemas import Prompt, Screenshot
from focusmem.training.batch import Pixels, TrainingBatch, TrainingItem

EPISODIC = ROLES.index("episodic")


@dataclass(frozen=True)
class Needs:
    """What a stage needs of a batch."""

    negatives: bool = False
    semantic: bool = False
    functional: bool = False
    num_foreign: int = 0
    """Items of other tasks for each decision, as negatives for the gate."""


@dataclass(frozen=True)
class Prepared:
    items: PackedRows
    roles: tuple[int, ...]
    """The role of each item."""
    decisions: PackedRows
    item_of_use: tuple[int, ...]
    places: tuple[Place, ...]
    """The place of each use. Its row is the row of the decision."""
    is_negative: tuple[bool, ...]
    """Whether each use is a negative."""
    questions: PackedRows
    """The questions about single items: descriptions first, then functional targets."""
    item_of_question: tuple[int, ...]
    num_descriptions: int
    teacher_MD: Tensor | None
    """The teacher's hidden states for the descriptions' tokens, row after row; None if `teachers` are run in
    the step.
    """
    teachers: PackedRows
    """The descriptions behind their raw items, as the frozen policy reads them, if no states were stored."""
    pixels: Pixels | None = None
    foreign: tuple[tuple[int, int], ...] = ()
    """Pairs of a decision and an item of another task, which is a negative for the gate. These items are not in front
    of the prompt.
    """

    @property
    def counts(self) -> dict[str, int]:
        """The number of tokens or blocks that each loss is summed over."""
        lengths = [len(ids) for ids in self.questions.target_ids]
        misled, trusted = self._misled(), self._trusted()
        return {
            "action": sum(map(len, self.decisions.target_ids)),
            "semantic": sum(lengths[: self.num_descriptions]),
            "functional": sum(lengths[self.num_descriptions :]),
            "gate": sum(self.is_negative) + len(self.foreign),
            "order": sum(row in trusted for row in misled),
        }

    def _misled(self) -> list[int]:
        """The decision of every misleading use, then the decision of every item of another task."""
        used = [place.row for place, negative in zip(self.places, self.is_negative, strict=True) if negative]
        return used + [row for row, _ in self.foreign]

    def _trusted(self) -> set[int]:
        """Decisions with a trajectory that retrieval found."""
        uses = zip(self.places, self.is_negative, strict=True)
        return {place.row for place, negative in uses if not negative and place.role == EPISODIC}

    @property
    def num_tokens(self) -> int:
        return sum(sum(rows.lengths) for rows in (self.items, self.decisions, self.questions, self.teachers))

    def pictures(self) -> Iterator[Screenshot]:
        for rows in (self.items, self.decisions, self.questions, self.teachers):
            for own in rows.pictures:
                yield from own

    def pin_memory(self) -> "Prepared":
        """Called by the loader, so that copies to a GPU are asynchronous."""
        pixels = self.pixels and replace(self.pixels, pixels_NHWC=self.pixels.pixels_NHWC.pin_memory())
        return replace(
            self,
            items=self.items.pin_memory(),
            decisions=self.decisions.pin_memory(),
            questions=self.questions.pin_memory(),
            teacher_MD=None if self.teacher_MD is None else self.teacher_MD.pin_memory(),
            teachers=self.teachers.pin_memory(),
            pixels=pixels,
        )


class Preparer:
    """Turns batches into tokens, for one policy and one stage. It holds no weights, so worker processes can use it."""

    def __init__(self, policy: MemoryPolicy, needs: Needs) -> None:
        self.chat, self.reader_chat = policy.backbone.chat, policy.encoder.backbone.chat
        self.width, self.needs = policy.backbone.width, needs

    def shares(self, batch: TrainingBatch, numbers: Sequence[int], num_shares: int) -> list[Prepared]:
        """Prepares some shares of a batch."""
        if not (self.needs.semantic or self.needs.functional):
            batch = batch.without_lessons()  # items that are there only for the content losses are not needed
        if not self.needs.negatives:
            batch = batch.without_negatives()
        return [self._prepare(batch.share(number, num_shares)) for number in numbers]

    def _prepare(self, batch: TrainingBatch) -> Prepared:
        uses = [(row, use) for row, decision in enumerate(batch.decisions) for use in decision.uses]
        descriptions, teachers, hidden = self._descriptions(batch.items)
        targets = self._targets(batch.items)
        decisions = self.chat.pack([self.chat.tokenise(one.prompt, reply=one.reply) for one in batch.decisions])
        items = self.reader_chat.pack([self.reader_chat.tokenise(one.prompt, is_complete=True) for one in batch.items])
        questions = self.chat.pack([row for _, row in (*descriptions, *targets)])
        return Prepared(
            items=items,
            roles=tuple(ROLES.index(item.role) for item in batch.items),
            decisions=decisions,
            item_of_use=tuple(use.item for _, use in uses),
            places=tuple(Place(row, ROLES.index(batch.items[use.item].role), use.rank) for row, use in uses),
            is_negative=tuple(use.is_negative for _, use in uses),
            questions=questions,
            item_of_question=tuple(item for item, _ in (*descriptions, *targets)),
            num_descriptions=len(descriptions),
            teacher_MD=None if teachers else torch.cat(hidden) if hidden else torch.zeros(0, self.width),
            teachers=self.chat.pack(teachers),
            pixels=_only(batch.pixels, (items, decisions)),
            foreign=foreign_items(batch, self.needs.num_foreign),
        )

    def _descriptions(
        self, items: Sequence[TrainingItem]
    ) -> tuple[list[tuple[int, TokenRow]], list[TokenRow], list[Tensor]]:
        """The student's questions with the index of their item. Also either the rows that the teacher reads, or its
        stored states.
        """
        rows: list[tuple[int, TokenRow]] = []
        teachers: list[TokenRow] = []
        hidden: list[Tensor] = []
        for number, item in enumerate(items):
            description = item.lesson.description if item.lesson and self.needs.semantic else None
            if description is None:
                continue
            rows.append((number, with_target(self.chat, description.question, description.ids)))
            if description.hidden_MD is None:
                asked = (*item.prompt, *description.question)
                teachers.append(with_target(self.chat, asked, description.ids))
            else:
                hidden.append(description.hidden_MD)
        if teachers and hidden:
            raise RecordError("Some lessons of a batch have the teacher's states and some do not; give all or none.")
        return rows, teachers, hidden

    def _targets(self, items: Sequence[TrainingItem]) -> list[tuple[int, TokenRow]]:
        return [
            (number, self.chat.tokenise(pair.question, reply=pair.target))
            for number, item in enumerate(items)
            if item.lesson and self.needs.functional
            for pair in item.lesson.functional
        ]


def with_target(chat: ChatTokenizer, prompt: Prompt, ids: Sequence[int]) -> TokenRow:
    """A prompt with a reply that is given as ids. Tokenising the reply's text might give other tokens than were
    generated.
    """
    row = chat.tokenise(prompt)
    return TokenRow((*row.ids, *ids), row.pictures, num_target=len(ids))


def foreign_items(batch: TrainingBatch, num: int) -> tuple[tuple[int, int], ...]:
    """For each decision with episodic items, items of the same groups that belong to decisions of other tasks.

    Decisions that share an item belong to one task. So do decisions that are linked by a chain of shared items.
    """
    if not num:
        return ()
    task_of: dict[int, int] = {}  # the task of each item
    for row, decision in enumerate(batch.decisions):
        own = {use.item for use in decision.uses}
        joined = {task_of[item] for item in own if item in task_of}
        task_of = {item: row if task in joined else task for item, task in task_of.items()} | dict.fromkeys(own, row)
    found = []
    for row, decision in enumerate(batch.decisions):
        groups = {batch.items[use.item].group for use in decision.uses if batch.items[use.item].role == "episodic"}
        if not groups:
            continue
        task, items = task_of[decision.uses[0].item], batch.items
        others = [
            item
            for item, own in task_of.items()
            if own != task and items[item].role == "episodic" and items[item].group in groups
        ]
        # Evenly spread, and different for the next decision.
        spread = {others[(row + place * len(others) // num) % len(others)] for place in range(num)} if others else ()
        found += [(row, item) for item in sorted(spread)]
    return tuple(found)


def _only(pixels: Pixels | None, rows: Sequence[PackedRows]) -> Pixels | None:
    """The pictures that these rows show."""
    if pixels is None:
        return None
    shown = {picture.digest for one in rows for own in one.pictures for picture in own}
    kept = [index for index, digest in enumerate(pixels.digests) if digest in shown]
    if len(kept) == len(pixels.digests):
        return pixels
    return Pixels(tuple(pixels.digests[index] for index in kept), pixels.pixels_NHWC[kept])
