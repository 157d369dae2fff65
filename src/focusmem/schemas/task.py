"""The task record: what an agent is asked to do."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from focusmem.schemas.record import JsonObject, NonEmptyText, Record, Text
from focusmem.schemas.trajectory import MAX_STEPS, Annotations, Closing, Step, Trajectory
from focusmem.schemas.verdict import Outcome


class DateShift(Record):
    """How the dates in a task's instruction were moved, so that they lie in the future again."""

    num_days: int
    """Every date was moved by this many days."""
    original: NonEmptyText
    """The instruction as its benchmark states it."""


class Task(Record):
    schema_version: Literal[1] = 1
    """Increased when the meaning of a field changes."""
    task_id: NonEmptyText
    """The task as its benchmark or corpus names it."""
    instruction: NonEmptyText
    """The task in words."""
    start_url: Text
    """Where the episode begins."""
    site: Text
    """The site it takes place on."""
    answer: Text | None = None
    """The right answer, if known; the policy never sees it."""
    references: JsonObject | None = None
    """What else the benchmark says for its judge, in the benchmark's own words; the policy never sees it."""
    annotations: Annotations = Annotations()
    """Further annotations of the task."""
    presses_enter: bool | None = None
    """Whether `type` presses Enter after the text; None means no."""
    date_shift: DateShift | None = None
    """How the dates in the instruction were moved; None if they are the benchmark's own."""
    allowed_sites: tuple[NonEmptyText, ...] = ()
    """Hosts the browser may visit beside the one it starts on."""
    max_steps: Annotated[int, Field(ge=1, le=MAX_STEPS)] = 15
    """The step budget: the episode ends after this many actions."""

    def trajectory(
        self,
        trajectory_id: str,
        steps: Sequence[Step],
        *,
        outcome: Outcome,
        source: str,
        closing: Closing | None = None,
    ) -> Trajectory:
        """One attempt at the task as a record. It does not contain the right answer or the references."""
        return Trajectory(
            trajectory_id=trajectory_id,
            task_id=self.task_id,
            instruction=self.instruction,
            start_url=self.start_url,
            site=self.site,
            steps=tuple(steps),
            closing=closing,
            outcome=outcome,
            source=source,
            presses_enter=self.presses_enter,
            annotations=self.annotations,
        )
