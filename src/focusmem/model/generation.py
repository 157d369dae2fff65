"""The policy's reply, token by token: one prefill, then a short loop over the cache, for a batch of rows."""

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from focusmem.errors import ConfigError
from focusmem.model.backbone import Backbone
from focusmem.model.front import ReadFront, joined
from focusmem.model.inputs import Batch, Row, stack_rows
from focusmem.settings import checked_dataclass


@checked_dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    max_new_tokens: PositiveInt = 256
    temperature: NonNegativeFloat = 0.0
    """Zero decodes greedily."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sampling uses only the likeliest tokens that together reach this probability."""


@torch.no_grad()
def generate(
    backbone: Backbone,
    rows: Sequence[Row],
    config: GenerationConfig,
    *,
    seeds: Sequence[int] | None = None,
    fronts: Sequence[ReadFront] | None = None,
) -> list[list[int]]:
    """Token ids of each row's reply, without the stop token.

    With a temperature, `seeds` gives each row its own random numbers, so a row's reply does not depend on its
    neighbours in the batch. `fronts` holds the turns before each row, if they have been read already.
    """
    if config.temperature > 0 and (seeds is None or len(seeds) != len(rows)):
        raise ConfigError("Sampling needs one seed per row; pass seeds=[...], or temperature=0 for greedy decoding.")
    generators = [torch.Generator().manual_seed(seed) for seed in seeds or ()]
    if fronts is None:
        cache, front_BP = backbone.new_cache(), torch.ones(len(rows), 0, dtype=torch.bool, device=backbone.device)
    else:
        cache, front_BP = joined(backbone, fronts)
        rows = [row.shifted(front.next_position) for row, front in zip(rows, fronts, strict=True)]
    batch = stack_rows(rows)
    last = torch.tensor(batch.lengths, device=backbone.device) - 1
    hidden_BSD = backbone.run(batch, cache=cache, past_mask_BP=front_BP)
    logits_BV = _of_words(backbone, hidden_BSD[torch.arange(len(rows), device=backbone.device), last])
    mask_BP = torch.cat([front_BP, batch.mask_BS], dim=1)
    positions = list(batch.next_positions)
    replies: list[list[int]] = [[] for _ in rows]
    is_done = [False] * len(rows)
    for _ in range(config.max_new_tokens):
        chosen = _choose(logits_BV, config, generators)
        for number, token in enumerate(chosen):
            is_done[number] = is_done[number] or token in backbone.stop_ids
            if not is_done[number]:
                replies[number].append(token)
        if all(is_done):
            break
        step = _one_token_batch(backbone, chosen, positions)
        hidden_BSD = backbone.run(step, cache=cache, past_mask_BP=mask_BP)
        logits_BV = _of_words(backbone, hidden_BSD[:, -1])
        mask_BP = torch.cat([mask_BP, step.mask_BS], dim=1)
        positions = [position + 1 for position in positions]
    return replies


def _of_words(backbone: Backbone, hidden_ND: Tensor) -> Tensor:
    """Logits (N, V) without the picture token: a reply that contained it would seem to refer to a picture."""
    logits_NV = backbone.logits(hidden_ND)
    logits_NV[:, backbone.special["<|image_pad|>"]] = float("-inf")
    return logits_NV


def _choose(logits_BV: Tensor, config: GenerationConfig, generators: Sequence[torch.Generator]) -> list[int]:
    if config.temperature == 0:
        return logits_BV.argmax(dim=-1).tolist()
    probabilities = (logits_BV.float() / config.temperature).softmax(dim=-1).cpu()
    ranked, order = probabilities.sort(dim=-1, descending=True)
    is_extra = ranked.cumsum(dim=-1) - ranked >= config.top_p
    ranked = ranked.masked_fill(is_extra, 0.0)
    picks = [torch.multinomial(row, 1, generator=one) for row, one in zip(ranked, generators, strict=True)]
    return order.gather(1, torch.stack(picks)).squeeze(1).tolist()


def _one_token_batch(backbone: Backbone, tokens: Sequence[int], positions: Sequence[int]) -> Batch:
    ids_B1 = torch.tensor(tokens, device=backbone.device)[:, None]
    embeds_B1D = backbone.language_model.embed_tokens(ids_B1)  # type: ignore[operator]
    ones = torch.ones_like(ids_B1, dtype=torch.bool)
    return Batch(
        embeds_BSD=embeds_B1D,
        mask_BS=ones,
        positions_3BS=torch.tensor(positions, device=backbone.device)[None, :, None].expand(3, -1, -1),
        visual_BS=~ones,
        deep_LVD=embeds_B1D.new_zeros(0, 0, backbone.width),
        lengths=(1,) * len(tokens),
        next_positions=tuple(position + 1 for position in positions),
        target_ids=((),) * len(tokens),
    )
