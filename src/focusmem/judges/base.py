"""The seam: a judge, and the rules that hold before every judge."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from focusmem.schemas import Screenshot, Task, Trajectory, Verdict


@dataclass(frozen=True)
class Attempt:
    """What a judge sees."""

    task: Task
    trajectory: Trajectory | None
    """None where no step was taken."""
    screenshots: Mapping[str, Screenshot] = field(default_factory=dict)
    """Of the trajectory, by digest, the closing one included."""
    answer: str | None = None
    """What the policy stopped with; None where it did not stop within its budget."""
    error: str | None = None
    """What the world did wrong, where it did."""


class Judge(Protocol):
    """Judges run in an event loop of their own, never in that of the browsers."""

    name: str
    """Which judge this is, for example that of a rule or a model."""
    profile: str | None
    """Which variant of its rules it follows."""
    needs_answer: bool
    """Whether an episode without an answer fails without asking the judge; False where the reward is automatic."""

    async def judge(self, attempt: Attempt) -> Verdict:
        """Called only for attempts without an error and, where it needs an answer, with one."""
