"""An episode: one attempt at a task. It records what memory offered at each step, what the step cost, and how it ended.

The trajectory of the same attempt and its verdict are stored beside it.
"""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from focusmem.schemas.evidence import Role
from focusmem.schemas.left_out import LeftOut
from focusmem.schemas.record import Identifier, NonEmptyText, Record, Text, sorted_by_key
from focusmem.schemas.screenshot import ScreenshotRef
from focusmem.schemas.task import Task
from focusmem.schemas.trajectory import MAX_STEPS

Count = Annotated[int, Field(ge=0, le=2**31)]
Seconds = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class AttentionMap(Record):
    """A block's attention over one screenshot."""

    screenshot: ScreenshotRef
    """A screenshot of the item's own steps."""
    num_rows: Annotated[int, Field(ge=1, le=1024)]
    num_columns: Annotated[int, Field(ge=1, le=1024)]
    weights: tuple[Share, ...]
    """The share of the block's attention on each visual token, row by row; over an item they sum to at most one."""

    @model_validator(mode="after")
    def _fills_its_grid(self) -> Self:
        if len(self.weights) != self.num_rows * self.num_columns:
            raise ValueError(f"has {len(self.weights)} weights for {self.num_rows} by {self.num_columns} visual tokens")
        return self


class OfferedItem(Record):
    """An evidence item that memory offered for a decision, and whether the gate accepted it."""

    role: Role
    rank: Count
    """Its place among the items of the same role, from zero."""
    trajectory_id: Text | None = None
    """The trajectory it was taken from, if it is episodic."""
    source: Text | None = None
    """The source of that trajectory, as the bank records it."""
    num_steps: Count
    """The item's number of steps."""
    score: float | None = None
    """The retriever's similarity."""
    trust_logit: float | None = None
    """The gate's trust as a logit; absent if there was no gate."""
    threshold_logit: float | None = None
    """The gate accepts an item whose logit is above this; absent if there was no gate."""
    is_accepted: bool
    num_tokens: Count | None = None
    """Memory tokens of its block, whether accepted or not; absent if the policy does not tell."""
    attention: tuple[AttentionMap, ...] = ()
    """The attention of its block, if it was recorded."""


class StepNotes(Record):
    prompt: tuple[Text, ...] = ()
    """The prompt, turn by turn, with screenshots named by their digest; empty if it was not kept."""
    offered: tuple[OfferedItem, ...] = ()
    """In the order of the blocks in front of the prompt."""
    num_removed: Annotated[dict[Text, Count], AfterValidator(sorted_by_key)] = Field(default_factory=dict)
    """How many trajectories the leakage guard removed from the search, by key. One may match several keys."""
    left_out: LeftOut | None = None
    """The part of the decision that did not fit into the query of the search; absent if everything fitted."""
    num_prompt_tokens: Count | None = None
    """Tokens of the prompt without memory; absent if the policy does not tell."""
    num_reply_tokens: Count | None = None
    """Tokens of the reply, thoughts included; absent if the policy does not tell."""
    cost_usd: Annotated[float, Field(ge=0)] | None = None
    """The cost of the reply: 0 if it was read from a store; absent if no price is known."""
    thoughts: Text | None = None
    """The policy's thoughts before its answer; absent if the reply has none. Thoughts are never read as an action.
    """
    departures: tuple[Text, ...] = ()
    """Parameters that were left out of the request because the policy's endpoint refused them, such as a temperature.
    """
    num_memory_tokens: Count | None = None
    """Tokens that memory put in front of the prompt; absent if the policy does not tell."""
    is_readable: bool = True
    """Whether the reply could be read as an action."""
    is_repeat: bool = False
    """Whether the action and the screenshot equal those of the step before."""
    wall_s: Seconds | None = None
    """Wall-clock time from the start of the observation to the end of the action, waiting included."""
    seconds: Annotated[dict[Text, Seconds], AfterValidator(sorted_by_key)] = Field(default_factory=dict)
    """`wall_s` by part: `observe`, `retrieve`, `remember`, `reply`, `act`, and `wait` for other episodes. If a part was
    done for several decisions together, each decision has the whole time of that part.
    """
    num_together: Count | None = None
    """How many decisions the mind answered together, this one included; absent if not known."""
    num_encoded: Count | None = None
    """How many items were encoded for these decisions because no cache held them; absent if nothing is cached."""


class Conditions(Record):
    """Conditions, besides the machine, on which the times of an episode depend."""

    num_parallel: Annotated[int, Field(ge=1, le=2**31)]
    """At most this many episodes run at the same time."""
    num_encoded_before: Count | None = None
    """How many items were encoded before the first episode began; absent if nothing is encoded in advance."""


class Episode(Record):
    schema_version: Literal[2] = 2
    """Increased when the meaning of a field changes."""
    task: Task
    attempt: Annotated[int, Field(ge=1, le=2**31)] = 1
    """Which of the run's attempts at this task, from one."""
    trajectory_id: Identifier | None = None
    """The trajectory beside it; absent if no step was taken."""
    method: NonEmptyText
    """The agent's memory, by the name that reports use."""
    answer: Text | None = None
    """The answer in the policy's `stop` action; absent if it did not stop."""
    reward: float | None = None
    """The reward that the page had given at the end; absent if the suite has no automatic rewards."""
    error: Text | None = None
    """The error of the world that ended the attempt, if there was one."""
    is_blocked: bool = False
    """Whether a site refused the agent. Blocks are counted apart from failures and errors."""
    num_broken: Count = 0
    """How many times the attempt broke before this and was started again."""
    notes: Annotated[tuple[StepNotes, ...], Field(max_length=MAX_STEPS)] = ()
    """One for each step of the trajectory."""
    seconds: Seconds = 0.0
    """The wall-clock time of all steps. It grows with the number of parallel episodes."""
    conditions: Conditions | None = None
    """The conditions under which the times were measured; absent if not known."""
