"""How the loop steps; what is learnt is the stages' config."""

from dataclasses import dataclass

from focusmem.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    learning_rate: float
    """At its highest."""
    gate_rate_times: float = 1.0
    """The gate's learning rate, in multiples of everybody else's: it alone begins with nothing learnt."""
    num_steps: int | None = None
    """None goes once through the data."""
    warmup_share: float = 0.1
    """Of all steps."""
    max_gradient_norm: float = 1.0
    weight_decay: float = 0.01
    """Of matrices; norms and biases are left alone. The paper names AdamW and no value."""
    betas: tuple[float, float] = (0.9, 0.999)
    seed: int = 0
    is_bfloat16: bool = True
    """Compute in bfloat16 where there is a GPU; trained weights stay in float32."""
    recomputes_blocks: bool = False
    """Compute the text blocks' activations again in the backward pass: less memory, a third more work."""
    packs_rows: bool = False
    """Lay rows end to end instead of padding them: faster on a GPU, where it takes about a minute to compile. Needs a
    memory without LoRA dropout, and excludes `recomputes_blocks`."""
    stores_half: bool = False
    """Round the memory to bfloat16 when the run ends: half the size. What goes on from a saved state is not rounded."""
    num_passes: int = 1
    """Passes over which each process spreads its share of a batch: less memory, the same step."""
    max_group_tokens: int = 65_536
    """Rows of alike length run together up to this many tokens, padding included."""
    num_workers: int = 0
    """Processes that draw and tokenise batches ahead."""
    save_every_steps: int = 500
    log_every_steps: int = 10
    max_minutes: float | None = None
    """Save and stop after this time; the same call goes on later. The schedule follows steps, not time."""

    def __post_init__(self) -> None:
        for name in ("learning_rate", "gate_rate_times", "max_gradient_norm", "max_minutes"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"LoopConfig.{name} is {value}; it must be positive.")
        for name in ("num_steps", "num_passes", "max_group_tokens", "save_every_steps", "log_every_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"LoopConfig.{name} is {value}; it must be at least 1.")
        for name in ("weight_decay", "num_workers"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"LoopConfig.{name} is {getattr(self, name)}; it must not be negative.")
        if self.packs_rows and self.recomputes_blocks:
            raise ConfigError("LoopConfig.packs_rows and recomputes_blocks exclude each other; choose one.")
        if not 0 <= self.warmup_share < 1:
            raise ConfigError(f"LoopConfig.warmup_share is {self.warmup_share}; it must be in [0, 1).")
