"""The backbone's text blocks over rows laid end to end, without padding.

The library pads rows to the longest and launches many small kernels. Here attention stays inside each row, and the
operations between two matrix products are compiled. Weights and results are the same; tests compare both.

Shapes: T tokens of all rows, D text width, A heads, X head width, V visual tokens, L DeepStack levels, R rows.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from focusmem.errors import ConfigError
from focusmem.model.compiled import compiled_on_gpu
from focusmem.model.inputs import Batch
from focusmem.model.lora import LoraUpdate

_KERNEL_STEP = 8
"""Kernels need head widths that are multiples of this."""

Low = tuple[Tensor, Tensor, float]
"""A low-rank update: down, up, and its scale."""


@dataclass(frozen=True)
class Borders:
    """The start of each row, and the end of the last one."""

    starts_R: Tensor
    """(R + 1,), int32."""
    longest: int


def run_packed(text: Any, batch: Batch, updates: nn.ModuleDict | None, *, num_layers: int | None = None) -> Tensor:
    """The same hidden states (B, S, D) as the library's text model for padded rows, with zeros for padding.

    `updates` are the updates of a LoRA, by its own names. With `num_layers`, the states after that many blocks, without
    the final norm.
    """
    device, places_T = batch.embeds_BSD.device, batch.places_T
    assert places_T is not None, "rows were stacked by stack_rows"
    ends = torch.tensor([0, *batch.lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    borders = Borders(ends.to(device, non_blocking=True), max(batch.lengths))
    # Computed by counting, because indexing with a mask would wait for the GPU.
    counts_T = batch.visual_BS.flatten()[places_T].cumsum(0)
    visual_V = torch.searchsorted(counts_T, torch.arange(1, batch.deep_LVD.shape[1] + 1, device=device))
    flat_XD = batch.embeds_BSD.flatten(0, 1)
    hidden_TD = read_packed(
        text,
        flat_XD.index_select(0, places_T),
        batch.positions_3BS.flatten(1).index_select(1, places_T),
        borders,
        visual_V,
        batch.deep_LVD,
        updates=updates,
        num_layers=num_layers,
        scores_T=None if batch.attention_BS is None else batch.attention_BS.flatten().index_select(0, places_T),
    )
    spread_XD = hidden_TD.new_zeros(len(flat_XD), hidden_TD.shape[1]).index_copy(0, places_T, hidden_TD)
    return spread_XD.view(*batch.embeds_BSD.shape[:2], -1)


def read_packed(
    text: Any,
    embeds_TD: Tensor,
    positions_3T: Tensor,
    borders: Borders,
    visual_V: Tensor,
    deep_LVD: Tensor,
    *,
    updates: nn.ModuleDict | None = None,
    num_layers: int | None = None,
    scores_T: Tensor | None = None,
) -> Tensor:
    """Hidden states after the final norm, (T, D). DeepStack features are added at the positions `visual_V`; `scores_T`
    is added to the attention scores of each token.
    """
    cosine_TX, sine_TX = (table[0] for table in text.rotary_emb(embeds_TD[None], positions_3T[:, None]))
    hidden_TD = embeds_TD
    for index, layer in enumerate(text.layers[:num_layers]):
        own = layer.self_attn
        low = {} if updates is None else _updates_of(updates, index)
        queries, keys, values = _before_attention(
            hidden_TD, layer.input_layernorm.weight, own.q_proj.weight, own.k_proj.weight, own.v_proj.weight,
            own.q_norm.weight, own.k_norm.weight, cosine_TX, sine_TX, own.q_norm.variance_epsilon,
            low.get("self_attn/q_proj"), low.get("self_attn/k_proj"), low.get("self_attn/v_proj"),
        )  # fmt: skip
        attended_TAX = attend_packed(queries, keys, values, borders, scores_T)
        hidden_TD = _after_attention(
            hidden_TD, attended_TAX, own.o_proj.weight, layer.post_attention_layernorm.weight,
            layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight, layer.mlp.down_proj.weight,
            own.q_norm.variance_epsilon,
            low.get("self_attn/o_proj"), low.get("mlp/gate_proj"), low.get("mlp/up_proj"), low.get("mlp/down_proj"),
        )  # fmt: skip
        if index < len(deep_LVD):
            hidden_TD = hidden_TD.index_add(0, visual_V, deep_LVD[index].to(hidden_TD.dtype))
    return hidden_TD if num_layers is not None else text.norm(hidden_TD)


def _updates_of(updates: nn.ModuleDict, index: int) -> dict[str, Low]:
    """One block's updates, by the path of their linear layer."""
    start = f"layers/{index}/"
    found: dict[str, Low] = {}
    for name, update in updates.items():
        if name.startswith(start):
            assert isinstance(update, LoraUpdate), "only a LoRA's updates are given"
            if update.training and update.dropout.p > 0:
                raise ConfigError(
                    f"LoraConfig.dropout is {update.dropout.p}, but rows laid end to end have no dropout; "
                    "set it to 0, or LoopConfig.packs_rows to False."
                )
            found[name.removeprefix(start)] = update.down_RI, update.up_OR, update.scale
    return found


def attend_packed(
    queries_TAX: Tensor, keys_TAX: Tensor, values_TAX: Tensor, borders: Borders, scores_T: Tensor | None = None
) -> Tensor:
    """Causal attention inside each example; `scores_T` is added to the attention scores of each token."""
    width = queries_TAX.shape[-1]
    scale = width**-0.5
    if scores_T is not None:
        # Kernels for rows end to end accept no such term, so it is passed as one more element of queries and keys.
        factors = (torch.full_like(scores_T, 1 / scale), scores_T, torch.zeros_like(scores_T))
        queries_TAX, keys_TAX, values_TAX = (
            _widened(tensor, factor_T)
            for tensor, factor_T in zip((queries_TAX, keys_TAX, values_TAX), factors, strict=True)
        )
    return _attend(queries_TAX, keys_TAX, values_TAX, borders, scale)[..., :width]


def _widened(tensor_TAX: Tensor, factor_T: Tensor) -> Tensor:
    """Adds one element to every head, and zeros up to a width that kernels accept."""
    more_TAY = tensor_TAX.new_zeros(*tensor_TAX.shape[:2], _KERNEL_STEP - 1)
    factor_TA1 = factor_T.to(tensor_TAX.dtype)[:, None, None].expand(-1, tensor_TAX.shape[1], 1)
    return torch.cat([tensor_TAX, factor_TA1, more_TAY], dim=-1)


def _attend(queries_TAX: Tensor, keys_TAX: Tensor, values_TAX: Tensor, borders: Borders, scale: float) -> Tensor:
    if queries_TAX.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        starts, longest = borders.starts_R, borders.longest
        packed: Tensor = varlen_attn(  # type: ignore[assignment]
            queries_TAX, keys_TAX, values_TAX, starts, starts, longest, longest, scale=scale, window_size=(-1, 0)
        )
        return packed
    sizes = borders.starts_R.diff().tolist()
    splits = [torch.split(tensor, sizes) for tensor in (queries_TAX, keys_TAX, values_TAX)]
    return torch.cat([_attend_one(*piece, scale=scale) for piece in zip(*splits, strict=True)])


def _attend_one(queries_TAX: Tensor, keys_TAX: Tensor, values_TAX: Tensor, *, scale: float) -> Tensor:
    queries, keys, values = (tensor.transpose(0, 1)[None] for tensor in (queries_TAX, keys_TAX, values_TAX))
    return F.scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=scale)[0].transpose(0, 1)


@compiled_on_gpu
def _before_attention(
    hidden_TD: Tensor, norm: Tensor, w_query: Tensor, w_key: Tensor, w_value: Tensor,
    norm_query: Tensor, norm_key: Tensor, cosine_TX: Tensor, sine_TX: Tensor, eps: float,
    low_query: Low | None = None, low_key: Low | None = None, low_value: Low | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    head_width = norm_query.shape[0]
    normed_TD = _rms_norm(hidden_TD, norm, eps)
    pairs = ((w_query, low_query), (w_key, low_key), (w_value, low_value))
    queries, keys, values = (
        _linear(normed_TD, weight, low).view(len(normed_TD), -1, head_width) for weight, low in pairs
    )
    queries = _rotated(_rms_norm(queries, norm_query, eps), cosine_TX, sine_TX).to(values.dtype)
    keys = _rotated(_rms_norm(keys, norm_key, eps), cosine_TX, sine_TX).to(values.dtype)
    share = queries.shape[1] // keys.shape[1]
    return queries, keys.repeat_interleave(share, dim=1), values.repeat_interleave(share, dim=1)


@compiled_on_gpu
def _after_attention(
    hidden_TD: Tensor, attended_TAX: Tensor, w_out: Tensor, norm: Tensor,
    w_gate: Tensor, w_up: Tensor, w_down: Tensor, eps: float,
    low_out: Low | None = None, low_gate: Low | None = None, low_up: Low | None = None, low_down: Low | None = None,
) -> Tensor:  # fmt: skip
    hidden_TD = hidden_TD + _linear(attended_TAX.flatten(1), w_out, low_out)
    normed_TD = _rms_norm(hidden_TD, norm, eps)
    wide_TF = F.silu(_linear(normed_TD, w_gate, low_gate)) * _linear(normed_TD, w_up, low_up)
    return hidden_TD + _linear(wide_TF, w_down, low_down)


def _linear(inputs: Tensor, weight: Tensor, low: Low | None) -> Tensor:
    if low is None:
        return F.linear(inputs, weight)
    down_RI, up_OR, scale = low
    update = F.linear(F.linear(inputs, down_RI.to(inputs.dtype)), up_OR.to(inputs.dtype)) * scale
    return F.linear(inputs, weight) + update


def _rms_norm(tensor: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = tensor.float()
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return weight * (wide * scale).to(tensor.dtype)


def _rotated(heads_TAX: Tensor, cosine_TX: Tensor, sine_TX: Tensor) -> Tensor:
    first, second = heads_TAX.chunk(2, dim=-1)
    return heads_TAX * cosine_TX[:, None] + torch.cat([-second, first], dim=-1) * sine_TX[:, None]
