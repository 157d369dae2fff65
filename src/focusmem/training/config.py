"""The config of the training loop. The configs of the stages say what is learnt."""

from dataclasses import replace
from typing import Annotated, Final

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from focusmem.errors import ConfigError
from focusmem.settings import checked_dataclass

READOUT_TIMES: Final = 3.0
"""The readout's learning rate in our own recipes, in multiples of the other parts' rate."""


@checked_dataclass(frozen=True, kw_only=True)
class LoopConfig:
    learning_rate: PositiveFloat
    """The highest learning rate, which is reached after the warm-up."""
    gate_rate_times: PositiveFloat = 1.0
    """The gate's learning rate, in multiples of the other parts' rate. It may be higher, because only the gate begins
    untrained."""
    readout_rate_times: PositiveFloat = 1.0
    """The readout's learning rate, in multiples of the other parts' rate. One is the paper's; our own recipes take
    `READOUT_TIMES`. Ten times is faster with a clean state, and ruins the queries with another
    (docs/experiments.md)."""
    max_query_change: PositiveFloat | None = 4.0
    """A run stops if the readout changes the queries by more than this many times their own size within the first tenth
    of its steps, because attention then saturates and does not recover. None never stops it."""
    num_held_out: PositiveInt = 32
    """At most this many decisions of a held-out batch are measured for the vital signs."""
    num_steps: PositiveInt | None = None
    """None means one pass through the data."""
    warmup_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """The share of all steps that the warm-up takes."""
    max_gradient_norm: PositiveFloat = 1.0
    weight_decay: NonNegativeFloat = 0.01
    """Weight decay of matrices; norms and biases have none. The paper names AdamW and gives no value."""
    betas: tuple[float, float] = (0.9, 0.999)
    seed: int = 0
    is_bfloat16: bool = True
    """Compute in bfloat16 if there is a GPU; trained weights stay in float32."""
    recomputes_blocks: bool | None = False
    """Compute the text blocks' activations again in the backward pass, which needs less memory and a third more work.
    None does so only on a GPU."""
    packs_rows: bool | None = False
    """Lay rows end to end instead of padding them. This is faster on a GPU, where compiling takes about a minute. None
    does so only on a GPU. It needs a memory without LoRA dropout, and excludes `recomputes_blocks`."""
    stores_half: bool = False
    """Round the memory to bfloat16 when the run ends, which halves its size. States to resume from are not rounded."""
    num_passes: PositiveInt = 1
    """Passes over which each process spreads its share of a batch. More passes need less memory and give the same
    step."""
    max_group_tokens: PositiveInt = 65_536
    """Rows of similar length run together up to this many tokens, padding included."""
    num_workers: NonNegativeInt = 0
    """Processes that prepare and tokenise batches in advance."""
    save_every_steps: PositiveInt = 500
    log_every_steps: PositiveInt = 10
    max_minutes: PositiveFloat | None = None
    """Save and stop after this time; the same call resumes later. The schedule follows steps, not time."""

    def __post_init__(self) -> None:
        if self.packs_rows and self.recomputes_blocks:
            raise ConfigError("LoopConfig.packs_rows and recomputes_blocks exclude each other; choose one.")

    def on(self, device: str) -> "LoopConfig":
        """The config for this device: `packs_rows` and `recomputes_blocks` are True or False, not None."""
        is_gpu = device == "cuda"
        packs, recomputes = (is_gpu if one is None else one for one in (self.packs_rows, self.recomputes_blocks))
        return replace(self, packs_rows=packs, recomputes_blocks=recomputes)
