"""The gate in the laboratory: right blocks are trajectories of the decision's own site, misleading ones of another."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import NonNegativeInt, PositiveInt

from focusmem.errors import ConfigError
from focusmem.lab.memory.decisions import LabBatches, LabDecisions, LabDecisionsConfig, Shelf, SiteFirst
from focusmem.lab.memory.pictures import lab_look
from focusmem.lab.memory.split_bank import SplitBank
from focusmem.lab.memory.variants import load_memory, variant
from focusmem.lab.world.rollout import Rollout
from focusmem.lab.world.tasks import Split
from focusmem.lab.world.world import World
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.policy import MemoryPolicy
from focusmem.settings import checked_dataclass
from focusmem.training.config import LoopConfig
from focusmem.training.gate_probe import labelled_blocks, probe_auc
from focusmem.training.offered_blocks import Offered, offered_blocks
from focusmem.training.stage_gate import GateStageConfig, train_gate
from focusmem.training.threshold import (
    action_sweeps,
    area_under_curve,
    choose_by_actions,
    gate_scores,
    write_threshold,
)
from focusmem.training.trajectory_batches import BatchingConfig
from focusmem.training.variants import Variant, signed

TAUGHT = BatchingConfig(num_decisions=96, max_per_trajectory=3)
"""Batches that the gate is taught with. They have many sites, because negatives are items of other decisions."""
_EPISODES_PER_STEP, _SPARE_EPISODES = 12, 64
"""Numbers of episodes: more than the decisions of a step need, because episodes have different numbers of decisions."""


class OwnSite:
    """Finds only trajectories of the decision's own site, which are known to be right."""

    def __init__(self, bank: Shelf, *, most: int = 2) -> None:
        self.bank, self.most = bank, most

    def __call__(self, rollout: Rollout, at: int) -> Sequence[tuple[int, float]]:
        return [(place, 1.0) for place in self.bank.places_of(rollout.task.site_id)[: self.most]]


def gate_data(
    policy: Backbone,
    split: Split,
    *,
    num_trajectories: int,
    negative_share: float = 1.0,
    has_working: bool = False,
    world_seed: int = 0,
    num_workers: int = 0,
) -> LabBatches:
    """Decisions of a split. With negatives, items are trajectories of the decision's own site, which are right, and one
    of another site, which is misleading. Without negatives, trajectories are found in the way of a good retriever.
    """
    world = World(world_seed)
    bank = SplitBank(world, split)
    config = LabDecisionsConfig(
        split=split,
        num_trajectories=num_trajectories,
        negative_share=negative_share,
        has_working=has_working,
        seed=1,
    )
    recall = OwnSite(bank) if negative_share else SiteFirst(bank)
    source = LabDecisions(world, policy.chat, bank, recall, config)
    if num_workers:
        bank.roll_out_all(num_workers)
        source.roll_out_all(num_workers)
    return LabBatches(source, BatchingConfig(num_decisions=32, max_per_trajectory=8))


def teach_gate(
    policy: Backbone,
    variant: Variant,
    folder: Path,
    loop: LoopConfig,
    *,
    start: Path,
    bank: SplitBank,
    seed: int = 2,
    near_share: float = 0.0,
    notes: Mapping[str, Any] | None = None,
) -> Path | None:
    """Trains the gate of a memory from stage B to accept trajectories of a decision's own site. Returns the finished
    memory, with `notes` on its card. The episode's history counts as right; otherwise the gate would learn to reject
    it. Misleading are the items of other decisions and, for a share of decisions, a near miss.
    """
    if not variant.is_gated:
        raise ConfigError(f"A memory '{variant.name}' has no gate that could be taught.")
    load_memory(policy, start, variant.name)  # refuses the memory of another variant
    config = LabDecisionsConfig(
        split=bank.split,
        num_trajectories=_episodes_for(loop),
        num_sites=bank.num_sites,
        negative_share=near_share,
        near_share=1.0,
        seed=seed,
    )
    source = LabDecisions(bank.world, policy.chat, bank, OwnSite(bank, most=1), config)
    if loop.num_workers:
        source.roll_out_all(loop.num_workers)
    data = LabBatches(source, TAUGHT)
    memory = MemoryPolicy(policy, Checkpoint.open(start).config)
    stage = GateStageConfig(is_dynamic=variant.is_dynamic)
    result = train_gate(memory, data, folder, start=start, stage=stage, loop=loop, look=lab_look(policy))
    return None if result.memory is None else signed(result.memory, variant, policy, notes)


def _episodes_for(loop: LoopConfig) -> int:
    if loop.num_steps is None:
        raise ConfigError("LoopConfig.num_steps is None; say how many steps the gate is taught.")
    return _EPISODES_PER_STEP * loop.num_steps + _SPARE_EPISODES


@checked_dataclass(frozen=True, kw_only=True)
class GateMeasurement:
    offices: bool = False
    """Whether the sites are offices; otherwise they are markets and encyclopedias."""
    num_trajectories: PositiveInt = 100
    """Held-out episodes to measure on."""
    num_learnt: PositiveInt = 2000
    """Episodes that the probe learns from."""
    num_probe_steps: PositiveInt = 1000
    layers: tuple[PositiveInt, ...] = ()
    """Also probe with hidden states after these numbers of the policy's blocks."""
    num_workers: NonNegativeInt = 6


def measure_gate(
    policy: Backbone,
    checkpoint: Path,
    name: str,
    config: GateMeasurement | None = None,
    *,
    sets_threshold: bool = False,
) -> dict[str, Any]:
    """Measures how well right blocks are separated from misleading blocks on sites that were not trained on.

    A probe measures every memory. A memory with a gate is also measured by its own gate, with the threshold under which
    actions on validation sites are likeliest; `sets_threshold` stores this threshold.
    """
    chosen, config = variant(name), config or GateMeasurement()
    num_workers, layers = config.num_workers, config.layers
    if sets_threshold and not chosen.is_gated:
        raise ConfigError(f"The memory '{name}' has no gate, so that there is no threshold to set.")
    memory = load_memory(policy, checkpoint, name)
    look = lab_look(policy)

    def offered(split: Split, num: int, **how: Any) -> Iterator[Offered]:
        site_split: Split = f"{split}o" if config.offices else split  # type: ignore[assignment]
        data = gate_data(policy, site_split, num_trajectories=num, num_workers=num_workers, **how)
        return offered_blocks(memory, data, is_dynamic=chosen.is_dynamic, look=look, num_workers=num_workers)

    learnt = labelled_blocks(memory, offered("m", config.num_learnt), layers=layers)
    held_out = labelled_blocks(memory, offered("e", config.num_trajectories), layers=layers)
    probed = partial(probe_auc, config=memory.config.gate, num_steps=config.num_probe_steps)
    figures: dict[str, Any] = {
        "memory": name,
        "probe_auc": probed(learnt, held_out),
        "probe_auc_by_layer": {
            str(layer): probed(learnt.seen_from(layer), held_out.seen_from(layer)) for layer in layers
        },
        "num_right": int(held_out.is_right_N.sum()),
        "num_misleading": int((~held_out.is_right_N).sum()),
    }
    if chosen.is_gated:
        # As when acting: with history, and with found trajectories only, none of which was added to mislead.
        as_acting = offered("v", config.num_trajectories, negative_share=0.0, has_working=True)
        choice = choose_by_actions(action_sweeps(memory, as_acting))
        found = gate_scores(memory, offered("e", config.num_trajectories))
        figures |= {
            "chosen_on_validation": asdict(choice),
            "gate_auc": area_under_curve(found.right, found.misleading),
            "right_passage": _share_above(found.right, choice.threshold_logit),
            "misleading_passage": _share_above(found.misleading, choice.threshold_logit),
        }
        if sets_threshold:
            write_threshold(checkpoint, choice)
    return figures


def _share_above(logits: Sequence[float], threshold_logit: float) -> float:
    return sum(logit > threshold_logit for logit in logits) / len(logits)
