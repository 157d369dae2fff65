"""Reads an evidence item's raw serialisation: E_phi, the backbone with its LoRA switched on.

Shapes: B items, S positions, E encoder width.
"""

import weakref
from typing import Any

from torch import Tensor, nn

from focusmem.model.backbone import Backbone
from focusmem.model.inputs import Batch
from focusmem.model.lora import LoraConfig


class EvidenceEncoder(nn.Module):
    """Shares the base weights of a frozen backbone and owns only the low-rank updates."""

    def __init__(self, backbone: Backbone, config: LoraConfig) -> None:
        super().__init__()
        attached = backbone.add_lora(config)
        self.updates, self.switch = attached.updates, attached.switch
        # The hooks are removed together with the encoder, because several memories may use one backbone in turn.
        weakref.finalize(self, backbone.remove_lora, attached)
        self._shared = (backbone,)  # in a tuple, so that the backbone is not registered as a submodule

    @property
    def backbone(self) -> Backbone:
        return self._shared[0]

    def forward(self, batch: Batch, *, cache: Any = None, past_mask_BP: Tensor | None = None) -> Tensor:
        """Hidden states (B, S, E) after the final norm. With `cache`, only the new part of growing items is read."""
        with self.switch.turned(True):
            return self.backbone.run(batch, cache=cache, past_mask_BP=past_mask_BP)
