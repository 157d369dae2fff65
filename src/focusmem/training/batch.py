"""The data of one training step: decisions, and the evidence items that they share."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, get_args

from torch import Tensor

from focusmem.errors import ConfigError
from focusmem.files import sha256_hex
from focusmem.model.evidence_cache import prompt_digest
from focusmem.schemas import Prompt, Role
from focusmem.training.lessons import Lesson


@dataclass(frozen=True, kw_only=True)
class TrainingItem:
    item_id: str
    """A name for people, which messages use."""
    role: Role
    prompt: Prompt
    """The raw serialisation."""
    lesson: Lesson | None = None
    """The teacher's answers about the item; only the content losses of stage A need them."""
    group: str = ""
    """Items of one group look alike. A gate learns more from negatives of the same group."""

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise ConfigError(f"TrainingItem.role is '{self.role}'; choose one of {get_args(Role)}.")
        if not any(turn.parts for turn in self.prompt):
            raise ConfigError(f"The training item '{self.item_id}' is empty: its prompt has no text and no screenshot.")

    @cached_property
    def digest(self) -> str:
        """Equal for items that are the same to encoder and teacher."""
        return sha256_hex(f"{self.role} {prompt_digest(self.prompt)}".encode())


@dataclass(frozen=True)
class ItemUse:
    item: int
    """The index of the item in the batch."""
    rank: int
    """The place among this decision's items of the same role."""
    is_negative: bool = False
    """Whether the item was added to mislead, so that the gate learns to drop it. A stage without a gate leaves it
    out."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    prompt: Prompt
    reply: str
    """The demonstrated action, as the policy would write it."""
    uses: tuple[ItemUse, ...] = ()


@dataclass(frozen=True)
class Pixels:
    """Pictures of one size that the data drew itself, for screenshots that carry no PNG."""

    digests: tuple[str, ...]
    """The digests of the screenshots that the pictures stand for."""
    pixels_NHWC: Tensor
    """Bytes; the channels are red, green and blue."""


@dataclass(frozen=True, kw_only=True)
class TrainingBatch:
    """Each item is encoded once, however many decisions use it."""

    items: tuple[TrainingItem, ...] = ()
    decisions: tuple[Decision, ...] = ()
    pixels: Pixels | None = None

    def __post_init__(self) -> None:
        for number, decision in enumerate(self.decisions):
            for use in decision.uses:
                if not 0 <= use.item < len(self.items):
                    raise ConfigError(
                        f"Decision {number} of a TrainingBatch uses item {use.item}; there are {len(self.items)} items."
                    )

    @classmethod
    def merged(cls, batches: Iterable["TrainingBatch"]) -> "TrainingBatch":
        """Several batches as one. Items with the same content become one item."""
        items: dict[str, TrainingItem] = {}
        decisions: list[Decision] = []
        for batch in batches:
            if batch.pixels is not None:
                raise ConfigError("Batches that carry pixels cannot be merged; draw the pixels afterwards.")
            for item in batch.items:
                if item.digest not in items or items[item.digest].lesson is None:
                    items[item.digest] = item
            numbers = {digest: number for number, digest in enumerate(items)}
            renumbered = [numbers[item.digest] for item in batch.items]
            decisions += [_with_items(decision, renumbered) for decision in batch.decisions]
        return cls(items=tuple(items.values()), decisions=tuple(decisions))

    @cached_property
    def digest(self) -> str:
        """Equal for batches that are learnt from in the same way, lessons and pixels aside."""
        items = [(item.digest, item.group) for item in self.items]
        decisions = [(prompt_digest(one.prompt), one.reply, one.uses) for one in self.decisions]
        return sha256_hex(repr((items, decisions)).encode())

    def with_memory(self, num: int) -> "TrainingBatch":
        """The first decisions that use an item, at most `num`, and these items without lessons."""
        decisions = [decision for decision in self.decisions if decision.uses][:num]
        kept = sorted({use.item for decision in decisions for use in decision.uses})
        renumbered = [kept.index(item) if item in kept else -1 for item in range(len(self.items))]
        items = tuple(replace(self.items[item], lesson=None) for item in kept)
        return replace(self, items=items, decisions=tuple(_with_items(one, renumbered) for one in decisions))

    def without_negatives(self) -> "TrainingBatch":
        decisions = [
            replace(decision, uses=tuple(use for use in decision.uses if not use.is_negative))
            for decision in self.decisions
        ]
        return replace(self, decisions=tuple(decisions))

    def without_lessons(self) -> "TrainingBatch":
        return replace(self, items=tuple(replace(item, lesson=None) for item in self.items))

    def share(self, number: int, num_shares: int) -> "TrainingBatch":
        """The part of a batch that one process, or one pass of several, works on.

        Neighbouring decisions stay together, since they share items. If several shares use an item, each encodes it,
        but only the first keeps its lesson, so that every lesson counts once over all shares.
        """
        num = len(self.decisions)
        share_of = [decision * num_shares // num for decision in range(num)] if num else []
        owners = [index % num_shares for index in range(len(self.items))]
        for decision in reversed(range(num)):
            for use in self.decisions[decision].uses:
                owners[use.item] = share_of[decision]
        mine = [self.decisions[index] for index in range(num) if share_of[index] == number]
        used = {use.item for decision in mine for use in decision.uses}
        kept: list[TrainingItem] = []
        renumbered = [-1] * len(self.items)
        for index, item in enumerate(self.items):
            is_taught_here = item.lesson is not None and owners[index] == number
            if index in used or is_taught_here:
                renumbered[index] = len(kept)
                kept.append(item if is_taught_here else replace(item, lesson=None))
        decisions = tuple(_with_items(decision, renumbered) for decision in mine)
        return TrainingBatch(items=tuple(kept), decisions=decisions, pixels=self.pixels)


def _with_items(decision: Decision, renumbered: Sequence[int]) -> Decision:
    return replace(decision, uses=tuple(replace(use, item=renumbered[use.item]) for use in decision.uses))


class TrainingData(Protocol):
    """Batches by number. A number always gives the same batch, so a stopped run can be resumed exactly.

    Data may have a `digest`; a run is then resumed with the same data only. Data may have a `shortage`, a sentence that
    says why it has no batches. Data may have a batch `held_out` that shares no decision with any numbered batch.
    """

    @property
    def num_batches(self) -> int: ...

    def batch(self, number: int) -> TrainingBatch: ...


@dataclass(frozen=True)
class ListedBatches:
    """Batches that are held in memory."""

    batches: Sequence[TrainingBatch]
    held_out: TrainingBatch | None = None
    """Decisions on which vital signs are measured."""

    @property
    def num_batches(self) -> int:
        return len(self.batches)

    def batch(self, number: int) -> TrainingBatch:
        return self.batches[number]
