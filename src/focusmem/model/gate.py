"""What is allowed in: T_xi scores each block against the current state and keeps or drops it whole.

Shapes: N blocks, K memory tokens, D policy width, E evidence width.
Paper, Appendix A.3; HardConcrete after Louizos et al. 2018.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from focusmem.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    hidden_width: int = 256
    threshold: float = 0.3
    """gamma: at inference a block passes when its trust is above this."""
    open_at: float = 0.9
    """Trust of a fresh gate: memory is let in until training says otherwise."""
    temperature: float = 2 / 3
    """beta of the HardConcrete distribution."""
    stretch: tuple[float, float] = (-0.1, 1.1)
    """Its limits before it is cut to [0, 1]."""
    sees_evidence: bool = False
    """Whether it also sees the mean of the item's hidden states, which is kept with every item. The paper's sees the
    block alone; but a block keeps what serves actions, and where it comes from may be lost on the way."""

    def __post_init__(self) -> None:
        for name in ("threshold", "open_at"):
            if not 0 < getattr(self, name) < 1:
                raise ConfigError(f"GateConfig.{name} is {getattr(self, name)}; it must be between 0 and 1.")
        if self.temperature <= 0:
            raise ConfigError(f"GateConfig.temperature is {self.temperature}; it must be positive.")
        low, high = self.stretch
        if not (low < 0 and high > 1):
            raise ConfigError(f"GateConfig.stretch is {self.stretch}; it must begin below 0 and end above 1.")


@dataclass(frozen=True)
class Trust:
    """The gate's view of N blocks."""

    logits_N: Tensor
    keep_N: Tensor
    """True where the block enters the policy's input."""
    scale_N: Tensor
    """One for kept blocks; in training it carries the gradient of keeping."""


class TrustGate(nn.Module):
    """State and block are brought into one space before they are compared: they come from different ones, and a product
    of coordinates that mean different things says nothing.

    Its norms are to be calibrated before it learns (`model/calibration.py`).
    """

    def __init__(self, config: GateConfig, *, policy_width: int, evidence_width: int) -> None:
        super().__init__()
        self.config = config
        self.norm_state = nn.LayerNorm(policy_width)
        self.norm_block = nn.LayerNorm(policy_width)
        self.project_state = nn.Linear(policy_width, config.hidden_width)
        self.project_block = nn.Linear(policy_width, config.hidden_width)
        if config.sees_evidence:
            self.norm_evidence = nn.LayerNorm(evidence_width)
            self.project_evidence = nn.Linear(evidence_width, config.hidden_width)
        num_parts = 5 if config.sees_evidence else 3
        self.hidden = nn.Linear(num_parts * config.hidden_width, config.hidden_width)
        self.out = nn.Linear(config.hidden_width, 1)
        nn.init.normal_(self.out.weight, std=1e-2 / math.sqrt(config.hidden_width))
        nn.init.constant_(self.out.bias, math.log(config.open_at / (1 - config.open_at)))

    @property
    def norms(self) -> list[nn.LayerNorm]:
        """Of what it sees."""
        return [self.norm_state, self.norm_block, *([self.norm_evidence] if self.config.sees_evidence else [])]

    def seen(self, state_ND: Tensor, blocks_NKD: Tensor, summary_NE: Tensor) -> list[Tensor]:
        """What goes into each of its norms."""
        return [state_ND, blocks_NKD.mean(dim=1), *([summary_NE] if self.config.sees_evidence else [])]

    def logits(self, state_ND: Tensor, blocks_NKD: Tensor, summary_NE: Tensor) -> Tensor:
        """Trust before the sigmoid, (N,). Detach `blocks_NKD` for a loss that must not reshape the blocks.

        `summary_NE` is the mean of each item's hidden states. It teaches the encoder nothing.
        """
        dtype = self.hidden.weight.dtype
        state = self.project_state(self.norm_state(state_ND.to(dtype)))
        block = self.project_block(self.norm_block(blocks_NKD.to(dtype).mean(dim=1)))
        parts = [state, block, state * block]
        if self.config.sees_evidence:
            evidence = self.project_evidence(self.norm_evidence(summary_NE.detach().to(dtype)))
            parts += [evidence, state * evidence]
        hidden = F.gelu(self.hidden(torch.cat(parts, dim=-1)))
        return self.out(hidden).squeeze(-1).float()  # type: ignore[no-any-return]

    def forward(
        self,
        state_ND: Tensor,
        blocks_NKD: Tensor,
        summary_NE: Tensor,
        valid_N: Tensor,
        *,
        generator: torch.Generator | None = None,
    ) -> Trust:
        """Decide for each block. Items that are padding or empty (`valid_N` False) never pass.

        In training mode the decision is drawn, with a `generator` of the logits' device; otherwise trust is compared
        with the threshold.
        """
        logits_N = self.logits(state_ND, blocks_NKD, summary_NE)
        if self.training:
            soft_N = self._hard_concrete(logits_N, generator)
            keep_N = (soft_N > 0.5) & valid_N
            # Straight through: the value is the decision, the gradient that of the soft sample.
            return Trust(logits_N, keep_N, keep_N.float() + (soft_N - soft_N.detach()))
        keep_N = (logits_N.sigmoid() > self.config.threshold) & valid_N
        return Trust(logits_N, keep_N, keep_N.float())

    def _hard_concrete(self, logits_N: Tensor, generator: torch.Generator | None) -> Tensor:
        low, high = self.config.stretch
        tiny = torch.finfo(torch.float32).eps
        uniform = torch.rand(logits_N.shape, generator=generator, device=logits_N.device).clamp(tiny, 1 - tiny)
        noise = uniform.log() - (-uniform).log1p()
        sample = ((noise + logits_N) / self.config.temperature).sigmoid()
        return (sample * (high - low) + low).clamp(0, 1)
