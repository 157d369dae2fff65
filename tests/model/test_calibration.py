import pytest
import torch

from focusmem.model.calibration import are_calibrated, calibrate, moments_of
from focusmem.model.gate import GateConfig, TrustGate
from focusmem.model.readout import Readout, ReadoutConfig

WIDTH, EVIDENCE_WIDTH, NUM = 16, 12, 400
WIDTHS = {"state_width": WIDTH, "policy_width": WIDTH, "evidence_width": EVIDENCE_WIDTH}


def seen_by_a_gate(*, sees_evidence):
    gate = TrustGate(
        GateConfig(sees_evidence=sees_evidence), state_width=WIDTH, policy_width=WIDTH, evidence_width=EVIDENCE_WIDTH
    )
    common = 5 * torch.randn(WIDTH)
    state = torch.randn(NUM, WIDTH) * torch.rand(WIDTH) + common
    blocks, summary = torch.randn(NUM, 8, WIDTH) + 3 * common, 100 + 50 * torch.randn(NUM, EVIDENCE_WIDTH)
    return gate.norms, gate.seen(state, blocks, summary)


def seen_by_a_readout():
    readout = Readout(
        ReadoutConfig(), num_tokens=4, state_width=WIDTH, policy_width=WIDTH, evidence_width=EVIDENCE_WIDTH, width=WIDTH
    )
    roles = torch.randn(2, WIDTH)[torch.randint(2, (NUM,))]
    state = torch.randn(NUM, WIDTH) + 30 * torch.randn(WIDTH)
    return readout.norms, [readout.seen(state, torch.randn(NUM, EVIDENCE_WIDTH), roles).detach()]


@pytest.mark.parametrize(
    "seen", [lambda: seen_by_a_gate(sees_evidence=False), lambda: seen_by_a_gate(sees_evidence=True), seen_by_a_readout]
)
def test_what_all_have_in_common_is_gone(seen):
    """By sums over parts, as processes have them; whatever the scale and the place of what is seen."""
    torch.manual_seed(0)
    norms, inputs = seen()
    assert len(norms) == len(inputs)
    assert not are_calibrated(norms)
    parts = [[one[part] for one in inputs] for part in (slice(0, 150), slice(150, NUM))]
    calibrate(norms, sum(moments_of(norms, part) for part in parts))
    assert are_calibrated(norms)
    for norm, one in zip(norms, inputs, strict=True):
        torch.testing.assert_close(norm(one).mean(dim=0), torch.zeros(one.shape[1]), atol=1e-3, rtol=0)
        torch.testing.assert_close(norm(one).std(dim=0, correction=0), torch.ones(one.shape[1]), atol=1e-2, rtol=0)


def test_a_coordinate_that_never_changes_is_not_blown_up():
    norm, alike = torch.nn.LayerNorm(WIDTH), torch.randn(1, WIDTH).expand(50, -1)
    calibrate([norm], moments_of([norm], [alike]))
    assert norm(alike + 1e-5 * torch.randn(50, WIDTH)).abs().max() < 0.1


def test_nothing_seen_changes_nothing():
    norm = torch.nn.LayerNorm(WIDTH)
    calibrate([norm], moments_of([norm], [torch.zeros(0, WIDTH)]))
    assert not are_calibrated([norm])
