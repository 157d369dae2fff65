"""The seam between stages and loop. A stage says which parts it trains, what it needs of a batch, and how a share
becomes losses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from focusmem.model.calibration import Norm
from focusmem.model.policy import MemoryPolicy
from focusmem.training.pathway import EmbeddedShare
from focusmem.training.prepared import Needs, Prepared

CONTENT_LOSSES = ("semantic", "functional")
LOSS_NAMES = ("action", *CONTENT_LOSSES, "gate", "order")

Reduction = Literal["sum", "mean"]
"""`sum` is the paper's reduction: a plain sum over the whole batch. The action loss is a mean per token, so the effect
of the sum grows with the batch. `mean` divides the sum by its tokens or blocks."""

GATE_STAGE = "gate"
"""The name of the stage that may follow stage B. Stage B may begin with a memory from that stage."""


@dataclass(frozen=True)
class Passage:
    """The number of ordinary and misleading blocks, and how many of each passed the gate."""

    num_ordinary: int = 0
    num_ordinary_kept: int = 0
    num_negative: int = 0
    num_negative_kept: int = 0


@dataclass(frozen=True)
class Losses:
    sums: Mapping[str, Tensor]
    """The sum of each loss by name, before it is divided."""
    passage: Passage = Passage()


class Stage(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def trained_parts(self) -> tuple[str, ...]:
        """The names of the parts that the stage trains, as in `MemoryPolicy.trained_parts`."""
        ...

    @property
    def is_dynamic(self) -> bool:
        """Whether blocks are read for the current state."""
        ...

    @property
    def is_gated(self) -> bool:
        """Whether the gate decides about blocks."""
        ...

    @property
    def has_vital_signs(self) -> bool:
        """Whether vital signs of readout and gate are measured on held-out decisions (`training/vital_signs.py`)."""
        ...

    @property
    def needs(self) -> Needs: ...

    @property
    def weights(self) -> Mapping[str, float]:
        """The weight of each loss that the stage uses."""
        ...

    @property
    def summed(self) -> frozenset[str]:
        """Losses that are plain sums over the batch. The others are means: over tokens, or over blocks."""
        ...

    def settings(self) -> dict[str, Any]:
        """The stage's config as plain values. It is stored with the run and compared when the run is resumed."""
        ...

    def fresh_norms(self, policy: MemoryPolicy) -> list[Norm]:
        """Norms of parts that are still untrained. The first batch that has items calibrates them; norms whose inputs
        pass through other fresh norms come after these have been calibrated."""
        ...

    def norm_inputs(
        self, policy: MemoryPolicy, share: Prepared, rows: EmbeddedShare, *, max_tokens: int
    ) -> list[Tensor]:
        """The inputs of each fresh norm, for a share of a batch; empty inputs if the share has no items."""
        ...

    def losses(
        self,
        policy: MemoryPolicy,
        share: Prepared,
        rows: EmbeddedShare,
        *,
        max_tokens: int,
        generator: torch.Generator | None = None,
    ) -> Losses: ...


def divisors_of(stage: Stage, counts: Mapping[str, float]) -> dict[str, float]:
    """The divisor of each loss's sum. Sums and `counts` are over the whole batch, in all passes and processes."""
    return {name: 1.0 if name in stage.summed else max(1.0, num) for name, num in counts.items()}
