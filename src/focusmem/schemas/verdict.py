"""A verdict: a judge's decision about one finished attempt, and the questions to a judge model with their replies."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from focusmem.files import sha256_hex
from focusmem.schemas.record import Digest, NonEmptyText, Record, Text

Outcome = Literal["success", "failure", "error", "not_judged"]
"""A failure is due to the policy, an error to the world (a dead site, a crashed browser)."""

StrictReading = Literal["success", "failure", "unreadable"]
"""What a strict parser reads in a judge model's reply."""

Count = Annotated[int, Field(ge=0)]


def judge_key(judge: str, profile: str | None = None, *asked_for: object) -> str:
    """A file name for a judge. `asked_for` says which model is asked, and how. It is absent for rules."""
    words = [re.sub(r"[^A-Za-z0-9]+", "-", word).strip("-")[:40] for word in (judge, profile or "") if word]
    digest = sha256_hex(repr((judge, profile, *asked_for)).encode())[:8]
    return ".".join([*filter(None, words), *([digest] if asked_for or not all(words) else [])])


class JudgeReply(Record):
    """One reply of a judge model, unparsed, so that it can be parsed again without another call."""

    part: NonEmptyText
    """The name of the question, such as `verdict` or `image 3`; different for each reply of a judgement."""
    text: Text
    prompt: Digest
    """The digest of the prompt."""
    is_cut_off: bool = False
    """Whether the reply reached the length limit."""
    is_echo: bool = False
    """Whether the reply repeats a fence of the prompt. Such a reply is not a judgement."""

    @property
    def is_usable(self) -> bool:
        """Whether a decision may be read from the reply. A reply that is cut off or repeats its prompt gives no
        decision.
        """
        return not self.is_cut_off and not self.is_echo


class Consultation(Record):
    """The settings and replies of a judge model for one judgement."""

    model: NonEmptyText
    """The model that judged."""
    prompts: Digest
    """The digest of the judge's wording."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """The requested temperature; `departures` says if the endpoint refused it."""
    departures: tuple[NonEmptyText, ...] = ()
    """What differs from the judge's profile: another model, or settings that the endpoint refused."""
    replies: tuple[JudgeReply, ...] = ()
    """The replies in the order of the questions."""


class JudgeCost(Record):
    num_calls: Count = 0
    """Number of calls of a judge model, including calls that stored replies answered; a rule makes none."""
    num_stored: Count = 0
    """Number of calls that were answered from stored replies, so that nothing was sent."""
    num_images: Count = 0
    """Number of screenshots in all calls together."""
    num_prompt_tokens: Count = 0
    num_reply_tokens: Count = 0
    usd: Annotated[float, Field(ge=0)] | None = None
    """Cost in US dollars; absent if no model was asked or the price of a call is not known."""
    seconds: Annotated[float, Field(ge=0)] = 0.0

    def __add__(self, other: Self) -> Self:
        """The sum of both costs. It has no price if a part with calls has no price."""
        priced = [one.usd for one in (self, other) if one.num_calls]
        usd = sum(price for price in priced if price is not None)
        names = ("num_calls", "num_stored", "num_images", "num_prompt_tokens", "num_reply_tokens", "seconds")
        total = {name: getattr(self, name) + getattr(other, name) for name in names}
        return self.model_copy(update={**total, "usd": usd if priced and None not in priced else None})


class Verdict(Record):
    schema_version: Literal[1] = 1
    """Increased when the meaning of a field changes."""
    task_id: NonEmptyText
    """The task that was attempted."""
    outcome: Outcome
    score: Annotated[float, Field(ge=0, le=1)] | None = None
    """The share of the task that was completed; given only for a success or a failure."""
    reason: Text
    """The judge's reason."""
    judge: NonEmptyText
    """The name of the judge, which names its rules."""
    judge_profile: Text | None = None
    """The variant of the judge's rules."""
    consultation: Consultation | None = None
    """The judge model's settings and replies; absent if no model was asked."""
    subject: Digest | None = None
    """The digest of the judged attempt, from the task to the screenshots; absent if no model was asked."""
    parser: Text | None = None
    """The name of the parser that read the deciding replies."""
    strict: StrictReading | None = None
    """The reading of a strict parser of the same replies; absent if no model decided."""
    num_unreadable: Count = 0
    """Number of replies that the parser could not read. Such a reply never makes a success."""
    cost: JudgeCost = JudgeCost()
    """The cost of the judgement."""

    @model_validator(mode="after")
    def _score_fits_outcome(self) -> Self:
        if self.score is not None and self.outcome not in ("success", "failure"):
            raise ValueError(f"has a score, yet its outcome is {self.outcome}")
        return self

    @property
    def key(self) -> str:
        """The judge's key, which names the files of its verdicts. It is equal for verdicts by the same judge, profile,
        model, wording and temperature.
        """
        asked = self.consultation
        asked_for = () if asked is None else (asked.model, asked.prompts, asked.temperature)
        return judge_key(self.judge, self.judge_profile, *asked_for)

    @property
    def is_final(self) -> bool:
        """Whether another judgement would only repeat this one. False if the judge could not be asked."""
        return self.outcome != "not_judged" or self.num_unreadable > 0

    @property
    def has_disagreement(self) -> bool:
        """Whether a strict parser reads the opposite of the outcome in the same replies."""
        return {self.outcome, self.strict} == {"success", "failure"}
