"""The backbone's text blocks over many examples laid end to end, without padding.

The library pads rows to the longest, and examples differ so much in length that a third of the work would be padding.
Same weights, same numbers (a test holds the two together), attention inside each example only.

Shapes: T tokens of all examples, D text width, A heads, X head width, V visual tokens, L DeepStack levels, R examples.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from focusmem.lab.compiled import compiled_on_gpu


@dataclass(frozen=True)
class Borders:
    """Where each example begins, and where the last one ends."""

    starts_R: Tensor
    """(R + 1,), int32."""
    longest: int


def read_packed(
    text: Any, embeds_TD: Tensor, positions_3T: Tensor, borders: Borders, visual_V: Tensor, deep_LVD: Tensor
) -> Tensor:
    """Hidden states after the final norm, (T, D). `visual_V` are the places that DeepStack adds to."""
    cosine_TX, sine_TX = (table[0] for table in text.rotary_emb(embeds_TD[None], positions_3T[:, None]))
    hidden_TD = embeds_TD
    for index, layer in enumerate(text.layers):
        own = layer.self_attn
        queries, keys, values = _before_attention(
            hidden_TD, layer.input_layernorm.weight, own.q_proj.weight, own.k_proj.weight, own.v_proj.weight,
            own.q_norm.weight, own.k_norm.weight, cosine_TX, sine_TX, own.q_norm.variance_epsilon,
        )  # fmt: skip
        attended_TAX = attend_packed(queries, keys, values, borders)
        hidden_TD = _after_attention(
            hidden_TD, attended_TAX, own.o_proj.weight, layer.post_attention_layernorm.weight,
            layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight, layer.mlp.down_proj.weight,
            own.q_norm.variance_epsilon,
        )  # fmt: skip
        if index < len(deep_LVD):
            hidden_TD = hidden_TD.index_add(0, visual_V, deep_LVD[index].to(hidden_TD.dtype))
    result: Tensor = text.norm(hidden_TD)
    return result


def attend_packed(queries_TAX: Tensor, keys_TAX: Tensor, values_TAX: Tensor, borders: Borders) -> Tensor:
    """Causal attention inside each example."""
    if queries_TAX.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        starts, longest = borders.starts_R, borders.longest
        packed: Tensor = varlen_attn(  # type: ignore[assignment]
            queries_TAX, keys_TAX, values_TAX, starts, starts, longest, longest, window_size=(-1, 0)
        )
        return packed
    sizes = borders.starts_R.diff().tolist()
    pieces = zip(*(torch.split(tensor, sizes) for tensor in (queries_TAX, keys_TAX, values_TAX)), strict=True)
    return torch.cat([_attend_one(*piece) for piece in pieces])


def _attend_one(queries_TAX: Tensor, keys_TAX: Tensor, values_TAX: Tensor) -> Tensor:
    queries, keys, values = (tensor.transpose(0, 1)[None] for tensor in (queries_TAX, keys_TAX, values_TAX))
    return F.scaled_dot_product_attention(queries, keys, values, is_causal=True)[0].transpose(0, 1)


@compiled_on_gpu
def _before_attention(
    hidden_TD: Tensor, norm: Tensor, w_query: Tensor, w_key: Tensor, w_value: Tensor,
    norm_query: Tensor, norm_key: Tensor, cosine_TX: Tensor, sine_TX: Tensor, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    head_width = norm_query.shape[0]
    normed_TD = _rms_norm(hidden_TD, norm, eps)
    queries, keys, values = (
        F.linear(normed_TD, weight).view(len(normed_TD), -1, head_width) for weight in (w_query, w_key, w_value)
    )
    queries = _rotated(_rms_norm(queries, norm_query, eps), cosine_TX, sine_TX).to(values.dtype)
    keys = _rotated(_rms_norm(keys, norm_key, eps), cosine_TX, sine_TX).to(values.dtype)
    share = queries.shape[1] // keys.shape[1]
    return queries, keys.repeat_interleave(share, dim=1), values.repeat_interleave(share, dim=1)


@compiled_on_gpu
def _after_attention(
    hidden_TD: Tensor, attended_TAX: Tensor, w_out: Tensor, norm: Tensor,
    w_gate: Tensor, w_up: Tensor, w_down: Tensor, eps: float,
) -> Tensor:  # fmt: skip
    hidden_TD = hidden_TD + F.linear(attended_TAX.flatten(1), w_out)
    normed_TD = _rms_norm(hidden_TD, norm, eps)
    return hidden_TD + F.linear(F.silu(F.linear(normed_TD, w_gate)) * F.linear(normed_TD, w_up), w_down)


def _rms_norm(tensor: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = tensor.float()
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return weight * (wide * scale).to(tensor.dtype)


def _rotated(heads_TAX: Tensor, cosine_TX: Tensor, sine_TX: Tensor) -> Tensor:
    first, second = heads_TAX.chunk(2, dim=-1)
    return heads_TAX * cosine_TX[:, None] + torch.cat([-second, first], dim=-1) * sine_TX[:, None]
