"""Chunks of working memory that grow by an event per step. Only the new event and the closing are encoded.

Shapes: B chunks, S new positions, E encoder width.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from focusmem.model.encoded import EncodedItems
from focusmem.model.front import ReadFront, extended, joined
from focusmem.model.inputs import Row, TokenRow, stack_rows
from focusmem.model.policy import EvidenceForm, MemoryPolicy
from focusmem.schemas import Prompt


@dataclass(frozen=True)
class ReadTurns:
    """What the causal encoder has computed for a chunk's opening and events. Appended events do not change it."""

    turns: Prompt = ()
    front: ReadFront = field(default_factory=ReadFront)
    """The encoder's state after these turns."""
    hidden_sum_1E: Tensor | None = None
    """Sum of the hidden states; None before the first turn."""
    embeds_sum_1E: Tensor | None = None
    """Sum of the input embeddings."""

    @property
    def num_bytes(self) -> int:
        sums = (self.hidden_sum_1E, self.embeds_sum_1E)
        return self.front.num_bytes + sum(one.nbytes for one in sums if one is not None)

    def begins(self, prompt: Prompt) -> bool:
        """Whether the prompt is these turns, possibly more events, and a closing."""
        return 0 < len(self.turns) < len(prompt) and prompt[: len(self.turns)] == self.turns


@dataclass(frozen=True)
class Growth:
    """A chunk's serialisation, and the part that was read before."""

    before: ReadTurns
    prompt: Prompt
    tokens: TokenRow
    """The new events and the closing."""
    num_kept: int
    """Number of tokens of the events. The closing, the last turn, differs at each step, so it is read but not kept."""

    @classmethod
    def of(cls, policy: MemoryPolicy, prompt: Prompt, before: ReadTurns | None = None) -> "Growth":
        before, tokenise = before or ReadTurns(), policy.encoder.backbone.tokenise
        closing, new = tokenise(prompt[-1:], is_complete=True), prompt[len(before.turns) : -1]
        events = tokenise(new, is_complete=True) if new else TokenRow((), ())
        tokens = TokenRow(events.ids + closing.ids, events.pictures + closing.pictures)
        return cls(before, prompt, tokens, len(events.ids))


@torch.no_grad()
def grow(
    policy: MemoryPolicy, growths: Sequence[Growth], *, form: EvidenceForm
) -> list[tuple[EncodedItems, ReadTurns]]:
    """Reads the new turns of each chunk, all chunks in one pass.

    A returned item has only the new positions, with the closing last, but the means of the whole chunk. Joined with the
    positions that were read before, it equals the whole chunk encoded at once. The returned `ReadTurns` is for the next
    growth.
    """
    encoder, fronts = policy.encoder, [growth.before.front for growth in growths]
    embedded = encoder.backbone.embed([growth.tokens for growth in growths])
    rows = [row.shifted(front.next_position) for row, front in zip(embedded, fronts, strict=True)]
    batch = stack_rows(rows)
    cache, past_mask_BP = joined(encoder.backbone, fronts)
    with torch.autocast(encoder.backbone.device.type, enabled=False):
        hidden_BSE = encoder(batch, cache=cache, past_mask_BP=past_mask_BP)
        items = policy.compress_hidden(hidden_BSE, batch.embeds_BSD, batch.mask_BS, form=form).split(batch.lengths)
    # The closing starts where the events end; it is text, so all three axes agree.
    ends = [int(row.positions_3S[0, growth.num_kept]) for row, growth in zip(rows, growths, strict=True)]
    after = extended(cache, fronts, [growth.num_kept for growth in growths], ends)
    return [_grown(*one) for one in zip(growths, after, items, hidden_BSE, rows, strict=True)]


def _grown(
    growth: Growth, front: ReadFront, item: EncodedItems, hidden_SE: Tensor, row: Row
) -> tuple[EncodedItems, ReadTurns]:
    before, num_kept, num_tokens = growth.before, growth.num_kept, growth.before.front.length + row.length
    hidden_1E, hidden_closing_1E = _sums(hidden_SE[: row.length], num_kept)
    embeds_1E, embeds_closing_1E = _sums(row.embeds_SD, num_kept)
    if before.hidden_sum_1E is not None and before.embeds_sum_1E is not None:
        hidden_1E, embeds_1E = hidden_1E + before.hidden_sum_1E, embeds_1E + before.embeds_sum_1E
    whole = replace(
        item,
        summary_NE=(hidden_1E + hidden_closing_1E) / num_tokens,
        looks_NE=(embeds_1E + embeds_closing_1E) / num_tokens,
    )
    return whole, ReadTurns(growth.prompt[:-1], front, hidden_1E, embeds_1E)


def _sums(vectors_SE: Tensor, num_kept: int) -> tuple[Tensor, Tensor]:
    """The sums over the events and over the closing, (1, E)."""
    wide_SE = vectors_SE.float()
    return wide_SE[:num_kept].sum(dim=0, keepdim=True), wide_SE[num_kept:].sum(dim=0, keepdim=True)


@dataclass(frozen=True)
class Chunk:
    """Marks an item as a chunk of an episode's working memory."""

    episode_id: str
    is_full: bool
    """Whether the chunk is complete. A full chunk never changes again and is kept like any other item."""


@dataclass(frozen=True)
class _Growing:
    name: tuple[str, str]
    entry: dict[str, Tensor]
    read: ReadTurns

    @property
    def num_bytes(self) -> int:
        return self.read.num_bytes + sum(tensor.nbytes for tensor in self.entry.values())


class GrowingChunks:
    """The growing chunk of each episode, in the form of a cache entry. Above `limit_bytes` the least recently used
    chunks are dropped.

    Another thread may forget an episode at any time, so every access is a single operation of the dictionary.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._chunks: dict[str, _Growing] = {}

    @property
    def num_bytes(self) -> int:
        """The size of all chunks. A chunk that several episodes share counts once."""
        return sum({id(chunk): chunk.num_bytes for chunk in list(self._chunks.values())}.values())

    def entry(self, episode_id: str, name: tuple[str, str]) -> dict[str, Tensor] | None:
        """The episode's kept chunk, if its name is `name`."""
        kept = self._chunks.get(episode_id)
        if kept is None or kept.name != name:
            return None
        self._keep(episode_id, kept)
        return kept.entry

    def before(self, episode_id: str, prompt: Prompt, context: str) -> tuple[ReadTurns, dict[str, Tensor]] | None:
        """The turns of the episode's chunk that were read, and its entry, if the prompt continues them in the same
        context.
        """
        kept = self._chunks.get(episode_id)
        if kept is None or kept.name[1] != context or not kept.read.begins(prompt):
            return None
        return kept.read, kept.entry

    def keep(
        self, episode_ids: Sequence[str], name: tuple[str, str], entry: dict[str, Tensor], read: ReadTurns
    ) -> None:
        chunk = _Growing(name, entry, read)
        for episode_id in episode_ids:
            self._keep(episode_id, chunk)
        for episode_id in list(self._chunks):
            if self.num_bytes <= self.limit_bytes:
                break
            self.forget(episode_id)

    def _keep(self, episode_id: str, chunk: _Growing) -> None:
        self.forget(episode_id)  # so that the chunk becomes the most recently used
        self._chunks[episode_id] = chunk

    def forget(self, episode_id: str) -> None:
        self._chunks.pop(episode_id, None)
