"""The config of the whole memory pathway."""

from dataclasses import field
from typing import Final

from pydantic import PositiveInt

from focusmem.errors import ConfigError
from focusmem.model.compressor import CompressorConfig
from focusmem.model.gate import GateConfig
from focusmem.model.lora import LoraConfig
from focusmem.model.readout import ReadoutConfig
from focusmem.model.state import StateSource
from focusmem.settings import checked_dataclass


@checked_dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    """All defaults but `state_source` are the paper's values."""

    lora: LoraConfig = field(default_factory=LoraConfig)
    compressor: CompressorConfig = field(default_factory=CompressorConfig)
    readout: ReadoutConfig = field(default_factory=ReadoutConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    state_source: StateSource = "joined"
    """Source of u_t. `joined`: the means of the input embeddings of the instruction, of the current screenshot and of
    the other text, calibrated and concatenated. `summed`: the sum of these means. `embeddings`: the mean of all input
    embeddings, as in the paper. These need no additional pass of the policy. `hidden`: the mean of the policy's hidden
    states.
    """
    state_layer: PositiveInt | None = None
    """With `hidden`: the number of the policy's blocks to run; the cost is the same share of a prefill."""

    def __post_init__(self) -> None:
        if (self.state_source == "hidden") != (self.state_layer is not None):
            raise ConfigError(
                f"MemoryConfig.state_layer is {self.state_layer} with state_source '{self.state_source}'; "
                "give a layer with 'hidden' and none with any other."
            )
        if self.gate.shares_projection and self.state_source == "hidden":
            raise ConfigError(
                "GateConfig.shares_projection is for a state of embeddings, but MemoryConfig.state_source is "
                f"'{self.state_source}'."
            )


PAPER_MEMORY: Final = MemoryConfig(state_source="embeddings")
"""The paper's memory."""
