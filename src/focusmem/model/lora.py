"""Low-rank updates of the shared base weights: switched on for the evidence encoder, off for the policy.

peft could do this, but it reads its on/off flag anew when gradient checkpointing recomputes a layer, so a policy
pass would be recomputed with the encoder's updates; and switching flips `requires_grad` of every weight. Here the
base layers are never touched: a hook adds the update while the switch is on.
"""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

from focusmem.settings import checked_dataclass

TARGETS = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)


@checked_dataclass(frozen=True, kw_only=True)
class LoraConfig:
    rank: PositiveInt = 64
    alpha: float = 16.0
    """The update is scaled by alpha / rank."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.05


class LoraSwitch:
    """Whether the updates take part in the current forward pass; separate for each thread."""

    def __init__(self) -> None:
        self._state = threading.local()

    @property
    def is_on(self) -> bool:
        return getattr(self._state, "is_on", False)

    @contextmanager
    def turned(self, on: bool) -> Iterator[None]:
        before, self._state.is_on = self.is_on, on
        try:
            yield
        finally:
            self._state.is_on = before

    def __deepcopy__(self, memo: dict[int, Any]) -> "LoraSwitch":
        """A copied model gets its own switch, turned off."""
        copied = memo[id(self)] = LoraSwitch()
        return copied


class LoraUpdate(nn.Module):
    """The update of one linear layer: B A x, scaled; zero at the start."""

    def __init__(self, base: nn.Linear, config: LoraConfig) -> None:
        super().__init__()
        # Kept in float32 for any base precision, because small steps would vanish in bfloat16.
        device = base.weight.device
        self.down_RI = nn.Parameter(torch.empty(config.rank, base.in_features, device=device, dtype=torch.float32))
        self.up_OR = nn.Parameter(torch.zeros(base.out_features, config.rank, device=device, dtype=torch.float32))
        nn.init.kaiming_uniform_(self.down_RI, a=math.sqrt(5))
        self.scale = config.alpha / config.rank
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, inputs: Tensor) -> Tensor:
        low = F.linear(self.dropout(inputs), self.down_RI.to(inputs.dtype))
        return F.linear(low, self.up_OR.to(inputs.dtype)) * self.scale


@dataclass(frozen=True)
class AttachedLora:
    updates: nn.ModuleDict
    switch: LoraSwitch
    handles: tuple[RemovableHandle, ...]
    """The hooks' handles, which remove the updates from the backbone."""


def attach_lora(layers: nn.ModuleList, config: LoraConfig) -> AttachedLora:
    """Give every target of every text block an update that acts while the switch is on.

    The updates are returned, not registered in the backbone: its parameters and its state stay those of the plain
    model.
    """
    updates, switch, handles = nn.ModuleDict(), LoraSwitch(), []
    for index, layer in enumerate(layers):
        for target in TARGETS:
            base = layer.get_submodule(target)
            if not isinstance(base, nn.Linear):
                raise TypeError(f"layer {index} has no linear '{target}', but a {type(base).__name__}")
            update = LoraUpdate(base, config)
            handles.append(base.register_forward_hook(_adding(update, switch)))
            updates[f"layers/{index}/{target.replace('.', '/')}"] = update
    return AttachedLora(updates, switch, tuple(handles))


class _adding:  # noqa: N801  (reads as a verb at its one use)
    """A forward hook that adds the update's output to the base layer's."""

    def __init__(self, update: LoraUpdate, switch: LoraSwitch) -> None:
        self.update, self.switch = update, switch

    def __call__(self, base: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        return output + self.update(inputs[0]) if self.switch.is_on else None
