"""What a judge says about one finished trajectory."""

from typing import Literal

from focusmem.schemas.record import NonEmptyText, Record, Text

Outcome = Literal["success", "failure", "error", "not_judged"]
"""Failure is the policy's, error is the world's (a dead site, a crashed browser)."""


class Verdict(Record):
    schema_version: Literal[1] = 1
    """Raised when the meaning of a field changes."""
    task_id: NonEmptyText
    """The task that was attempted."""
    outcome: Outcome
    """The judgement itself."""
    reason: Text
    """Why, in the judge's words."""
    judge: NonEmptyText
    """Which judge spoke, for example a rule's or a model's name."""
    judge_profile: Text | None = None
    """Which variant of the judge's rules was followed."""
    raw: Text | None = None
    """The judge's unparsed reply, so that it can be read again without asking again."""
