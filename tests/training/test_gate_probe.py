import torch

from focusmem.model.gate import GateConfig
from focusmem.training.gate_probe import LabelledBlocks, probe_auc

WIDTH = 16


def blocks(num, seed, *, tells: bool) -> LabelledBlocks:
    """Right blocks carry their decision's own vector, others that of another; or nothing that tells."""
    generator = torch.Generator().manual_seed(seed)
    state = torch.randn(num, WIDTH, generator=generator)
    other = torch.randn(num, WIDTH, generator=generator)
    is_right = torch.rand(num, generator=generator) < 0.7
    carried = torch.where(is_right[:, None], state, other) if tells else other
    return LabelledBlocks(state, carried[:, None].expand(-1, 4, -1).contiguous(), is_right)


def test_what_is_in_the_blocks_is_found():
    config = GateConfig(hidden_width=64)
    found = probe_auc(blocks(2000, 0, tells=True), blocks(500, 1, tells=True), config=config, num_steps=300)
    assert found > 0.9


def test_what_is_not_there_is_not_found():
    config = GateConfig(hidden_width=64)
    found = probe_auc(blocks(2000, 0, tells=False), blocks(500, 1, tells=False), config=config, num_steps=300)
    assert 0.4 < found < 0.6
