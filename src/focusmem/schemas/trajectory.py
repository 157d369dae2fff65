"""A trajectory: one attempt at a task, step by step."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from focusmem.schemas.action import Action
from focusmem.schemas.record import Identifier, NonEmptyText, Record, Text
from focusmem.schemas.screenshot import MAX_PIXELS, ScreenshotRef
from focusmem.schemas.verdict import Outcome

MAX_STEPS = 1_000

Pixel = Annotated[int, Field(ge=0, le=MAX_PIXELS)]


class Step(Record):
    """One observation and the action that followed it."""

    screenshot: ScreenshotRef
    """The screen before the action."""
    action: Action | None = None
    """The policy's action; absent only if its reply could not be read, and then `error` says why."""
    reply: Text | None = None
    """The policy's reply, if it was kept."""
    url: Text | None = None
    """The page's address before the action."""
    click_point: tuple[Pixel, Pixel] | None = None
    """The point on the screenshot where the description was found, as (x, y) from the top left corner."""
    error: Text | None = None
    """The error when the action was read or performed, as shown to the policy."""

    @model_validator(mode="after")
    def _has_action_or_error(self) -> Self:
        if self.action is None and self.error is None:
            raise ValueError("has neither an action nor an error")
        return self


class Closing(Record):
    """The observation after the last step."""

    screenshot: ScreenshotRef
    url: Text | None = None


class Annotations(Record):
    """Annotations of a task. The leakage guard compares both fields."""

    instance: Text | None = None
    """The concrete object that the task is about; tasks that share it count as the same."""
    template: Text | None = None
    """The wording with its particulars replaced by slots."""


class Trajectory(Record):
    schema_version: Literal[1] = 1
    """Increased when the meaning of a field changes."""
    trajectory_id: Identifier
    """Unique in a bank, and safe as a file name."""
    task_id: NonEmptyText
    """The task as its benchmark or corpus names it."""
    instruction: NonEmptyText
    """The task in words."""
    start_url: Text
    """Where the episode began; empty if unknown."""
    site: Text
    """The site it took place on; empty if unknown."""
    steps: Annotated[tuple[Step, ...], Field(min_length=1, max_length=MAX_STEPS)]
    """The steps in order."""
    closing: Closing | None = None
    """The screen after the last action; absent if unknown."""
    outcome: Outcome = "not_judged"
    """How the attempt ended."""
    source: NonEmptyText
    """Where the trajectory comes from, for example a corpus or a run."""
    presses_enter: bool | None = None
    """Whether `type` pressed Enter after the text when this was recorded; None means no."""
    annotations: Annotations = Annotations()
    """Further annotations of its task."""
