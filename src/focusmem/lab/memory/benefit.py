"""Measures the benefit of a memory for single decisions: how likely the expert's action is with and without memory.

No episode is played, so this is far quicker than a closed loop. Decisions that a memory can help with are counted
apart.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import NonNegativeInt, PositiveInt

from focusmem.intervals import grouped_interval
from focusmem.lab.memory.decisions import LabDecisions, LabDecisionsConfig, SiteFirst
from focusmem.lab.memory.pictures import lab_look
from focusmem.lab.memory.split_bank import SplitBank
from focusmem.lab.memory.stream import LabStream, StreamConfig, useful_decisions
from focusmem.lab.memory.variants import load_memory, variant
from focusmem.lab.world.tasks import Split
from focusmem.lab.world.world import World
from focusmem.model.backbone import Backbone
from focusmem.model.policy import Memory, MemoryPolicy
from focusmem.progress import Progress
from focusmem.settings import checked_dataclass
from focusmem.training.loader import prepared_batches
from focusmem.training.pathway import EmbeddedShare, EncodedShare, embed, reply_nats, shared_blocks
from focusmem.training.prepared import Needs, Prepared, Preparer
from focusmem.training.stage_b import StageB
from focusmem.training.variants import Variant
from focusmem.training.vital_signs import Sums, VitalSigns, sums_of_memory

_EPISODES_AT_ONCE = 4
_MAX_TOKENS = 65_536
_EVEN_CHANCE = 0.5


@checked_dataclass(frozen=True, kw_only=True)
class BenefitConfig:
    split: Split = "v"
    """The sites: v (validation), e (evaluation) or m (trained on)."""
    num_episodes: PositiveInt = 60
    """Number of expert episodes whose decisions are scored."""
    seed: int = 1
    world_seed: int = 0
    num_workers: NonNegativeInt = 6


@torch.no_grad()
def measure_benefit(
    policy: Backbone, checkpoint: Path, name: str, config: BenefitConfig | None = None
) -> dict[str, Any]:
    """The negative log-likelihood of each expert action, with the memory and without it, on a split's sites.

    Decisions that an item before the prompt can help with are counted separately; see `useful_decisions`. A memory with
    a readout is also measured with the states of neighbouring decisions; see `training/vital_signs.py`.
    """
    memory, chosen, config = load_memory(policy, checkpoint, name), variant(name), config or BenefitConfig()
    world = World(config.world_seed)
    bank = SplitBank(world, config.split)
    num_batches = -(-config.num_episodes // _EPISODES_AT_ONCE)
    decisions = LabDecisionsConfig(
        split=config.split,
        num_trajectories=num_batches * _EPISODES_AT_ONCE,
        negative_share=0.0,
        seed=config.seed,
    )
    source = LabDecisions(world, policy.chat, bank, SiteFirst(bank), decisions)
    every = StreamConfig(num_episodes=_EPISODES_AT_ONCE, num_decisions=100, num_tries=1, num_batches=num_batches)
    look = lab_look(policy)
    found: dict[str, list[list[tuple[float, float]]]] = {"useful": [], "others": []}
    batches = prepared_batches(
        LabStream(source, every), Preparer(memory, Needs()), range(num_batches), num_workers=config.num_workers
    )
    sums = Sums().tensor(policy.device)
    with Progress("benefit", total=num_batches) as line:
        for number, ([share], _) in enumerate(batches):
            rows = embed(memory, share, look)
            alone = reply_nats(policy, rows.decisions, max_tokens=_MAX_TOKENS)
            encoded = EncodedShare.of(memory, rows.items, max_tokens=_MAX_TOKENS)
            remembered = _remembered(memory, chosen, share, rows, encoded)
            helped = reply_nats(policy, memory.inject(rows.decisions, remembered), max_tokens=_MAX_TOKENS)
            if chosen.is_dynamic:
                own = sums_of_memory(memory, share, rows, encoded, remembered, is_dynamic=True, max_tokens=_MAX_TOKENS)
                sums += own.tensor(policy.device)
            pairs = iter(zip(alone, helped, strict=True))
            first = number * _EPISODES_AT_ONCE
            for episode in range(first, first + _EPISODES_AT_ONCE):
                useful = [(is_useful, next(pairs)) for is_useful in useful_decisions(source, episode)]
                found["useful"].append([pair for is_useful, pair in useful if is_useful])
                found["others"].append([pair for is_useful, pair in useful if not is_useful])
            line.step()
    figures = {group: _summary(episodes) for group, episodes in found.items()}
    return {"memory": name, "split": config.split, **figures, **_readout(VitalSigns.of(sums))}


def _remembered(
    memory: MemoryPolicy, chosen: Variant, share: Prepared, rows: EmbeddedShare, encoded: EncodedShare
) -> Memory | None:
    """The memory in front of each decision, as when acting."""
    if not rows.items:
        return None
    if chosen.stage_b is not None and not chosen.acts_fixed:
        return StageB(chosen.stage_b).remember(memory, share, rows, encoded)[0]
    return shared_blocks(encoded.fixed_blocks(memory, share.roles), share.item_of_use, share.places)


def _readout(signs: VitalSigns | None) -> dict[str, Any]:
    """The readout's figures; empty for a memory without a readout, whose blocks are the same for every state."""
    return {} if signs is None else {"readout": signs.as_plain()}


def _summary(episodes: Sequence[Sequence[tuple[float, float]]]) -> dict[str, Any]:
    pairs = [pair for own in episodes for pair in own]
    figures: dict[str, Any] = {"num_decisions": len(pairs)}
    for place, way in enumerate(("alone", "with_memory")):
        likely = [[_is_likely(pair[place]) for pair in own] for own in episodes if own]
        figures[way] = {
            "mean_nats": sum(pair[place] for pair in pairs) / len(pairs) if pairs else None,
            "likely_rate": sum(map(sum, likely)) / len(pairs) if pairs else None,
            "likely_interval": list(grouped_interval(likely)) if pairs else None,
        }
    return figures


def _is_likely(nats: float) -> bool:
    """Whether the action has a probability above one half, so that a greedy policy is certain to choose it."""
    return math.exp(-nats) > _EVEN_CHANCE
