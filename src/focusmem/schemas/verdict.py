"""What a judge says about one finished attempt."""

from typing import Annotated, Literal

from pydantic import Field

from focusmem.schemas.record import NonEmptyText, Record, Text

Outcome = Literal["success", "failure", "error", "not_judged"]
"""Failure is the policy's, error is the world's (a dead site, a crashed browser)."""

Count = Annotated[int, Field(ge=0)]


class JudgeCost(Record):
    num_calls: Count = 0
    """Calls of a model; a rule makes none."""
    num_prompt_tokens: Count = 0
    num_reply_tokens: Count = 0
    seconds: Annotated[float, Field(ge=0)] = 0.0


class Verdict(Record):
    schema_version: Literal[1] = 1
    """Raised when the meaning of a field changes."""
    task_id: NonEmptyText
    """The task that was attempted."""
    outcome: Outcome
    """The judgement itself."""
    score: Annotated[float, Field(ge=0, le=1)] | None = None
    """How much of the task was done; None where the outcome is neither success nor failure."""
    reason: Text
    """Why, in the judge's words."""
    judge: NonEmptyText
    """Which judge spoke, for example a rule's or a model's name."""
    judge_profile: Text | None = None
    """Which variant of the judge's rules was followed."""
    raw: Text | None = None
    """The judge's unparsed reply, so that it can be read again without asking again."""
    cost: JudgeCost = JudgeCost()
    """What the judgement took."""
