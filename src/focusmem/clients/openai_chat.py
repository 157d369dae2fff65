"""A chat model behind an OpenAI-compatible endpoint, such as a vLLM server. It needs the standard library only."""

import base64
import http.client
import json
import logging
import os
import time
import urllib.request
from typing import Annotated, Any, Final, NoReturn, Self
from urllib.parse import urldefrag, urlsplit

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from focusmem.clients.base import ChatReply
from focusmem.errors import ConfigError, WorldError
from focusmem.schemas import Prompt, Screenshot
from focusmem.settings import checked_dataclass

_log = logging.getLogger(__name__)

_MAX_BODY_BYTES: Final = 2**20
_SHOWN_CHARACTERS: Final = 300
_USERS_FAULT: Final = frozenset({401, 403, 404})
_BUSY: Final = 429


@checked_dataclass(frozen=True, kw_only=True)
class ChatConfig:
    url: str
    """The URL up to the API version, such as http://localhost:8000/v1; `/chat/completions` is appended."""
    model: str
    """The model's name on the server, such as Qwen/Qwen3-VL-8B-Instruct."""
    key_variable: str | None = None
    """The environment variable that holds the key, if the endpoint wants one. The key itself is never stored."""
    max_tokens: PositiveInt = 256
    """Maximum tokens of a reply."""
    temperature: NonNegativeFloat = 0.0
    """Zero means greedy decoding."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sample only from the likeliest tokens that together reach this probability."""
    timeout_s: PositiveFloat = 120.0
    """Limit of one request. A request that exceeds it is not repeated, because that would only load a slow
    server more.
    """
    num_attempts: PositiveInt = 3
    """Maximum number of requests if the server cannot be reached, is busy or fails."""
    wait_s: NonNegativeFloat = 0.5
    """Pause before the second request. It is doubled before each further request."""

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).netloc:
            raise ConfigError(f"ChatConfig.url is {self.url!r}; use an address like http://localhost:8000/v1.")
        if not self.model.strip():
            raise ConfigError("ChatConfig.model is empty; name the model as the server does.")

    @classmethod
    def of(cls, address: str, *, key_variable: str, **settings: Any) -> Self:
        """The config for an address that ends in `#` and the model's name. The key is sent only if its variable
        is set.
        """
        url, model = urldefrag(address)
        if not model:
            raise ConfigError(
                f"The address {address!r} names no model; put its name behind a #, such as "
                "http://localhost:8000/v1#Qwen/Qwen3-VL-8B-Instruct."
            )
        has_key = bool(os.environ.get(key_variable, "").strip())
        return cls(url=url, model=model, key_variable=key_variable if has_key else None, **settings)


class OpenAIChat:
    def __init__(self, config: ChatConfig) -> None:
        self.config = config
        self._url = f"{config.url.rstrip('/')}/chat/completions"
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if config.key_variable is not None:
            self._headers["Authorization"] = f"Bearer {_key(config.key_variable)}"
        self._opener = urllib.request.build_opener(_EveryStatus())

    @property
    def identity(self) -> str:
        return f"{self.config.model} at {self.config.url}"

    def ask(self, prompt: Prompt, *, seed: int | None = None, as_json: bool = False) -> ChatReply:
        form = {"response_format": {"type": "json_object"}} if as_json else {}
        body = json.dumps(self._question(prompt, seed) | form).encode()
        for attempt in range(self.config.num_attempts):
            try:
                return _reply(self._post(body))
            except _PassingError as problem:
                if attempt + 1 == self.config.num_attempts:
                    raise WorldError(f"{problem} Asked {self.config.num_attempts} times.") from problem
                _log.warning("%s Asking again.", problem)
            time.sleep(self.config.wait_s * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _question(self, prompt: Prompt, seed: int | None) -> dict[str, Any]:
        question = {
            "model": self.config.model,
            "messages": [{"role": turn.role, "content": _content(turn.parts)} for turn in prompt],
            "temperature": self.config.temperature,
            "max_tokens": self.config.max_tokens,
        }
        if self.config.temperature > 0:
            question |= {"top_p": self.config.top_p} | ({} if seed is None else {"seed": seed})
        return question

    def _post(self, body: bytes) -> bytes:
        request = urllib.request.Request(self._url, data=body, headers=self._headers)
        try:
            with self._opener.open(request, timeout=self.config.timeout_s) as response:
                status, data = response.status, self._read(response, time.monotonic() + self.config.timeout_s)
        except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, TimeoutError):
                raise WorldError(
                    f"{self._url} has not answered within timeout_s, {self.config.timeout_s:g} s."
                ) from error
            raise _PassingError(f"{self._url} cannot be reached: {str(reason) or type(reason).__name__}.") from error
        if status != http.client.OK:
            self._refuse(status, data)
        return data

    def _read(self, response: Any, deadline: float) -> bytes:
        """Reads in pieces and checks the deadline, because the socket's own timeout restarts with every byte."""
        data = b""
        while len(data) < _MAX_BODY_BYTES and (piece := response.read1(_MAX_BODY_BYTES - len(data))):
            data += piece
            if time.monotonic() > deadline:
                raise TimeoutError
        return data

    def _refuse(self, status: int, body: bytes) -> NoReturn:
        said = f"{self._url} answered with status {status}: {_start(body)}"
        if status in _USERS_FAULT:
            raise ConfigError(f"{said} Check the URL, the model's name and the key.")
        if status == _BUSY or status >= 500:
            raise _PassingError(said)
        raise WorldError(said)


class _PassingError(Exception):
    """An error that may not occur again if the request is repeated."""


class _EveryStatus(urllib.request.HTTPErrorProcessor):
    """Returns every response as it came. Redirects are not followed, so screenshots and the key go to no
    other server.
    """

    def http_response(self, request: urllib.request.Request, response: Any) -> Any:
        return response

    https_response = http_response


def _key(variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(f"The environment variable {variable} should hold the endpoint's key, but it is empty.")
    return key


def _content(parts: tuple[str | Screenshot, ...]) -> str | list[dict[str, Any]]:
    """A single text stays a string, because some servers accept nothing else in a system message."""
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    return [_part(part) for part in parts]


def _part(part: str | Screenshot) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(part.png).decode()}"}}


def _reply(body: bytes) -> ChatReply:
    try:
        document = json.loads(body)
        choice = document["choices"][0]
        text, is_cut_off = choice["message"]["content"], choice.get("finish_reason") == "length"
        usage = document.get("usage") or {}
        counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise WorldError(f"The endpoint's answer is not a chat completion: {_start(body)}") from error
    if text is None and is_cut_off:  # a reasoning model that was cut off before its answer
        text = ""
    if not isinstance(text, str):
        raise WorldError(f"The endpoint's answer holds no text: {_start(body)}")
    num_prompt_tokens, num_reply_tokens = (count if isinstance(count, int) else None for count in counts)
    return ChatReply(text, is_cut_off, num_prompt_tokens, num_reply_tokens)


def _start(body: bytes) -> str:
    return repr(body[:_SHOWN_CHARACTERS].decode(errors="replace")) + ("..." if len(body) > _SHOWN_CHARACTERS else ".")
