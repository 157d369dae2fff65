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
    """The price of prompt tokens that the server had cached; None charges them like other prompt tokens."""


@checked_dataclass(frozen=True, kw_only=True)
class EndpointOptions:
    timeout_s: PositiveFloat = 120.0
    """Limit of one request. A request that exceeds it is not repeated, because a repetition would slow the server
    further, and the first reply may be charged as well.
    """
    num_attempts: PositiveInt = 6
    """Maximum number of requests if the server cannot be reached, is busy, fails, or sends no whole reply."""
    wait_s: NonNegativeFloat = 1.0
    """Pause before the second attempt, plus or minus a random half; doubled before each further attempt. If the server
    names a pause (`Retry-After`), that pause is used.
    """
    max_wait_s: PositiveFloat = 60.0
    """The longest pause. If the server asks for a longer pause, the request fails."""
    requests_per_minute: PositiveInt | None = None
    """Maximum number of requests that start per minute, over all threads of a process; None sets no limit."""
    tokens_per_minute: PositiveInt | None = None
    """Limit of the tokens of prompts and replies together. The tokens of a request are estimated before it, and counted
    after it.
    """
    max_reply_bytes: PositiveInt = 4 * 2**20
    """A longer reply is cut off and is an error."""
    prices: Prices | None = None
    """None leaves costs unknown."""
    store: Path | None = None
    """A folder that keeps every reply with its cost. A request whose reply is in the folder is not sent again."""
    replay_only: bool = False
    """Whether replies are only read from the store. No request is sent, and no key is needed."""
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Further fields of each request, such as {"reasoning_effort": "low"}."""

    def __post_init__(self) -> None:
        name = type(self).__name__
        if self.replay_only and self.store is None:
            raise ConfigError(f"{name}.replay_only needs the folder of stored replies; set {name}.store.")
        if wrong := sorted(_RESERVED & self.extra.keys()):
            raise ConfigError(f"{name}.extra must not hold {', '.join(wrong)}; the client sets them itself.")


Probability = Annotated[float, Field(gt=0, le=1)]
