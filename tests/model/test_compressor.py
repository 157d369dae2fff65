import math

import pytest
import torch

from focusmem.errors import ConfigError
from focusmem.model.compressor import Compressor, CompressorConfig, Features, KeysValues, SharedKeysValues

WIDTH, LENGTHS = 32, (7, 3, 5)


def make_compressor(dtype=torch.float64, **config) -> Compressor:
    torch.manual_seed(0)
    sizes = CompressorConfig(num_heads=4, **config)
    return Compressor(sizes, evidence_width=24, policy_width=WIDTH, output_std=0.1).to(dtype)


def padded_evidence(dtype=torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    hidden = torch.randn(len(LENGTHS), max(LENGTHS), 24, dtype=dtype)
    mask = torch.arange(max(LENGTHS))[None] < torch.tensor(LENGTHS)[:, None]
    return hidden, mask


def slow_reference(compressor: Compressor, hidden_TE: torch.Tensor, role: int) -> torch.Tensor:
    """One item, the equations of Appendix A.1 head by head and query by query."""
    features = compressor.w_in(compressor.norm_evidence(hidden_TE))
    latents = compressor.base_queries_RKH[role].clone()
    for _ in range(compressor.config.num_refinements):
        queries = compressor.w_query(compressor.norm_attention(latents))
        keys, values = compressor.w_key(features), compressor.w_value(features)
        result = torch.zeros_like(latents)
        for head in range(compressor.config.num_heads):
            part = slice(head * compressor.head_width, (head + 1) * compressor.head_width)
            for query in range(latents.shape[0]):
                scores = keys[:, part] @ queries[query, part] / math.sqrt(compressor.head_width)
                result[query, part] = scores.softmax(0) @ values[:, part]
        latents = latents + compressor.w_result(result)
        hidden = compressor.ffn_up(compressor.norm_ffn(latents))
        latents = latents + compressor.ffn_down(torch.nn.functional.gelu(hidden))
    return compressor.w_out(compressor.norm_out(latents)) + compressor.role_vectors_RD[role]


@torch.no_grad()
def test_roles_that_share_queries_differ_by_their_vectors_alone():
    compressor = make_compressor(shares_queries=True)
    hidden, mask = padded_evidence()
    evidence = [compressor.keys_values(compressor.features(hidden), mask)]
    blocks = []
    for role in (0, 1):
        roles = torch.full((3,), role)
        blocks.append(compressor(compressor.queries(roles), evidence, roles) - compressor.role_vectors_RD[role])
    torch.testing.assert_close(blocks[0], blocks[1])
    assert not torch.allclose(compressor.role_vectors_RD[0], compressor.role_vectors_RD[1])


@torch.no_grad()
@pytest.mark.parametrize("form", ["keys_values", "absorbed", "projected"])
@pytest.mark.parametrize("num_tokens", [1, 4, 8, 16])
def test_every_form_equals_the_equations(form, num_tokens):
    compressor = make_compressor(num_tokens=num_tokens)
    hidden, mask = padded_evidence()
    roles = torch.tensor([0, 1, 0])
    features = compressor.features(hidden)
    evidence = {
        "keys_values": compressor.keys_values(features, mask),
        "absorbed": Features(features, mask),
        "projected": Features(features, mask, is_absorbed=False),
    }[form]
    blocks = compressor(compressor.queries(roles), [evidence], roles)
    assert blocks.shape == (3, num_tokens, WIDTH)
    for item, length in enumerate(LENGTHS):
        expected = slow_reference(compressor, hidden[item, :length], int(roles[item]))
        torch.testing.assert_close(blocks[item], expected)


@torch.no_grad()
def test_groups_of_single_items_equal_one_padded_group():
    compressor = make_compressor()
    hidden, mask = padded_evidence()
    roles = torch.tensor([0, 1, 1])
    together = compressor.keys_values(compressor.features(hidden), mask)
    apart = [
        compressor.keys_values(compressor.features(hidden[item : item + 1, :length]), None)
        for item, length in enumerate(LENGTHS)
    ]
    queries = compressor.queries(roles)
    torch.testing.assert_close(compressor(queries, apart, roles), compressor(queries, [together], roles))


@torch.no_grad()
def test_mixed_forms_are_projected_once():
    compressor = make_compressor()
    hidden, _ = padded_evidence()
    features = compressor.features(hidden)
    roles = torch.zeros(3, dtype=torch.long)
    calls = []
    compressor.w_key.register_forward_hook(lambda *args: calls.append(1))
    mixed = [Features(features[:2], None), compressor.keys_values(features[2:], None)]
    calls.clear()
    blocks = compressor(compressor.queries(roles), mixed, roles)
    assert len(calls) == 1
    whole = compressor(compressor.queries(roles), [compressor.keys_values(features, None)], roles)
    torch.testing.assert_close(blocks, whole)


@torch.no_grad()
def test_what_lies_under_the_mask_does_not_matter():
    compressor = make_compressor()
    hidden, mask = padded_evidence()
    other = torch.where(mask[..., None], hidden, torch.full_like(hidden, 1e3))
    roles = torch.zeros(3, dtype=torch.long)
    one, two = (
        compressor(compressor.queries(roles), [compressor.keys_values(compressor.features(each), mask)], roles)
        for each in (hidden, other)
    )
    assert torch.equal(one, two)


@torch.no_grad()
@pytest.mark.parametrize("is_absorbed", [True, False])
def test_an_item_without_tokens_stays_finite(is_absorbed):
    compressor = make_compressor()
    hidden, mask = padded_evidence()
    mask = mask.clone()
    mask[1] = False
    roles = torch.zeros(3, dtype=torch.long)
    evidence = Features(compressor.features(hidden), mask, is_absorbed=is_absorbed)
    assert compressor(compressor.queries(roles), [evidence], roles).isfinite().all()


@torch.no_grad()
def test_a_fresh_block_is_as_spread_as_the_embeddings():
    torch.manual_seed(0)
    compressor = Compressor(CompressorConfig(num_heads=8), evidence_width=256, policy_width=256, output_std=0.05)
    roles = torch.tensor([0, 1])
    evidence = compressor.keys_values(compressor.features(torch.randn(2, 50, 256)), None)
    blocks = compressor(compressor.queries(roles), [evidence], roles) - compressor.role_vectors_RD[roles][:, None]
    assert 0.04 < blocks.std() < 0.06
    across_tokens = torch.corrcoef(blocks[0])
    assert across_tokens[~torch.eye(8, dtype=bool)].abs().max() < 0.9, "the K tokens must not start out alike"


def test_roles_have_queries_and_vectors_of_their_own():
    compressor = make_compressor()
    assert not torch.equal(compressor.queries(torch.tensor([0])), compressor.queries(torch.tensor([1])))
    assert compressor.role_vectors_RD.shape == (2, WIDTH)


def test_evidence_reports_its_size():
    features = torch.zeros(2, 5, 32)
    assert Features(features, None).num_items == 2
    assert KeysValues(torch.zeros(2, 4, 5, 8), torch.zeros(2, 4, 5, 8), None).num_tokens == 5


@pytest.mark.parametrize("num_tokens", [0, 5, 32])
def test_other_budgets_are_refused(num_tokens):
    with pytest.raises(ConfigError, match=f"num_tokens is {num_tokens}; choose one of"):
        CompressorConfig(num_tokens=num_tokens)


def test_heads_must_divide_the_width():
    with pytest.raises(ConfigError, match="heads"):
        CompressorConfig(width=30, num_heads=4)
    with pytest.raises(ConfigError, match="do not divide the width 30"):
        Compressor(CompressorConfig(num_heads=4), evidence_width=8, policy_width=30)


@pytest.mark.parametrize("readings", [[0, 1, 2], [2, 0, 2, 2, 1], [1, 1]])
def test_sharing_items_between_readings_equals_copying_them(readings):
    """Blocks and gradients, with a mask and with items that are read often, once or never."""
    compressor = make_compressor()
    hidden, mask = padded_evidence()
    roles = torch.arange(len(readings)) % 2
    shifts = torch.randn(len(readings), 8, WIDTH, dtype=torch.float64)

    def result(evidence_of):
        compressor.zero_grad()
        items = compressor.keys_values(compressor.features(hidden), mask)
        blocks = compressor(compressor.queries(roles) + shifts, [evidence_of(items)], roles)
        blocks.square().sum().backward()
        return blocks, [parameter.grad.clone() for parameter in compressor.parameters()]

    shared, shared_grads = result(lambda items: SharedKeysValues.of(items, readings))
    copied, copied_grads = result(
        lambda items: KeysValues(items.keys_NATX[readings], items.values_NATX[readings], mask[readings])
    )
    torch.testing.assert_close(shared, copied)
    torch.testing.assert_close(shared_grads, copied_grads)


@torch.no_grad()
def test_looking_is_reading_with_the_shares_told():
    """The same refinements: shares sum to one, padding gets none, and what gets all of it decides the block."""
    torch.manual_seed(0)
    compressor = Compressor(CompressorConfig(num_heads=4), evidence_width=32, policy_width=32)
    mask = torch.arange(9)[None] < torch.tensor([[9], [5]])
    items = compressor.keys_values(compressor.features(torch.randn(2, 9, 32)), mask)
    queries = compressor.queries(torch.tensor([0, 1]))
    shares = compressor.looked_at(queries, items)
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(2))
    assert not shares[1, 5:].any()
    one_token = KeysValues(items.keys_NATX[:, :, :1], items.values_NATX[:, :, :1], None)
    torch.testing.assert_close(compressor.looked_at(queries, one_token), torch.ones(2, 1))
