"""Puts accepted blocks in front of the policy's input: [episodic; working; context].

Shapes: N blocks, K memory tokens, P prefix tokens, S positions, D policy width.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from focusmem.model.inputs import Row


@dataclass(frozen=True)
class Place:
    """Where a block belongs: its decision's row, then its source, then its rank."""

    row: int
    role: int
    rank: int


class Injection:
    """Compacts what each row keeps and shifts the row behind it.

    A rejected block is absent, not zeroed: a zeroed token still draws attention. A row that keeps nothing is the very
    row that came in.
    """

    def __call__(
        self,
        rows: Sequence[Row],
        blocks_NKD: Tensor,
        places: Sequence[Place],
        keep: Sequence[bool],
        presence_N: Tensor | None = None,
    ) -> list[Row]:
        """`presence_N` is one for each block that is kept, and carries the gradient of keeping it."""
        accepted: dict[int, list[tuple[Place, int]]] = {}
        for index, (place, is_kept) in enumerate(zip(places, keep, strict=True)):
            if is_kept:
                accepted.setdefault(place.row, []).append((place, index))
        result = []
        for number, row in enumerate(rows):
            ordered = sorted(accepted.get(number, ()), key=lambda entry: (entry[0].role, entry[0].rank))
            if not ordered:
                result.append(row)
                continue
            own = [index for _, index in ordered]
            result.append(self.prefixed(row, blocks_NKD[own], None if presence_N is None else presence_N[own]))
        return result

    @staticmethod
    def prefixed(row: Row, blocks_NKD: Tensor, presence_N: Tensor | None = None) -> Row:
        """A row with blocks in front: plain text positions, no DeepStack rows, everything after moved along."""
        prefix_PD = blocks_NKD.flatten(0, 1).to(row.embeds_SD.dtype)
        num_prefix = prefix_PD.shape[0]
        moved = row.shifted(num_prefix)
        presence_S = None
        if presence_N is not None:
            own_P = presence_N.repeat_interleave(blocks_NKD.shape[1])
            presence_S = torch.cat([own_P, own_P.new_ones(row.length)])
        positions_3P = torch.arange(num_prefix, device=row.positions_3S.device).expand(3, -1)
        return replace(
            moved,
            embeds_SD=torch.cat([prefix_PD, row.embeds_SD]),
            positions_3S=torch.cat([positions_3P, moved.positions_3S], dim=1),
            visual_S=torch.cat([row.visual_S.new_zeros(num_prefix), row.visual_S]),
            presence_S=presence_S,
        )
