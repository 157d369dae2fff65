"""Turns that are read once because they begin many prompts, or a chunk that grows.

Shapes: B rows, P positions of the longest front, A heads, X head width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from focusmem.model.backbone import Backbone
from focusmem.model.inputs import Row, stack_rows


@dataclass(frozen=True)
class ReadFront:
    """The state of a causal model after reading a front: keys and values of each layer, and the next position."""

    layers: tuple[tuple[Tensor, Tensor], ...] = ()
    """Keys and values, each (1, A, P, X); empty if nothing has been read."""
    length: int = 0
    next_position: int = 0

    @classmethod
    @torch.no_grad()
    def read(cls, backbone: Backbone, row: Row) -> "ReadFront":
        cache = backbone.new_cache()
        backbone.run(stack_rows([row]), cache=cache)
        return cls(tuple((layer.keys, layer.values) for layer in cache.layers), row.length, row.next_position)

    @property
    def num_bytes(self) -> int:
        return sum(part.nbytes for layer in self.layers for part in layer)


def joined(backbone: Backbone, fronts: Sequence[ReadFront]) -> tuple[Any, Tensor]:
    """A cache that holds every row's front, padded on the right, and the mask of its real positions, (B, P)."""
    size = max(front.length for front in fronts)
    lengths = torch.tensor([front.length for front in fronts], device=backbone.device)
    cache = backbone.new_cache()
    longest = next(front for front in fronts if front.length == size)
    for index, parts in enumerate(longest.layers):
        keys_BAPX, values_BAPX = (
            torch.cat(
                [_padded(front.layers[index][part] if front.layers else like[:, :, :0], size) for front in fronts]
            )
            for part, like in enumerate(parts)
        )
        cache.update(keys_BAPX, values_BAPX, index)
    return cache, torch.arange(size, device=backbone.device)[None] < lengths[:, None]


def extended(
    cache: Any, fronts: Sequence[ReadFront], num_new: Sequence[int], next_positions: Sequence[int]
) -> list[ReadFront]:
    """The fronts after a pass with their `joined` cache. The first `num_new` positions of each row are appended."""
    start = max(front.length for front in fronts)
    layers = [(layer.keys, layer.values) for layer in cache.layers]
    return [
        ReadFront(
            tuple(
                (
                    _appended(front, index, 0, keys[row : row + 1, :, start : start + num]),
                    _appended(front, index, 1, values[row : row + 1, :, start : start + num]),
                )
                for index, (keys, values) in enumerate(layers)
            ),
            front.length + num,
            next_position,
        )
        for row, (front, num, next_position) in enumerate(zip(fronts, num_new, next_positions, strict=True))
    ]


def _appended(front: ReadFront, index: int, part: int, new_1ASX: Tensor) -> Tensor:
    """A copy, because a view would keep the whole batch in memory."""
    return torch.cat([front.layers[index][part], new_1ASX], dim=2) if front.layers else new_1ASX.clone()


def _padded(tensor_1APX: Tensor, size: int) -> Tensor:
    return torch.nn.functional.pad(tensor_1APX, (0, 0, 0, size - tensor_1APX.shape[2]))
