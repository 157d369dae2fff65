import math

import pytest
import torch

from focusmem.errors import ConfigError
from focusmem.model.gate import GateConfig, Trust, TrustGate, logit_of, trust_of


def make_gate(**config) -> TrustGate:
    torch.manual_seed(0)
    return TrustGate(GateConfig(**config), state_width=16, policy_width=16, evidence_width=12).eval()


def with_logit(gate: TrustGate, logit: float) -> TrustGate:
    with torch.no_grad():
        gate.out.weight.zero_()
        gate.out.bias.fill_(logit)
    return gate


def inputs(num: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(num, 16), torch.randn(num, 8, 16), torch.randn(num, 12), torch.ones(num, dtype=torch.bool)


def test_starts_open():
    trust = make_gate()(*inputs(50))
    assert trust.keep_N.all()
    torch.testing.assert_close(trust.logits_N.sigmoid(), torch.full((50,), 0.9), atol=0.02, rtol=0)


@pytest.mark.parametrize(("trust", "is_kept"), [(0.31, True), (0.29, False)])
def test_keeps_above_the_threshold(trust, is_kept):
    gate = with_logit(make_gate(threshold_logit=logit_of(0.3)), math.log(trust / (1 - trust)))
    assert gate(*inputs(4)).keep_N.tolist() == [is_kept] * 4


@pytest.mark.parametrize(
    ("logit", "threshold_logit", "is_kept"),
    [(20, 19.0, True), (18, 19.0, False), (-200, -201.0, True), (-201, -200.0, False), (math.inf, 3e38, True),
     (-math.inf, -3e38, False)],
)  # fmt: skip
def test_logits_are_told_apart_where_their_trusts_are_equal(logit, threshold_logit, is_kept):
    gate = with_logit(make_gate(threshold_logit=threshold_logit), logit)
    assert gate(*inputs(4)).keep_N.tolist() == [is_kept] * 4


@pytest.mark.parametrize("logit", [-800.0, -30.0, -0.8, 0.0, 2.0, 30.0, 800.0])
def test_trust_and_logit_of_each_other(logit):
    expected = torch.tensor(logit, dtype=torch.float64).sigmoid().item()
    assert trust_of(logit) == pytest.approx(expected, rel=1e-12, abs=1e-300)
    if 0 < trust_of(logit) < 1:
        assert logit_of(trust_of(logit)) == pytest.approx(logit, rel=1e-2)


@pytest.mark.parametrize("trust", [0.0, 1.0, -0.1, math.nan])
def test_a_trust_without_a_logit_is_refused(trust):
    with pytest.raises(ConfigError, match="has no logit"):
        logit_of(trust)


@pytest.mark.parametrize("is_training", [True, False])
def test_padding_and_empty_items_never_pass(is_training):
    gate = with_logit(make_gate(), 50.0).train(is_training)
    state, blocks, summary, _ = inputs(4)
    valid = torch.tensor([True, False, True, False])
    trust = gate(state, blocks, summary, valid)
    assert torch.equal(trust.keep_N, valid)
    assert torch.equal(trust.scale_N.detach(), valid.float())


@pytest.mark.parametrize("logit", [-1.5, 0.0, 2.0])
def test_drawn_decisions_keep_with_the_probability_of_trust(logit):
    gate = with_logit(make_gate(), logit).train()
    num = 20_000
    kept = gate(*inputs(num), generator=torch.Generator().manual_seed(1)).keep_N.float().mean().item()
    expected = 1 / (1 + math.exp(-logit))
    assert abs(kept - expected) < 4 * math.sqrt(expected * (1 - expected) / num)


def test_decision_is_exact_and_its_gradient_that_of_the_soft_sample():
    gate = make_gate().train()
    trust = gate(*inputs(200), generator=torch.Generator().manual_seed(0))
    assert set(trust.scale_N.tolist()) <= {0.0, 1.0}
    trust.scale_N.sum().backward()
    slope = gate.out.bias.grad.item()
    # The same draw by hand: d/dg of clamp(1.2 s - 0.1), s = sigmoid((noise + g) / beta).
    uniform = torch.rand(200, generator=torch.Generator().manual_seed(0)).clamp(1e-7, 1 - 1e-7)
    sample = ((uniform.log() - (-uniform).log1p() + trust.logits_N.detach()) / (2 / 3)).sigmoid()
    stretched = sample * 1.2 - 0.1
    inside = (stretched > 0) & (stretched < 1)
    expected = (1.2 * sample * (1 - sample) / (2 / 3))[inside].sum().item()
    assert slope == pytest.approx(expected, rel=1e-4)


def test_same_generator_same_draw():
    gate = with_logit(make_gate(), 0.0).train()
    data = inputs(100)
    one, two = (gate(*data, generator=torch.Generator().manual_seed(5)).keep_N for _ in range(2))
    assert torch.equal(one, two)


def test_logits_depend_on_state_and_block():
    gate = make_gate()
    torch.nn.init.normal_(gate.out.weight)
    state, blocks, summary, _ = inputs(3)
    logits = gate.logits(state, blocks, summary)
    assert not torch.allclose(gate.logits(state.roll(1, 0), blocks, summary), logits)
    assert not torch.allclose(gate.logits(state, blocks.roll(1, 0), summary), logits)
    assert torch.equal(gate.logits(state, blocks, summary.roll(1, 0)), logits), "the paper's gate sees the block alone"


def test_a_gate_that_sees_the_evidence_goes_by_it_and_teaches_it_nothing():
    gate = make_gate(sees_evidence=True)
    torch.nn.init.normal_(gate.out.weight)
    state, blocks, summary, _ = inputs(3)
    summary.requires_grad_()
    blocks.requires_grad_()
    logits = gate.logits(state, blocks, summary)
    assert not torch.allclose(gate.logits(state, blocks, summary.roll(1, 0)), logits)
    logits.sum().backward()
    assert blocks.grad.abs().sum() > 0
    assert summary.grad is None


def test_one_projection_for_state_and_evidence():
    """What it makes of the one it makes of the other, and there is nothing else to learn."""
    config = GateConfig(sees_evidence=True, evidence_source="embeddings", shares_projection=True)
    torch.manual_seed(0)
    gate = TrustGate(config, state_width=16, policy_width=16, evidence_width=16)
    torch.nn.init.normal_(gate.out.weight)
    state, blocks, _, _ = inputs(3)
    hidden = []
    gate.hidden.register_forward_pre_hook(lambda _, given: hidden.append(given[0]))
    logits = gate.logits(state, blocks, state)
    of_state, _, _, of_evidence, of_both = hidden[0].split(config.hidden_width, dim=-1)
    assert torch.equal(of_state, of_evidence)
    torch.testing.assert_close(of_both, of_state.square())
    assert not torch.allclose(gate.logits(state, blocks, state.roll(1, 0)), logits)
    own = TrustGate(GateConfig(sees_evidence=True), state_width=16, policy_width=16, evidence_width=16)
    missing = own.state_dict().keys() - gate.state_dict().keys()
    assert missing == {"project_evidence.weight", "project_evidence.bias"}
    with pytest.raises(ConfigError, match="no embeddings in common"):
        TrustGate(config, state_width=16, policy_width=16, evidence_width=12)


@pytest.mark.parametrize(
    "values",
    [
        {"threshold_logit": math.inf},
        {"threshold_logit": math.nan},
        {"open_at": 0.0},
        {"temperature": 0.0},
        {"stretch": (0.0, 1.1)},
        {"evidence_source": "pixels"},
        {"shares_projection": True},
        {"shares_projection": True, "sees_evidence": True},
        {"shares_projection": True, "evidence_source": "embeddings"},
    ],
)
def test_config_names_the_field(values):
    with pytest.raises(ConfigError, match=f"GateConfig.{next(iter(values))}"):
        GateConfig(**values)


def test_logits_for_records_are_finite_and_in_their_order():
    logits_N = torch.tensor([-math.inf, -1e30, 0.5, 20.0, math.inf])
    found = Trust(logits_N, logits_N > 0, logits_N).finite_logits()
    assert all(map(math.isfinite, found))
    assert found == sorted(found)
    assert found[1:4] == logits_N[1:4].tolist()
