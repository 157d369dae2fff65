"""The seam: a hosted chat model."""

from dataclasses import dataclass
from typing import Protocol

from focusmem.schemas import Prompt


@dataclass(frozen=True)
class ChatReply:
    text: str
    is_cut_off: bool = False
    """Whether the reply was cut off at the length limit."""
    num_prompt_tokens: int | None = None
    """The server's count; None if the server gives no count."""
    num_reply_tokens: int | None = None
    cost_usd: float | None = None
    """The cost of this reply. It is 0 if the reply was read from a store, and None if no price is known."""
    is_stored: bool = False
    """Whether the reply was read from a store of earlier replies, so that no request was sent."""
    reasoning: str = ""
    """Thoughts that the server sent in a separate field."""
    departures: tuple[str, ...] = ()
    """Parameters that were left out or replaced because the endpoint refused them, such as a temperature."""


class ChatClient(Protocol):
    @property
    def identity(self) -> str:
        """Names the model and its server."""

    def ask(self, prompt: Prompt, *, seed: int | None = None, as_json: bool = False) -> ChatReply:
        """Blocks until the reply has arrived. Several threads may call it at once. `as_json` asks for one JSON object.

        Raises WorldError if the server cannot be reached, refuses the prompt, or sends no valid answer. A wrong
        address, model or key raises ConfigError.
        """
