"""One attempt at a task: what was seen and what was done, step by step."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from focusmem.schemas.action import Action
from focusmem.schemas.record import Identifier, NonEmptyText, Record, Text
from focusmem.schemas.screenshot import MAX_PIXELS, ScreenshotRef
from focusmem.schemas.verdict import Outcome

MAX_STEPS = 1_000

Pixel = Annotated[int, Field(ge=0, le=MAX_PIXELS)]


class Step(Record):
    """One look and the action that followed it."""

    screenshot: ScreenshotRef
    """What was on the screen before the action."""
    action: Action | None = None
    """What the policy decided; absent only when its reply could not be read, and then `error` says why."""
    reply: Text | None = None
    """The policy's own words, where they were kept."""
    url: Text | None = None
    """The page's address before the action."""
    click_point: tuple[Pixel, Pixel] | None = None
    """Where a description was found on the screenshot, as (x, y) from its top left corner."""
    error: Text | None = None
    """What went wrong when the action was read or tried, as the policy is told."""

    @model_validator(mode="after")
    def _has_action_or_error(self) -> Self:
        if self.action is None and self.error is None:
            raise ValueError("has neither an action nor an error")
        return self


class Closing(Record):
    """What the last action led to: one look after the last step."""

    screenshot: ScreenshotRef
    url: Text | None = None


class Annotations(Record):
    """What is known about a task beside its wording; the leakage guard compares both fields."""

    instance: Text | None = None
    """The concrete thing the task is about; tasks that share it count as the same."""
    template: Text | None = None
    """The wording with its particulars replaced by slots."""


class Trajectory(Record):
    schema_version: Literal[1] = 1
    """Raised when the meaning of a field changes."""
    trajectory_id: Identifier
    """Unique in a bank, and safe as a file name."""
    task_id: NonEmptyText
    """The task as its benchmark or corpus names it."""
    instruction: NonEmptyText
    """What was asked for, in words."""
    start_url: Text
    """Where the episode began; empty when the source does not tell."""
    site: Text
    """The site it took place on; empty when the source does not tell."""
    steps: Annotated[tuple[Step, ...], Field(min_length=1, max_length=MAX_STEPS)]
    """In the order in which they happened."""
    closing: Closing | None = None
    """What was on the screen after the last action; absent where the source does not tell."""
    outcome: Outcome = "not_judged"
    """How the attempt ended."""
    source: NonEmptyText
    """Where the trajectory comes from, for example a corpus or a run."""
    annotations: Annotations = Annotations()
    """What else is known about its task."""
