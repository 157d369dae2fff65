"""An episode: one attempt at a task. What memory offered at each step, what the step cost, and how the episode ended.

Stored beside the trajectory of the same attempt, with a note for each of its steps.
"""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from focusmem.schemas.evidence import Role
from focusmem.schemas.record import Identifier, NonEmptyText, Record, Text, sorted_by_key
from focusmem.schemas.screenshot import ScreenshotRef
from focusmem.schemas.task import Task
from focusmem.schemas.trajectory import MAX_STEPS

Count = Annotated[int, Field(ge=0, le=2**31)]
Seconds = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class AttentionMap(Record):
    """Where on one screenshot a block looked."""

    screenshot: ScreenshotRef
    """Of the item's own steps."""
    num_rows: Annotated[int, Field(ge=1, le=1024)]
    num_columns: Annotated[int, Field(ge=1, le=1024)]
    weights: tuple[Share, ...]
    """Share of the block's attention on each visual token, row by row; those of one item sum to at most one."""

    @model_validator(mode="after")
    def _fills_its_grid(self) -> Self:
        if len(self.weights) != self.num_rows * self.num_columns:
            raise ValueError(f"has {len(self.weights)} weights for {self.num_rows} by {self.num_columns} visual tokens")
        return self


class OfferedItem(Record):
    """An evidence item that memory offered for a decision, and what became of it."""

    role: Role
    rank: Count
    """The place among the items of the same role, from zero."""
    trajectory_id: Text | None = None
    """The trajectory it was taken from, where it is episodic."""
    num_steps: Count
    """How many steps it tells of."""
    score: float | None = None
    """How alike the retriever found it."""
    trust: Share | None = None
    """The gate's trust; absent where no gate took part."""
    trust_logit: float | None = None
    """The same before it was brought between 0 and 1, where that was recorded: close to one, trust is soon rounded."""
    threshold: Share | None = None
    """What trust has to be above to be let in, where that was recorded."""
    is_accepted: bool
    num_tokens: Count
    """Memory tokens of its block, accepted or not."""
    attention: tuple[AttentionMap, ...] = ()
    """Where its block looked, where that was recorded."""


class StepNotes(Record):
    prompt: tuple[Text, ...] = ()
    """What the policy was asked, turn by turn, with screenshots named by their digest; empty when it was not kept."""
    offered: tuple[OfferedItem, ...] = ()
    """In the order in which blocks stand in front of the prompt."""
    num_removed: Annotated[dict[Text, Count], AfterValidator(sorted_by_key)] = Field(default_factory=dict)
    """How many trajectories the leakage guard left out of the search, by key; one may be left out by several."""
    num_prompt_tokens: Count = 0
    num_memory_tokens: Count = 0
    """What memory put in front of the prompt."""
    is_readable: bool = True
    """Whether the reply could be read as an action."""
    is_repeat: bool = False
    """Whether the action was the same as the one before, on a page that looks the same."""
    seconds: Annotated[dict[Text, Seconds], AfterValidator(sorted_by_key)] = Field(default_factory=dict)
    """Time by part, for example `observe`, `retrieve`, `remember`, `reply`, `act`."""


class Episode(Record):
    schema_version: Literal[1] = 1
    """Raised when the meaning of a field changes."""
    task: Task
    attempt: Annotated[int, Field(ge=1, le=2**31)] = 1
    """Which of the run's attempts at this task, from one."""
    trajectory_id: Identifier | None = None
    """The trajectory beside it; absent where no step was taken."""
    method: NonEmptyText
    """Which memory the agent had, as reports call it."""
    answer: Text | None = None
    """What the policy stopped with; absent when it never did."""
    error: Text | None = None
    """What the world did wrong, where it did."""
    is_blocked: bool = False
    """Whether a site refused the agent: counted apart from failures and errors."""
    num_broken: Count = 0
    """How many times the attempt broke before this and was begun again."""
    notes: Annotated[tuple[StepNotes, ...], Field(max_length=MAX_STEPS)] = ()
    """One for each step of the trajectory."""
    seconds: Seconds = 0.0
    """What its steps took, all parts together. Waiting to be answered with other episodes does not count; looking and
    acting are timed by the clock, and so grow with the number of episodes that go on side by side."""
