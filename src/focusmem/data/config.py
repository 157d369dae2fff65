"""Settings of training data: which trajectories a memory learns from, and what it holds at each of their decisions."""

from dataclasses import field
from pathlib import Path
from typing import Annotated

from pydantic import Field, PositiveInt

from focusmem.agent.fronts.latent import MemoryUse
from focusmem.agent.prompt import NUM_RECENT
from focusmem.errors import ConfigError
from focusmem.schemas import Outcome
from focusmem.settings import Share, checked_dataclass


@checked_dataclass(frozen=True, kw_only=True)
class DataConfig:
    trajectories: tuple[Path, ...] = ()
    """The folders of the trajectories, or folders that hold many of them."""
    bank: Path | None = None
    """The bank that is searched at each decision. Trajectories of its tasks are not learnt from."""
    outcomes: tuple[Outcome, ...] | None = ("success",)
    """Learn only from trajectories with these outcomes; None learns from all."""
    bank_outcomes: tuple[Outcome, ...] | None = ("success",)
    """Search only trajectories with these outcomes; None searches all."""
    only_trusted: bool = False
    """Whether only trajectories from sources that the bank trusts are used, as hits and as misleading items."""
    min_steps: PositiveInt = 8
    """Shorter trajectories are left out."""
    max_steps: PositiveInt = 15
    """Longer trajectories are left out. Prompts state this number as the budget of actions."""
    prompts: Path | None = None
    """A folder with other wording than ours: `agent`, `evidence` and, if it has one, `questions`."""
    use: MemoryUse = field(default_factory=MemoryUse)
    """How much is remembered at each decision, as when acting."""
    shows_errors: bool = False
    """Whether prompts say which actions failed, and why. The paper's prompt does not say this. A memory acts with
    the same kind of prompts as in its training."""
    negative_share: Share = 0.5
    """Share of decisions that get a misleading trajectory of another site after the last hit."""
    validation_share: Annotated[float, Field(ge=0, lt=1)] = 0.02
    """Share of trajectories that are not trained on, but used to choose the gate's threshold."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.min_steps > self.max_steps:
            raise ConfigError(f"DataConfig.min_steps is {self.min_steps}, above max_steps, {self.max_steps}.")
        if self.use.num_recent > NUM_RECENT:
            raise ConfigError(
                f"DataConfig.use.num_recent is {self.use.num_recent}, but prompts show at most {NUM_RECENT} events, so "
                "some events would be neither shown nor remembered; use a smaller number."
            )

    @property
    def bank_folder(self) -> Path:
        if self.bank is None:
            raise ConfigError("There is no bank to search: give one with --bank, or as `bank` under [data] in a file.")
        return self.bank

    def wording(self, kind: str) -> Path | None:
        """The folder with one kind of wording; None for ours."""
        return None if self.prompts is None else self.prompts / kind
