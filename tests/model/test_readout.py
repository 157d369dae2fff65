import pytest
import torch

from focusmem.errors import ConfigError
from focusmem.model.readout import Readout, ReadoutConfig


def make_readout(policy_width=16, evidence_width=16, width=16) -> Readout:
    torch.manual_seed(0)
    return Readout(
        ReadoutConfig(),
        num_tokens=4,
        state_width=policy_width,
        policy_width=policy_width,
        evidence_width=evidence_width,
        width=width,
    )


def test_residual_starts_at_zero_and_has_the_shape_of_the_queries():
    residual = make_readout()(torch.randn(3, 16), torch.randn(3, 16), torch.randn(3, 16))
    assert residual.shape == (3, 4, 16)
    assert (residual == 0).all()


def test_maps_appear_only_where_widths_differ():
    same = {name for name, _ in make_readout().named_parameters()}
    assert same == {"norm.weight", "norm.bias", "hidden.weight", "hidden.bias", "out.weight", "out.bias"}
    mixed = make_readout(policy_width=16, evidence_width=24, width=32)
    shapes = {name: tuple(p.shape) for name, p in mixed.named_parameters() if name.startswith("from_")}
    assert shapes == {
        "from_state.weight": (32, 16),
        "from_item.weight": (32, 24),
        "from_role.weight": (32, 16),
    }
    assert mixed(torch.randn(2, 16), torch.randn(2, 24), torch.randn(2, 16)).shape == (2, 4, 32)


def test_neither_state_nor_item_can_swamp_the_other():
    readout = make_readout()
    torch.nn.init.normal_(readout.out.weight)
    state, item, role = torch.randn(3, 16), torch.randn(3, 16), torch.randn(3, 16)
    residual = readout(state, item, role)
    torch.testing.assert_close(readout(state * 1e-3, item * 1e3, role), residual, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(readout(torch.randn(3, 16), item, role), residual)
    assert not torch.allclose(readout(state, torch.randn(3, 16), role), residual)


def test_config_names_the_field():
    with pytest.raises(ConfigError, match="hidden_width is 0"):
        ReadoutConfig(hidden_width=0)
