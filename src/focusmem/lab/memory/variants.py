"""Memory in the laboratory: the variants that are compared, each trained on the same decisions with the same budget."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from focusmem.agent.memory import AgentMemory, MemoryUse
from focusmem.errors import CheckpointError, ConfigError
from focusmem.lab.memory.embedder import load_embedder
from focusmem.lab.memory.pictures import lab_look
from focusmem.lab.policy.policy import load_policy
from focusmem.lab.policy.texts import PROMPTS, Texts
from focusmem.lab.shipped import Weights
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.compressor import CompressorConfig
from focusmem.model.config import MemoryConfig
from focusmem.model.gate import GateConfig
from focusmem.model.lora import LoraConfig
from focusmem.model.policy import MemoryPolicy
from focusmem.model.readout import ReadoutConfig
from focusmem.training.batch import TrainingData
from focusmem.training.config import LoopConfig
from focusmem.training.pathway import Look
from focusmem.training.stage_a import StageAConfig
from focusmem.training.stage_b import StageBConfig
from focusmem.training.stage_gate import GateStage
from focusmem.training.teacher import TeacherConfig
from focusmem.training.variants import Variant, ablation, train_stages

if TYPE_CHECKING:
    from focusmem.agent.api import Memory

LAB_MEMORY = MemoryConfig(
    lora=LoraConfig(rank=16, alpha=16, dropout=0.0),
    compressor=CompressorConfig(num_tokens=8, num_heads=6),
    readout=ReadoutConfig(hidden_width=64),
    gate=GateConfig(hidden_width=128, sees_evidence=True, evidence_source="embeddings", shares_projection=True),
)
"""Small enough that two of them are shipped, and without dropout, which packed rows do not have. The gate sees how the
evidence looks besides its block, since which site a block is from is lost in it; everything else as in the paper."""

_VARIANT = "variant"
"""The note on a checkpoint's card that says which variant it is."""

TEACHER = TeacherConfig(prompts=PROMPTS / "questions", max_new_tokens=256, max_batch_tokens=600_000)


def _with_hidden_state(memory: MemoryConfig, layer: int) -> MemoryConfig:
    """Read off hidden states after so many blocks, which a gate cannot see as it sees embeddings."""
    return replace(memory, state_source="hidden", state_layer=layer, gate=replace(memory.gate, shares_projection=False))


def _with_tokens(memory: MemoryConfig, num: int) -> MemoryConfig:
    return replace(memory, compressor=replace(memory.compressor, num_tokens=num))


_CONTENT = StageAConfig(content_weight=0.005)
"""Of the paper's 0.25, a fiftieth: an action here is a line of JSON of which one token in twenty is in doubt, so that a
memory that has learnt its actions has a loss of 0.01 per token, and a description one of 2. With 0.02, content pulls as
hard as actions do and takes 13 points of success; with this it takes none (docs/experiments.md)."""
_READOUT = StageBConfig(is_gated=False)
_FULL = StageBConfig(gate_weight=0.001, keeping="measured", num_foreign=12, order_weight=0.02)
"""Of the paper's 0.05 for the gate, a fiftieth: an action has some 24 tokens here, of which few are in doubt, so that a
trajectory is worth little per token, and under a few times this weight a gate that cannot tell trajectories apart yet
lets none of them pass (docs/experiments.md). And what keeping a block is worth is measured, since its gradient does not
tell: where a block has settled the action, a little more or less of it changes nothing. Nor does an action tell the
gate to prefer a right trajectory to a misleading one that does no harm, so it is told in pairs."""

VARIANTS: Mapping[str, Variant] = {
    **ablation(_CONTENT, _FULL, LAB_MEMORY),
    "full-told": Variant(
        stage_a=_CONTENT,
        stage_b=replace(_FULL, labels_reach_blocks=True),
        memory=LAB_MEMORY,
        what="full, but what the gate is told may reshape blocks",
    ),
    **{
        f"fixed-{num}": Variant(stage_a=_CONTENT, memory=_with_tokens(LAB_MEMORY, num), what=f"content, K = {num}")
        for num in (4, 8, 16)
    },
    **{
        f"dynamic-{num}": Variant(
            stage_a=_CONTENT, stage_b=_READOUT, memory=_with_tokens(LAB_MEMORY, num), what=f"readout, K = {num}"
        )
        for num in (4, 8, 16)
    },
    **{
        f"state-{layer}": Variant(
            stage_a=_CONTENT,
            stage_b=_FULL,
            memory=_with_hidden_state(LAB_MEMORY, layer),
            what=f"full, the state being hidden states after {layer} of 8 blocks",
        )
        for layer in (2, 4)
    },
}


def variant(name: str) -> Variant:
    if name not in VARIANTS:
        raise ConfigError(f"There is no memory variant '{name}'; choose one of {', '.join(VARIANTS)}.")
    return VARIANTS[name]


def agent_memory(policy: Backbone, checkpoint: Path, name: str, *, tells_attention: bool = False) -> AgentMemory:
    """A trained memory as it acts: which parts of it take part is its variant's to say."""
    chosen = variant(name)
    use = MemoryUse(is_dynamic=chosen.is_dynamic, is_gated=chosen.is_gated, tells_attention=tells_attention)
    return AgentMemory(load_memory(policy, checkpoint, name), Texts.load().serialise, use)


def shipped_memory(name: str = "full", *, weights: Weights | None = None, device: str = "cpu") -> "Memory":
    """The laboratory's own parts for an agent of one's own: policy, a memory, embedder and bank, in their own words."""
    from focusmem.agent.api import Memory  # these need a vector store, which not every machine has
    from focusmem.bank.store import Bank

    parts = weights or Weights()
    policy = load_policy(parts.policy, device)
    memory = agent_memory(policy, parts.memory(name), name)
    embedder = load_embedder(policy, parts.embedder)
    return Memory(memory, bank=Bank.open(parts.bank), embedder=embedder, prompt=Texts.load().prompt)


def load_memory(policy: Backbone, checkpoint: Path, name: str) -> MemoryPolicy:
    """A trained memory, refused where it is another variant's: parts that were never trained would act all the same."""
    stored, wanted = Checkpoint.open(checkpoint), variant(name).last_stage
    stage, trained_as = stored.notes.get("stage"), stored.notes.get(_VARIANT, name)
    if stage != wanted and not (stage == GateStage.name and variant(name).is_gated):
        raise CheckpointError(
            f"A memory '{name}' is what {wanted} leaves, but {checkpoint} was left by '{stage or 'something else'}'. "
            f"Give the folder that `focusmem lab train {name}` named at its end."
        )
    if trained_as != name:
        raise CheckpointError(f"{checkpoint} was trained as the memory '{trained_as}', not as '{name}'.")
    return stored.build(policy)


@dataclass(frozen=True, kw_only=True)
class LabTraining:
    """Learning rates fit for this size; the paper's are for a model four hundred times as large."""

    stage_a: LoopConfig = field(default_factory=lambda: LoopConfig(learning_rate=2e-4, num_workers=6))
    stage_b: LoopConfig = field(
        default_factory=lambda: LoopConfig(learning_rate=1e-4, gate_rate_times=10.0, num_workers=6)
    )
    gate: LoopConfig | None = None
    """Of the gate alone, after stage B on a stream; None: it is not taught."""
    content_weight: float | None = None
    """Lambda_basis of a variant that has content losses; None: the variant's own."""
    gate_weight: float | None = None
    """Lambda_m; None: the variant's own."""
    state_layer: int | None = None
    """Read the state off hidden states after so many blocks; None: wherever the variant reads it."""
    num_tokens: int | None = None
    """K; None: the variant's own. Fewer than `start` has: its first ones learn on, which stage A allows."""
    max_minutes: float | None = None
    """All stages together save and stop after this time; the same call goes on later."""
    started: float = field(default_factory=time.monotonic)
    """Counted from here, so that what comes before the first step counts as well."""

    def applied_to(self, chosen: Variant) -> Variant:
        """A variant as it is trained here."""
        if self.content_weight is not None and chosen.stage_a.content_weight:
            chosen = replace(chosen, stage_a=replace(chosen.stage_a, content_weight=self.content_weight))
        if self.gate_weight is not None and chosen.stage_b is not None:
            chosen = replace(chosen, stage_b=replace(chosen.stage_b, gate_weight=self.gate_weight))
        if self.state_layer is not None:
            chosen = replace(chosen, memory=_with_hidden_state(chosen.memory, self.state_layer))
        if self.num_tokens is not None:
            chosen = replace(chosen, memory=_with_tokens(chosen.memory, self.num_tokens))
        return chosen

    def in_time(self, loop: LoopConfig) -> LoopConfig:
        """A stage's loop, with what is left of the time."""
        if self.max_minutes is None:
            return loop
        left = self.max_minutes - (time.monotonic() - self.started) / 60
        return replace(loop, max_minutes=max(1e-9, left))


def train_variant(
    name: str,
    backbone: Backbone,
    data_a: TrainingData,
    data_b: TrainingData | None,
    folder: Path,
    training: LabTraining | None = None,
    *,
    start: Path | None = None,
    look: Look | None = None,
) -> Path | None:
    """Both stages of a variant, going on where a run was stopped; the trained memory's folder when finished.

    `start` is a memory to begin the last stage with: one that the variant itself left, to learn on; where there are two
    stages, one that stage A left for any variant whose first stage is the same; where there is one, also what actions
    alone have taught. `look` knows the pictures of batches that bring none.
    """
    training = training or LabTraining()
    chosen = training.applied_to(variant(name))
    look = lab_look(backbone) if look is None else look
    if start is not None:
        check_start(start, name)
    memory = train_stages(
        chosen, backbone, data_a, data_b, folder,
        loop_a=lambda: training.in_time(training.stage_a),
        loop_b=lambda: training.in_time(training.stage_b),
        start=start, look=look,
    )  # fmt: skip
    return signed(memory, name)


def begins_with_stage_a(name: str, start: Path | None) -> bool:
    """Whether the first stage is trained: it is left out where the second begins with a memory that is there."""
    return start is None or variant(name).stage_b is None


def check_start(start: Path, name: str) -> None:
    """What one variant has trained is not another's beginning, but for what stage A leaves for all alike, and for what
    actions alone have taught, from which content may be learnt on."""
    trained_as = Checkpoint.open(start).notes.get(_VARIANT, name)
    if variant(name).stage_b is None:
        shared = {"action-only"}
    else:
        alike = variant(name).stage_a
        shared = {other for other, own in VARIANTS.items() if own.stage_b is None and own.stage_a == alike}
    if trained_as not in {name, *shared}:
        raise CheckpointError(f"{start} was trained as the memory '{trained_as}', so '{name}' cannot begin with it.")


def signed(memory: Path | None, name: str) -> Path | None:
    """The memory, where there is one yet, with the variant's name on its card."""
    if memory is not None:
        Checkpoint.open(memory).with_notes({_VARIANT: name})
    return memory
