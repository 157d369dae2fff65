"""How well right blocks can be told from misleading ones at all: a fresh gate, taught with labels on frozen blocks.

The trained gate of a memory gets no label for ordinary blocks; a memory without one has no gate to ask. A probe asks
the same of all of them: is it still in the blocks which decision they belong to?

Shapes: N blocks, K memory tokens, D policy width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from focusmem.errors import ConfigError
from focusmem.model.gate import GateConfig, TrustGate
from focusmem.model.policy import MemoryPolicy
from focusmem.training.batch import TrainingData
from focusmem.training.loader import prepared_batches
from focusmem.training.pathway import Look, embed
from focusmem.training.prepared import Needs, Preparer
from focusmem.training.stage_b import StageB, StageBConfig
from focusmem.training.threshold import area_under_curve


@dataclass(frozen=True)
class LabelledBlocks:
    state_ND: Tensor
    blocks_NKD: Tensor
    is_right_N: Tensor


@torch.no_grad()
def labelled_blocks(
    policy: MemoryPolicy,
    data: TrainingData,
    *,
    is_dynamic: bool,
    max_group_tokens: int = 65_536,
    look: Look | None = None,
    num_workers: int = 0,
) -> LabelledBlocks:
    """Every block of some data, with the state it was offered for and whether it belongs there."""
    stage = StageB(StageBConfig(is_dynamic=is_dynamic))
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    numbers = range(data.num_batches)
    preparer = Preparer(policy, Needs(negatives=True))
    for [share], _ in prepared_batches(data, preparer, numbers, num_workers=num_workers):
        rows = embed(policy, share, look)
        memory, is_negative = stage.remember(policy, share, rows, max_tokens=max_group_tokens)
        if memory is None:
            continue
        assert memory.state_ND is not None, "the gate took part, so the state was there"
        found.append((memory.state_ND.float(), memory.blocks_NKD.float(), ~torch.tensor(is_negative)))
    if not found:
        raise ConfigError("There is not one block in the data to probe.")
    state, blocks, is_right = (torch.cat(parts) for parts in zip(*found, strict=True))
    return LabelledBlocks(state, blocks, is_right.to(state.device))


def probe_auc(
    learnt: LabelledBlocks,
    held_out: LabelledBlocks,
    *,
    config: GateConfig | None = None,
    num_steps: int = 600,
    learning_rate: float = 1e-3,
    seed: int = 0,
) -> float:
    """Area under the curve on held-out blocks of a gate taught on the others; each kind counts the same."""
    device = learnt.state_ND.device
    torch.manual_seed(seed)
    gate = TrustGate(config or GateConfig(), policy_width=learnt.state_ND.shape[1]).to(device)
    optimizer = torch.optim.AdamW(gate.parameters(), lr=learning_rate, weight_decay=0.1)
    share = learnt.is_right_N.float().mean()
    weights_N = torch.where(learnt.is_right_N, 0.5 / share, 0.5 / (1 - share))
    for _ in range(num_steps):
        logits_N = gate.logits(learnt.state_ND, learnt.blocks_NKD)
        loss = F.binary_cross_entropy_with_logits(logits_N, learnt.is_right_N.float(), weight=weights_N)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        trust_N = gate.logits(held_out.state_ND, held_out.blocks_NKD).sigmoid()
    return area_under_curve(trust_N[held_out.is_right_N].tolist(), trust_N[~held_out.is_right_N].tolist())
