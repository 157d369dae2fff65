"""Measures how well any gate can separate right from misleading blocks: a new gate is trained with labels on frozen
blocks.

A memory's own gate gets no label for ordinary blocks, and some memories have no gate. The probe measures all memories
in the same way: does the gate's input still show which decision a block belongs to? The probe sees what the memory's
gate would see: the block, and with `GateConfig.sees_evidence` a mean over the item itself.

Shapes: N blocks, K memory tokens, D policy width, U width of the state, E evidence width.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from focusmem.errors import ConfigError
from focusmem.model.calibration import calibrate, moments_of
from focusmem.model.gate import GateConfig, TrustGate
from focusmem.model.policy import MemoryPolicy
from focusmem.training.offered_blocks import Offered
from focusmem.training.threshold import area_under_curve


@dataclass(frozen=True)
class LabelledBlocks:
    state_NU: Tensor
    blocks_NKD: Tensor
    evidence_NE: Tensor
    is_right_N: Tensor
    hidden: Mapping[int, Tensor] = field(default_factory=dict)
    """The state made of hidden states after a number of the policy's blocks, by that number. Empty unless it was asked
    for."""

    def seen_from(self, layer: int) -> "LabelledBlocks":
        """The same blocks with another state: hidden states after this layer."""
        return replace(self, state_NU=self.hidden[layer])


@torch.no_grad()
def labelled_blocks(policy: MemoryPolicy, batches: Iterable[Offered], *, layers: Sequence[int] = ()) -> LabelledBlocks:
    """Every block, with the state of its decision, and whether it belongs to this decision."""
    found: list[tuple[Tensor, ...]] = []
    for offered in batches:
        memory = offered.memory
        assert memory.gate_state_NU is not None, "the gate took part, so the state was there"
        assert memory.evidence_NE is not None, "and so was what it sees of the evidence"
        of_row = [place.row for place in memory.places]
        hidden = [policy.hidden_state(offered.rows.decisions, layer)[of_row] for layer in layers]
        seen = (memory.gate_state_NU.float(), memory.blocks_NKD.float(), memory.evidence_NE.float())
        found.append((*seen, ~torch.tensor(offered.is_negative), *hidden))
    if not found:
        raise ConfigError("The data holds no block to probe.")
    state, blocks, evidence, is_right, *others = (torch.cat(parts) for parts in zip(*found, strict=True))
    return LabelledBlocks(state, blocks, evidence, is_right.to(state.device), dict(zip(layers, others, strict=True)))


def probe_auc(
    learnt: LabelledBlocks,
    held_out: LabelledBlocks,
    *,
    config: GateConfig | None = None,
    num_steps: int = 1000,
    batch_size: int = 4096,
    learning_rate: float = 1e-3,
    seed: int = 0,
) -> float:
    """The area under the curve on held-out blocks, for a gate that is trained on the other blocks. Right and misleading
    blocks have equal weight in its training.

    Learning to compare a block with a decision takes thousands of sites. A probe that saw a few hundred memorises them.
    """
    device = learnt.state_NU.device
    torch.manual_seed(seed)
    gate = TrustGate(
        config or GateConfig(),
        state_width=learnt.state_NU.shape[1],
        policy_width=learnt.blocks_NKD.shape[2],
        evidence_width=learnt.evidence_NE.shape[1],
    ).to(device)
    seen = gate.seen(learnt.state_NU, learnt.blocks_NKD, learnt.evidence_NE)
    calibrate(gate.norms, moments_of(gate.norms, seen))
    optimizer = torch.optim.AdamW(gate.parameters(), lr=learning_rate, weight_decay=0.1)
    share = learnt.is_right_N.float().mean()
    weights_N = torch.where(learnt.is_right_N, 0.5 / share, 0.5 / (1 - share))
    pooled_NKD = learnt.blocks_NKD.mean(dim=1, keepdim=True)  # only what a gate sees
    for _ in range(num_steps):
        some = torch.randperm(len(weights_N), device=device)[:batch_size]
        logits_N = gate.logits(learnt.state_NU[some], pooled_NKD[some], learnt.evidence_NE[some])
        wanted_N, own_N = learnt.is_right_N[some].float(), weights_N[some]
        loss = F.binary_cross_entropy_with_logits(logits_N, wanted_N, weight=own_N)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        logits_N = gate.logits(held_out.state_NU, held_out.blocks_NKD, held_out.evidence_NE)
    return area_under_curve(logits_N[held_out.is_right_N].tolist(), logits_N[~held_out.is_right_N].tolist())
