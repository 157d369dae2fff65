"""A chat model behind an OpenAI-compatible endpoint: a hosted service, or a server such as vLLM."""

import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self
from urllib.parse import urlsplit

from pydantic import NonNegativeFloat, PositiveInt

from focusmem.clients.base import ChatReply
from focusmem.clients.completion import BrokenReplyError, error_fields, error_message, read_completion
from focusmem.clients.dialect import Dialect, Spoken
from focusmem.clients.keys import Key, is_set
from focusmem.clients.options import EndpointOptions, Probability
from focusmem.clients.question import Question
from focusmem.clients.rate_limit import RateLimit
from focusmem.clients.reply_store import ReplyStore
from focusmem.clients.spending import Ledger, Spending, Usage
from focusmem.errors import ConfigError, WorldError
from focusmem.schemas import Prompt
from focusmem.settings import checked_dataclass

if TYPE_CHECKING:
    from focusmem.clients.openai_api import Answer, Connection

_log = logging.getLogger(__name__)

_OK: Final = 200
_USERS_FAULT: Final = frozenset({401, 402, 403, 404})
_OUT_OF_MONEY: Final = "insufficient_quota"
_PASSING: Final = frozenset({408, 409, 425, 429})


@checked_dataclass(frozen=True, kw_only=True)
class ChatConfig(EndpointOptions):
    url: str
    """The URL up to the API version, such as http://localhost:8000/v1; `/chat/completions` is appended."""
    model: str
    """The model's name on the server, such as Qwen/Qwen3-VL-8B-Instruct."""
    key_variable: str | None = None
    """The environment variable that holds the key, if the endpoint needs one. The key itself is never stored."""
    max_tokens: PositiveInt = 256
    """Maximum tokens of a reply, thoughts included."""
    temperature: NonNegativeFloat = 0.0
    """Zero means greedy decoding."""
    top_p: Probability = 1.0
    """Sample only from the likeliest tokens that together reach this probability."""

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigError(f"ChatConfig.url is {self.url!r}; use an address like http://localhost:8000/v1.")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ConfigError(
                "ChatConfig.url holds a login, a query (?) or a fragment (#). Give the address up to the API version "
                "only, the model as its own setting, and the key in an environment variable."
            )
        if not self.model.strip():
            raise ConfigError("ChatConfig.model is empty; name the model as the server does.")

    @classmethod
    def of(cls, url: str, model: str, options: EndpointOptions, *, key_variable: str, **settings: Any) -> Self:
        """The config for a model at an address. The key is sent only if its variable is set."""
        chosen = {field.name: getattr(options, field.name) for field in fields(options)}
        key = key_variable if is_set(key_variable) else None
        return cls(url=url, model=model, key_variable=key, **{**chosen, **settings})


class OpenAIChat:
    """Several threads may ask at once. Tests replace `sleep`, the pause between attempts."""

    def __init__(self, config: ChatConfig, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self.config = config
        self._key = Key(None if config.replay_only else config.key_variable)
        self._store = None if config.store is None else ReplyStore(config.store)
        self._ledger = Ledger(config.store)
        self._limit = RateLimit(config.requests_per_minute, config.tokens_per_minute, sleep=sleep)
        self._dialect, self._sleep = Dialect(), sleep
        self._random = random.Random()
        self._connection = None if config.replay_only else _connect(config, self._key)

    @property
    def identity(self) -> str:
        return f"{self.config.model} at {self.config.url}"

    @property
    def spending(self) -> Spending:
        """The cost of all replies so far. With a store, this includes the cost of all earlier replies in its folder."""
        return self._ledger.total()

    def ask(self, prompt: Prompt, *, seed: int | None = None, as_json: bool = False) -> ChatReply:
        question = self._question(prompt, seed, as_json=as_json)
        if self._store is None:
            return self._send(question)
        with self._store.alone(question):
            found = self._store.find(question)
            if found is not None:
                self._ledger.was_stored()
                return found
            if self.config.replay_only:
                raise ConfigError(
                    f"{self._store.folder} holds no reply of {self.identity} to this request ({question.digest[:12]}), "
                    "and nothing is sent when replies are only replayed. Leave out replay_only to ask for it."
                )
            reply = self._send(question)
            self._store.put(question, reply, self._key)
            return reply

    def _question(self, prompt: Prompt, seed: int | None, *, as_json: bool) -> Question:
        config = self.config
        asked: dict[str, Any] = {"temperature": config.temperature}
        if config.temperature > 0:
            asked |= {"top_p": config.top_p} | ({} if seed is None else {"seed": seed})
        if as_json:
            asked["response_format"] = {"type": "json_object"}
        return Question(config.url, config.model, prompt, config.max_tokens, asked | config.extra, seed)

    # Asking.

    def _send(self, question: Question) -> ChatReply:
        num_attempts = self.config.num_attempts
        for attempt in range(num_attempts):
            try:
                return self._once(question)
            except _PassingError as problem:
                if attempt + 1 == num_attempts:
                    times = f" Asked {num_attempts} times." if num_attempts > 1 else ""
                    raise WorldError(f"{problem}{times}") from None
                pause_s = self._pause(attempt, problem)
                _log.warning("%s Asking again in %.1f s.", problem, pause_s)
            self._sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    def _pause(self, attempt: int, problem: "_PassingError") -> float:
        """The pause is random, so that requests that failed together are not repeated together."""
        limit_s = self.config.max_wait_s
        if problem.wait_s is None:
            pause_s: float = self.config.wait_s * 2**attempt * self._random.uniform(0.5, 1.5)
            return min(pause_s, limit_s)
        if problem.wait_s > limit_s:
            raise WorldError(
                f"{problem} It asks for a pause of {problem.wait_s:g} s, longer than max_wait_s, {limit_s:g} s."
            ) from None
        return problem.wait_s + min(self.config.wait_s, 1.0) * self._random.random()

    def _once(self, question: Question) -> ChatReply:
        """Makes one attempt. Refused fields are left out or replaced, each at most once."""
        begun = self._limit.begin(question.estimated_tokens())
        while True:
            spoken = self._dialect.put(question.body, question.max_tokens)
            answer = self._post(spoken.body)
            if answer.status == _OK:
                reply, usage = self._read(answer, spoken)
                if usage.num_prompt_tokens is not None:
                    begun.num_tokens = usage.num_prompt_tokens + (usage.num_reply_tokens or 0)
                return reply
            if not self._dialect.learn(spoken, answer.status, answer.body):
                self._refuse(answer)
            begun = self._limit.begin(question.estimated_tokens())

    def _post(self, body: dict[str, Any]) -> "Answer":
        from focusmem.clients.openai_api import TooLongError, TooSlowError, UnreachableError

        assert self._connection is not None, "only replayed replies have no connection"
        config = self.config
        try:
            return self._connection.post(body)
        except TooSlowError:
            raise WorldError(f"{config.url} has not answered within timeout_s, {config.timeout_s:g} s.") from None
        except TooLongError:
            raise WorldError(
                f"The answer of {config.url} is longer than max_reply_bytes, {config.max_reply_bytes} bytes."
            ) from None
        except UnreachableError as error:
            said = self._key.removed_from(str(error)).rstrip(".")
            raise _PassingError(f"{config.url} cannot be reached, or broke off: {said}.") from None

    def _read(self, answer: "Answer", spoken: Spoken) -> tuple[ChatReply, Usage]:
        try:
            received = read_completion(answer.body, self._key)
        except BrokenReplyError as broken:
            self._ledger.paid(self.config.model, Usage(), None)  # perhaps: nobody knows
            raise _PassingError(f"The answer of {self.config.url} is not a chat completion: {broken}") from None
        cost = received.usage.cost_usd(self.config.prices)
        self._ledger.paid(self.config.model, received.usage, cost)
        if received.text is None:
            raise WorldError(f"The answer of {self.config.url} holds no text: {received.shown}")
        reply = ChatReply(
            received.text,
            received.is_cut_off,
            received.usage.num_prompt_tokens,
            received.usage.num_reply_tokens,
            cost_usd=cost,
            reasoning=received.reasoning,
            departures=spoken.departures,
        )
        return reply, received.usage

    def _refuse(self, answer: "Answer") -> NoReturn:
        status, message = answer.status, error_message(answer.body, self._key)
        said = f"{self.config.url} answered with status {status}: {message}"
        if error_fields(answer.body)[0] == _OUT_OF_MONEY:
            raise ConfigError(f"{said} Its account has no credit left.")
        if status in _USERS_FAULT:
            raise ConfigError(f"{said} Check the URL, the model's name, the key and the account.")
        if status in _PASSING or status >= 500:
            raise _PassingError(said, wait_s=_asked_pause(answer.headers))
        if 300 <= status < 400:
            raise WorldError(f"{said} Redirections are not followed; give the address that the server moved to.")
        raise WorldError(said)


class _PassingError(Exception):
    """An error that may not occur again if the request is repeated."""

    def __init__(self, message: str, *, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.wait_s = wait_s
        """The pause that the server asks for, in seconds."""


def _connect(config: ChatConfig, key: Key) -> "Connection":
    from focusmem.clients.openai_api import Connection  # the package takes a second to load

    return Connection(config.url, key, timeout_s=config.timeout_s, max_bytes=config.max_reply_bytes)


def _asked_pause(headers: Mapping[str, str]) -> float | None:
    """`Retry-After` in seconds or as a date, or the `retry-after-ms` that some services add."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            pause_s = float(headers.get(name, "")) * unit_s
        except ValueError:
            continue
        if 0 <= pause_s < float("inf"):
            return pause_s
    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())
