"""Options of an endpoint, besides its URL and its model: limits, prices, and where replies are kept."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from focusmem.errors import ConfigError
from focusmem.settings import checked_dataclass

_RESERVED = frozenset({"model", "messages", "stream", "n"})


@checked_dataclass(frozen=True, kw_only=True)
class Prices:
    """What an endpoint charges, in US dollars per million tokens."""

    prompt: NonNegativeFloat
    reply: NonNegativeFloat
    """Thoughts are part of the reply."""
    cached_prompt: NonNegativeFloat | None = None
    """Tokens of a prompt that the server still had from an earlier one; None charges them like the others."""


@checked_dataclass(frozen=True, kw_only=True)
class EndpointOptions:
    timeout_s: PositiveFloat = 120.0
    """Limit of one request. A request that exceeds it is not repeated: a slow server would only get slower, and the
    reply may have to be paid all the same.
    """
    num_attempts: PositiveInt = 6
    """Maximum number of requests if the server cannot be reached, is busy, fails, or sends no whole reply."""
    wait_s: NonNegativeFloat = 1.0
    """Pause before the second attempt, give or take a half; doubled before each further one. If the server names a
    pause (`Retry-After`), that one is used.
    """
    max_wait_s: PositiveFloat = 60.0
    """The longest pause. A server that asks for a longer one is given up."""
    requests_per_minute: PositiveInt | None = None
    """Requests start at most so often, over all threads of a process; None sets no limit."""
    tokens_per_minute: PositiveInt | None = None
    """Limit of the tokens of prompts and replies together. They are estimated before a request, and counted after."""
    max_reply_bytes: PositiveInt = 4 * 2**20
    """A longer reply is cut off and is an error."""
    prices: Prices | None = None
    """None leaves costs unknown."""
    store: Path | None = None
    """A folder that keeps every reply, with what it cost. A request whose reply is there is not sent again."""
    replay_only: bool = False
    """Whether replies come from the store alone. Nothing is sent, and no key is needed."""
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Further fields of each request, such as {"reasoning_effort": "low"}."""

    def __post_init__(self) -> None:
        name = type(self).__name__
        if self.replay_only and self.store is None:
            raise ConfigError(f"{name}.replay_only needs the folder of stored replies; set {name}.store.")
        if wrong := sorted(_RESERVED & self.extra.keys()):
            raise ConfigError(f"{name}.extra must not hold {', '.join(wrong)}; the client sets them itself.")


Probability = Annotated[float, Field(gt=0, le=1)]
