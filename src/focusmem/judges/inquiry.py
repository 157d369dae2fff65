"""The questions of a judge to a model about one attempt, with all replies and their cost.

A judge decides through an `Inquiry`. There are three: one asks the model, one reads stored replies, and one only
counts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from focusmem.errors import WorldError
from focusmem.files import sha256_hex
from focusmem.judges.fences import is_echo
from focusmem.judges.judge_model import JudgeModel
from focusmem.schemas import Consultation, JudgeCost, JudgeReply, Prompt, Screenshot, StrictReading, Turn
from focusmem.schemas.record import storable_text
from focusmem.thinking import set_thinking_aside

_CHARACTERS_PER_TOKEN: Final = 4
_PIXELS_PER_TOKEN: Final = 750
_REPLY_TOKENS: Final = 300


class Inquiry(Protocol):
    async def ask(self, part: str, prompt: Prompt, *, as_json: bool = False) -> JudgeReply:
        """`part` names the question within one judgement. A model that cannot be reached raises WorldError."""


class LiveInquiry:
    """Asks the model, and keeps its replies and their cost."""

    def __init__(self, model: JudgeModel, prompts: str) -> None:
        self._model, self._prompts = model, prompts
        self._replies: dict[str, JudgeReply] = {}
        self._order: list[str] = []
        self._departures = dict.fromkeys(model.departures)
        self._clean: dict[str, Screenshot] = {}
        self.cost = JudgeCost()

    @property
    def consultation(self) -> Consultation:
        return Consultation(
            model=self._model.name,
            prompts=self._prompts,
            temperature=self._model.temperature,
            departures=tuple(self._departures),
            replies=tuple(self._replies[part] for part in self._order if part in self._replies),
        )

    async def ask(self, part: str, prompt: Prompt, *, as_json: bool = False, num_before: int = 0) -> JudgeReply:
        """`num_before` counts earlier replies to the same question."""
        self._order.append(part)
        make_prompt = partial(without_metadata, prompt, self._clean)
        prompt, said = await self._model.ask(make_prompt, as_json=as_json, num_before=num_before)
        self.cost += JudgeCost(
            num_calls=1,
            num_stored=int(said.is_stored),
            num_images=len(_pictures(prompt)),
            num_prompt_tokens=said.num_prompt_tokens or 0,
            num_reply_tokens=said.num_reply_tokens or 0,
            usd=said.cost_usd,
        )
        self._departures |= dict.fromkeys(said.departures)
        text = storable_text(said.text)
        reply = JudgeReply(
            part=part,
            text=text,
            prompt=digest_of(prompt),
            is_cut_off=said.is_cut_off,
            is_echo=is_echo(text, prompt),
        )
        self._replies[part] = reply
        return reply


class StoredInquiry:
    """Answers from the replies of an earlier judgement, so that they are parsed again without a call."""

    def __init__(self, stored: Consultation) -> None:
        self._stored, self._replies = stored, {reply.part: reply for reply in stored.replies}
        self._departures = dict.fromkeys(stored.departures)
        self._clean: dict[str, Screenshot] = {}

    @property
    def consultation(self) -> Consultation:
        return self._stored.model_copy(update={"departures": tuple(self._departures)})

    async def ask(self, part: str, prompt: Prompt, *, as_json: bool = False) -> JudgeReply:
        if part not in self._replies:
            raise WorldError(f"No reply to '{part}' is stored.")
        reply = self._replies[part]
        prompt = await asyncio.to_thread(without_metadata, prompt, self._clean)
        if reply.prompt != digest_of(prompt):
            self._departures[f"the stored reply to '{part}' was given to another prompt"] = None
        return reply


@dataclass
class Estimate:
    """The cost of a judgement before anything is spent. Calls and images are upper bounds, tokens a rough estimate."""

    num_calls: int = 0
    num_images: int = 0
    num_prompt_tokens: int = 0
    num_reply_tokens: int = 0

    def __add__(self, other: "Estimate") -> "Estimate":
        return Estimate(**{name: value + getattr(other, name) for name, value in vars(self).items()})


class CountingInquiry:
    """Asks no model. `reply` makes up the reply that leads to the most questions."""

    def __init__(self, reply: Callable[[str], str]) -> None:
        self._reply, self.estimate = reply, Estimate()

    async def ask(self, part: str, prompt: Prompt, *, as_json: bool = False) -> JudgeReply:
        pictures = _pictures(prompt)
        num_characters = sum(len(piece) for turn in prompt for piece in turn.parts if isinstance(piece, str))
        self.estimate += Estimate(
            num_calls=1,
            num_images=len(pictures),
            num_prompt_tokens=num_characters // _CHARACTERS_PER_TOKEN
            + sum(picture.width * picture.height // _PIXELS_PER_TOKEN for picture in pictures),
            num_reply_tokens=_REPLY_TOKENS,
        )
        return JudgeReply(part=part, text=self._reply(part), prompt=sha256_hex(part.encode()))


async def ask_all(*questions: Awaitable[JudgeReply]) -> list[JudgeReply]:
    """Returns all replies. If a question fails, the others are awaited first, so that no paid reply is lost."""
    replies = await asyncio.gather(*questions, return_exceptions=True)
    for reply in replies:
        if isinstance(reply, BaseException):
            raise reply
    return [reply for reply in replies if isinstance(reply, JudgeReply)]


def all_of(readings: Sequence[StrictReading]) -> StrictReading:
    """Combines the readings of several replies; the result is a success only if all of them are."""
    for reading in ("failure", "unreadable"):
        if reading in readings:
            return reading
    return "success"


def spoken(reply: JudgeReply) -> str:
    """The reply without the thoughts that some models write before it."""
    return set_thinking_aside(reply.text).answer


def without_metadata(prompt: Prompt, known: dict[str, Screenshot]) -> Prompt:
    """Returns the prompt with every picture encoded anew from its pixels, so that the model gets no file metadata and
    equal pictures give equal requests. `known` keeps the encoded pictures, by the digest of the original.
    """

    def clean(part: str | Screenshot) -> str | Screenshot:
        if isinstance(part, str):
            return part
        if part.digest not in known:
            known[part.digest] = Screenshot.from_image(part.image())
        return known[part.digest]

    return tuple(Turn(turn.role, tuple(map(clean, turn.parts))) for turn in prompt)


def digest_of(prompt: Prompt) -> str:
    """A digest that is equal for equal prompts."""
    parts = [
        (turn.role, *(part if isinstance(part, str) else f"picture {part.digest}" for part in turn.parts))
        for turn in prompt
    ]
    return sha256_hex(repr(parts).encode())


def _pictures(prompt: Prompt) -> list[Screenshot]:
    return [part for turn in prompt for part in turn.parts if isinstance(part, Screenshot)]
