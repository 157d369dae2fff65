"""A verdict: a judge's decision about one finished attempt, and what a judge model was asked and replied for it."""

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
    """A file name for a judge. `asked_for` says which model is asked, and how; rules have none."""
    words = [re.sub(r"[^A-Za-z0-9]+", "-", word).strip("-")[:40] for word in (judge, profile or "") if word]
    digest = sha256_hex(repr((judge, profile, *asked_for)).encode())[:8]
    return ".".join([*filter(None, words), *([digest] if asked_for or not all(words) else [])])


class JudgeReply(Record):
    """One reply of a judge model, unparsed, so that it can be parsed again without another call."""

    part: NonEmptyText
    """What was asked for, such as `verdict` or `image 3`; different for each reply of a judgement."""
    text: Text
    prompt: Digest
    """The digest of the prompt."""
    is_cut_off: bool = False
    """Whether the reply reached the limit on its length."""
    is_echo: bool = False
    """Whether it repeats a fence of the prompt, which no judgement does."""

    @property
    def is_usable(self) -> bool:
        """Whether a decision may be read in it. A reply that is cut off or repeats its prompt decides nothing."""
        return not self.is_cut_off and not self.is_echo


class Consultation(Record):
    """What a judge model was asked for one judgement."""

    model: NonEmptyText
    """The model that judged."""
    prompts: Digest
    """The digest of the judge's wording."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """As asked for; `departures` says if the endpoint refused it."""
    departures: tuple[NonEmptyText, ...] = ()
    """What differs from the judge's profile: another model, or settings that the endpoint refused."""
    replies: tuple[JudgeReply, ...] = ()
    """The replies in the order of the questions."""


class JudgeCost(Record):
    num_calls: Count = 0
    """Calls of a judge model, those that were answered from stored replies included; a rule makes none."""
    num_stored: Count = 0
    """How many of them were answered from stored replies, so that nothing was sent."""
    num_images: Count = 0
    """Screenshots in all calls together."""
    num_prompt_tokens: Count = 0
    num_reply_tokens: Count = 0
    usd: Annotated[float, Field(ge=0)] | None = None
    """Dollars; absent if nothing was asked or the price of a call is not known."""
    seconds: Annotated[float, Field(ge=0)] = 0.0

    def __add__(self, other: Self) -> Self:
        """The cost of both. It has no price if a part that made calls has none."""
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
    """The share of the task that was done; given only for a success or a failure."""
    reason: Text
    """The judge's reason."""
    judge: NonEmptyText
    """The name of the judge, which names its rules."""
    judge_profile: Text | None = None
    """The variant of the judge's rules."""
    consultation: Consultation | None = None
    """What a judge model was asked; absent if none was."""
    subject: Digest | None = None
    """The digest of what was judged, from the task to the screenshots; absent if no model was asked."""
    parser: Text | None = None
    """The rule by which the deciding replies were read."""
    strict: StrictReading | None = None
    """What a strict parser reads in the same replies; absent if no model decided."""
    num_unreadable: Count = 0
    """Replies in which the parser found nothing to read. Such a reply never makes a success."""
    cost: JudgeCost = JudgeCost()
    """The cost of the judgement."""

    @model_validator(mode="after")
    def _score_fits_outcome(self) -> Self:
        if self.score is not None and self.outcome not in ("success", "failure"):
            raise ValueError(f"has a score, yet its outcome is {self.outcome}")
        return self

    @property
    def key(self) -> str:
        """Names the judge, as the files of verdicts do: equal for verdicts by the same judge, profile, model, wording
        and temperature.
        """
        asked = self.consultation
        asked_for = () if asked is None else (asked.model, asked.prompts, asked.temperature)
        return judge_key(self.judge, self.judge_profile, *asked_for)

    @property
    def is_final(self) -> bool:
        """Whether asking the judge again would only repeat the judgement. False if the judge could not be asked."""
        return self.outcome != "not_judged" or self.num_unreadable > 0

    @property
    def has_disagreement(self) -> bool:
        """Whether a strict parser reads the opposite of the outcome in the same replies."""
        return {self.outcome, self.strict} == {"success", "failure"}
