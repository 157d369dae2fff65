"""The trust gate T_xi: scores each block against the current state and keeps or drops the whole block.

Shapes: N blocks, K memory tokens, D policy width, E evidence width.
Paper, Appendix A.3; HardConcrete after Louizos et al. 2018.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from focusmem.errors import ConfigError
from focusmem.settings import checked_dataclass

EvidenceSource = Literal["hidden", "embeddings"]
_Trust = Annotated[float, Field(gt=0, lt=1)]
_FLOAT32_MAX = 3.4028234663852886e38
_Logit = Annotated[float, Field(ge=-_FLOAT32_MAX, le=_FLOAT32_MAX)]


def logit_of(trust: float) -> float:
    """The logit of a trust between 0 and 1; the paper states its threshold gamma as a trust."""
    if not 0 < trust < 1:
        raise ConfigError(f"The trust {trust} has no logit; give a number between 0 and 1.")
    return math.log(trust) - math.log1p(-trust)


def trust_of(logit: float) -> float:
    """The trust of a logit. Large logits give exactly 1, so compare logits and display trust."""
    small = math.exp(-abs(logit))
    return (small if logit < 0 else 1.0) / (1 + small)


@checked_dataclass(frozen=True, kw_only=True)
class GateConfig:
    kind: str = "mlp"
    """The gate's class, as a name in `GATES`."""
    hidden_width: PositiveInt = 256
    threshold_logit: _Logit = logit_of(0.3)
    """The logit of gamma, log(gamma / (1 - gamma)): at inference a block passes if its logit is above this. In float32,
    sigmoid(18) and sigmoid(20) are both 1, so trusts cannot be compared.
    """
    open_at: _Trust = 0.9
    """Trust of an untrained gate, so that memory passes at the start of training."""
    temperature: PositiveFloat = 2 / 3
    """beta of the HardConcrete distribution."""
    stretch: tuple[Annotated[float, Field(lt=0)], Annotated[float, Field(gt=1)]] = (-0.1, 1.1)
    """Limits of the distribution before it is clipped to [0, 1]."""
    sees_evidence: bool = False
    """Whether the gate also sees a mean over the item itself, which is kept with every item. The paper's gate sees only
    the block. A block keeps information that helps actions, but it may lose the information about its site.
    """
    evidence_source: EvidenceSource = "hidden"
    """The vectors of this mean: the encoder's hidden states, or its input embeddings."""
    shares_projection: bool = False
    """Whether state and evidence share one projection. This suits means of the same embeddings: both are compared in
    one space from the start, so the gate needs far fewer sites to learn to distinguish them.
    """

    def __post_init__(self) -> None:
        if self.kind not in GATES:
            raise ConfigError(f"GateConfig.kind is '{self.kind}'; choose one of {', '.join(GATES)}.")
        if self.shares_projection and not (self.sees_evidence and self.evidence_source == "embeddings"):
            raise ConfigError("GateConfig.shares_projection needs sees_evidence, and evidence_source 'embeddings'.")


@dataclass(frozen=True)
class Trust:
    """The gate's decisions about N blocks."""

    logits_N: Tensor
    keep_N: Tensor
    """True for blocks that enter the policy's input."""
    scale_N: Tensor
    """One for kept blocks, otherwise zero. In training it carries the gradient of keeping a block."""

    def finite_logits(self) -> list[float]:
        """Logits as a record can hold them: the largest float32 replaces infinity."""
        return self.logits_N.clamp(-_FLOAT32_MAX, _FLOAT32_MAX).tolist()


class TrustGate(nn.Module):
    """Projects state and block into one space before it compares them. They come from different spaces, in which a
    product of coordinates would mean nothing.

    Its norms should be calibrated before training (`model/calibration.py`).
    """

    def __init__(self, config: GateConfig, *, state_width: int, policy_width: int, evidence_width: int) -> None:
        super().__init__()
        self.config = config
        self.norm_state = nn.LayerNorm(state_width)
        self.norm_block = nn.LayerNorm(policy_width)
        self.project_state = nn.Linear(state_width, config.hidden_width)
        self.project_block = nn.Linear(policy_width, config.hidden_width)
        if config.sees_evidence:
            self.norm_evidence = nn.LayerNorm(evidence_width)
            if not config.shares_projection:
                self.project_evidence = nn.Linear(evidence_width, config.hidden_width)
            elif evidence_width != state_width:
                raise ConfigError(
                    f"GateConfig.shares_projection is on, but the encoder is {evidence_width} wide and the state "
                    f"{state_width}; they have no embeddings in common."
                )
        num_parts = 5 if config.sees_evidence else 3
        self.hidden = nn.Linear(num_parts * config.hidden_width, config.hidden_width)
        self.out = nn.Linear(config.hidden_width, 1)
        nn.init.normal_(self.out.weight, std=1e-2 / math.sqrt(config.hidden_width))
        nn.init.constant_(self.out.bias, math.log(config.open_at / (1 - config.open_at)))

    @property
    def norms(self) -> list[nn.LayerNorm]:
        """The norms of its inputs."""
        return [self.norm_state, self.norm_block, *([self.norm_evidence] if self.config.sees_evidence else [])]

    def seen(self, state_NU: Tensor, blocks_NKD: Tensor, evidence_NE: Tensor) -> list[Tensor]:
        """The input of each norm."""
        return [state_NU, blocks_NKD.mean(dim=1), *([evidence_NE] if self.config.sees_evidence else [])]

    def logits(self, state_NU: Tensor, blocks_NKD: Tensor, evidence_NE: Tensor) -> Tensor:
        """Trust before the sigmoid, (N,). Detach `blocks_NKD` for a loss that must not reshape the blocks.

        `evidence_NE` is the mean that `GateConfig.evidence_source` names, for each item. No gradient flows from it to
        the encoder.
        """
        dtype = self.hidden.weight.dtype
        state = self.project_state(self.norm_state(state_NU.to(dtype)))
        block = self.project_block(self.norm_block(blocks_NKD.to(dtype).mean(dim=1)))
        parts = [state, block, state * block]
        if self.config.sees_evidence:
            project = self.project_state if self.config.shares_projection else self.project_evidence
            evidence = project(self.norm_evidence(evidence_NE.detach().to(dtype)))
            parts += [evidence, state * evidence]
        hidden = F.gelu(self.hidden(torch.cat(parts, dim=-1)))
        return self.out(hidden).squeeze(-1).float()  # type: ignore[no-any-return]

    def forward(
        self,
        state_NU: Tensor,
        blocks_NKD: Tensor,
        evidence_NE: Tensor,
        valid_N: Tensor,
        *,
        generator: torch.Generator | None = None,
    ) -> Trust:
        """Decide for each block. Items that are padding or empty (`valid_N` False) never pass.

        In training mode the decision is sampled, with a `generator` on the logits' device. Otherwise logits are
        compared with the threshold's.
        """
        logits_N = self.logits(state_NU, blocks_NKD, evidence_NE)
        if self.training:
            soft_N = self._hard_concrete(logits_N, generator)
            keep_N = (soft_N > 0.5) & valid_N
            # Straight-through: the value is the decision, the gradient is that of the soft sample.
            return Trust(logits_N, keep_N, keep_N.float() + (soft_N - soft_N.detach()))
        keep_N = (logits_N > self.config.threshold_logit) & valid_N
        return Trust(logits_N, keep_N, keep_N.float())

    def _hard_concrete(self, logits_N: Tensor, generator: torch.Generator | None) -> Tensor:
        low, high = self.config.stretch
        tiny = torch.finfo(torch.float32).eps
        uniform = torch.rand(logits_N.shape, generator=generator, device=logits_N.device).clamp(tiny, 1 - tiny)
        noise = uniform.log() - (-uniform).log1p()
        sample = ((noise + logits_N) / self.config.temperature).sigmoid()
        return (sample * (high - low) + low).clamp(0, 1)


GATES: dict[str, type[TrustGate]] = {"mlp": TrustGate}
"""Gates by the name that a config gives them."""
