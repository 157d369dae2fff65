"""Stage A trains the content of memory. Fixed blocks learn to predict the demonstrated actions and to hold the items'
content.

Paper, Appendix A.2. Trained: the encoder's LoRA and the compressor with its base queries and role vectors. There is no
query residual and no gate. Loss: actions + content * (semantic KL + functional cross-entropy).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import NonNegativeFloat

from focusmem.errors import CheckpointError
from focusmem.model.calibration import Norm
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.injection import Place
from focusmem.model.policy import MemoryPolicy
from focusmem.settings import checked_dataclass, to_plain
from focusmem.training.batch import TrainingData
from focusmem.training.config import LoopConfig
from focusmem.training.loop import TrainingResult, train
from focusmem.training.pathway import (
    EmbeddedShare,
    EncodedShare,
    Look,
    semantic_sum,
    shared_blocks,
    target_hidden,
    token_sum,
)
from focusmem.training.prepared import Needs, Prepared
from focusmem.training.stage import CONTENT_LOSSES, Losses, Reduction

LEARNING_RATE = 1e-5
READOUT_SETTINGS = ("readout.hidden_width",)
GATE_SETTINGS = ("gate.sees_evidence", "gate.evidence_source", "gate.shares_projection", "gate.hidden_width")
NOT_YET_TRAINED = ("state_source", "state_layer", *READOUT_SETTINGS, *GATE_SETTINGS)
"""Settings that may differ between memories. Stage A trains neither state, readout nor gate, so memories with different
settings for these can begin with the same stage A."""
_NUM_TOKENS = "compressor.num_tokens"
"""A memory with fewer tokens may begin with the first queries of one with more."""


@checked_dataclass(frozen=True, kw_only=True)
class StageAConfig:
    """The config of stage A. The defaults are the paper's weights. Weights of zero give the paper's variants: action
    only, semantic only, functional only.
    """

    content_weight: NonNegativeFloat = 0.25
    """Lambda_basis, the weight of both content losses together."""
    semantic_weight: NonNegativeFloat = 0.5
    functional_weight: NonNegativeFloat = 0.5
    reduction: Reduction = "sum"
    """How both content losses are reduced over a batch; the action loss is always a mean over tokens."""


@dataclass(frozen=True)
class StageA:
    config: StageAConfig = field(default_factory=StageAConfig)
    start_sha256: str | None = None
    """The fingerprint of the weights that the stage began with; None if it began with an untrained memory."""
    name = "stage_a"
    trained_parts = ("encoder", "compressor")
    is_dynamic = False
    is_gated = False
    has_vital_signs = False

    @property
    def weights(self) -> Mapping[str, float]:
        content = self.config.content_weight
        weights = {
            "action": 1.0,
            "semantic": content * self.config.semantic_weight,
            "functional": content * self.config.functional_weight,
        }
        return {name: weight for name, weight in weights.items() if weight}

    @property
    def needs(self) -> Needs:
        return Needs(semantic="semantic" in self.weights, functional="functional" in self.weights)

    @property
    def summed(self) -> frozenset[str]:
        return frozenset(CONTENT_LOSSES if self.config.reduction == "sum" else ())

    def settings(self) -> dict[str, Any]:
        return to_plain(self.config) | {"start_sha256": self.start_sha256}

    def fresh_norms(self, policy: MemoryPolicy) -> list[Norm]:
        return []

    def norm_inputs(
        self, policy: MemoryPolicy, share: Prepared, rows: EmbeddedShare, *, max_tokens: int
    ) -> list[torch.Tensor]:
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
        backbone, num_descriptions = policy.backbone, share.num_descriptions
        decisions, questions = rows.decisions, rows.questions
        if rows.items:
            encoded = EncodedShare.of(policy, rows.items, max_tokens=max_tokens)
            blocks_IKD = encoded.fixed_blocks(policy, share.roles)
            decisions = policy.inject(decisions, shared_blocks(blocks_IKD, share.item_of_use, share.places))
            alone = [Place(row, share.roles[item], 0) for row, item in enumerate(share.item_of_question)]
            questions = policy.inject(questions, shared_blocks(blocks_IKD, share.item_of_question, alone))
        hidden = target_hidden(backbone, [*decisions, *questions], max_tokens=max_tokens)
        of_questions = hidden[len(decisions) :]
        sums = {}
        if decisions:
            sums["action"] = token_sum(backbone, decisions, hidden[: len(decisions)])
        if num_descriptions:
            teacher_MD = share.teacher_MD
            if teacher_MD is None:
                with torch.no_grad():
                    teacher_MD = torch.cat(target_hidden(backbone, rows.teachers, max_tokens=max_tokens))
            sums["semantic"] = semantic_sum(backbone, of_questions[:num_descriptions], teacher_MD)
        if questions[num_descriptions:]:
            functional = questions[num_descriptions:], of_questions[num_descriptions:]
            sums["functional"] = token_sum(backbone, *functional)
        return Losses(sums)


def train_stage_a(
    policy: MemoryPolicy,
    data: TrainingData,
    folder: Path,
    *,
    start: Path | None = None,
    stage: StageAConfig | None = None,
    loop: LoopConfig | None = None,
    look: Look | None = None,
) -> TrainingResult:
    """Trains a fresh memory in `folder`, or resumes the run there.

    With `start`, a memory that stage A left is trained further instead, with a new schedule; it may have more tokens
    than this one.
    """
    start_sha256 = None
    if start is not None:
        stored = Checkpoint.open(start)
        if stored.notes.get("stage") != StageA.name:
            raise CheckpointError(
                f"Stage A can begin only with a memory from stage A, but {start} was left by "
                f"'{stored.notes.get('stage', 'something else')}'. Give the `memory` folder of a stage A run."
            )
        stored.load_into(policy, may_differ=(*NOT_YET_TRAINED, _NUM_TOKENS))
        start_sha256 = stored.weights_sha256
    return train(
        policy,
        data,
        StageA(stage or StageAConfig(), start_sha256),
        loop or LoopConfig(learning_rate=LEARNING_RATE),
        folder,
        look=look,
    )
