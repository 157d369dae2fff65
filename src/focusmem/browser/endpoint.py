"""A chat model behind an OpenAI-compatible endpoint: one question, one answer, within bounds.

With the standard library only. A request runs in a thread of its own, so that the event loop goes on.
"""

import asyncio
import http.client
import json
import logging
import os
import time
import urllib.request
from dataclasses import dataclass
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from focusmem.errors import ConfigError, GroundingError

log = logging.getLogger(__name__)

_MAX_BODY_BYTES: Final = 2**20
_SHOWN_CHARACTERS: Final = 300
_USERS_FAULT: Final = frozenset({401, 403, 404})
_BUSY: Final = 429


@dataclass(frozen=True, kw_only=True)
class EndpointConfig:
    url: str
    """Up to the version, such as http://localhost:8000/v1; `/chat/completions` is added to it."""
    model: str
    """As the server calls it, such as osunlp/UGround-V1-7B."""
    key_variable: str | None = None
    """The environment variable that holds the key, where the endpoint wants one. The key itself is never stored."""
    max_tokens: int = 64
    """Of an answer; one that is cut off is an error."""
    timeout_s: float = 10.0
    """For one request. It is not repeated: a server that is slow gets no faster by being asked twice."""
    num_attempts: int = 3
    """Requests at most, where the server cannot be reached, is busy or fails."""
    wait_s: float = 0.5
    """Before the second attempt; doubled before each further one."""

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).netloc:
            raise ConfigError(f"EndpointConfig.url is {self.url!r}; use an address like http://localhost:8000/v1.")
        if not self.model.strip():
            raise ConfigError("EndpointConfig.model is empty; name the model as the server does.")
        for name in ("max_tokens", "timeout_s", "num_attempts"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"EndpointConfig.{name} is {getattr(self, name)}; use a number above zero.")
        if not self.wait_s >= 0:
            raise ConfigError(f"EndpointConfig.wait_s is {self.wait_s}; use zero or more.")


class Endpoint:
    def __init__(self, config: EndpointConfig) -> None:
        self.config = config
        self._url = f"{config.url.rstrip('/')}/chat/completions"
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if config.key_variable is not None:
            self._headers["Authorization"] = f"Bearer {_key(config.key_variable)}"
        self._opener = urllib.request.build_opener(_EveryStatus())

    async def ask(self, content: list[dict[str, Any]]) -> str:
        """What the model answers to one user's message, at temperature zero."""
        question = {
            "model": self.config.model,
            "messages": [{"role": "user", "content": content}],
            "temperature": 0,
            "max_tokens": self.config.max_tokens,
        }
        body = json.dumps(question).encode()
        for attempt in range(self.config.num_attempts):
            try:
                return _answer(await asyncio.to_thread(self._post, body))
            except _PassingError as problem:
                if attempt + 1 == self.config.num_attempts:
                    raise GroundingError(f"{problem} Asked {self.config.num_attempts} times.") from problem
                log.warning("%s Asking again.", problem)
            await asyncio.sleep(self.config.wait_s * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _post(self, body: bytes) -> bytes:
        request = urllib.request.Request(self._url, data=body, headers=self._headers)
        try:
            with self._opener.open(request, timeout=self.config.timeout_s) as response:
                status, data = response.status, self._read(response, time.monotonic() + self.config.timeout_s)
        except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, TimeoutError):
                raise GroundingError(
                    f"{self._url} has not answered within timeout_s, {self.config.timeout_s:g} s."
                ) from error
            raise _PassingError(f"{self._url} cannot be reached: {str(reason) or type(reason).__name__}.") from error
        if status != http.client.OK:
            self._refuse(status, data)
        return data

    def _read(self, response: Any, deadline: float) -> bytes:
        """Piece by piece: the socket's own limit begins anew with every byte that trickles in."""
        data = b""
        while len(data) < _MAX_BODY_BYTES and (piece := response.read1(_MAX_BODY_BYTES - len(data))):
            data += piece
            if time.monotonic() > deadline:
                raise TimeoutError
        return data

    def _refuse(self, status: int, body: bytes) -> NoReturn:
        said = f"{self._url} answered with status {status}: {_start(body)}"
        if status in _USERS_FAULT:
            raise ConfigError(f"{said} Look at the url, the model's name and the key.")
        if status == _BUSY or status >= 500:
            raise _PassingError(said)
        raise GroundingError(said)


class _PassingError(Exception):
    """What may be better the next time."""


class _EveryStatus(urllib.request.HTTPErrorProcessor):
    """Hands out every response as it came, redirections too: screenshots and key go nowhere else."""

    def http_response(self, request: urllib.request.Request, response: Any) -> Any:
        return response

    https_response = http_response


def _key(variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(f"The environment variable {variable} should hold the endpoint's key, but it is empty.")
    return key


def _answer(body: bytes) -> str:
    """The text in a chat completion; one that was cut off might still look like a whole one."""
    try:
        choice = json.loads(body)["choices"][0]
        text = choice["message"]["content"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise GroundingError(f"The endpoint's answer is no chat completion: {_start(body)}") from error
    if not isinstance(text, str):
        raise GroundingError(f"The endpoint's answer holds no text: {_start(body)}")
    if choice.get("finish_reason") == "length":
        raise GroundingError(f"The endpoint's answer was cut off: {text[:_SHOWN_CHARACTERS]!r}.")
    return text


def _start(body: bytes) -> str:
    return repr(body[:_SHOWN_CHARACTERS].decode(errors="replace")) + ("..." if len(body) > _SHOWN_CHARACTERS else ".")
