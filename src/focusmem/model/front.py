"""Turns that stand unchanged in front of many prompts, read once.

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
    """The state of a causal policy after reading a front: keys and values of each layer, and the next position."""

    layers: tuple[tuple[Tensor, Tensor], ...]
    """Keys and values, each (1, A, P, X)."""
    length: int
    next_position: int

    @classmethod
    @torch.no_grad()
    def read(cls, backbone: Backbone, row: Row) -> "ReadFront":
        cache = backbone.new_cache()
        backbone.run(stack_rows([row]), cache=cache)
        return cls(tuple((layer.keys, layer.values) for layer in cache.layers), row.length, row.next_position)


def joined(backbone: Backbone, fronts: Sequence[ReadFront]) -> tuple[Any, Tensor]:
    """A cache that holds every row's front, padded on the right, and the mask of what counts in it, (B, P)."""
    size = max(front.length for front in fronts)
    lengths = torch.tensor([front.length for front in fronts], device=backbone.device)
    cache = backbone.new_cache()
    for index in range(len(fronts[0].layers)):
        keys_BAPX, values_BAPX = (
            torch.cat([_padded(front.layers[index][part], size) for front in fronts]) for part in (0, 1)
        )
        cache.update(keys_BAPX, values_BAPX, index)
    return cache, torch.arange(size, device=backbone.device)[None] < lengths[:, None]


def _padded(tensor_1APX: Tensor, size: int) -> Tensor:
    return torch.nn.functional.pad(tensor_1APX, (0, 0, 0, size - tensor_1APX.shape[2]))
