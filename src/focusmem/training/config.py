"""How the training loop steps. What is learnt is the stages' config."""

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
    """The highest one, after the warm-up."""
    gate_rate_times: PositiveFloat = 1.0
    """The gate's learning rate, in multiples of the other parts' rate: only the gate begins with nothing learnt."""
    readout_rate_times: PositiveFloat = 1.0
    """The readout's learning rate, in multiples of the other parts' rate. One is the paper's; our own recipes take
    `READOUT_TIMES`. Ten times is faster with a clean state, and ruins the queries with another
    (docs/experiments.md)."""
    max_query_change: PositiveFloat | None = 4.0
    """A run stops if the readout changes the queries by more than this many times their own size within the first tenth
    of its steps: attention saturates there, and nothing comes back. None never stops it."""
    num_held_out: PositiveInt = 32
    """At most this many decisions of a held-out batch are measured for the vital signs."""
    num_steps: PositiveInt | None = None
    """None goes once through the data."""
    warmup_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Of all steps."""
    max_gradient_norm: PositiveFloat = 1.0
    weight_decay: NonNegativeFloat = 0.01
    """Of matrices; norms and biases have none. The paper names AdamW and no value."""
    betas: tuple[float, float] = (0.9, 0.999)
    seed: int = 0
    is_bfloat16: bool = True
    """Compute in bfloat16 if there is a GPU; trained weights stay in float32."""
    recomputes_blocks: bool | None = False
    """Compute the text blocks' activations again in the backward pass: less memory, a third more work. None: only on a
    GPU."""
    packs_rows: bool | None = False
    """Lay rows end to end instead of padding them: faster on a GPU, where it takes about a minute to compile. None:
    only on a GPU. Needs a memory without LoRA dropout, and excludes `recomputes_blocks`."""
    stores_half: bool = False
    """Round the memory to bfloat16 when the run ends: half the size. States to resume from are not rounded."""
    num_passes: PositiveInt = 1
    """Passes over which each process spreads its share of a batch: less memory, the same step."""
    max_group_tokens: PositiveInt = 65_536
    """Rows of similar length run together up to this many tokens, padding included."""
    num_workers: NonNegativeInt = 0
    """Processes that draw and tokenise batches ahead."""
    save_every_steps: PositiveInt = 500
    log_every_steps: PositiveInt = 10
    max_minutes: PositiveFloat | None = None
    """Save and stop after this time; the same call resumes later. The schedule follows steps, not time."""

    def __post_init__(self) -> None:
        if self.packs_rows and self.recomputes_blocks:
            raise ConfigError("LoopConfig.packs_rows and recomputes_blocks exclude each other; choose one.")

    def on(self, device: str) -> "LoopConfig":
        """The same with nothing left to the kind of device."""
        is_gpu = device == "cuda"
        packs, recomputes = (is_gpu if one is None else one for one in (self.packs_rows, self.recomputes_blocks))
        return replace(self, packs_rows=packs, recomputes_blocks=recomputes)
