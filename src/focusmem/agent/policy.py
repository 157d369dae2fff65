"""The seam: whatever answers a prompt that has memory in front of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from focusmem.agent.fronts.base import Fronted
from focusmem.errors import WorldError
from focusmem.schemas import Prompt


@dataclass(frozen=True)
class Completion:
    """What a policy made of one prompt."""

    text: str = ""
    """Its reply."""
    num_input_tokens: int | None = None
    """Tokens of memory and prompt together; None if the policy cannot tell."""
    error: WorldError | None = None
    """Why there is no reply to this prompt."""


class Policy(Protocol):
    """In this process (`agent/local_policy.py`), or on a server (`agent/chat_policy.py`)."""

    @property
    def identity(self) -> str:
        """Names the weights, or the model and its server."""

    def reply(self, asked: Sequence[Fronted], *, seeds: Sequence[int] | None = None) -> list[Completion]:
        """One completion for each prompt, in order, when all work on them is done.

        Sampling needs a seed for each prompt; equal seeds give equal replies. A policy that can take no prompt with
        this kind of memory raises ConfigError.
        """

    def num_tokens(self, turns: Prompt) -> int | None:
        """How many tokens complete turns take; None if the policy cannot tell."""

    def forget(self, episode_id: str) -> None:
        """The episode is over: free what was kept for it."""
