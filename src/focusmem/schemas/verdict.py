"""A verdict: a judge's decision about one finished attempt."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from focusmem.schemas.record import NonEmptyText, Record, Text

Outcome = Literal["success", "failure", "error", "not_judged"]
"""A failure is due to the policy, an error to the world (a dead site, a crashed browser)."""

Count = Annotated[int, Field(ge=0)]


class JudgeCost(Record):
    num_calls: Count = 0
    """Calls of a judge model; a rule makes none."""
    num_prompt_tokens: Count = 0
    num_reply_tokens: Count = 0
    seconds: Annotated[float, Field(ge=0)] = 0.0


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
    """The name of the rule or the model that judged."""
    judge_profile: Text | None = None
    """The variant of the judge's rules."""
    raw: Text | None = None
    """The unparsed reply of a judge model, so that it can be parsed again without another call."""
    cost: JudgeCost = JudgeCost()
    """The cost of the judgement."""

    @model_validator(mode="after")
    def _score_fits_outcome(self) -> Self:
        if self.score is not None and self.outcome not in ("success", "failure"):
            raise ValueError(f"has a score, yet its outcome is {self.outcome}")
        return self
