from dataclasses import replace

import pytest
import torch

from focusmem.model.gate import GateConfig
from focusmem.model.policy import MemoryPolicy
from focusmem.training.gate_probe import LabelledBlocks, labelled_blocks, probe_auc
from focusmem.training.offered_blocks import offered_blocks
from training.samples import make_data, make_memory_policy

WIDTH = 16


def blocks(num, seed, *, tells: bool, is_turned: bool = False, is_lost: bool = False) -> LabelledBlocks:
    """Right blocks carry their decision's own vector, others that of another; or nothing that tells. Turned, they carry
    it in coordinates of their own; lost, only the evidence that they were read from has it."""
    generator = torch.Generator().manual_seed(seed)
    state = torch.randn(num, WIDTH, generator=generator)
    other = torch.randn(num, WIDTH, generator=generator)
    is_right = torch.rand(num, generator=generator) < 0.7
    carried = torch.where(is_right[:, None], state, other) if tells else other
    if is_turned:
        carried = carried @ torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(9)))[0]
    kept = torch.randn(num, WIDTH, generator=generator) if is_lost else carried
    return LabelledBlocks(state, kept[:, None].expand(-1, 4, -1).contiguous(), carried, is_right)


@pytest.mark.parametrize("is_turned", [False, True])
def test_what_is_in_the_blocks_is_found(is_turned):
    learnt, held_out = (blocks(num, seed, tells=True, is_turned=is_turned) for num, seed in ((2000, 0), (500, 1)))
    assert probe_auc(learnt, held_out, config=GateConfig(hidden_width=64), num_steps=300) > 0.9


@pytest.mark.parametrize("sees_evidence", [False, True])
def test_what_blocks_have_lost_is_found_by_a_gate_that_sees_the_evidence(sees_evidence):
    learnt, held_out = (blocks(num, seed, tells=True, is_lost=True) for num, seed in ((2000, 0), (500, 1)))
    config = GateConfig(hidden_width=64, sees_evidence=sees_evidence)
    assert (probe_auc(learnt, held_out, config=config, num_steps=300) > 0.9) == sees_evidence


def test_what_is_not_there_is_not_found():
    config = GateConfig(hidden_width=64)
    found = probe_auc(blocks(2000, 0, tells=False), blocks(500, 1, tells=False), config=config, num_steps=300)
    assert 0.4 < found < 0.6


def test_other_states_are_those_that_a_memory_would_see():
    policy = make_memory_policy()
    other = MemoryPolicy(policy.backbone, replace(policy.config, state_source="hidden", state_layer=1))
    found = labelled_blocks(policy, offered_blocks(policy, make_data(2), is_dynamic=False), layers=(1, 2))
    expected = labelled_blocks(other, offered_blocks(other, make_data(2), is_dynamic=False))
    torch.testing.assert_close(found.seen_from(1).state_NU, expected.state_NU)
    assert torch.equal(found.seen_from(2).is_right_N, expected.is_right_N)
    assert not torch.equal(found.state_NU, expected.state_NU)
    assert not torch.equal(found.seen_from(2).state_NU, expected.state_NU)
