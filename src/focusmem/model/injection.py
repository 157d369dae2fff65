"""Puts accepted blocks in front of the policy's input: [episodic; working; context].

Shapes: N blocks, K memory tokens, P prefix tokens, S positions, D policy width.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from focusmem.model.inputs import Row, on_device


@dataclass(frozen=True)
class Place:
    """The place of a block: its decision's row, its role, and its rank."""

    row: int
    role: int
    rank: int


class Injection:
    """Puts the accepted blocks of each row in front of it and shifts the row's positions.

    A rejected block is absent, not zeroed, because a zeroed token still draws attention. A row without accepted blocks
    is returned unchanged.
    """

    def __call__(
        self,
        rows: Sequence[Row],
        blocks_NKD: Tensor,
        places: Sequence[Place],
        keep: Sequence[bool],
        presence_N: Tensor | None = None,
    ) -> list[Row]:
        """`presence_N` is one for each kept block and carries the gradient of keeping it."""
        accepted: dict[int, list[tuple[Place, int]]] = {}
        for index, (place, is_kept) in enumerate(zip(places, keep, strict=True)):
            if is_kept:
                accepted.setdefault(place.row, []).append((place, index))
        if not accepted:
            return list(rows)
        numbers = sorted(accepted)
        ordered = [sorted(accepted[number], key=lambda one: (one[0].role, one[0].rank)) for number in numbers]
        order_N = on_device(blocks_NKD.device, np.array([index for own in ordered for _, index in own]))
        built = _prefixed(
            [rows[number] for number in numbers],
            [len(own) for own in ordered],
            blocks_NKD.index_select(0, order_N),
            None if presence_N is None else presence_N.index_select(0, order_N),
        )
        changed = dict(zip(numbers, built, strict=True))
        return [changed.get(number, row) for number, row in enumerate(rows)]

    @staticmethod
    def prefixed(row: Row, blocks_NKD: Tensor, presence_N: Tensor | None = None) -> Row:
        """A row with blocks in front. Blocks get text positions and no DeepStack features; the positions after them are
        shifted.
        """
        return _prefixed([row], [len(blocks_NKD)], blocks_NKD, presence_N)[0]


def _prefixed(rows: Sequence[Row], counts: Sequence[int], blocks_NKD: Tensor, presence_N: Tensor | None) -> list[Row]:
    """Rows with `counts` blocks in front of each. All rows are built in a few operations, because hundreds of rows one
    by one would keep a GPU waiting.
    """
    num_tokens, device = blocks_NKD.shape[1], blocks_NKD.device
    fronts, lengths = [num_tokens * count for count in counts], [row.length for row in rows]
    sizes = [front + length for front, length in zip(fronts, lengths, strict=True)]

    def interleaved(before: Sequence[Tensor], after: Sequence[Tensor], axis: int = 0) -> Sequence[Tensor]:
        parts = [part for pair in zip(before, after, strict=True) for part in pair]
        return torch.split(torch.cat(parts, dim=axis), sizes, dim=axis)

    prefix_PD = blocks_NKD.flatten(0, 1).to(rows[0].embeds_SD.dtype)
    embeds = interleaved(torch.split(prefix_PD, fronts), [row.embeds_SD for row in rows])
    counting_3P = torch.arange(max(fronts), device=device).expand(3, -1)
    moves_T = on_device(device, np.repeat(np.array(fronts), lengths))
    moved_3T = torch.cat([row.positions_3S for row in rows], dim=1) + moves_T
    positions = interleaved([counting_3P[:, :front] for front in fronts], torch.split(moved_3T, lengths, dim=1), axis=1)
    unseen_P = rows[0].visual_S.new_zeros(max(fronts))
    visual = interleaved([unseen_P[:front] for front in fronts], [row.visual_S for row in rows])
    presences: Sequence[Tensor | None] = [None] * len(rows)
    if presence_N is not None:
        own_P = presence_N[:, None].expand(-1, num_tokens).flatten()
        ones_S = own_P.new_ones(max(lengths))
        presences = interleaved(torch.split(own_P, fronts), [ones_S[:length] for length in lengths])
    return [
        replace(
            row,
            embeds_SD=embeds_SD,
            positions_3S=positions_3S,
            visual_S=visual_S,
            presence_S=presence_S,
            next_position=row.next_position + front,
            parts_S=None,
            part_counts=(),
        )
        for row, front, embeds_SD, positions_3S, visual_S, presence_S in zip(
            rows, fronts, embeds, positions, visual, presences, strict=True
        )
    ]
