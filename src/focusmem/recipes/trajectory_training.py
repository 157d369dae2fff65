"""Memory trained on one's own trajectories, as the paper does it: both stages, then the gate's threshold."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from focusmem.bank.folder import BankFolder
from focusmem.data.decisions import (
    DecisionsConfig,
    FoundForTrajectory,
    TrajectoryDecisions,
)
from focusmem.data.preparation import OwnData, Prepared
from focusmem.errors import ConfigError
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.config import MemoryConfig
from focusmem.training.config import LoopConfig
from focusmem.training.processes import join_team
from focusmem.training.stage_a import LEARNING_RATE as RATE_OF_STAGE_A
from focusmem.training.stage_a import StageAConfig
from focusmem.training.stage_b import LEARNING_RATE as RATE_OF_STAGE_B
from focusmem.training.stage_b import StageBConfig
from focusmem.training.threshold import action_sweeps, choose_by_actions, write_threshold
from focusmem.training.trajectory_batches import BatchingConfig, TrajectoryBatches
from focusmem.training.variants import Variant, ablation, train_stages

_log = logging.getLogger(__name__)

PAPER = ablation(StageAConfig(), StageBConfig(), MemoryConfig())
"""The paper's variants, with the paper's values."""

_VALIDATION_BATCH = 8


@dataclass(frozen=True, kw_only=True)
class OwnTraining:
    """How it is trained: the paper's values, unless told otherwise."""

    memory: MemoryConfig | None = None
    """None: the variant's own."""
    batching: BatchingConfig = field(default_factory=BatchingConfig)
    decisions: DecisionsConfig = field(default_factory=DecisionsConfig)
    stage_a: LoopConfig = field(default_factory=lambda: LoopConfig(learning_rate=RATE_OF_STAGE_A))
    stage_b: LoopConfig = field(default_factory=lambda: LoopConfig(learning_rate=RATE_OF_STAGE_B))


def paper_variant(name: str) -> Variant:
    if name not in PAPER:
        raise ConfigError(f"There is no memory variant '{name}'; choose one of {', '.join(PAPER)}.")
    return PAPER[name]


def train_on_trajectories(
    policy: Backbone, name: str, data: OwnData, prepared: Prepared, folder: Path, training: OwnTraining | None = None
) -> Path | None:
    """Both stages of a variant, going on where a run was stopped, then the gate's threshold; the memory when finished.

    Started by torchrun or `accelerate launch`, each process works on its share of every batch.
    """
    training, chosen = training or OwnTraining(), paper_variant(name)
    chosen = replace(chosen, memory=training.memory or chosen.memory)
    lessons = prepared.lessons(policy, data.words) if chosen.stage_a.content_weight else None

    def decisions(found: Sequence[FoundForTrajectory], negative_share: float) -> TrajectoryDecisions:
        config = replace(training.decisions, negative_share=negative_share)
        return TrajectoryDecisions(found, BankFolder(data.bank), prepared.sites, data.words, config)

    misled = training.decisions.negative_share if chosen.is_gated else 0.0
    plain = decisions(prepared.found, 0.0)
    memory = train_stages(
        chosen, policy,
        TrajectoryBatches(replace(plain, lessons=lessons), training.batching),
        TrajectoryBatches(decisions(prepared.found, misled), training.batching),
        folder, loop_a=lambda: training.stage_a, loop_b=lambda: training.stage_b,
    )  # fmt: skip
    if memory is None or not join_team(policy.device).is_first:
        return memory
    notes = Checkpoint.open(memory).notes
    if "variant" not in notes:
        Checkpoint.open(memory).with_notes({"variant": name})
    if chosen.is_gated and prepared.validation and "threshold" not in notes:
        _set_threshold(policy, memory, decisions(prepared.validation, 0.0), is_dynamic=chosen.is_dynamic)
    return memory


def _set_threshold(policy: Backbone, memory: Path, held_out: TrajectoryDecisions, *, is_dynamic: bool) -> None:
    """The one under which actions are likeliest that memory did not learn from."""
    num = sum(held_out.num_decisions(trajectory) for trajectory in range(held_out.num_trajectories))
    batches = TrajectoryBatches(held_out, BatchingConfig(num_decisions=min(num, _VALIDATION_BATCH)))
    sweeps = action_sweeps(Checkpoint.open(memory).build(policy), batches, is_dynamic=is_dynamic)
    if any(one.trusts for one in sweeps):
        write_threshold(memory, choose_by_actions(sweeps))
    else:
        _log.warning("the gate's threshold was left as it is: nothing was there to remember in %d decisions", num)
