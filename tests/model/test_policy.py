"""The equalities the whole project stands on, on a toy Qwen3-VL with DeepStack and screenshots of different sizes."""

from dataclasses import replace

import pytest
import torch

from focusmem.errors import ConfigError
from focusmem.model.backbone import Backbone
from focusmem.model.compressor import CompressorConfig
from focusmem.model.gate import GateConfig
from focusmem.model.generation import GenerationConfig, generate
from focusmem.model.injection import Place
from focusmem.model.inputs import stack_rows
from focusmem.model.policy import MemoryPolicy
from toys import decision, evidence, make_config, make_policy, three_decisions

REPLIES = ['{"name":"wait"}', "ok", '{"name":"stop","arguments":{"answer":"7"}}']


def close_gate(policy: MemoryPolicy) -> MemoryPolicy:
    with torch.no_grad():
        policy.gate.out.weight.zero_()
        policy.gate.out.bias.fill_(-20.0)
    return policy


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_closed_gates_are_the_plain_policy_bit_for_bit(dtype):
    policy, plain = close_gate(make_policy(dtype=dtype)), Backbone.toy(dtype=dtype)
    prompts, records, places = three_decisions()
    logits, _, memory = policy(policy.embed(prompts, REPLIES), policy.encode(records), places)
    assert memory.keep == (False,) * 5
    rows = plain.embed([plain.tokenise(prompt, reply=reply) for prompt, reply in zip(prompts, REPLIES, strict=True)])
    hidden = plain.run(stack_rows(rows))
    wanted = [one[row.num_context - 1 : row.length - 1] for one, row in zip(hidden, rows, strict=True)]
    assert torch.equal(logits, plain.logits(torch.cat(wanted)))
    asked = plain.embed([plain.tokenise(prompt) for prompt in prompts])
    ids = generate(plain, asked, GenerationConfig(max_new_tokens=12))
    replies = policy.reply(policy.inject(asked, memory), GenerationConfig(max_new_tokens=12))
    assert replies == [plain.text_of(one) for one in ids]


@torch.no_grad()
def test_no_evidence_is_the_plain_policy():
    policy = make_policy()
    rows = policy.embed([decision(0)])
    assert policy.remember(rows, [], []) is None
    assert policy.inject(rows, None) == rows


@torch.no_grad()
def test_open_gates_change_the_policy():
    policy = make_policy()
    prompts, records, places = three_decisions()
    rows = policy.embed(prompts, REPLIES)
    with_memory, _, memory = policy(rows, policy.encode(records), places)
    without, _ = policy.target_logits(rows)
    assert memory.keep == (True,) * 5
    assert not torch.allclose(with_memory, without, atol=1e-2)


@torch.no_grad()
def test_batch_equals_one_by_one():
    policy = make_policy()
    prompts, records, places = three_decisions()
    items = policy.encode(records)
    rows = policy.embed(prompts, REPLIES)
    torch.nn.init.normal_(policy.gate.out.weight)  # so that trust differs from block to block
    together, targets, _ = policy(rows, items, places, is_gated=False)
    trust = policy.remember(rows, items, places).trust.logits_N
    parts, ids, alone_trust = [], [], []
    for number, row in enumerate(rows):
        mine = [index for index, place in enumerate(places) if place.row == number]
        alone = [Place(0, places[index].role, places[index].rank) for index in mine]
        own = [items[index] for index in mine]
        logits, target, _ = policy([row], own, alone, is_gated=False)
        parts.append(logits)
        ids.append(target)
        alone_trust += policy.remember([row], own, alone).trust.logits_N.tolist() if mine else []
    assert torch.equal(targets, torch.cat(ids))
    torch.testing.assert_close(together, torch.cat(parts), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(trust, torch.tensor(alone_trust), rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_reading_is_base_queries_plus_the_adapters_answer():
    """`read` once more by hand, item by item, with the role and the state that belong to it."""
    policy = make_policy()
    prompts, records, places = three_decisions()
    rows, items = policy.embed(prompts), policy.encode(records)
    state = policy.state(rows)
    blocks = policy.read(items, places, state)
    for index, (item, place) in enumerate(zip(items, places, strict=True)):
        role = torch.tensor([place.role])
        vector = policy.compressor.role_vectors_RD[role]
        residual = policy.readout(state[place.row][None], item.summary_NE, vector)
        queries = policy.compressor.base_queries_RKH[role] + residual
        expected = policy.compressor(queries, [item.evidence], role)
        torch.testing.assert_close(blocks[index], expected[0], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_items_encoded_together_equal_items_encoded_alone():
    policy = make_policy()
    _, records, places = three_decisions()
    together = policy.encode(records)
    alone = [policy.encode([record])[0] for record in records]
    one, two = policy.read(together, places, None), policy.read(alone, places, None)
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        torch.cat([item.summary_NE for item in together]), torch.cat([item.summary_NE for item in alone])
    )


@torch.no_grad()
def test_padding_changes_nothing():
    policy = make_policy()
    prompts, records, places = three_decisions()
    rows = policy.embed(prompts)
    plain, padded = stack_rows(rows), stack_rows(rows, pad_to=max(row.length for row in rows) + 37)
    one, two = policy.backbone.run(plain), policy.backbone.run(padded)
    for number, row in enumerate(rows):
        torch.testing.assert_close(one[number, : row.length], two[number, : row.length], rtol=1e-4, atol=1e-5)
    group = policy.encode_rows(policy.backbone.embed([policy.backbone.tokenise(r, is_complete=True) for r in records]))
    torch.testing.assert_close(
        policy.read([group], places, None),
        policy.read(policy.encode(records), places, None),
        rtol=1e-4,
        atol=1e-5,
    )


@torch.no_grad()
@pytest.mark.parametrize(
    "state_source", [{}, {"state_source": "embeddings"}, {"state_source": "hidden", "state_layer": 2}]
)
def test_zero_adapter_makes_dynamic_equal_fixed_bit_for_bit(state_source):
    policy = make_policy(is_trained=False, **state_source)
    prompts, records, places = three_decisions()
    items, rows = policy.encode(records), policy.embed(prompts)
    dynamic = policy.remember(rows, items, places, is_gated=False)
    fixed = policy.remember(rows, items, places, is_dynamic=False, is_gated=False)
    assert torch.equal(dynamic.blocks_NKD, fixed.blocks_NKD)


@torch.no_grad()
def test_the_same_item_reads_differently_for_different_states():
    policy = make_policy()
    item = policy.encode([evidence(0)])[0]
    rows = policy.embed([decision(0), decision(1)])
    memory = policy.remember(rows, [item, item], [Place(0, 0, 0), Place(1, 0, 0)])
    assert not torch.allclose(memory.blocks_NKD[0], memory.blocks_NKD[1], atol=1e-3)
    fixed = policy.remember(rows, [item, item], [Place(0, 0, 0), Place(1, 0, 0)], is_dynamic=False)
    torch.testing.assert_close(fixed.blocks_NKD[0], fixed.blocks_NKD[1])


@torch.no_grad()
@pytest.mark.parametrize(
    "state_source", [{}, {"state_source": "embeddings"}, {"state_source": "hidden", "state_layer": 3}]
)
def test_the_state_does_not_see_the_reply(state_source):
    policy = make_policy(**state_source)
    prompts = [decision(0), decision(1, num_events=2)]
    torch.testing.assert_close(policy.state(policy.embed(prompts, REPLIES[:2])), policy.state(policy.embed(prompts)))


@torch.no_grad()
def test_state_sources_pool_what_they_say():
    prompts = [decision(0)]
    by_embeddings, by_hidden = make_policy(state_source="embeddings"), make_policy(state_source="hidden", state_layer=2)
    [row] = by_embeddings.embed(prompts)
    torch.testing.assert_close(by_embeddings.state([row])[0], row.embeds_SD.mean(0))
    hidden = by_hidden.backbone.run(stack_rows([row]), num_layers=2)[0].mean(0)
    torch.testing.assert_close(by_hidden.state([row])[0], hidden)


def test_state_layer_must_exist():
    with pytest.raises(ConfigError, match="layers 1 to 4"):
        MemoryPolicy(Backbone.toy(), make_config(state_source="hidden", state_layer=9))
    with pytest.raises(ConfigError, match="give a layer with 'hidden'"):
        make_config(state_source="hidden")
    gate = GateConfig(sees_evidence=True, evidence_source="embeddings", shares_projection=True)
    with pytest.raises(ConfigError, match="shares_projection is for a state of embeddings"):
        make_config(state_source="hidden", state_layer=1, gate=gate)


@pytest.mark.parametrize(
    "state_source", [{}, {"state_source": "embeddings"}, {"state_source": "hidden", "state_layer": 2}]
)
def test_gradients_reach_all_of_the_memory_pathway_and_nothing_of_the_policy(state_source):
    policy = make_policy(**state_source).train()
    torch.nn.init.constant_(policy.gate.out.bias, 0.5)  # at full trust a draw saturates and has no slope
    prompts, records, places = three_decisions()
    before = {name: tensor.clone() for name, tensor in policy.backbone.state_dict().items()}
    rows = policy.embed(prompts, REPLIES)
    reader = policy.encoder.backbone
    items = policy.encode_rows(reader.embed([reader.tokenise(record, is_complete=True) for record in records]))
    logits, targets, memory = policy(rows, [items], places, generator=torch.Generator().manual_seed(2))
    assert all(memory.keep), "choose a seed that keeps every block, so that all of the pathway takes part"
    torch.nn.functional.cross_entropy(logits, targets).backward()
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)  # of everything, the backbone included
    for part, module in policy.trained_parts().items():
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None, f"{part}.{name}"
            assert parameter.grad.abs().sum() > 0, f"{part}.{name}"
    assert all(parameter.grad is None for parameter in policy.backbone.parameters())
    optimizer.step()
    assert all(torch.equal(tensor, before[name]) for name, tensor in policy.backbone.state_dict().items())


def test_a_draw_that_keeps_nothing_still_trains():
    policy = make_policy().train()
    torch.nn.init.constant_(policy.gate.out.bias, -30.0)
    prompts, records, places = three_decisions()
    logits, targets, memory = policy(policy.embed(prompts, REPLIES), policy.encode(records), places)
    assert not any(memory.keep)
    torch.nn.functional.cross_entropy(logits, targets).backward()
    missing = [name for name, p in policy.named_parameters() if p.requires_grad and p.grad is None]
    assert missing == []


def test_training_mode_leaves_the_backbone_alone():
    policy = make_policy().train()
    assert policy.gate.training
    assert policy.encoder.training
    assert not policy.backbone.model.training


@torch.no_grad()
@pytest.mark.parametrize("num_tokens", [1, 4, 8, 16])
def test_latent_budgets(num_tokens):
    policy = make_policy(compressor=CompressorConfig(num_tokens=num_tokens, num_heads=4))
    prompts, records, places = three_decisions()
    rows = policy.embed(prompts)
    injected = policy.inject(rows, policy.remember(rows, policy.encode(records), places))
    assert [after.length - row.length for after, row in zip(injected, rows, strict=True)] == [
        2 * num_tokens,
        0,
        3 * num_tokens,
    ]


@torch.no_grad()
def test_encoder_compressor_and_policy_may_differ_in_width():
    torch.manual_seed(0)
    reader = Backbone.toy(width=128, num_layers=2, seed=3)
    config = make_config(compressor=CompressorConfig(num_heads=4, width=96))
    policy = MemoryPolicy(Backbone.toy(), config, encoder_backbone=reader).eval()
    prompts, records, places = three_decisions()
    rows = policy.embed(prompts, REPLIES)
    logits, _, memory = policy(rows, policy.encode(records), places)
    assert memory.blocks_NKD.shape == (5, 8, 64)
    assert logits.isfinite().all()
    assert policy.readout.from_item.weight.shape == (96, 128)


@torch.no_grad()
def test_runs_in_bfloat16():
    policy = make_policy(dtype=torch.bfloat16).convert(torch.bfloat16)
    prompts, records, places = three_decisions()
    logits, _, memory = policy(policy.embed(prompts, REPLIES), policy.encode(records), places)
    assert logits.dtype == torch.bfloat16
    assert memory.blocks_NKD.dtype == torch.bfloat16
    assert logits.isfinite().all()


@pytest.mark.parametrize("place", [Place(3, 0, 0), Place(-1, 0, 0), Place(0, 2, 0), Place(0, -1, 0)])
def test_a_block_that_belongs_nowhere_is_refused(place):
    policy = make_policy()
    with pytest.raises(ValueError, match="not there"):
        policy.remember(policy.embed([decision(0)]), policy.encode([evidence(0)]), [place])


def test_a_row_with_a_reply_is_not_answered_again():
    policy = make_policy()
    with pytest.raises(ValueError, match="without replies"):
        policy.reply(policy.embed([decision(0)], ["yes"]))


def test_nothing_to_encode():
    assert make_policy().encode([]) == []


def test_items_and_places_must_match():
    policy = make_policy()
    with pytest.raises(ValueError, match="1 items but 2 places"):
        policy.remember(policy.embed([decision(0)]), policy.encode([evidence(0)]), [Place(0, 0, 0)] * 2)


def test_fingerprint_follows_the_weights_evidence_depends_on():
    policy = make_policy()
    first = policy.fingerprint()
    assert policy.fingerprint() == first == make_policy().fingerprint()
    with torch.no_grad():
        policy.gate.out.bias.add_(1.0)
    assert policy.fingerprint() == first, "the gate does not shape encoded evidence"
    with torch.no_grad():
        policy.compressor.w_key.weight[0, 0] += 1.0
    changed = policy.fingerprint()
    assert changed != first
    with torch.no_grad():
        next(iter(policy.encoder.parameters())).mul_(2.0)
    again = policy.fingerprint()
    assert again not in (first, changed)
    with torch.no_grad():
        policy.compressor.norm_evidence.weight.mul_(2.0)
    normed = policy.fingerprint()
    assert normed != again
    with torch.no_grad():
        policy.backbone.language_model.layers[0].mlp.up_proj.weight.mul_(2.0)
    assert policy.fingerprint() != normed, "evidence depends on the backbone too"


def test_fingerprint_notices_a_fused_optimizer():
    """Fused steps leave a tensor's version alone; going through training mode makes it look again."""
    policy = make_policy()
    first = policy.fingerprint()
    optimizer = torch.optim.AdamW([policy.compressor.w_key.weight], lr=0.1, fused=True)
    policy.train()
    policy.compressor.w_key.weight.sum().backward()
    optimizer.step()
    assert policy.fingerprint() != first
    assert policy.eval().fingerprint() != first


def test_items_read_for_several_decisions_equal_copies_of_them():
    policy = make_policy()
    prompts, records, _ = three_decisions()
    readings = [(0, 1), (2, 0), (0, 0), (1, 1), (2, 2)]  # decision, item
    places = [Place(row, row % 2, rank) for rank, (row, _) in enumerate(readings)]
    rows = policy.embed(prompts, REPLIES)
    reader = policy.encoder.backbone
    group = policy.encode_rows(reader.embed([reader.tokenise(record, is_complete=True) for record in records[:3]]))
    shared = policy.remember(rows, [group.read_as([item for _, item in readings])], places)
    alone = policy.encode(records[:3])
    copied = policy.remember(rows, [alone[item] for _, item in readings], places)
    torch.testing.assert_close(shared.blocks_NKD, copied.blocks_NKD, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(shared.trust.logits_N, copied.trust.logits_N, rtol=1e-4, atol=1e-4)
    with pytest.raises(TypeError, match="only keys and values"):
        policy.encode(records[:1], form="features")[0].read_as([0])


@torch.no_grad()
@pytest.mark.parametrize("form", ["keys_values", "features"])
def test_how_an_item_looks_is_the_mean_of_its_embeddings(form):
    """Whatever it is encoded with, and it is what a gate of embeddings sees."""
    gate = GateConfig(sees_evidence=True, evidence_source="embeddings", shares_projection=True)
    policy = make_policy(gate=gate)
    prompts, records, places = three_decisions()
    reader = policy.encoder.backbone
    embedded = reader.embed([reader.tokenise(record, is_complete=True) for record in records])
    wanted = torch.stack([row.embeds_SD.mean(dim=0) for row in embedded])
    items = policy.encode(records, form=form)
    torch.testing.assert_close(torch.cat([item.looks_NE for item in items]), wanted, rtol=1e-4, atol=1e-6)
    memory = policy.remember(policy.embed(prompts), items, places)
    torch.testing.assert_close(memory.evidence_NE, wanted, rtol=1e-4, atol=1e-6)
    other = make_policy(gate=replace(gate, evidence_source="hidden", shares_projection=False))
    memory = other.remember(other.embed(prompts), items, places)
    assert torch.equal(memory.evidence_NE, torch.cat([item.summary_NE for item in items]))


def test_blocks_are_as_read_and_the_gate_scales_what_is_injected():
    """A rejected block is still there to be scored; in training a kept one carries the gradient of being kept."""
    policy = make_policy().train()
    prompts, records, places = three_decisions()
    rows, items = policy.embed(prompts, REPLIES), policy.encode(records)
    torch.nn.init.constant_(policy.gate.out.bias, 0.0)
    memory = policy.remember(rows, items, places, generator=torch.Generator().manual_seed(0))
    assert True in memory.keep
    assert False in memory.keep
    torch.testing.assert_close(memory.blocks_NKD, policy.read(items, places, policy.state(rows)))
    again = policy.gate.logits(memory.gate_state_NU, memory.blocks_NKD, memory.evidence_NE)
    torch.testing.assert_close(again, memory.trust.logits_N)
    injected = policy.inject(rows, memory)
    presences = [row.presence_S for row in injected if row.presence_S is not None]
    assert all(torch.equal(one, torch.ones_like(one)) for one in presences)
    sum(one.sum() for one in presences).backward()
    assert policy.gate.out.bias.grad.abs() > 0
