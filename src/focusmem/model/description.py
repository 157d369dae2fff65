"""Counts the parameters of each part, on tensors without contents."""

from typing import Any

from torch import nn

from focusmem.model.backbone import Backbone
from focusmem.model.config import MemoryConfig
from focusmem.model.policy import MemoryPolicy
from focusmem.model.sizes import TOY
from focusmem.settings import to_plain


def describe(backbone: str, config: MemoryConfig, *, encoder: str | None = None) -> dict[str, Any]:
    """The parameter counts of each part, by the names that the command's JSON uses."""
    policy = MemoryPolicy(
        _outline(backbone),
        config,
        encoder_backbone=None if encoder in (None, backbone) else _outline(encoder or ""),
    )
    frozen = policy.backbone.model
    counts = {
        "lora": _count(policy.encoder),
        "compressor": _count(policy.compressor),
        "readout": _count(policy.readout),
        "gate": _count(policy.gate),
    }
    return {
        "backbone": backbone,
        "encoder": encoder or backbone,
        "width": policy.backbone.width,
        "num_layers": policy.backbone.num_layers,
        "num_lora_linears": len(policy.encoder.updates),
        "num_parameters": {
            "policy_frozen": _count(frozen),
            "policy_vision": _count(frozen.model.visual),
            "policy_text": _count(frozen) - _count(frozen.model.visual),
            "encoder_frozen_extra": 0 if policy.encoder_backbone is None else _count(policy.encoder_backbone.model),
            **counts,
            "trained_total": sum(counts.values()),
        },
        "config": to_plain(config),
    }


def _outline(name: str) -> Backbone:
    return Backbone.toy() if name == TOY else Backbone.outline(name)


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
