"""The backbone's vision tower over many screenshots of one size at once.

The library runs attention image by image, which suits prompts but keeps a GPU waiting in pretraining. Here attention is
batched. Weights and results are the same; a test compares both.

Shapes: N pictures, P patches, C tower width, V tokens, D text width, L DeepStack levels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from focusmem.model.backbone import Backbone, VisionFeatures
from focusmem.model.compiled import compiled_on_gpu


@dataclass(frozen=True)
class _Tables:
    """Tables that depend only on the size of the pictures."""

    neighbours_P4: Tensor
    shares_P4: Tensor
    cosine_PX: Tensor
    sine_PX: Tensor


def see_named(backbone: Backbone, names: Sequence[str], pixels_NHWC: Tensor) -> dict[str, VisionFeatures]:
    """The backbone's features of pictures, by picture name."""
    _, height, width, _ = pixels_NHWC.shape
    grid = backbone.chat.token_grid(width, height)
    main_NVD, deep_LNVD = see_all(backbone.model.model.visual, pixels_NHWC)
    apart = zip(names, main_NVD.unbind(), deep_LNVD.unbind(dim=1), strict=True)
    return {name: VisionFeatures(main_VD, deep_LVD, grid) for name, main_VD, deep_LVD in apart}


def see_all(tower: Any, pixels_NHWC: Tensor) -> tuple[Tensor, Tensor]:
    """Features (N, V, D) and DeepStack features (L, N, V, D) of uint8 pictures whose sides are whole tokens."""
    num, height, width, _ = pixels_NHWC.shape
    patch, merge = tower.patch_size, tower.spatial_merge_size
    if num == 0:
        empty_NVD = tower.pos_embed.weight.new_zeros(
            0, height * width // (patch * merge) ** 2, tower.config.out_hidden_size
        )
        return empty_NVD, empty_NVD.expand(len(tower.deepstack_visual_indexes), -1, -1, -1)
    tables = _tables(
        height // patch, width // patch, merge, tower.num_grid_per_side,
        tower.config.hidden_size // tower.config.num_heads, pixels_NHWC.device,
    )  # fmt: skip
    hidden_NPC = _embed_patches(tower, pixels_NHWC)
    positions_PC = (tower.pos_embed(tables.neighbours_P4) * tables.shares_P4[..., None]).sum(1)
    hidden_NPC = hidden_NPC + positions_PC.to(hidden_NPC.dtype)
    levels: list[Tensor] = []
    for index, block in enumerate(tower.blocks):
        hidden_NPC = _block(block, hidden_NPC, tables)
        if index in tower.deepstack_visual_indexes:
            merger = tower.deepstack_merger_list[len(levels)]
            levels.append(merger(hidden_NPC.flatten(0, 1)).view(num, -1, tower.config.out_hidden_size))
    main_NVD = tower.merger(hidden_NPC.flatten(0, 1)).view(num, -1, tower.config.out_hidden_size)
    return main_NVD, torch.stack(levels)


def _embed_patches(tower: Any, pixels_NHWC: Tensor) -> Tensor:
    # A still picture is the same frame repeated, so the filter's frames add up.
    projection = tower.patch_embed.proj
    weight_CF = projection.weight.sum(dim=2).flatten(1)
    flat_NPF = _patches(pixels_NHWC, tower.patch_size, tower.spatial_merge_size).to(weight_CF.dtype)
    return F.linear(flat_NPF, weight_CF, projection.bias)


@compiled_on_gpu
def _patches(pixels_NHWC: Tensor, patch: int, merge: int) -> Tensor:
    """Pixels from -1 to 1, patch by patch; the patches of one token are adjacent."""
    num, height, width, _ = pixels_NHWC.shape
    rows, columns = height // patch // merge, width // patch // merge
    normalised = pixels_NHWC.float() / 127.5 - 1.0
    blocks = normalised.view(num, rows, merge, patch, columns, merge, patch, 3)
    return blocks.permute(0, 1, 4, 2, 5, 7, 3, 6).reshape(num, rows * columns * merge * merge, 3 * patch * patch)


def _block(block: Any, hidden_NPC: Tensor, tables: _Tables) -> Tensor:
    own, mlp = block.attn, block.mlp
    queries, keys, values = _before_attention(
        hidden_NPC, block.norm1.weight, block.norm1.bias, own.qkv.weight, own.qkv.bias,
        tables.cosine_PX, tables.sine_PX, block.norm1.eps,
    )  # fmt: skip
    attended_NAPX = F.scaled_dot_product_attention(queries, keys, values)
    return _after_attention(
        hidden_NPC, attended_NAPX, own.proj.weight, own.proj.bias, block.norm2.weight, block.norm2.bias,
        mlp.linear_fc1.weight, mlp.linear_fc1.bias, mlp.linear_fc2.weight, mlp.linear_fc2.bias, block.norm2.eps,
    )  # fmt: skip


@compiled_on_gpu
def _before_attention(
    hidden_NPC: Tensor, norm: Tensor, norm_bias: Tensor, w_qkv: Tensor, b_qkv: Tensor,
    cosine_PX: Tensor, sine_PX: Tensor, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    normed_NPC = F.layer_norm(hidden_NPC, norm.shape, norm, norm_bias, eps)
    joined = F.linear(normed_NPC, w_qkv, b_qkv).view(*hidden_NPC.shape[:2], 3, -1, cosine_PX.shape[1])
    queries, keys, values = joined.permute(2, 0, 3, 1, 4)
    return _rotated(queries, cosine_PX, sine_PX), _rotated(keys, cosine_PX, sine_PX), values.contiguous()


@compiled_on_gpu
def _after_attention(
    hidden_NPC: Tensor, attended_NAPX: Tensor, w_out: Tensor, b_out: Tensor, norm: Tensor, norm_bias: Tensor,
    w_wide: Tensor, b_wide: Tensor, w_narrow: Tensor, b_narrow: Tensor, eps: float,
) -> Tensor:  # fmt: skip
    hidden_NPC = hidden_NPC + F.linear(attended_NAPX.transpose(1, 2).flatten(2), w_out, b_out)
    normed_NPC = F.layer_norm(hidden_NPC, norm.shape, norm, norm_bias, eps)
    wide = F.gelu(F.linear(normed_NPC, w_wide, b_wide), approximate="tanh")
    return hidden_NPC + F.linear(wide, w_narrow, b_narrow)


def _rotated(heads_NAPX: Tensor, cosine_PX: Tensor, sine_PX: Tensor) -> Tensor:
    first, second = heads_NAPX.float().chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return (heads_NAPX.float() * cosine_PX + turned * sine_PX).to(heads_NAPX.dtype)


@lru_cache(maxsize=8)
def _tables(rows: int, columns: int, merge: int, side: int, head_width: int, device: torch.device) -> _Tables:
    def ordered(grid: Tensor) -> Tensor:
        """From reading order to the tower's order, in which the patches of one token are adjacent."""
        shape = (rows // merge, merge, columns // merge, merge)
        return grid.reshape(shape).permute(0, 2, 1, 3).reshape(-1)

    row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    place_y = torch.linspace(0, side - 1, rows)[row]
    place_x = torch.linspace(0, side - 1, columns)[column]
    neighbours, shares = [], []
    for step_y in (0, 1):
        for step_x in (0, 1):
            low_y, low_x = place_y.floor(), place_x.floor()
            share_y = (place_y - low_y) if step_y else 1 - (place_y - low_y)
            share_x = (place_x - low_x) if step_x else 1 - (place_x - low_x)
            corner_y, corner_x = (low_y + step_y).clamp(max=side - 1), (low_x + step_x).clamp(max=side - 1)
            neighbours.append(ordered(corner_y * side + corner_x).long())
            shares.append(ordered(share_y * share_x))
    quarter = head_width // 2
    frequencies = 1.0 / (10_000.0 ** (torch.arange(0, quarter, 2).float() / quarter))
    angles = torch.cat([ordered(row)[:, None] * frequencies, ordered(column)[:, None] * frequencies], dim=-1)
    angles_PX = torch.cat([angles, angles], dim=-1)
    tensors = (torch.stack(neighbours, dim=1), torch.stack(shares, dim=1), angles_PX.cos(), angles_PX.sin())
    return _Tables(*(tensor.to(device) for tensor in tensors))
