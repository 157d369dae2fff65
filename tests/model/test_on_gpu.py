"""The first equalities once more, on a GPU and in the precision that is used there."""

import pytest
import torch

from focusmem.model.backbone import Backbone
from focusmem.model.evidence_cache import CacheConfig, EvidenceCache
from focusmem.model.generation import GenerationConfig, generate
from focusmem.model.inputs import stack_rows
from focusmem.model.packed_text import Borders, attend_packed
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


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("lengths", "width", "num_queries"),
    [((11_040, 3_840, 1), 256, 8), ((100, 1024, 1025, 7), 160, 4), ((5000, 3), 64, 16), ((33,) * 40, 128, 8)],
)
def test_attention_over_kept_items_equals_the_librarys(dtype, lengths, width, num_queries):
    from focusmem.model.ragged_attention import RaggedItems

    torch.manual_seed(0)
    keys, values = ([torch.randn(1, 4, n, width, device="cuda", dtype=dtype) for n in lengths] for _ in range(2))
    queries = torch.randn(len(lengths), 4, num_queries, width, device="cuda", dtype=dtype)
    ours = RaggedItems(keys, values).attend(queries)
    for index, (key, value) in enumerate(zip(keys, values, strict=True)):
        exact = torch.nn.functional.scaled_dot_product_attention(
            queries[index : index + 1].float(), key.float(), value.float()
        )
        torch.testing.assert_close(ours[index].float(), exact[0], rtol=2e-2, atol=2e-2 * exact.abs().max().item())
        cosine = torch.nn.functional.cosine_similarity(ours[index].float().flatten(), exact.flatten(), dim=0)
        assert cosine > 0.9999


@torch.no_grad()
def test_eight_bits_keep_the_direction_of_every_block():
    policy = make_policy(dtype=torch.bfloat16).to("cuda").convert(torch.bfloat16)
    prompts, records, places = three_decisions()
    rows = policy.embed(prompts)
    one, two = (
        policy.remember(rows, EvidenceCache(policy, CacheConfig(precision=precision)).fetch(records), places)
        for precision in ("bfloat16", "int8")
    )
    cosine = torch.nn.functional.cosine_similarity(one.blocks_NKD.float().flatten(1), two.blocks_NKD.float().flatten(1))
    assert cosine.min() > 0.999


def test_what_is_added_to_scores_comes_through_the_kernel_and_back():
    """Rows end to end, in bfloat16, against the same sums on a CPU in float32: results and the gradient of the term."""
    generator = torch.Generator().manual_seed(0)
    lengths = (70, 3, 129)
    parts = [torch.randn(sum(lengths), 4, 64, generator=generator) for _ in range(3)]
    term = -torch.rand(sum(lengths), generator=generator)
    weights = torch.randn(sum(lengths), 4, 64, generator=generator)
    found = []
    for device, dtype in (("cpu", torch.float32), ("cuda", torch.bfloat16)):
        starts = torch.tensor([0, *lengths], device=device).cumsum(0).to(torch.int32)
        own = term.clone().to(device).requires_grad_()
        out = attend_packed(*(part.to(device, dtype) for part in parts), Borders(starts, max(lengths)), own)
        (out.float() * weights.to(device)).sum().backward()
        found.append((out.detach().float().cpu(), own.grad.cpu()))
    for ours, exact in zip(found[1], found[0], strict=True):
        assert ours.shape == exact.shape
        assert torch.nn.functional.cosine_similarity(ours.flatten(), exact.flatten(), dim=0) > 0.999
        torch.testing.assert_close(ours, exact, rtol=5e-2, atol=5e-2 * exact.abs().max().item())
