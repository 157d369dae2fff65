"""The fast paths of pretraining have kernels of their own on a GPU; here they are held to what a CPU computes."""

import copy

import pytest
import torch

from focusmem.lab.policy.corpus import Corpus
from focusmem.lab.policy.muon import StackedMuon
from focusmem.lab.policy.policy import new_policy, train_tokenizer
from focusmem.lab.policy.pretrain import batch_logits
from focusmem.lab.world.world import World
from focusmem.model.packed_text import Borders, attend_packed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore"),
]


def test_packed_attention_equals_attention_example_by_example():
    torch.manual_seed(0)
    starts = torch.tensor([0, 5, 70, 71, 300], dtype=torch.int32)
    tensors = [torch.randn(300, 6, 64, dtype=torch.bfloat16) for _ in range(3)]
    expected = attend_packed(*(tensor.float() for tensor in tensors), Borders(starts, 229))
    inputs = [tensor.cuda().requires_grad_() for tensor in tensors]
    found = attend_packed(*inputs, Borders(starts.cuda(), 229))
    torch.testing.assert_close(found.float().cpu(), expected, rtol=0.02, atol=0.02)
    found.float().square().sum().backward()
    assert all(tensor.grad is not None and tensor.grad.isfinite().all() for tensor in inputs)


def test_a_packed_batch_scores_as_on_a_cpu():
    world = World(0)
    policy = new_policy(train_tokenizer(world, num_episodes=30))
    batch = Corpus(world, policy.chat).batch({"line": 0.5, "decision": 0.5}, 0, max_tokens=6000)
    with torch.no_grad():
        expected, _, _ = batch_logits(policy, batch)
        found, _, _ = batch_logits(copy.deepcopy(policy).cuda(), batch.to(torch.device("cuda")))
    torch.testing.assert_close(found.cpu(), expected, rtol=0.1, atol=0.1)


def test_muon_moves_alike_on_both():
    torch.manual_seed(0)
    here = [torch.nn.Parameter(torch.randn(64, 48)) for _ in range(3)]
    there = [torch.nn.Parameter(one.detach().cuda()) for one in here]
    for parameters in (here, there):
        optimizer = StackedMuon(parameters, lr=0.02)
        for number, one in enumerate(parameters):
            one.grad = torch.randn(64, 48, generator=torch.Generator().manual_seed(number)).to(one.device)
        optimizer.step()
    for one, other in zip(here, there, strict=True):
        torch.testing.assert_close(other.detach().cpu(), one.detach(), rtol=0.02, atol=2e-4)
