"""The readout A_eta: shifts an item's base queries by the current state.

Shapes: N items, K memory tokens, U state width, D policy width, E encoder width, H compressor width. Paper, Appendix
A.3.
"""

from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from focusmem.settings import checked_dataclass


@checked_dataclass(frozen=True, kw_only=True)
class ReadoutConfig:
    hidden_width: PositiveInt = 256


class Readout(nn.Module):
    """Computes query residuals from state, item and role. They are zero at the start, so training begins at the fixed
    readout.
    """

    def __init__(
        self,
        config: ReadoutConfig,
        *,
        num_tokens: int,
        state_width: int,
        policy_width: int,
        evidence_width: int,
        width: int,
    ) -> None:
        super().__init__()
        self.num_tokens = num_tokens
        # The paper's count leaves no parameters for these maps, so they are the identity where widths agree.
        self.from_state = _map(state_width, width)
        if state_width != policy_width:  # several parts, mapped to the scale that one part would have
            for weight in self.from_state.parameters():
                nn.init.normal_(weight, std=state_width**-0.5)
        self.from_item = _map(evidence_width, width)
        self.from_role = _map(policy_width, width)
        self.norm = nn.LayerNorm(width)
        self.hidden = nn.Linear(width, config.hidden_width)
        self.out = nn.Linear(config.hidden_width, num_tokens * width)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    @property
    def norms(self) -> list[nn.LayerNorm]:
        """The norm of its input, which should be calibrated before training (`model/calibration.py`)."""
        return [self.norm]

    def seen(self, state_NU: Tensor, item_NE: Tensor, role_ND: Tensor) -> Tensor:
        """The input of the norm, (N, H): the sum of pooled context, pooled evidence and role vector."""
        dtype = self.hidden.weight.dtype
        # Embeddings and final hidden states differ in scale by orders of magnitude. Without this, one would dominate
        # the other.
        state, item = _unit_rms(state_NU).to(dtype), _unit_rms(item_NE).to(dtype)
        return self.from_state(state) + self.from_item(item) + self.from_role(role_ND.to(dtype))  # type: ignore[no-any-return]

    def forward(self, state_NU: Tensor, item_NE: Tensor, role_ND: Tensor) -> Tensor:
        """Query residuals (N, K, H)."""
        residual = self.out(F.gelu(self.hidden(self.norm(self.seen(state_NU, item_NE, role_ND)))))
        return residual.unflatten(-1, (self.num_tokens, -1))  # type: ignore[no-any-return]


def _map(width_in: int, width_out: int) -> nn.Module:
    return nn.Identity() if width_in == width_out else nn.Linear(width_in, width_out, bias=False)


def _unit_rms(tensor: Tensor) -> Tensor:
    return F.rms_norm(tensor.float(), tensor.shape[-1:], eps=1e-12)
