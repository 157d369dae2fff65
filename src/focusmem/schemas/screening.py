"""Screening: the tasks of a live suite that a site made impossible for a reference run.

An audit is the decision about one failed attempt; a screening is the frozen result for a suite.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from focusmem.schemas.record import Digest, NonEmptyText, Record, Text
from focusmem.schemas.verdict import Consultation, Count, JudgeCost

ObstacleKind = Literal[
    "UNREACHABLE", "LOGIN_WALL", "CAPTCHA", "WAF_BLOCK", "GEO_BLOCK", "AD_HIJACK", "POPUP_BLOCK"
]  # fmt: skip
"""The ways in which a site may block an agent."""

AuditDecision = Literal["ok", "blocked", "unreadable", "not_audited"]
"""An unreadable reply does not block a task. `not_audited`: the auditor could not be asked."""


class Audit(Record):
    schema_version: Literal[1] = 1
    """Increased when the meaning of a field changes."""
    task_id: NonEmptyText
    decision: AuditDecision
    kind: ObstacleKind | None = None
    step: Annotated[int, Field(ge=1)] | None = None
    """The step at which the site blocked the agent, from one."""
    reason: Text = ""
    subject: Digest
    """The digest of the audited attempt."""
    consultation: Consultation
    cost: JudgeCost = JudgeCost()

    @model_validator(mode="after")
    def _names_the_obstacle(self) -> Self:
        if (self.decision == "blocked") != (self.kind is not None and self.step is not None):
            raise ValueError("names a kind and a step if, and only if, the decision is blocked")
        return self


class BlockedTask(Record):
    task_id: NonEmptyText
    kind: ObstacleKind
    step: Annotated[int, Field(ge=1)]
    reason: Text


class Screening(Record):
    """The frozen subset of a suite. Success rates are computed over its `kept` tasks, for every method and run."""

    schema_version: Literal[1] = 1
    """Increased when the meaning of a field changes."""
    suite: NonEmptyText
    tasks_sha256: Digest
    """The digest of the suite's tasks before the screening, as in the run's manifest."""
    reference: NonEmptyText
    """The run that was audited."""
    model: NonEmptyText
    """The auditor."""
    prompts: Digest
    """The digest of the auditor's wording."""
    departures: tuple[NonEmptyText, ...] = ()
    """The differences from the paper's auditor."""
    kept: tuple[NonEmptyText, ...]
    """The task ids of the frozen subset."""
    blocked: tuple[BlockedTask, ...] = ()
    """The tasks that are left out."""
    num_succeeded: Count
    num_audited: Count
    num_unreadable: Count
    """Audits whose reply could not be read; their tasks are kept."""
    num_errors: Count
    """Attempts that ended in an error; they were not audited, and their tasks are kept."""
    cost: JudgeCost = JudgeCost()
