"""Inputs of the language model: one row per prompt, then rows padded on the right into a batch.

Shapes: B rows, S positions, D width, V visual positions, L DeepStack levels, T tokens of all rows end to end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focusmem.schemas import Screenshot

PARTS = ("instruction", "screenshot", "text")
"""The parts of a context that a state may pool separately: the instruction, the current screenshot (the last one), and
the other text. Earlier screenshots belong to no part.
"""


@dataclass(frozen=True)
class TokenRow:
    """A prompt as token ids, with a run of image ids where each screenshot goes."""

    ids: tuple[int, ...]
    pictures: tuple[Screenshot, ...]
    """In the order in which they occur in `ids`."""
    num_target: int = 0
    """Number of ids at the end that are the reply to learn or to score."""
    instruction: tuple[int, ...] = ()
    """The positions of the instruction's ids; empty if the prompt marks no instruction."""


@dataclass(frozen=True)
class PackedRows:
    """Rows of ids end to end, with everything that can be computed without a device.

    They are embedded in a few operations, independent of the number of rows, so a worker process can pack them for a
    GPU.
    """

    ids_T: Tensor
    positions_3T: Tensor
    visual_V: Tensor
    """Positions that show a screenshot, among the T positions."""
    lengths: tuple[int, ...]
    num_visual: tuple[int, ...]
    """Number of visual positions of each row."""
    next_positions: tuple[int, ...]
    target_ids: tuple[tuple[int, ...], ...]
    pictures: tuple[tuple[Screenshot, ...], ...]
    parts_T: Tensor
    """The part of the context that each id belongs to, as its place in `PARTS`; ids of no part come after these."""
    part_counts: tuple[tuple[int, ...], ...]
    """Number of ids of each part, for each row."""

    @property
    def num_rows(self) -> int:
        return len(self.lengths)

    def pin_memory(self) -> "PackedRows":
        """Called by a data loader, so that copies to a GPU are asynchronous."""
        return self._each(lambda tensor: tensor.pin_memory())

    def to(self, device: torch.device) -> "PackedRows":
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "PackedRows":
        return replace(
            self,
            ids_T=change(self.ids_T),
            positions_3T=change(self.positions_3T),
            visual_V=change(self.visual_V),
            parts_T=change(self.parts_T),
        )


@dataclass(frozen=True)
class Row:
    """A prompt as vectors."""

    embeds_SD: Tensor
    positions_3S: Tensor
    """Time, height and width position of each vector."""
    visual_S: Tensor
    """True where a vector comes from a screenshot."""
    deep_LVD: Tensor
    """DeepStack features of the visual positions, one level per early layer."""
    next_position: int
    """The position of text that would follow this row."""
    target_ids: tuple[int, ...] = ()
    """The reply at the end of the row, to learn or to score."""
    presence_S: Tensor | None = None
    """Weight of each vector in attention. The value is one; the gradient of keeping a block flows through it."""
    parts_S: Tensor | None = None
    """The part of the context that each vector belongs to, as in `PackedRows`; None for a row with memory in front,
    whose state has been pooled before."""
    part_counts: tuple[int, ...] = ()
    """Number of vectors of each part."""

    @property
    def num_context(self) -> int:
        """Number of positions before the reply."""
        return self.length - len(self.target_ids)

    @property
    def length(self) -> int:
        return self.embeds_SD.shape[0]

    def shifted(self, offset: int) -> "Row":
        """The same row at positions shifted by `offset`."""
        return replace(self, positions_3S=self.positions_3S + offset, next_position=self.next_position + offset)


@dataclass(frozen=True)
class Batch:
    """Rows padded on the right. `mask_BS` is explicit and True for positions that count."""

    embeds_BSD: Tensor
    mask_BS: Tensor
    positions_3BS: Tensor
    visual_BS: Tensor
    deep_LVD: Tensor
    lengths: tuple[int, ...]
    next_positions: tuple[int, ...]
    target_ids: tuple[tuple[int, ...], ...]
    places_T: Tensor | None = None
    """Index of each vector that counts in the flattened batch, padding included."""
    presence_BS: Tensor | None = None
    """None if no row has a `presence_S`."""

    @property
    def attention_BS(self) -> Tensor | None:
        """The logarithm of presence, which is added to attention's scores: zero for one, minus infinity for zero."""
        return None if self.presence_BS is None else self.presence_BS.log()


def stack_rows(rows: Sequence[Row], *, pad_to: int | None = None) -> Batch:
    """Pad rows on the right to the longest (or to `pad_to`) and stack them."""
    if not rows:
        raise ValueError("there are no rows to stack")
    lengths = tuple(row.length for row in rows)
    size = max(*lengths, pad_to or 0)
    device = rows[0].embeds_SD.device
    places_T = on_device(device, _places_in_batch(lengths, size))

    def padded(tensors: list[Tensor], axis: int) -> Tensor:
        """Pads all rows with one copy, also in the backward pass."""
        flat = torch.cat(tensors, dim=axis)
        shape = list(flat.shape)
        shape[axis] = len(rows) * size
        spread = flat.new_zeros(shape).index_copy(axis, places_T, flat)
        return spread.view(*shape[:axis], len(rows), size, *shape[axis + 1 :])

    has_presence = any(row.presence_S is not None for row in rows)
    presence_BS = None
    if has_presence:
        ones = [torch.ones(length, device=device) for length in lengths]
        own = [one if row.presence_S is None else row.presence_S for row, one in zip(rows, ones, strict=True)]
        presence_BS = padded([one - 1 for one in own], 0) + 1  # padding is masked anyway; one avoids log(0)
    return Batch(
        embeds_BSD=padded([row.embeds_SD for row in rows], 0),
        mask_BS=torch.arange(size, device=device)[None] < torch.tensor(lengths, device=device)[:, None],
        positions_3BS=padded([row.positions_3S for row in rows], 1),
        visual_BS=padded([row.visual_S for row in rows], 0),
        deep_LVD=torch.cat([row.deep_LVD for row in rows], dim=1),
        lengths=lengths,
        next_positions=tuple(row.next_position for row in rows),
        target_ids=tuple(row.target_ids for row in rows),
        places_T=places_T,
        presence_BS=presence_BS,
    )


def on_device(device: torch.device, array: npt.NDArray[np.int64]) -> Tensor:
    """Copies asynchronously from pinned memory; a copy from ordinary memory would wait for the GPU."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _places_in_batch(lengths: Sequence[int], size: int) -> npt.NDArray[np.int64]:
    """The index of each token of rows laid end to end, in rows padded to one size."""
    starts = np.arange(len(lengths)) * size - np.cumsum([0, *lengths[:-1]])
    places: npt.NDArray[np.int64] = np.arange(sum(lengths)) + np.repeat(starts, lengths)
    return places


def alike_in_length(lengths: Sequence[int], *, max_tokens: int, max_padding: int = 4096) -> list[list[int]]:
    """Groups of row numbers of similar length, the longest first, so that there is little padding.

    A group has at most `max_tokens` tokens, padding included, or is a single row. It also ends before its padding
    exceeds `max_padding`; about there, another group is cheaper than more padding.
    """
    groups: list[list[int]] = []
    padding = 0
    for number in sorted(range(len(lengths)), key=lambda number: (-lengths[number], number)):
        missing = lengths[groups[-1][0]] - lengths[number] if groups else 0
        padding += missing
        fits = groups and lengths[groups[-1][0]] * (len(groups[-1]) + 1) <= max_tokens
        if fits and padding <= max_padding:
            groups[-1].append(number)
        else:
            groups.append([number])
            padding = 0
    return groups


def text_and_image_positions(
    ids: Sequence[int], image_token: int, grids: Sequence[tuple[int, int]]
) -> tuple[Tensor, int]:
    """Three-axis positions of one row, and the first free position after it.

    Text advances on all axes together. A picture has one time position and spreads over height and width; the text
    after it continues after the longer side. `grids` are rows and columns of tokens.
    """
    visual = np.flatnonzero(np.asarray(ids) == image_token)
    sizes = [rows * columns for rows, columns in grids]
    if len(visual) != sum(sizes):
        raise ValueError(f"the row has {len(visual)} image tokens, but its pictures need {sum(sizes)}")
    advance = np.ones(len(ids), dtype=np.int64)
    advance[visual] = 0
    if grids:
        advance[visual[np.cumsum(sizes) - 1]] = [max(grid) for grid in grids]
    ends = np.cumsum(advance)
    positions = np.tile(ends - advance, (3, 1))
    if grids:
        positions[:, visual] += np.concatenate([_spread(grid) for grid in grids], axis=1)
    return torch.from_numpy(positions), int(ends[-1]) if len(ids) else 0


@lru_cache(maxsize=64)
def _spread(grid: tuple[int, int]) -> npt.NDArray[np.int64]:
    """The offset of each token of a picture from the first one, on the three axes."""
    rows, columns = np.indices(grid).reshape(2, -1)
    return np.stack([np.zeros_like(rows), rows, columns])
