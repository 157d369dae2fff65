"""The first equalities once more, on a GPU and in the precision that is used there."""

import pytest
import torch

from focusmem.model.backbone import Backbone
from focusmem.model.evidence_cache import CacheConfig, EvidenceCache
from focusmem.model.generation import GenerationConfig, generate
from focusmem.model.inputs import stack_rows
from toys import make_policy, three_decisions

pytestmark = pytest.mark.gpu
DTYPES = [torch.float32, torch.bfloat16]
REPLIES = ["one", "another", "a third"]


@torch.no_grad()
@pytest.mark.parametrize("dtype", DTYPES)
def test_closed_gates_are_the_plain_policy_bit_for_bit(dtype):
    policy, plain = make_policy(dtype=dtype).to("cuda"), Backbone.toy(dtype=dtype).to("cuda")
    torch.nn.init.constant_(policy.gate.out.bias, -20.0)
    prompts, records, places = three_decisions()
    logits, _, memory = policy(policy.embed(prompts, REPLIES), policy.encode(records), places)
    assert not any(memory.keep)
    rows = plain.embed([plain.tokenise(prompt, reply=reply) for prompt, reply in zip(prompts, REPLIES, strict=True)])
    hidden = plain.run(stack_rows(rows))
    wanted = [one[row.num_context - 1 : row.length - 1] for one, row in zip(hidden, rows, strict=True)]
    assert torch.equal(logits, plain.logits(torch.cat(wanted)))


@torch.no_grad()
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["keys_values", "features"])
def test_cached_equals_uncached(dtype, form, tmp_path):
    policy = make_policy(dtype=dtype).to("cuda").convert(dtype)
    prompts, records, places = three_decisions()
    rows = policy.embed(prompts)
    fresh = policy.remember(rows, [policy.encode([record], form=form)[0] for record in records], places)
    config = CacheConfig(form=form, folder=tmp_path, max_batch_tokens=1)
    EvidenceCache(policy, config).fetch(records)
    from_disk = EvidenceCache(policy, config).fetch(records)
    assert from_disk[0].summary_NE.is_cuda
    assert torch.equal(policy.remember(rows, from_disk, places).blocks_NKD, fresh.blocks_NKD)


@torch.no_grad()
def test_generation_is_that_of_the_cpu():
    prompts, records, places = three_decisions()
    replies = []
    for device in ("cpu", "cuda"):
        policy = make_policy().to(device)
        rows = policy.embed(prompts)
        rows = policy.inject(rows, policy.remember(rows, policy.encode(records), places))
        replies.append(generate(policy.backbone, rows, GenerationConfig(max_new_tokens=12)))
    assert replies[0] == replies[1]
