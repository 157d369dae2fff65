"""The ways to build memory that the paper compares, and their training: one stage after the other, in one folder."""

from collections.abc import Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any, Final

import torch
from pydantic import PositiveFloat

from focusmem.errors import ConfigError
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import ACTING_NOTE, ActingParts, Checkpoint
from focusmem.model.compressor import Budget
from focusmem.model.config import PAPER_MEMORY, MemoryConfig
from focusmem.model.policy import MemoryPolicy
from focusmem.seeds import derive_seed
from focusmem.settings import checked_dataclass
from focusmem.training.batch import TrainingData
from focusmem.training.config import LoopConfig
from focusmem.training.deadline import Deadline
from focusmem.training.pathway import Look
from focusmem.training.processes import join_team
from focusmem.training.stage_a import LEARNING_RATE as RATE_OF_STAGE_A
from focusmem.training.stage_a import StageA, StageAConfig, train_stage_a
from focusmem.training.stage_b import LEARNING_RATE as RATE_OF_STAGE_B
from focusmem.training.stage_b import StageB, StageBConfig, train_stage_b

VARIANT_NOTE: Final = "variant"
"""The note on a checkpoint's card that holds the variant's name."""
BUDGETS: Final[tuple[Budget, ...]] = (4, 8, 16)
"""Tokens per block that the paper compares, with fixed and with dynamic blocks."""


@checked_dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to build memory."""

    name: str
    stage_a: StageAConfig = field(default_factory=StageAConfig)
    stage_b: StageBConfig | None = None
    """None means that training ends with stage A, and the fixed blocks of stage A act."""
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    acts_fixed: bool = False
    """Whether readout and gate are switched off when the memory acts, although stage B trains them. This is for probing
    what the fixed blocks hold after stage B."""

    @property
    def last_stage(self) -> str:
        """The last stage that is trained. Its memory acts."""
        return StageA.name if self.stage_b is None else StageB.name

    @property
    def trains_gate(self) -> bool:
        return self.stage_b is not None and self.stage_b.is_gated

    @property
    def is_dynamic(self) -> bool:
        """Whether the readout acts."""
        return self.stage_b is not None and self.stage_b.is_dynamic and not self.acts_fixed

    @property
    def is_gated(self) -> bool:
        """Whether the gate acts."""
        return self.trains_gate and not self.acts_fixed

    @property
    def acting(self) -> ActingParts:
        return ActingParts(self.is_dynamic, self.is_gated)

    def with_tokens(self, num: Budget) -> "Variant":
        """The same variant with this number of tokens per block."""
        compressor = replace(self.memory.compressor, num_tokens=num)
        return replace(self, memory=replace(self.memory, compressor=compressor))


@checked_dataclass(frozen=True, kw_only=True)
class MemoryTraining:
    """The settings of a training, except those of its data."""

    variant: Variant
    loop_a: LoopConfig
    """How stage A steps."""
    loop_b: LoopConfig
    """How stage B steps, if the variant has one."""
    start: Path | None = None
    """A memory to begin the last stage with. None begins with an untrained memory."""
    max_minutes: PositiveFloat | None = None
    """The time limit of all stages together. The training then saves and stops; the same call resumes it."""

    @property
    def has_stage_a(self) -> bool:
        """Whether stage A is trained. It is left out if stage B begins with an existing memory."""
        return self.start is None or self.variant.stage_b is None

    @property
    def learns_content(self) -> bool:
        return self.has_stage_a and self.variant.stage_a.content_weight > 0


def variants(content: StageAConfig, full: StageBConfig, memory: MemoryConfig) -> dict[str, Variant]:
    """The variants that the paper compares, by name. `content` configures stage A of all variants that learn content,
    `full` configures stage B of the full memory.

    Every variant has two stages. In stage B of variants with fixed blocks, only encoder and compressor learn.
    `probe-action-only` to `probe-content` are the four checkpoints of the paper's Table 3, "after Stage B": their stage
    B is that of the full memory, and their fixed blocks act. `action-only` is the matched baseline of the main table.
    """
    actions = StageAConfig(content_weight=0.0)
    alone, readout = StageBConfig(is_dynamic=False, is_gated=False), StageBConfig(is_gated=False)
    fixed = Variant(name="content", stage_a=content, stage_b=alone, memory=memory)
    dynamic = replace(fixed, name="readout", stage_b=readout)
    probed = Variant(name="probe-content", stage_a=content, stage_b=full, memory=memory, acts_fixed=True)
    shared = replace(memory, compressor=replace(memory.compressor, shares_queries=True))
    made = [
        replace(fixed, name="action-only", stage_a=actions),
        replace(fixed, name="action-only-shared", stage_a=actions, memory=shared),
        fixed,
        dynamic,
        replace(dynamic, name="full", stage_b=full),
        *(replace(fixed, name=f"fixed-{num}").with_tokens(num) for num in BUDGETS),
        *(replace(dynamic, name=f"dynamic-{num}").with_tokens(num) for num in BUDGETS),
        replace(probed, name="probe-action-only", stage_a=actions),
        replace(probed, name="probe-semantic", stage_a=replace(content, functional_weight=0.0)),
        replace(probed, name="probe-functional", stage_a=replace(content, semantic_weight=0.0)),
        probed,
    ]
    return {one.name: one for one in made}


PAPER_VARIANTS: Final[Mapping[str, Variant]] = variants(StageAConfig(), StageBConfig(), PAPER_MEMORY)
"""The paper's variants with the paper's settings."""


def train_stages(
    training: MemoryTraining,
    backbone: Backbone,
    data_a: TrainingData,
    data_b: TrainingData,
    folder: Path,
    *,
    deadline: Deadline | None = None,
    look: Look | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Path | None:
    """Trains the stages of a variant, or resumes them. Returns the memory's folder, or None if the time limit stopped
    the training.

    `deadline` replaces the time limit of `training`, for callers that have already used time. `look` computes features
    of the pictures that batches carry. `notes` are written to the memory's card.
    """
    variant, start = training.variant, training.start
    deadline = deadline or Deadline(training.max_minutes)
    if training.has_stage_a:
        loop = deadline.limit(training.loop_a)
        start = train_stage_a(
            _fresh(backbone, variant, loop), data_a, folder / "stage-a",
            start=start, stage=variant.stage_a, loop=loop, look=look,
        ).memory  # fmt: skip
    if start is not None and variant.stage_b is not None:
        loop = deadline.limit(training.loop_b)
        start = train_stage_b(
            _fresh(backbone, variant, loop), data_b, folder / "stage-b",
            start=start, stage=variant.stage_b, loop=loop, look=look,
        ).memory  # fmt: skip
    return None if start is None else signed(start, variant, backbone, notes)


def signed(memory: Path, variant: Variant, backbone: Backbone, notes: Mapping[str, Any] | None = None) -> Path:
    """Writes the variant's name, the parts that act, and these notes to the memory's card. Returns the memory."""
    if join_team(backbone.device).is_first:
        own = {VARIANT_NOTE: variant.name, ACTING_NOTE: asdict(variant.acting)}
        Checkpoint.open(memory).with_notes({**own, **(notes or {})})
    return memory


def paper_training(name: str) -> MemoryTraining:
    """The paper's settings for a variant, except those of the data."""
    if name not in PAPER_VARIANTS:
        raise ConfigError(f"There is no memory variant '{name}'; choose one of {', '.join(PAPER_VARIANTS)}.")
    loop_a, loop_b = (LoopConfig(learning_rate=rate) for rate in (RATE_OF_STAGE_A, RATE_OF_STAGE_B))
    return MemoryTraining(variant=PAPER_VARIANTS[name], loop_a=loop_a, loop_b=loop_b)


def _fresh(backbone: Backbone, variant: Variant, loop: LoopConfig) -> MemoryPolicy:
    """An untrained memory. Equal seeds give equal memories."""
    torch.manual_seed(derive_seed(loop.seed, "fresh memory"))
    return MemoryPolicy(backbone, variant.memory)
