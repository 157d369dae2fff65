"""Stage B trains readout and gate. Blocks are read for each decision; the gate accepts or drops each block.

Paper, Appendix A.3. It begins with a memory from stage A and trains the whole pathway. Loss: actions + a drop loss on
misleading blocks. Ordinary items get no label. Only the action loss shows whether they help.
"""

import random
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import NonNegativeFloat, NonNegativeInt
from torch import Tensor
from torch.nn import LayerNorm

from focusmem.errors import CheckpointError
from focusmem.model.calibration import FixedNorm, Norm, are_calibrated
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.injection import Place
from focusmem.model.inputs import Row
from focusmem.model.policy import Memory, MemoryPolicy
from focusmem.settings import checked_dataclass, to_plain
from focusmem.training.batch import TrainingData
from focusmem.training.config import LoopConfig
from focusmem.training.loop import TrainingResult, train
from focusmem.training.losses import drop_loss, order_loss
from focusmem.training.pathway import (
    EmbeddedShare,
    EncodedShare,
    Look,
    row_sums,
    shared_blocks,
    target_hidden,
    token_sum,
)
from focusmem.training.prepared import EPISODIC, Needs, Prepared
from focusmem.training.stage import GATE_STAGE, Losses, Passage, Reduction
from focusmem.training.stage_a import GATE_SETTINGS, NOT_YET_TRAINED, READOUT_SETTINGS, StageA

LEARNING_RATE = 5e-6

Keeping = Literal["straight-through", "measured"]


@checked_dataclass(frozen=True, kw_only=True)
class StageBConfig:
    """The config of stage B. The defaults are the paper's weights. The switches give the paper's variants: a readout
    without a gate, a gate on fixed blocks, and fixed blocks alone. Fixed blocks alone also learn from actions here, so
    that every variant is trained in two stages.
    """

    gate_weight: NonNegativeFloat = 0.05
    """Lambda_m, the weight of the gate's loss."""
    reduction: Reduction = "sum"
    """How the gate's loss is reduced over the misleading blocks of a batch; the action loss is always a mean."""
    is_dynamic: bool = True
    """Whether blocks are read for the current state."""
    is_gated: bool = True
    """Whether the gate decides about blocks; without it, misleading ones are left out."""
    keeping: Keeping = "straight-through"
    """How the action loss trains the gate. `straight-through` is the paper's: the gradient at the kept blocks.
    `measured`: for each decision one block is left out or put in, and the gate is trained with the change in the action
    loss."""
    labels_reach_blocks: bool = False
    """Whether gradients of labels reach the blocks. The paper stops these gradients; this switch shows what stopping
    them costs."""
    num_foreign: NonNegativeInt = 0
    """More negatives for the gate: items of other tasks in the same share of a batch, this many for each decision. They
    are never in front of the prompt, so hundreds cost little; learning to compare states with blocks takes many."""
    order_weight: NonNegativeFloat = 0.0
    """Weight of a loss that the paper does not have: misleading blocks should be trusted less than a trajectory found
    for the same decision. A gate that drops everything would already satisfy the drop loss."""


@dataclass(frozen=True)
class StageB:
    config: StageBConfig = field(default_factory=StageBConfig)
    start_sha256: str | None = None
    """The fingerprint of the weights that the stage began with."""
    name = "stage_b"

    @property
    def trained_parts(self) -> tuple[str, ...]:
        optional = {"readout": self.config.is_dynamic, "gate": self.config.is_gated}
        return ("encoder", "compressor", *(part for part, takes_part in optional.items() if takes_part))

    has_vital_signs = True

    @property
    def is_dynamic(self) -> bool:
        return self.config.is_dynamic

    @property
    def is_gated(self) -> bool:
        return self.config.is_gated

    @property
    def weights(self) -> Mapping[str, float]:
        of_labels = {"gate": self.config.gate_weight, "order": self.config.order_weight} if self.config.is_gated else {}
        return {"action": 1.0} | {name: weight for name, weight in of_labels.items() if weight}

    @property
    def needs(self) -> Needs:
        return Needs(negatives=self.config.is_gated, num_foreign=self.config.num_foreign if self.config.is_gated else 0)

    @property
    def summed(self) -> frozenset[str]:
        return frozenset({"gate"} if self.config.reduction == "sum" else ())

    def settings(self) -> dict[str, Any]:
        return to_plain(self.config) | {"start_sha256": self.start_sha256}

    def fresh_norms(self, policy: MemoryPolicy) -> list[Norm]:
        """The norms of parts that take part and have learnt nothing yet: first those of the state, and when these are
        calibrated, those of readout and gate, which see the state."""
        return [*self._fresh_of_state(policy)] or [norm for norms in self._fresh(policy) for norm in norms]

    @torch.no_grad()
    def norm_inputs(
        self, policy: MemoryPolicy, share: Prepared, rows: EmbeddedShare, *, max_tokens: int
    ) -> list[Tensor]:
        has_blocks, norms = bool(rows.decisions and share.item_of_use), self.fresh_norms(policy)
        if not has_blocks:
            return [norm.weight.new_zeros(0, *norm.normalized_shape) for norm in norms]
        if self._fresh_of_state(policy):
            return policy.pool.seen(rows.decisions)
        encoded = EncodedShare.of(policy, rows.items, max_tokens=max_tokens)
        groups, order = encoded.for_uses(share.item_of_use)
        places = [share.places[use] for use in order]
        of_row, roles = [place.row for place in places], [place.role for place in places]
        state_BU = policy.state(rows.decisions)
        of_readout, of_gate = self._fresh(policy)
        inputs = list[Tensor]()
        if of_readout:
            summary_NE = torch.cat([group.summary_NE for group in groups])
            inputs.append(policy.readout.seen(state_BU[of_row], summary_NE, policy.compressor.role_vectors_RD[roles]))
        if of_gate:
            blocks_NKD = policy.read(groups, places, state_BU if self.config.is_dynamic else None)
            gate_state_NU = policy.gate_state(rows.decisions, state_BU)[of_row]
            inputs += policy.gate.seen(gate_state_NU, blocks_NKD, policy.seen_evidence(groups))
        return inputs

    def _fresh_of_state(self, policy: MemoryPolicy) -> list[FixedNorm]:
        """The norms of the state if readout or gate sees it."""
        is_seen_by_gate = self.config.is_gated and not policy.config.gate.shares_projection
        norms = policy.pool.norms if self.config.is_dynamic or is_seen_by_gate else []
        return [] if are_calibrated(norms) else norms

    def _fresh(self, policy: MemoryPolicy) -> tuple[list[LayerNorm], list[LayerNorm]]:
        parts = ((policy.readout.norms, self.config.is_dynamic), (policy.gate.norms, self.config.is_gated))
        of_readout, of_gate = (norms if takes_part and not are_calibrated(norms) else [] for norms, takes_part in parts)
        return of_readout, of_gate

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
        encoded = EncodedShare.of(policy, rows.items, max_tokens=max_tokens)
        memory, is_negative = self.remember(policy, share, rows, encoded, generator=generator)
        is_measured = memory is not None and memory.trust is not None and self.config.keeping == "measured"
        # Without the gate's view of them, blocks carry no gradient of having been kept.
        injected = policy.inject(rows.decisions, replace(memory, trust=None) if memory and is_measured else memory)
        hidden = target_hidden(policy.backbone, injected, max_tokens=max_tokens)
        sums = {"action": token_sum(policy.backbone, injected, hidden)}
        if memory is None or memory.trust is None:
            return Losses(sums)
        if is_measured:
            with torch.no_grad():
                own_B = row_sums(policy.backbone, injected, hidden)
            seed = generator.initial_seed() if generator is not None else 0
            sums["action"] = sums["action"] + keeping_term(
                policy, rows.decisions, memory, own_B, rng=random.Random(seed), max_tokens=max_tokens
            )
        sums |= self._of_labels(policy, share, encoded, memory, is_negative)
        return Losses(sums, _passage(memory.keep, is_negative))

    def _of_labels(
        self, policy: MemoryPolicy, share: Prepared, encoded: EncodedShare, memory: Memory, is_negative: list[bool]
    ) -> dict[str, Tensor]:
        """The losses of labels: misleading blocks should be dropped, and be trusted less than trajectories found for
        the decision.
        """
        reaches, places = self.config.labels_reach_blocks, memory.places
        misleading = [block for block, negative in enumerate(is_negative) if negative]
        wrong = [gate_logits(policy, memory, misleading, reaches_blocks=reaches)] if misleading else []
        rows = [places[block].row for block in misleading]
        if share.foreign:
            foreign, of_foreign = self.foreign_logits(policy, share, encoded, memory)
            wrong, rows = [*wrong, foreign], rows + of_foreign
        if not wrong:
            return {}
        wrong_N = torch.cat(wrong)
        sums = {"gate": drop_loss(wrong_N)}
        found = [block for block in range(len(places)) if not is_negative[block] and places[block].role == EPISODIC]
        of_row: dict[int, list[int]] = {}
        for number, block in enumerate(found):
            of_row.setdefault(places[block].row, []).append(number)
        pairs = [(number, right) for number, row in enumerate(rows) for right in of_row.get(row, ())]
        if pairs and "order" in self.weights:
            sums["order"] = order_loss(wrong_N, gate_logits(policy, memory, found, reaches_blocks=reaches), pairs)
        return sums

    def remember(
        self,
        policy: MemoryPolicy,
        share: Prepared,
        rows: EmbeddedShare,
        encoded: EncodedShare,
        *,
        generator: torch.Generator | None = None,
    ) -> tuple[Memory | None, list[bool]]:
        """Reads every use for its decision from items encoded once. Also returns which blocks are misleading."""
        if not (self.config.is_dynamic or self.config.is_gated):  # a block is the same for every decision
            blocks_IKD = encoded.fixed_blocks(policy, share.roles) if share.item_of_use else None
            fixed = None if blocks_IKD is None else shared_blocks(blocks_IKD, share.item_of_use, share.places)
            return fixed, list(share.is_negative)
        groups, order = encoded.for_uses(share.item_of_use)
        memory = policy.remember(
            rows.decisions,
            groups,
            [share.places[use] for use in order],
            is_dynamic=self.config.is_dynamic,
            is_gated=self.config.is_gated,
            generator=generator,
        )
        return memory, [share.is_negative[use] for use in order]

    def foreign_logits(
        self, policy: MemoryPolicy, share: Prepared, encoded: EncodedShare, memory: Memory
    ) -> tuple[Tensor, list[int]]:
        """The gate's logits of blocks of other tasks, read for the state of each decision, and the rows of these
        decisions.
        """
        assert memory.state_NU is not None, "the gate took part, so the state was there"
        assert memory.gate_state_NU is not None, "and so was its own view of it"
        # Any block of a row has the state of the row.
        block_of_row = {place.row: block for block, place in enumerate(memory.places)}
        groups, order = encoded.for_uses([item for _, item in share.foreign])
        chosen = [share.foreign[number] for number in order]
        states = [block_of_row[row] for row, _ in chosen]
        places = [Place(state, share.roles[item], 0) for state, (_, item) in zip(states, chosen, strict=True)]
        with nullcontext() if self.config.labels_reach_blocks else torch.no_grad():
            blocks_NKD = policy.read(groups, places, memory.state_NU if self.config.is_dynamic else None)
        numbers = torch.tensor(states, device=blocks_NKD.device)
        logits_N = policy.gate.logits(memory.gate_state_NU[numbers], blocks_NKD, policy.seen_evidence(groups))
        return logits_N, [row for row, _ in chosen]


def gate_logits(policy: MemoryPolicy, memory: Memory, numbers: list[int], *, reaches_blocks: bool = False) -> Tensor:
    """The gate's logits of some blocks. Unless `reaches_blocks`, no gradient flows back into the blocks, because labels
    must not change content.
    """
    blocks_NKD = memory.blocks_NKD if reaches_blocks else memory.blocks_NKD.detach()
    return _trust_in(policy, replace(memory, blocks_NKD=blocks_NKD), numbers)


def _trust_in(policy: MemoryPolicy, memory: Memory, numbers: list[int]) -> Tensor:
    assert memory.gate_state_NU is not None, "the gate took part, so the state was there"
    assert memory.evidence_NE is not None, "and so was what it sees of the evidence"
    chosen = torch.tensor(numbers, device=memory.blocks_NKD.device)
    return policy.gate.logits(memory.gate_state_NU[chosen], memory.blocks_NKD[chosen], memory.evidence_NE[chosen])


def keeping_term(
    policy: MemoryPolicy, rows: Sequence[Row], memory: Memory, own_B: Tensor, *, rng: random.Random, max_tokens: int
) -> Tensor:
    """A term whose value is zero and whose gradient is the gradient of the expected action loss with respect to the
    trust in blocks. `own_B` is the action loss of each decision.

    For each decision, one block is kept instead of dropped, or dropped instead of kept. The change of the action loss
    when the block is kept, times the number of blocks, is an unbiased estimate of the gradient with respect to the
    probability of keeping a block. As in the paper, the gradient flows on into the blocks, because it comes from
    actions and not from labels.
    """
    of_row: dict[int, list[int]] = {}
    for block, (place, is_valid) in enumerate(zip(memory.places, memory.valid, strict=True)):
        if is_valid:
            of_row.setdefault(place.row, []).append(block)
    if not of_row:
        return own_B.new_zeros(())
    tried = {row: rng.choice(blocks) for row, blocks in of_row.items()}
    keep = list(memory.keep)
    for block in tried.values():
        keep[block] = not keep[block]
    numbers, device = list(tried), own_B.device
    with torch.no_grad():
        injected = policy.injection(rows, memory.blocks_NKD, memory.places, keep)
        others = [injected[number] for number in numbers]
        hidden = target_hidden(policy.backbone, others, max_tokens=max_tokens)
        other_R = row_sums(policy.backbone, others, hidden)
        signs_R = torch.tensor([1.0 if memory.keep[tried[row]] else -1.0 for row in numbers], device=device)
        counts_R = torch.tensor([float(len(of_row[row])) for row in numbers], device=device)
        lost_R = signs_R * counts_R * (own_B[numbers] - other_R)
    logits_R = _trust_in(policy, memory, [tried[row] for row in numbers])
    total = (lost_R * logits_R.sigmoid()).sum()
    return total - total.detach()


def _passage(keep: tuple[bool, ...], is_negative: list[bool]) -> Passage:
    pairs = list(zip(keep, is_negative, strict=True))
    return Passage(
        num_ordinary=sum(not negative for _, negative in pairs),
        num_ordinary_kept=sum(kept and not negative for kept, negative in pairs),
        num_negative=sum(is_negative),
        num_negative_kept=sum(kept and negative for kept, negative in pairs),
    )


def train_stage_b(
    policy: MemoryPolicy,
    data: TrainingData,
    folder: Path,
    *,
    start: Path,
    stage: StageBConfig | None = None,
    loop: LoopConfig | None = None,
    look: Look | None = None,
) -> TrainingResult:
    """Trains the memory that stage A left in `start`, or resumes the run in `folder`.

    A memory that stage B left is trained further, with a new schedule. Parts that were not trained before begin afresh,
    and their settings may differ from those of `start`: a readout may begin on any stage A, whatever state that was
    configured for.
    """
    stored = Checkpoint.open(start)
    left_by = stored.notes.get("stage")
    if left_by not in (StageA.name, StageB.name, GATE_STAGE):
        raise CheckpointError(
            f"Stage B begins with a memory from stage A or from stage B, but {start} was left by "
            f"'{left_by or 'something else'}'. Give the `memory` folder of a run."
        )
    stored.load_into(policy, may_differ=_not_yet_trained(stored))
    return train(
        policy,
        data,
        StageB(stage or StageBConfig(), stored.weights_sha256),
        loop or LoopConfig(learning_rate=LEARNING_RATE),
        folder,
        look=look,
    )


def _not_yet_trained(stored: Checkpoint) -> tuple[str, ...]:
    """The settings of parts that no stage has trained in this memory."""
    trained = stored.trained_parts()
    if stored.notes.get("stage") == StageA.name or not (trained.is_dynamic or trained.is_gated):
        return NOT_YET_TRAINED
    return (() if trained.is_dynamic else READOUT_SETTINGS) + (() if trained.is_gated else GATE_SETTINGS)
