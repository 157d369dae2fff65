"""Measures whether the readout has an effect: how much it changes the queries, and whether actions depend on the state
that it reads.

A dynamic readout starts as a fixed readout, and the loss also falls if it stays fixed. Therefore the action's
likelihood is measured twice: with blocks read for the decision's own state, and with blocks read for the state of a
neighbouring decision.

Shapes: B decisions, N uses of items, K memory tokens, D policy width, H compressor width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from focusmem.model.policy import Memory, MemoryPolicy
from focusmem.training.pathway import EmbeddedShare, EncodedShare, reply_nats
from focusmem.training.prepared import Prepared

INERT_NATS: Final = 0.01
"""A readout is inert if states of neighbouring decisions increase the nats of an action by less than this."""
NUM_SUMS: Final = 8


@dataclass(frozen=True)
class ReadoutActivity:
    query_change_rms: float
    """Root mean square of what the readout adds to the base queries."""
    base_query_rms: float
    """Root mean square of the base queries."""
    own_nats: float
    """Mean nats of an action, over decisions with at least one block in front."""
    shuffled_nats: float | None
    """Like `own_nats`, with blocks read for a neighbouring decision's state; None if there was no other decision."""
    num_decisions: int

    @classmethod
    def of(cls, sums: Tensor) -> "ReadoutActivity | None":
        """The activity, computed from the sums of any number of shares. None if no decision had a block in front."""
        changed, based, num_numbers, own, shuffled, num_pairs, alone, num_alone = sums.tolist()
        num = num_pairs or num_alone
        if not num:
            return None
        return cls(
            query_change_rms=math.sqrt(changed / num_numbers),
            base_query_rms=math.sqrt(based / num_numbers),
            own_nats=(own if num_pairs else alone) / num,
            shuffled_nats=shuffled / num if num_pairs else None,
            num_decisions=round(num),
        )

    @property
    def is_inert(self) -> bool | None:
        """Whether the readout has no effect; None if there was no other decision to take states from."""
        return None if self.shuffled_nats is None else self.shuffled_nats - self.own_nats < INERT_NATS


@torch.no_grad()
def activity_of_share(
    policy: MemoryPolicy, share: Prepared, rows: EmbeddedShare, *, is_gated: bool, max_tokens: int
) -> Tensor:
    """The sums (8,) of a share during training, with the current weights. As when acting, the gate compares logits with
    its threshold, dropout is off, and there are no misleading items.

    This encodes all items once more and reads all decisions twice more, without gradients.
    """
    if not rows.decisions or not share.item_of_use:
        return _no_sums(policy)
    was_training = policy.training
    policy.eval()
    try:
        encoded = EncodedShare.of(policy, rows.items, max_tokens=max_tokens)
        groups, order = encoded.for_uses(share.item_of_use)
        places = [share.places[use] for use in order]
        memory = policy.remember(rows.decisions, groups, places, is_gated=is_gated)
        assert memory is not None, "there are items"
        kept = tuple(is_kept and not share.is_negative[use] for is_kept, use in zip(memory.keep, order, strict=True))
        memory = replace(memory, keep=kept)
        own = reply_nats(policy.backbone, policy.inject(rows.decisions, memory), max_tokens=max_tokens)
        return activity_sums(policy, share, rows, encoded, memory, own, max_tokens=max_tokens)
    finally:
        policy.train(was_training)


@torch.no_grad()
def activity_sums(
    policy: MemoryPolicy,
    share: Prepared,
    rows: EmbeddedShare,
    encoded: EncodedShare,
    memory: Memory | None,
    own_nats: Sequence[float],
    *,
    max_tokens: int,
) -> Tensor:
    """Sums (8,) that may be added over shares. `memory` was read with the readout; `own_nats` are the nats of each
    decision's action with this memory. With other states the same blocks are kept, so that only the readout differs.
    """
    if memory is None:
        return _no_sums(policy)
    groups, _ = encoded.for_uses(share.item_of_use)
    state_BD = policy.state(rows.decisions)
    changes_NKH = policy.query_changes(groups, memory.places, state_BD).double()
    roles_N = torch.tensor([place.role for place in memory.places], device=changes_NKH.device)
    base_NKH = policy.compressor.queries(roles_N).double()
    queries = [changes_NKH.square().sum().item(), base_NKH.square().sum().item(), changes_NKH.numel()]
    reached = sorted({place.row for place, is_kept in zip(memory.places, memory.keep, strict=True) if is_kept})
    own = sum(own_nats[row] for row in reached)
    if len(rows.decisions) == 1:
        return _sums(policy, *queries, 0, 0, 0, own, len(reached))
    others_BD = state_BD[neighbours(share, len(rows.decisions))]
    shuffled = replace(memory, blocks_NKD=policy.read(groups, memory.places, others_BD))
    injected = policy.inject(rows.decisions, shuffled)
    nats = reply_nats(policy.backbone, [injected[row] for row in reached], max_tokens=max_tokens)
    return _sums(policy, *queries, own, sum(nats), len(reached), 0, 0)


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


def _sums(policy: MemoryPolicy, *values: float) -> Tensor:
    assert len(values) == NUM_SUMS
    return torch.tensor(values, dtype=torch.float64, device=policy.backbone.device)


def _no_sums(policy: MemoryPolicy) -> Tensor:
    return _sums(policy, *[0.0] * NUM_SUMS)
