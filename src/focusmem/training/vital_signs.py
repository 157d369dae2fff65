"""Vital signs of readout and gate, on decisions that are not trained on.

A dynamic readout starts as a fixed readout, and the loss also falls if it stays fixed. Therefore the action's
likelihood is measured three times: with blocks read for the decision's own state, with blocks read for the state of a
neighbouring decision, and with the fixed blocks. If the state of another decision gives the same likelihood, the
readout has not been trained, whatever the loss is.

Shapes: B decisions, N uses of items, K memory tokens, D policy width, H compressor width.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import torch
from torch import Tensor

from focusmem.model.policy import Memory, MemoryPolicy
from focusmem.training.batch import TrainingBatch, TrainingData
from focusmem.training.pathway import EmbeddedShare, EncodedShare, reply_nats
from focusmem.training.prepared import Prepared

INERT_NATS: Final = 0.01
"""A readout is inert if states of neighbouring decisions increase the nats of an action by less than this."""
VITAL_SIGNS_NOTE: Final = "vital_signs"
"""The note on a memory's card that holds the vital signs at the end of its training."""


@dataclass(frozen=True)
class VitalSigns:
    num_decisions: int
    """Number of decisions with at least one block before the prompt; all nats are means over these."""
    fixed_nats: float
    """Mean nats of an action with the fixed blocks, which are read with the base queries alone."""
    own_nats: float | None = None
    """With blocks read for the decision's own state; None without a readout."""
    shuffled_nats: float | None = None
    """With blocks read for a neighbouring decision's state; None without a readout or without another decision."""
    base_query_rms: float | None = None
    """Root mean square of the base queries; None without a readout."""
    query_change_rms: float | None = None
    """Root mean square of the query change, which the readout adds to the base queries."""
    ordinary_passage: float | None = None
    """Share of ordinary blocks that the gate accepts; None without a gate."""
    negative_passage: float | None = None
    """Share of misleading blocks that the gate accepts; None if there were none."""

    @classmethod
    def of(cls, sums: Tensor) -> "VitalSigns | None":
        """Computes the vital signs from the sums of any number of shares; None if no decision had a block before its
        prompt.
        """
        total = Sums(*sums.tolist())
        num = total.num_paired or total.num_alone
        if not num:
            return None
        return cls(
            num_decisions=round(num),
            fixed_nats=(total.fixed if total.num_paired else total.fixed_alone) / num,
            own_nats=(total.own if total.num_paired else total.own_alone) / num if total.num_numbers else None,
            shuffled_nats=total.shuffled / num if total.num_numbers and total.num_paired else None,
            base_query_rms=math.sqrt(total.based / total.num_numbers) if total.num_numbers else None,
            query_change_rms=math.sqrt(total.changed / total.num_numbers) if total.num_numbers else None,
            ordinary_passage=total.ordinary_kept / total.ordinary if total.ordinary else None,
            negative_passage=total.negative_kept / total.negative if total.negative else None,
        )

    @property
    def query_change(self) -> float | None:
        """The size of the query change relative to the base queries."""
        if self.query_change_rms is None or self.base_query_rms is None:
            return None
        return self.query_change_rms / max(self.base_query_rms, 1e-12)

    @property
    def is_inert(self) -> bool | None:
        """Whether the readout counts as not trained; None without a readout, or without another decision to take
        states from."""
        if self.own_nats is None or self.shuffled_nats is None:
            return None
        return self.shuffled_nats - self.own_nats < INERT_NATS

    def as_plain(self) -> dict[str, Any]:
        """The values as metrics and cards store them."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return own | {"query_change": self.query_change, "is_inert": self.is_inert}


@dataclass(frozen=True)
class Sums:
    """The sums that a share contributes to the vital signs."""

    changed: float = 0.0
    """Sum of the squares of the query changes."""
    based: float = 0.0
    """Sum of the squares of the base queries."""
    num_numbers: float = 0.0
    """Number of squares in each of the two sums; zero without a readout."""
    own: float = 0.0
    shuffled: float = 0.0
    fixed: float = 0.0
    num_paired: float = 0.0
    """Number of decisions in shares with several decisions; `own`, `shuffled` and `fixed` are sums over these."""
    own_alone: float = 0.0
    fixed_alone: float = 0.0
    num_alone: float = 0.0
    """Number of decisions that are alone in their share and therefore have no neighbour."""
    ordinary: float = 0.0
    ordinary_kept: float = 0.0
    negative: float = 0.0
    negative_kept: float = 0.0

    def tensor(self, device: torch.device) -> Tensor:
        """The sums as numbers, which may be added over shares and processes."""
        values = [getattr(self, field.name) for field in fields(self)]
        return torch.tensor(values, dtype=torch.float64, device=device)


@torch.no_grad()
def sums_of_share(
    policy: MemoryPolicy, share: Prepared, rows: EmbeddedShare, *, is_dynamic: bool, is_gated: bool, max_tokens: int
) -> Sums:
    """The sums of a share during training, with the current weights and without dropout.

    Nats are measured with all ordinary blocks before the prompt, whatever the gate decides, so that they stay
    comparable while the gate learns. The gate decides as in acting: its logits are compared with the threshold.
    """
    if not rows.decisions or not share.item_of_use:
        return Sums()
    was_training = policy.training
    policy.eval()
    try:
        encoded = EncodedShare.of(policy, rows.items, max_tokens=max_tokens)
        groups, order = encoded.for_uses(share.item_of_use)
        places = [share.places[use] for use in order]
        memory = policy.remember(rows.decisions, groups, places, is_dynamic=is_dynamic, is_gated=is_gated)
        assert memory is not None, "there are items"
        is_negative = [share.is_negative[use] for use in order]
        ordinary = replace(memory, keep=tuple(not negative for negative in is_negative), trust=None)
        sums = sums_of_memory(policy, share, rows, encoded, ordinary, is_dynamic=is_dynamic, max_tokens=max_tokens)
        if not is_gated:
            return sums
        kept = [keep for keep, negative in zip(memory.keep, is_negative, strict=True) if not negative]
        misled = [keep for keep, negative in zip(memory.keep, is_negative, strict=True) if negative]
        return replace(
            sums, ordinary=len(kept), ordinary_kept=sum(kept), negative=len(misled), negative_kept=sum(misled)
        )
    finally:
        policy.train(was_training)


@torch.no_grad()
def sums_of_memory(
    policy: MemoryPolicy,
    share: Prepared,
    rows: EmbeddedShare,
    encoded: EncodedShare,
    memory: Memory | None,
    *,
    is_dynamic: bool,
    max_tokens: int,
) -> Sums:
    """The sums over decisions with this memory before their prompt. The same blocks are kept when they are read with
    other states or with the base queries, so that only the reading differs.
    """
    if memory is None or not any(memory.keep):
        return Sums()
    reached = sorted({place.row for place, is_kept in zip(memory.places, memory.keep, strict=True) if is_kept})

    def nats(memory: Memory) -> float:
        injected = policy.inject(rows.decisions, memory)
        return sum(reply_nats(policy.backbone, [injected[row] for row in reached], max_tokens=max_tokens))

    is_alone = len(rows.decisions) == 1
    if not is_dynamic:
        fixed = nats(memory)
        if is_alone:
            return Sums(fixed_alone=fixed, num_alone=len(reached))
        return Sums(fixed=fixed, num_paired=len(reached))
    groups, _ = encoded.for_uses(share.item_of_use)
    state_BU = policy.state(rows.decisions)
    changes_NKH = policy.query_changes(groups, memory.places, state_BU).double()
    roles_N = torch.tensor([place.role for place in memory.places], device=changes_NKH.device)
    base_NKH = policy.compressor.queries(roles_N).double()
    queries = Sums(changes_NKH.square().sum().item(), base_NKH.square().sum().item(), changes_NKH.numel())
    own = nats(memory)
    fixed = nats(replace(memory, blocks_NKD=policy.read(groups, memory.places, None)))
    if is_alone:
        return replace(queries, own_alone=own, fixed_alone=fixed, num_alone=len(reached))
    others_BU = state_BU[neighbours(share, len(rows.decisions))]
    shuffled = nats(replace(memory, blocks_NKD=policy.read(groups, memory.places, others_BU)))
    return replace(queries, own=own, shuffled=shuffled, fixed=fixed, num_paired=len(reached))


def neighbours(share: Prepared, num_decisions: int) -> list[int]:
    """For each decision, the next decision of its share, in a circle, that uses one of the same items. A decision
    without common items takes the next decision of the share.
    """
    items_of: list[set[int]] = [set() for _ in range(num_decisions)]
    for item, place in zip(share.item_of_use, share.places, strict=True):
        items_of[place.row].add(item)
    found = []
    for row in range(num_decisions):
        others = [(row + step) % num_decisions for step in range(1, num_decisions)]
        found.append(next((other for other in others if items_of[row] & items_of[other]), others[0] if others else row))
    return found


@dataclass(frozen=True)
class HeldOut:
    """The decisions on which a run measures its vital signs. They are the same at every step."""

    batch: TrainingBatch
    is_learnt_from: bool
    """Whether the run also trains on them, because its data has no other decisions."""

    @classmethod
    def of(cls, data: TrainingData, *, num_steps: int, num_decisions: int) -> "HeldOut":
        """The batch that the data holds out; otherwise the last batch of the data, which most runs do not reach."""
        own, last = getattr(data, "held_out", None), data.num_batches - 1
        batch = data.batch(last) if own is None else own
        return cls(batch.with_memory(num_decisions), is_learnt_from=own is None and last < num_steps)
