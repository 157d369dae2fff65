"""The gate stage: labels teach the gate which items belong to a decision. Everything else is frozen.

This is not in the paper, whose gate learns from actions and from misleading blocks. If a policy already ignores memory
that does not fit, actions give the gate no reason to drop anything; and a gate needs hundreds of sites, but no actions,
to learn to compare a block with the state (docs/experiments.md). No action is computed here, so steps are cheap.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import NonNegativeInt
from torch import Tensor

from focusmem.errors import CheckpointError
from focusmem.model.calibration import Norm, are_calibrated
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.policy import MemoryPolicy
from focusmem.settings import checked_dataclass, to_plain
from focusmem.training.batch import TrainingData
from focusmem.training.config import LoopConfig
from focusmem.training.loop import TrainingResult, train
from focusmem.training.losses import parting_loss
from focusmem.training.pathway import EmbeddedShare, EncodedShare, Look
from focusmem.training.prepared import Needs, Prepared
from focusmem.training.stage import GATE_STAGE, Losses, Passage
from focusmem.training.stage_b import StageB, StageBConfig, gate_logits


@checked_dataclass(frozen=True, kw_only=True)
class GateStageConfig:
    is_dynamic: bool = True
    """Whether blocks are read for the current state, as when acting."""
    num_foreign: NonNegativeInt = 24
    """Items of other tasks in the same share of a batch for each decision."""


@dataclass(frozen=True)
class GateStage:
    """The gate stage. Every block that misleads or belongs to another task should be trusted less than every block that
    belongs to its decision. Blocks of all decisions are compared with each other, because one threshold has to separate
    them. This neither opens nor closes the gate.

    Blocks are compared within each share of a batch, so several passes or processes compare fewer pairs, and their step
    differs from that of one.
    """

    config: GateStageConfig = field(default_factory=GateStageConfig)
    start_sha256: str | None = None
    """The fingerprint of the weights that the stage began with."""
    name = GATE_STAGE
    trained_parts = ("gate",)
    summed = frozenset[str]()
    is_gated = True
    has_vital_signs = True

    @property
    def is_dynamic(self) -> bool:
        return self.config.is_dynamic

    @property
    def weights(self) -> Mapping[str, float]:
        return {"gate": 1.0}

    @property
    def needs(self) -> Needs:
        return Needs(negatives=True, num_foreign=self.config.num_foreign)

    @property
    def _stage_b(self) -> StageB:
        return StageB(StageBConfig(is_dynamic=self.config.is_dynamic, num_foreign=self.config.num_foreign))

    def settings(self) -> dict[str, Any]:
        return to_plain(self.config) | {"start_sha256": self.start_sha256}

    def fresh_norms(self, policy: MemoryPolicy) -> list[Norm]:
        """No norms, because stage B has calibrated them."""
        return []

    def norm_inputs(
        self, policy: MemoryPolicy, share: Prepared, rows: EmbeddedShare, *, max_tokens: int
    ) -> list[Tensor]:
        return []

    def losses(
        self,
        policy: MemoryPolicy,
        share: Prepared,
        rows: EmbeddedShare,
        *,
        max_tokens: int,
        generator: torch.Generator | None = None,
    ) -> Losses:
        if not rows.decisions:
            return Losses({})
        stage_b = self._stage_b
        with torch.no_grad():
            encoded = EncodedShare.of(policy, rows.items, max_tokens=max_tokens)
            memory, is_negative = stage_b.remember(policy, share, rows, encoded, generator=generator)
        if memory is None:
            return Losses({})
        logits_N = gate_logits(policy, memory, list(range(len(is_negative))))
        is_negative_N = torch.tensor(is_negative, device=logits_N.device)
        wrong_N, right_N = logits_N[is_negative_N], logits_N[~is_negative_N]
        if share.foreign:
            foreign_N, _ = stage_b.foreign_logits(policy, share, encoded, memory)
            wrong_N = torch.cat([wrong_N, foreign_N])
        sums = {"gate": parting_loss(wrong_N, right_N)} if len(wrong_N) and len(right_N) else {}
        num_right, num_wrong = torch.stack([(right_N > 0).sum(), (wrong_N > 0).sum()]).tolist()
        # A block counts as passing if its logit is above zero: no threshold has been chosen yet, and blocks of other
        # tasks have no sampled decision.
        return Losses(sums, Passage(len(right_N), num_right, len(wrong_N), num_wrong))


def train_gate(
    policy: MemoryPolicy,
    data: TrainingData,
    folder: Path,
    *,
    start: Path,
    stage: GateStageConfig | None = None,
    loop: LoopConfig | None = None,
    look: Look | None = None,
) -> TrainingResult:
    """Trains the gate of the memory that stage B left in `start`, or resumes the run in `folder`.

    Every item that is not a negative counts as right, so the data should hold only items of a decision's own site,
    besides negatives.
    """
    stored = Checkpoint.open(start)
    left_by = stored.notes.get("stage")
    if left_by not in (StageB.name, GateStage.name):
        raise CheckpointError(
            f"The gate is taught on a memory from stage B, but {start} was left by '{left_by or 'something else'}'. "
            "Give the `memory` folder of a run."
        )
    stored.load_into(policy)
    if not are_calibrated(policy.gate.norms):
        raise CheckpointError(f"The gate in {start} took no part in stage B; give a memory that was trained with one.")
    return train(
        policy,
        data,
        GateStage(stage or GateStageConfig(), stored.weights_sha256),
        loop or LoopConfig(learning_rate=1e-3),
        folder,
        look=look,
    )
