"""What goes into the language model: one row per prompt, then rows padded on the right into a batch.

Shapes: B rows, S positions, D width, V visual positions, L DeepStack levels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

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


def stack_rows(rows: Sequence[Row], *, pad_to: int | None = None) -> Batch:
    """Pad rows on the right to the longest (or to `pad_to`) and stack them."""
    if not rows:
        raise ValueError("there are no rows to stack")
    size = max(row.length for row in rows)
    size = size if pad_to is None else max(size, pad_to)

    def padded(tensor: Tensor, axis: int) -> Tensor:
        missing = size - tensor.shape[axis]
        if not missing:
            return tensor
        shape = list(tensor.shape)
        shape[axis] = missing
        return torch.cat([tensor, tensor.new_zeros(shape)], dim=axis)

    first = rows[0].embeds_SD
    lengths = torch.tensor([row.length for row in rows], device=first.device)
    return Batch(
        embeds_BSD=torch.stack([padded(row.embeds_SD, 0) for row in rows]),
        mask_BS=torch.arange(size, device=first.device)[None] < lengths[:, None],
        positions_3BS=torch.stack([padded(row.positions_3S, 1) for row in rows], dim=1),
        visual_BS=torch.stack([padded(row.visual_S, 0) for row in rows]),
        deep_LVD=torch.cat([row.deep_LVD for row in rows], dim=1),
        lengths=tuple(row.length for row in rows),
        next_positions=tuple(row.next_position for row in rows),
        target_ids=tuple(row.target_ids for row in rows),
    )


def text_and_image_positions(
    ids: Sequence[int], image_token: int, grids: Sequence[tuple[int, int]]
) -> tuple[Tensor, int]:
    """Three-axis positions of one row, and the first free position after it.

    Text counts up on all axes together. A picture stands still in time and spreads over height and width; the text
    after it goes on past the longer side. `grids` are rows and columns of tokens.
    """
    remaining = iter(grids)
    pieces: list[Tensor] = []
    place = start = 0
    while place < len(ids):
        if ids[place] == image_token:
            rows, columns = next(remaining)
            spread = torch.cartesian_prod(torch.tensor([0]), torch.arange(rows), torch.arange(columns)).T
            pieces.append(spread + start)
            place, start = place + rows * columns, start + max(rows, columns)
        else:
            end = place
            while end < len(ids) and ids[end] != image_token:
                end += 1
            pieces.append(torch.arange(start, start + end - place).expand(3, -1))
            place, start = end, start + end - place
    return torch.cat(pieces, dim=1), start
