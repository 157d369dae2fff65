"""Compresses an item's features into K memory tokens: C_Phi, with the role-aware base queries.

Shapes: N items, T evidence tokens, K memory tokens, E encoder width, H compressor width, A heads of width X, D policy
width. Paper, Appendix A.1; its parameter count determines which layers have biases and norms.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Literal, TypeVar

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from focusmem.errors import ConfigError
from focusmem.settings import checked_dataclass

ROLES = ("episodic", "working")
Budget = Literal[1, 2, 4, 8, 16]


@checked_dataclass(frozen=True, kw_only=True)
class CompressorConfig:
    num_tokens: Budget = 8
    """K: memory tokens per item. The paper has 4, 8 and 16."""
    width: PositiveInt | None = None
    """H; None takes the policy's width, as in the paper."""
    num_heads: PositiveInt = 16
    num_refinements: PositiveInt = 8
    """How often the shared block is applied."""
    ffn_ratio: PositiveInt = 4
    query_std: float = 1.0
    """Spread of fresh base queries: wide enough that the K tokens of a block start out different."""
    shares_queries: bool = False
    """Whether both roles have the same base queries, as in latent memory before the paper. The role vectors then only
    mark whether a block is episodic or working."""

    def __post_init__(self) -> None:
        if self.width is not None and self.width % self.num_heads:
            raise ConfigError(
                f"CompressorConfig.width is {self.width}, which {self.num_heads} heads do not divide; "
                "change width or num_heads."
            )


@dataclass(frozen=True)
class KeysValues:
    """Evidence projected to keys and values, for any number of readouts: they do not depend on the query."""

    keys_NATX: Tensor
    values_NATX: Tensor
    mask_NT: Tensor | None
    """True for tokens that count; None if all do."""

    @property
    def num_items(self) -> int:
        return self.keys_NATX.shape[0]

    @property
    def num_tokens(self) -> int:
        return self.keys_NATX.shape[2]


@dataclass(frozen=True)
class Features:
    """Evidence before the key and value projections: half the bytes."""

    features_NTH: Tensor
    mask_NT: Tensor | None
    is_absorbed: bool = True
    """Fold the projections into queries and results instead of projecting each time: the same results with
    less work.
    """

    @property
    def num_items(self) -> int:
        return self.features_NTH.shape[0]

    @property
    def num_tokens(self) -> int:
        return self.features_NTH.shape[1]


@dataclass(frozen=True)
class SharedKeysValues:
    """Items that are read several times but stored once: the queries of all readings of an item attend together."""

    items: KeysValues
    item_of_reading_N: Tensor
    """The item of each of the N readings."""
    reading_IU: Tensor
    """The readings of each item, padded with arbitrary readings to the item that is read most often."""
    slot_N: Tensor
    """The index of each reading in the flattened `reading_IU`."""

    @classmethod
    def of(cls, items: KeysValues, item_of_reading: Sequence[int]) -> "SharedKeysValues":
        readings: list[list[int]] = [[] for _ in range(items.num_items)]
        slots = []
        for number, item in enumerate(item_of_reading):
            slots.append((item, len(readings[item])))
            readings[item].append(number)
        most = max(map(len, readings))
        table = [own + [0] * (most - len(own)) for own in readings]
        device = items.keys_NATX.device
        return cls(
            items,
            torch.tensor(item_of_reading, device=device),
            torch.tensor(table, device=device),
            torch.tensor([item * most + place for item, place in slots], device=device),
        )

    @property
    def num_items(self) -> int:
        return self.item_of_reading_N.shape[0]

    @property
    def mask_NT(self) -> Tensor | None:
        return None if self.items.mask_NT is None else self.items.mask_NT[self.item_of_reading_N]

    def attend(self, queries_NAKX: Tensor) -> Tensor:
        num_items, most = self.reading_IU.shape
        _, heads, num_queries, _ = queries_NAKX.shape
        # `index_select` is used because the backward pass of advanced indexing sorts its indices first.
        chosen = queries_NAKX.index_select(0, self.reading_IU.flatten())
        beside_IAQX = chosen.view(num_items, most, *chosen.shape[1:]).transpose(1, 2).flatten(2, 3)
        result_IAQX = _attend(beside_IAQX, self.items)
        apart = result_IAQX.view(num_items, heads, most, num_queries, -1).transpose(1, 2).flatten(0, 1)
        return apart.index_select(0, self.slot_N)


Evidence = KeysValues | Features | SharedKeysValues
EvidenceT = TypeVar("EvidenceT", KeysValues | SharedKeysValues, Features)


class Compressor(nn.Module):
    """A Q-Former: one cross-attention and feed-forward block, applied again and again to the same evidence."""

    def __init__(
        self, config: CompressorConfig, *, evidence_width: int, policy_width: int, output_std: float = 0.02
    ) -> None:
        super().__init__()
        width = config.width or policy_width
        if width % config.num_heads:
            raise ConfigError(f"{config.num_heads} compressor heads do not divide the width {width}.")
        self.config, self.width, self.head_width = config, width, width // config.num_heads
        num_queries = 1 if config.shares_queries else len(ROLES)
        self.base_queries_RKH = nn.Parameter(torch.empty(num_queries, config.num_tokens, width))
        self.role_vectors_RD = nn.Parameter(torch.empty(len(ROLES), policy_width))

        self.norm_evidence = nn.LayerNorm(evidence_width)
        self.w_in = nn.Linear(evidence_width, width)
        self.norm_attention = nn.LayerNorm(width)
        self.w_query, self.w_key, self.w_value, self.w_result = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.norm_ffn = nn.LayerNorm(width)
        self.ffn_up = nn.Linear(width, config.ffn_ratio * width, bias=False)
        self.ffn_down = nn.Linear(config.ffn_ratio * width, width, bias=False)
        self.norm_out = nn.LayerNorm(width)
        self.w_out = nn.Linear(width, policy_width)
        self._initialise(output_std)

    def _initialise(self, output_std: float) -> None:
        """Unit scale inside, small residual branches (they are applied repeatedly), and outputs with the spread of
        token embeddings.
        """
        branch = 1 / math.sqrt(2 * self.config.num_refinements)
        gains = {self.w_result: branch, self.ffn_down: branch, self.w_out: output_std}
        for layer in (module for module in self.modules() if isinstance(module, nn.Linear)):
            nn.init.normal_(layer.weight, std=gains.get(layer, 1.0) / math.sqrt(layer.in_features))
        for layer in (self.w_in, self.w_out):
            nn.init.zeros_(layer.bias)
        nn.init.normal_(self.base_queries_RKH, std=self.config.query_std)
        nn.init.normal_(self.role_vectors_RD, std=output_std)

    # Independent of the query

    def features(self, hidden_NTE: Tensor) -> Tensor:
        """H~ = LN(H) W_in, (N, T, H)."""
        return self.w_in(self.norm_evidence(hidden_NTE.to(self.w_in.weight.dtype)))  # type: ignore[no-any-return]

    def keys_values(self, features_NTH: Tensor, mask_NT: Tensor | None) -> KeysValues:
        keys_NATX, values_NATX = (
            self._split_heads(project(features_NTH)).contiguous() for project in (self.w_key, self.w_value)
        )
        return KeysValues(keys_NATX, values_NATX, mask_NT)

    # Dependent on the query

    def queries(self, roles_N: Tensor) -> Tensor:
        """The base queries of each item's role, (N, K, H)."""
        return self.base_queries_RKH[torch.zeros_like(roles_N) if self.config.shares_queries else roles_N]

    def forward(self, queries_NKH: Tensor, evidence: Sequence[Evidence], roles_N: Tensor) -> Tensor:
        """Memory tokens (N, K, D). `evidence` lists the N items in order, in groups of equal length or padded."""
        latents_NKH = self._refined(queries_NKH, self._attention_over(evidence))
        role_vectors_N1D = self.role_vectors_RD[roles_N][:, None]
        return self.w_out(self.norm_out(latents_NKH)) + role_vectors_N1D  # type: ignore[no-any-return]

    def looked_at(self, queries_NKH: Tensor, items: KeysValues) -> Tensor:
        """The share of attention that each evidence token got, (N, T): the mean over refinements, heads and tokens."""
        shares_NT: list[Tensor] = []

        def attend(queries_NAKX: Tensor) -> Tensor:
            scores = queries_NAKX @ items.keys_NATX.transpose(-1, -2) / math.sqrt(self.head_width)
            if items.mask_NT is not None:
                scores = scores.masked_fill(~_never_empty(items.mask_NT)[:, None, None], float("-inf"))
            weights_NAKT = scores.softmax(dim=-1, dtype=torch.float32)
            shares_NT.append(weights_NAKT.mean(dim=(1, 2)))
            return weights_NAKT.to(items.values_NATX.dtype) @ items.values_NATX

        self._refined(queries_NKH, attend)
        return torch.stack(shares_NT).mean(dim=0)

    def _refined(self, latents_NKH: Tensor, attend: Callable[[Tensor], Tensor]) -> Tensor:
        for _ in range(self.config.num_refinements):
            result_NAKX = attend(self._split_heads(self.w_query(self.norm_attention(latents_NKH))))
            latents_NKH = latents_NKH + self.w_result(result_NAKX.transpose(1, 2).flatten(2))
            latents_NKH = latents_NKH + self.ffn_down(F.gelu(self.ffn_up(self.norm_ffn(latents_NKH))))
        return latents_NKH

    def _attention_over(self, evidence: Sequence[Evidence]) -> Callable[[Tensor], Tensor]:
        """The attention function for this evidence, from queries (N, A, K, X) to results of the same shape. Chosen once
        per call.
        """
        absorbed = [group for group in evidence if isinstance(group, Features) and group.is_absorbed]
        if len(absorbed) == len(evidence):
            return partial(self._attend_absorbed, evidence=absorbed)
        if any(isinstance(group, Features) and not group.is_absorbed for group in evidence):
            # Projects at every refinement, exactly as in the paper's equations.
            return lambda queries_NAKX: self._attention_over([self._projected(one) for one in evidence])(queries_NAKX)
        projected = [self._projected(group) for group in evidence]
        kept = [group for group in projected if isinstance(group, KeysValues) and _is_kept_on_gpu(group)]
        if len(kept) == len(projected):
            from focusmem.model.ragged_attention import RaggedItems

            keys = [one for group in kept for one in torch.split(group.keys_NATX, 1)]
            values = [one for group in kept for one in torch.split(group.values_NATX, 1)]
            return RaggedItems(keys, values).attend
        return partial(_attend_in_groups, evidence=projected)

    def _projected(self, group: Evidence) -> KeysValues | SharedKeysValues:
        return self.keys_values(group.features_NTH, group.mask_NT) if isinstance(group, Features) else group

    def _attend_absorbed(self, queries_NAKX: Tensor, *, evidence: Sequence[Features]) -> Tensor:
        """softmax(q (W_k H~)^T) W_v H~ = softmax((q W_k) H~^T) H~ W_v, so the evidence is never projected."""
        heads, num_queries = queries_NAKX.shape[1:3]
        dtype = queries_NAKX.dtype
        w_key_AXH = self.w_key.weight.view(heads, self.head_width, self.width).to(dtype)
        w_value_AXH = self.w_value.weight.view(heads, self.head_width, self.width).to(dtype)
        folded_NAKH = torch.einsum("nakx,axh->nakh", queries_NAKX / math.sqrt(self.head_width), w_key_AXH)
        reads = []
        for folded, group in _with_their_queries(folded_NAKH, evidence):
            scores = folded.flatten(1, 2) @ group.features_NTH.transpose(1, 2)
            if group.mask_NT is not None:
                scores = scores.masked_fill(~_never_empty(group.mask_NT)[:, None], float("-inf"))
            weights = scores.softmax(dim=-1, dtype=torch.float32).to(dtype)
            reads.append((weights @ group.features_NTH).view(-1, heads, num_queries, self.width))
        return torch.einsum("nakh,axh->nakx", torch.cat(reads), w_value_AXH)

    def _split_heads(self, tensor_NTH: Tensor) -> Tensor:
        num_items, num_tokens, _ = tensor_NTH.shape
        return tensor_NTH.view(num_items, num_tokens, self.config.num_heads, self.head_width).transpose(1, 2)


def _attend_in_groups(queries_NAKX: Tensor, *, evidence: Sequence[KeysValues | SharedKeysValues]) -> Tensor:
    return torch.cat(
        [
            group.attend(queries) if isinstance(group, SharedKeysValues) else _attend(queries, group)
            for queries, group in _with_their_queries(queries_NAKX, evidence)
        ]
    )


def _attend(queries_NAKX: Tensor, items: KeysValues) -> Tensor:
    mask_N11T = None if items.mask_NT is None else _never_empty(items.mask_NT)[:, None, None]
    return F.scaled_dot_product_attention(queries_NAKX, items.keys_NATX, items.values_NATX, attn_mask=mask_N11T)


def _with_their_queries(queries_NAKX: Tensor, evidence: Sequence[EvidenceT]) -> Iterator[tuple[Tensor, EvidenceT]]:
    return zip(torch.split(queries_NAKX, [group.num_items for group in evidence]), evidence, strict=True)


def _is_kept_on_gpu(group: KeysValues) -> bool:
    """Whether the kernel for cached items can be used: no padding, half precision, and no gradient."""
    if group.mask_NT is not None or torch.is_grad_enabled():
        return False
    keys = group.keys_NATX
    is_half = keys.dtype in (torch.bfloat16, torch.float16)
    return keys.is_cuda and is_half and keys.shape[-1] % 8 == 0 and find_spec("triton") is not None


def _never_empty(mask_NT: Tensor) -> Tensor:
    """Attention over an item without tokens would give NaN. Such an item attends to padding instead, and the gate drops
    it.
    """
    return mask_NT | ~mask_NT.any(dim=-1, keepdim=True)
