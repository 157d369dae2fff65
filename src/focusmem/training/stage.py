"""What a stage tells the loop: what it trains, what it wants of a batch, and how a share of one becomes losses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import LayerNorm

from focusmem.model.policy import MemoryPolicy
from focusmem.training.pathway import EmbeddedShare
from focusmem.training.prepared import Needs, Prepared

CONTENT_LOSSES = ("semantic", "functional")
LOSS_NAMES = ("action", *CONTENT_LOSSES, "gate", "order")

GATE_STAGE = "gate"
"""The name of the stage that may follow stage B, which may go on with what it leaves."""


@dataclass(frozen=True)
class Passage:
    """How many ordinary and how many misleading blocks there were, and how many of each the gate let in."""

    num_ordinary: int = 0
    num_ordinary_kept: int = 0
    num_negative: int = 0
    num_negative_kept: int = 0


@dataclass(frozen=True)
class Losses:
    sums: Mapping[str, Tensor]
    """By name, not yet divided by anything."""
    passage: Passage = Passage()


class Stage(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def trained_parts(self) -> tuple[str, ...]:
        """Names of `MemoryPolicy.trained_parts`."""
        ...

    @property
    def needs(self) -> Needs: ...

    @property
    def weights(self) -> Mapping[str, float]:
        """Of each loss that takes part."""
        ...

    def settings(self) -> dict[str, Any]:
        """Its config as plain values, to be stored with the run and compared when it goes on."""
        ...

    def fresh_norms(self, policy: MemoryPolicy) -> list[LayerNorm]:
        """Norms of parts that have learnt nothing yet, to be calibrated by the first batch before the first step."""
        ...

    def norm_inputs(
        self, policy: MemoryPolicy, share: Prepared, rows: EmbeddedShare, *, max_tokens: int
    ) -> list[Tensor]:
        """What goes into each of them, for a share of that batch."""
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
