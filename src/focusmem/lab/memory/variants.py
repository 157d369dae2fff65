"""Memory in the laboratory: the variants that are compared, each trained on the same decisions with the same budget."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from focusmem.agent.fronts.latent import LatentFront, MemoryUse
from focusmem.errors import CheckpointError, ConfigError
from focusmem.lab.memory.embedder import load_embedder
from focusmem.lab.policy.policy import load_policy
from focusmem.lab.policy.texts import Texts
from focusmem.lab.shipped import Weights
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.config import PAPER_MEMORY, MemoryConfig
from focusmem.model.evidence_cache import CacheConfig, EvidenceCache
from focusmem.model.gate import GateConfig
from focusmem.model.lora import LoraConfig
from focusmem.model.policy import MemoryPolicy
from focusmem.training.stage_a import StageA, StageAConfig
from focusmem.training.stage_b import StageBConfig
from focusmem.training.stage_gate import GateStage
from focusmem.training.variants import PAPER_VARIANTS, VARIANT_NOTE, Variant, variants

if TYPE_CHECKING:
    from focusmem.agent.api import Memory


PAPER = "paper"
"""The variant with the paper's memory, losses and single rate, at the laboratory's size."""


def with_lab_sizes(memory: MemoryConfig) -> MemoryConfig:
    """A memory with the widths that suit the laboratory's policy: small enough that two of them are shipped."""
    return replace(
        memory,
        lora=replace(memory.lora, rank=16),
        compressor=replace(memory.compressor, num_heads=6),
        readout=replace(memory.readout, hidden_width=64),
        gate=replace(memory.gate, hidden_width=128),
    )


LAB_MEMORY = with_lab_sizes(
    MemoryConfig(
        lora=LoraConfig(dropout=0.0),
        gate=GateConfig(sees_evidence=True, evidence_source="embeddings", shares_projection=True),
    )
)
"""Without dropout, because packed rows do not support it. The gate also sees a mean over the evidence, because a block
may lose which site it is from. Everything else is as in the paper."""

_CONTENT = StageAConfig(content_weight=0.005, reduction="mean")
"""Content losses are means, so that their effect does not grow with the batch. Their weight is a fiftieth of the
paper's. An action here is a line of JSON in which one token in twenty is uncertain. A memory that has learnt its
actions has an action loss of 0.01 per token; a description has a loss of 2. With a weight of 0.02, content has as much
influence as actions and costs 13 points of success; with the weight used here it costs none (docs/experiments.md)."""
_FULL = StageBConfig(gate_weight=0.001, reduction="mean", keeping="measured", num_foreign=12, order_weight=0.02)
"""The gate's loss is a mean, and its weight a fiftieth of the paper's. An action here has some 24 tokens of which few
are uncertain, so a trajectory is worth little per token. With a few times this weight, a gate that cannot yet
distinguish trajectories rejects all of them (docs/experiments.md). The value of keeping a block is measured, because
the gradient does not show it: once a block determines the action, a little more or less of it changes nothing. The gate
also learns from pairs, because actions give it no reason to prefer a right trajectory to a harmless misleading one."""


def _variants() -> Iterator[Variant]:
    compared = variants(_CONTENT, _FULL, LAB_MEMORY)
    yield from compared.values()
    full = compared["full"]
    # In this variant, gradients of the gate's labels reach the blocks.
    yield replace(full, name="full-told", stage_b=replace(_FULL, labels_reach_blocks=True))
    paper = with_lab_sizes(replace(PAPER_MEMORY, lora=replace(PAPER_MEMORY.lora, dropout=0.0)))
    yield replace(PAPER_VARIANTS["full"], name=PAPER, memory=paper)
    for layer in (2, 4):  # of 8: the state is hidden states after this block, whose projection the gate cannot share
        gate = replace(LAB_MEMORY.gate, shares_projection=False)
        memory = replace(LAB_MEMORY, state_source="hidden", state_layer=layer, gate=gate)
        yield replace(full, name=f"state-{layer}", memory=memory)


VARIANTS: Mapping[str, Variant] = {one.name: one for one in _variants()}


def variant(name: str) -> Variant:
    if name not in VARIANTS:
        raise ConfigError(f"There is no memory variant '{name}'; choose one of {', '.join(VARIANTS)}.")
    return VARIANTS[name]


def latent_front(
    policy: Backbone,
    checkpoint: Path,
    name: str,
    *,
    tells_attention: bool = False,
    cache: CacheConfig | None = None,
) -> LatentFront:
    """A trained memory as a front. Its variant says which of its parts act."""
    chosen = variant(name)
    use = MemoryUse(is_dynamic=chosen.is_dynamic, is_gated=chosen.is_gated, tells_attention=tells_attention)
    memory = load_memory(policy, checkpoint, name)
    texts = Texts.load(shows_errors=Checkpoint.open(checkpoint).trained_with_errors())
    return LatentFront(memory, texts.serialise, use, name=name, cache=EvidenceCache(memory, cache))


def shipped_memory(name: str = "full", *, weights: Weights | None = None, device: str = "cpu") -> "Memory":
    """The shipped policy with its memory, embedder and bank, in the laboratory's wording, for an agent of your own."""
    from focusmem.agent.api import Memory  # these need a vector store, which not every machine has
    from focusmem.bank.opening import open_bank

    parts = weights or Weights()
    policy = load_policy(parts.policy, device)
    checkpoint = parts.memory(name)
    front, embedder = latent_front(policy, checkpoint, name), load_embedder(policy, parts.embedder)
    prompt = Texts.load(shows_errors=Checkpoint.open(checkpoint).trained_with_errors()).prompt
    return Memory(front, bank=open_bank(parts.bank), embedder=embedder, prompt=prompt)


def load_memory(policy: Backbone, checkpoint: Path, name: str) -> MemoryPolicy:
    """A trained memory. That of another variant is refused, because parts of it that were never trained would act."""
    stored, chosen = Checkpoint.open(checkpoint), variant(name)
    stage, trained_as = stored.notes.get("stage"), stored.notes.get(VARIANT_NOTE)
    if trained_as not in (None, name):
        raise CheckpointError(f"{checkpoint} was trained as the memory '{trained_as}', not as '{name}'.")
    # A memory from stage A has the variant's name on its card only if its training was meant to end there.
    allowed = {chosen.last_stage} | ({GateStage.name} if chosen.is_gated else set())
    allowed |= {StageA.name} if trained_as == name and not (chosen.is_dynamic or chosen.is_gated) else set()
    if stage not in allowed:
        raise CheckpointError(
            f"A memory '{name}' is left by '{chosen.last_stage}', but {checkpoint} was left by "
            f"'{stage or 'something else'}'. Give the folder that `focusmem lab train {name}` printed at its end."
        )
    return stored.build(policy)


def check_start(start: Path, chosen: Variant) -> None:
    """Refuses a memory that the variant cannot begin with. A variant can begin with a memory of its own name, and with
    a stage A memory of a variant with equal stage A. A variant without stage B can also begin with `action-only`.
    """
    name, notes = chosen.name, Checkpoint.open(start).notes
    trained_as, shared = notes.get(VARIANT_NOTE, name), set[str]()
    if chosen.stage_b is None:
        shared = {"action-only"}
    elif notes.get("stage") == StageA.name:
        shared = {other for other, own in VARIANTS.items() if own.stage_a == variant(name).stage_a}
    if trained_as not in {name, *shared}:
        raise CheckpointError(
            f"{start} was trained as the memory '{trained_as}', so '{name}' cannot begin with it. Give a memory from "
            f"stage A of '{name}'; to train stage A further, add --set variant.stage_b=null."
        )
