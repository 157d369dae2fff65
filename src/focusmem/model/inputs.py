"""What goes into the language model: one row per prompt, then rows padded on the right into a batch.

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


@dataclass(frozen=True)
class TokenRow:
    """A prompt as token ids, with a run of image ids where each screenshot goes."""

    ids: tuple[int, ...]
    pictures: tuple[Screenshot, ...]
    """In the order of their places in `ids`."""
    num_target: int = 0
    """How many ids at the end are the reply to learn or to score."""


@dataclass(frozen=True)
class PackedRows:
    """Rows of ids end to end, with all that can be worked out before a device is needed.

    Embedding them takes a few operations however many rows there are, so a worker process may pack what a GPU embeds.
    """

    ids_T: Tensor
    positions_3T: Tensor
    visual_V: Tensor
    """Which of the T places show a screenshot."""
    lengths: tuple[int, ...]
    num_visual: tuple[int, ...]
    """Visual places of each row."""
    next_positions: tuple[int, ...]
    target_ids: tuple[tuple[int, ...], ...]
    pictures: tuple[tuple[Screenshot, ...], ...]

    @property
    def num_rows(self) -> int:
        return len(self.lengths)

    def pin_memory(self) -> "PackedRows":
        """Called by a data loader, so that copying to a GPU need not wait."""
        return self._each(lambda tensor: tensor.pin_memory())

    def to(self, device: torch.device) -> "PackedRows":
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "PackedRows":
        return replace(
            self,
            ids_T=change(self.ids_T),
            positions_3T=change(self.positions_3T),
            visual_V=change(self.visual_V),
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
    """Where the text that follows this row would begin."""
    target_ids: tuple[int, ...] = ()
    """The reply at the end of the row, to learn or to score."""
    presence_S: Tensor | None = None
    """How much each vector is there for attention to see: one, through which the gradient of being kept flows back."""

    @property
    def num_context(self) -> int:
        """Positions before the reply."""
        return self.length - len(self.target_ids)

    @property
    def length(self) -> int:
        return self.embeds_SD.shape[0]

    def shifted(self, offset: int) -> "Row":
        """The same row, further along."""
        return replace(self, positions_3S=self.positions_3S + offset, next_position=self.next_position + offset)


@dataclass(frozen=True)
class Batch:
    """Rows padded on the right. `mask_BS` is explicit and is True for what counts."""

    embeds_BSD: Tensor
    mask_BS: Tensor
    positions_3BS: Tensor
    visual_BS: Tensor
    deep_LVD: Tensor
    lengths: tuple[int, ...]
    next_positions: tuple[int, ...]
    target_ids: tuple[tuple[int, ...], ...]
    places_T: Tensor | None = None
    """Where each vector that counts stands among all, padding included, row after row."""
    presence_BS: Tensor | None = None
    """None where no row says anything about it."""

    @property
    def attention_BS(self) -> Tensor | None:
        """What presence adds to attention's scores: nothing at one, minus infinity at zero."""
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
        """One copy for all rows: in the backward pass, too."""
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
        presence_BS = padded([one - 1 for one in own], 0) + 1  # padding is masked anyway, and has a logarithm so
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
    """Without waiting for what the GPU is doing, which a copy from ordinary memory would."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _places_in_batch(lengths: Sequence[int], size: int) -> npt.NDArray[np.int64]:
    """Where each token of rows laid end to end stands among rows padded to one size."""
    starts = np.arange(len(lengths)) * size - np.cumsum([0, *lengths[:-1]])
    places: npt.NDArray[np.int64] = np.arange(sum(lengths)) + np.repeat(starts, lengths)
    return places


def alike_in_length(lengths: Sequence[int], *, max_tokens: int, max_padding: int = 4096) -> list[list[int]]:
    """Rows put together by length, so that little is lost to padding: groups of their numbers, the longest first.

    A group has at most `max_tokens` with its padding, or is a single row. It ends where its padding would pass
    `max_padding`: about where one more group costs less than the work on more padding.
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

    Text counts up on all axes together. A picture stands still in time and spreads over height and width; the text
    after it goes on past the longer side. `grids` are rows and columns of tokens.
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
    """How far each token of a picture is from its first, on the three axes."""
    rows, columns = np.indices(grid).reshape(2, -1)
    return np.stack([np.zeros_like(rows), rows, columns])
