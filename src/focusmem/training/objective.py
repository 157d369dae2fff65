"""Turns a share of a batch into one number to minimise."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from focusmem.errors import ConfigError
from focusmem.model.calibration import moments_of
from focusmem.model.policy import MemoryPolicy
from focusmem.training.config import LoopConfig
from focusmem.training.pathway import Look, embed
from focusmem.training.prepared import Prepared
from focusmem.training.stage import Losses, Stage
from focusmem.training.vital_signs import sums_of_share


class Objective(nn.Module):
    """The objective as a module, because DDP needs one. Its parameters are only those that the stage trains."""

    def __init__(self, policy: MemoryPolicy, stage: Stage, config: LoopConfig, look: Look | None) -> None:
        super().__init__()
        parts = policy.trained_parts()
        self.parts = nn.ModuleDict({name: parts[name] for name in stage.trained_parts})
        self._held = (policy, stage, config, look)  # in a tuple, so that the frozen policy is not counted as a part

    def forward(
        self, share: Prepared, scales: Mapping[str, float], generator: torch.Generator
    ) -> tuple[Tensor, Losses]:
        """Returns the sum of the losses, each multiplied by its scale, and the losses themselves."""
        policy, stage, config, look = self._held
        rows = embed(policy, share, look)
        with self._precision():
            losses = stage.losses(policy, share, rows, max_tokens=config.max_group_tokens, generator=generator)
        # A share may use no item, and the sampled gate may keep no block, but DDP waits for a gradient of every weight.
        total = torch.cat([parameter.flatten() for parameter in self.parts.parameters()]).sum() * 0
        for name in stage.weights.keys() & losses.sums.keys():
            total = total + losses.sums[name] * scales[name]
        return total, losses

    def norm_moments(self, share: Prepared) -> Tensor:
        """The sums over a share of a batch that are needed to calibrate the stage's fresh norms."""
        policy, stage, config, look = self._held
        rows = embed(policy, share, look)
        with self._precision():
            inputs = stage.norm_inputs(policy, share, rows, max_tokens=config.max_group_tokens)
        return moments_of(stage.fresh_norms(policy), inputs)

    def vital_sums(self, share: Prepared) -> Tensor:
        """The vital signs of a share, as sums; see `training/vital_signs.py`."""
        policy, stage, config, look = self._held
        rows, parts = embed(policy, share, look), {"is_dynamic": stage.is_dynamic, "is_gated": stage.is_gated}
        with self._precision():
            sums = sums_of_share(policy, share, rows, **parts, max_tokens=config.max_group_tokens)
        return sums.tensor(policy.backbone.device)

    def _precision(self) -> torch.autocast:
        policy, _, config, _ = self._held
        device = policy.backbone.device
        return torch.autocast(device.type, torch.bfloat16, enabled=config.is_bfloat16 and device.type == "cuda")


@contextmanager
def in_training(policy: MemoryPolicy, trained_parts: tuple[str, ...], *, packs_rows: bool = False) -> Iterator[None]:
    """A block in which only these parts learn and the pathway is in training mode. Its end restores everything."""
    parts = policy.trained_parts()
    for name, part in parts.items():
        if any(parameter.dtype != torch.float32 for parameter in part.parameters()):
            raise ConfigError(
                f"The memory's {name} is not in float32, and small steps would vanish; "
                "call policy.convert(torch.float32) before training."
            )
    for name, part in parts.items():
        part.requires_grad_(name in trained_parts)
    backbones = {backbone: backbone.packs_rows for backbone in (policy.backbone, policy.encoder.backbone)}
    for backbone in backbones:
        backbone.packs_rows = packs_rows
    policy.train()
    try:
        yield
    finally:
        policy.eval()
        for backbone, was_packing in backbones.items():
            backbone.packs_rows = was_packing
        for part in parts.values():
            part.requires_grad_(True)
