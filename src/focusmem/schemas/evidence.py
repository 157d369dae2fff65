"""Evidence items: some steps, and their role for the current decision."""

import json
from typing import Annotated, Literal

from pydantic import Field, field_validator

from focusmem.files import sha256_hex
from focusmem.schemas.action import action_to_json
from focusmem.schemas.record import NonEmptyText, Record, Text
from focusmem.schemas.trajectory import MAX_STEPS, Step

Role = Literal["episodic", "working"]
"""Episodic: from an earlier trajectory. Working: from the part of this episode that left the prompt."""


class EvidenceItem(Record):
    item_id: NonEmptyText
    """Unique among the items of one decision."""
    role: Role
    """The kind of memory that the item becomes."""
    instruction: Text | None = None
    """The instruction of the steps' task, if known."""
    steps: Annotated[tuple[Step, ...], Field(max_length=MAX_STEPS)]
    """The steps in order."""
    rank: Annotated[int, Field(ge=0, le=2**31)]
    """The item's place among the items of the same role, from zero: the best first, or the earliest first."""
    score: float | None = None
    """The retriever's similarity; absent for working items."""
    trajectory_id: Text | None = None
    """The trajectory that the steps were taken from, if there is one."""
    source: Text | None = None
    """The source of that trajectory."""

    @field_validator("steps")
    @classmethod
    def _has_steps(cls, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        if not steps:
            raise ValueError("is empty, but an evidence item needs at least one step")
        return steps

    def content_digest(self) -> str:
        """A digest of everything the encoder reads of an item; its id, rank, score and source do not count."""
        steps = [[step.screenshot.sha256, _action_or_error(step)] for step in self.steps]
        return sha256_hex(json.dumps([self.role, self.instruction, steps]).encode())


def _action_or_error(step: Step) -> str | list[str | None]:
    return [step.error] if step.action is None else action_to_json(step.action)
