from dataclasses import replace

import pytest
import torch

from focusmem.errors import ConfigError, RecordError
from focusmem.model.injection import Injection
from focusmem.training.batch import TrainingBatch
from focusmem.training.prepared import with_target
from focusmem.training.stage_a import StageA, StageAConfig
from training.samples import learnt_from, make_batch, make_memory_policy

ROLES = {"episodic": 0, "working": 1}


def reply_logits(policy, prompt, ids, blocks) -> torch.Tensor:
    """Scores before each of a reply's ids, one prompt at a time, with these blocks in front."""
    chat = policy.backbone.chat
    row = chat.tokenise(prompt)
    token_row = type(row)((*row.ids, *ids), row.pictures, num_target=len(ids))
    [embedded] = policy.backbone.embed([token_row])
    if blocks:
        embedded = Injection.prefixed(embedded, torch.stack(blocks))
    logits, _ = policy.target_logits([embedded])
    return logits.double()


@torch.no_grad()
def slow_losses(policy, batch) -> dict[str, float]:
    """The paper's sums, item by item and decision by decision, with nothing shared or put together."""
    chat = policy.backbone.chat

    def block(item):
        [encoded] = policy.encode([item.prompt])
        role = torch.tensor([ROLES[item.role]])
        return policy.compressor(policy.compressor.queries(role), [encoded.evidence], role)[0]

    def minus_log(logits, ids):
        chances = logits.softmax(dim=-1)
        return [-chances[place, token].log().item() for place, token in enumerate(ids)]

    action, semantic, functional = [], [], []
    for one in batch.decisions:
        wanted = [use for use in one.uses if not use.is_negative]
        wanted.sort(key=lambda use: (ROLES[batch.items[use.item].role], use.rank))
        ids = [*chat.encode(one.reply), chat.special["<|im_end|>"]]
        blocks = [block(batch.items[use.item]) for use in wanted]
        action += minus_log(reply_logits(policy, one.prompt, ids, blocks), ids)
    for item in batch.items:
        if item.lesson is None:
            continue
        own = block(item)
        description = item.lesson.description
        student = reply_logits(policy, description.question, description.ids, [own]).softmax(dim=-1)
        teacher = policy.backbone.logits(description.hidden_MD).double().softmax(dim=-1)
        semantic += (teacher * (teacher / student).log()).sum(dim=-1).tolist()
        for pair in item.lesson.functional:
            ids = [*chat.encode(pair.target), chat.special["<|im_end|>"]]
            functional += minus_log(reply_logits(policy, pair.question, ids, [own]), ids)
    parts = {"action": action, "semantic": semantic, "functional": functional}
    return {name: sum(values) / len(values) for name, values in parts.items()}


def test_losses_are_those_of_the_equations():
    policy, batch = make_memory_policy(), make_batch()
    losses, _ = learnt_from(policy, StageA(), batch)
    assert losses == pytest.approx(slow_losses(policy, batch), rel=1e-4)


def test_trains_encoder_and_compressor_with_queries_and_roles_alone():
    policy = make_memory_policy()
    _, gradients = learnt_from(policy, StageA(), make_batch())
    parts = {name.split(".")[1] for name in gradients}
    assert parts == {"encoder", "compressor"}
    for name in ("base_queries_RKH", "role_vectors_RD"):
        assert (gradients[f"parts.compressor.{name}"].flatten(1).abs().sum(dim=1) > 0).all(), "of both roles"
    assert all(p.grad is None for p in [*policy.readout.parameters(), *policy.gate.parameters()])
    assert all(p.grad is None for p in policy.backbone.parameters())


@pytest.mark.parametrize(
    ("config", "weights"),
    [
        (StageAConfig(), {"action": 1.0, "semantic": 0.125, "functional": 0.125}),
        (StageAConfig(content_weight=0), {"action": 1.0}),
        (StageAConfig(functional_weight=0), {"action": 1.0, "semantic": 0.125}),
        (StageAConfig(semantic_weight=0, functional_weight=1), {"action": 1.0, "functional": 0.25}),
    ],
    ids=["both", "action only", "semantic only", "functional only"],
)
def test_switches_make_the_papers_variants(config, weights):
    stage = StageA(config)
    assert stage.weights == weights
    losses, gradients = learnt_from(make_memory_policy(), stage, make_batch())
    assert losses.keys() == weights.keys()
    total = [learnt_from(make_memory_policy(), StageA(only(name)), make_batch())[1] for name in weights]
    if len(weights) > 1:
        name = "parts.compressor.w_out.weight"
        assert not torch.allclose(gradients[name], total[0][name], rtol=1e-3), "content losses do something"


def only(name: str) -> StageAConfig:
    return StageAConfig(content_weight=0 if name == "action" else 0.25)


def test_action_only_needs_no_lessons():
    losses, _ = learnt_from(make_memory_policy(), StageA(StageAConfig(content_weight=0)), make_batch(has_lessons=False))
    assert losses["action"] > 0


@pytest.mark.parametrize("values", [{"content_weight": -1}, {"semantic_weight": float("nan")}])
def test_config_names_the_field(values):
    with pytest.raises(ConfigError, match=f"StageAConfig.{next(iter(values))}"):
        StageAConfig(**values)


def with_states(batch, hidden_of) -> TrainingBatch:
    """The batch with other states of the teacher behind its descriptions."""

    def changed(number, item):
        if item.lesson is None:
            return item
        description = replace(item.lesson.description, hidden_MD=hidden_of(number, item))
        return replace(item, lesson=replace(item.lesson, description=description))

    return replace(batch, items=tuple(changed(number, item) for number, item in enumerate(batch.items)))


@torch.no_grad()
def states_of(policy, item) -> torch.Tensor:
    """What the frozen policy makes of a description behind the raw item, asked alone."""
    description = item.lesson.description
    row = with_target(policy.backbone.chat, (*item.prompt, *description.question), description.ids)
    return policy.backbone.target_hidden(policy.backbone.embed([row]))


@pytest.mark.parametrize("num_shares", [1, 2])
def test_a_teacher_that_is_asked_in_the_step_says_what_a_stored_one_said(num_shares):
    policy, batch = make_memory_policy(), make_batch()
    stored = learnt_from(policy, StageA(), with_states(batch, lambda _, item: states_of(policy, item)))
    asked = learnt_from(policy, StageA(), with_states(batch, lambda *_: None), num_shares=num_shares)
    assert asked[0] == pytest.approx(stored[0], rel=1e-4)
    assert asked[0]["semantic"] != pytest.approx(learnt_from(policy, StageA(), batch)[0]["semantic"], rel=1e-2)
    for name, gradient in stored[1].items():
        torch.testing.assert_close(asked[1][name], gradient, rtol=1e-3, atol=1e-6)


def test_stored_and_asked_teachers_do_not_mix():
    policy, batch = make_memory_policy(), make_batch()
    mixed = with_states(batch, lambda number, item: None if number else states_of(policy, item))
    with pytest.raises(RecordError, match="all or none"):
        learnt_from(policy, StageA(), mixed)
