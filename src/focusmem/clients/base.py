"""The seam: a chat model that is hosted elsewhere."""

from dataclasses import dataclass
from typing import Protocol

from focusmem.schemas import Prompt


@dataclass(frozen=True)
class ChatReply:
    text: str
    is_cut_off: bool = False
    """Whether the reply was cut off by the limit on its length."""
    num_prompt_tokens: int | None = None
    """The server's count; None if the server gives no count."""
    num_reply_tokens: int | None = None
    cost_usd: float | None = None
    """What this reply cost; 0 if it was stored before, None if no price is known."""
    is_stored: bool = False
    """Whether it was read from a store of earlier replies, so that nothing was sent."""
    reasoning: str = ""
    """Thoughts that the server sent apart from the text."""
    departures: tuple[str, ...] = ()
    """What the endpoint refused and was therefore left out or replaced, such as a temperature."""


class ChatClient(Protocol):
    @property
    def identity(self) -> str:
        """Names the model and its server."""

    def ask(self, prompt: Prompt, *, seed: int | None = None, as_json: bool = False) -> ChatReply:
        """Blocks until the reply is there; several threads may ask at once. `as_json` asks for one JSON object.

        A server that cannot be reached, refuses the prompt or answers nonsense raises WorldError. A wrong address,
        model or key raises ConfigError.
        """
