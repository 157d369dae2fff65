"""The seam: a policy answers prompts that have memory in front of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from focusmem.agent.fronts.base import Fronted
from focusmem.errors import WorldError
from focusmem.schemas import Prompt


@dataclass(frozen=True)
class Completion:
    """A policy's reply to one prompt, or the error in its place."""

    text: str = ""
    """Its reply."""
    num_input_tokens: int | None = None
    """Tokens of memory and prompt together; None if the policy cannot tell."""
    error: WorldError | None = None
    """Why there is no reply to this prompt."""
    thoughts: str = ""
    """Thoughts that the policy's server sent apart from the text."""
    num_reply_tokens: int | None = None
    """Tokens of the reply, thoughts included; None if the policy does not tell."""
    cost_usd: float | None = None
    """What the reply cost now; None if no price is known."""
    departures: tuple[str, ...] = ()
    """What the policy's endpoint refused, such as a temperature."""


class Policy(Protocol):
    """In this process (`agent/local_policy.py`), or on a server (`agent/chat_policy.py`)."""

    @property
    def identity(self) -> str:
        """Names the weights, or the model and its server."""

    def reply(self, asked: Sequence[Fronted], *, seeds: Sequence[int] | None = None) -> list[Completion]:
        """One completion for each prompt, in order. Returns after all work has finished, also on a GPU.

        Sampling needs a seed for each prompt; equal seeds give equal replies. A policy that cannot take this kind of
        memory raises ConfigError.
        """

    def num_tokens(self, turns: Prompt) -> int | None:
        """How many tokens complete turns take; None if the policy cannot tell."""

    def forget(self, episode_id: str) -> None:
        """Frees everything that is kept for an episode. Called when the episode has ended."""
