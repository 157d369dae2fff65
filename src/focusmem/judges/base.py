"""The seam: a judge, and the rules that hold before every judge."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from focusmem.errors import WorldError
from focusmem.schemas import Screenshot, Task, Trajectory, Verdict

RULES = "rules"
"""The judge named in verdicts that need no judge."""


@dataclass(frozen=True)
class Attempt:
    """The information that a judge gets."""

    task: Task
    trajectory: Trajectory | None
    """None if no step was taken."""
    screenshots: Mapping[str, Screenshot] = field(default_factory=dict)
    """The screenshots of the trajectory by digest, the closing one included."""
    answer: str | None = None
    """The answer in the policy's `stop` action; None if it did not stop within its budget."""
    error: str | None = None
    """The error of the world that ended the attempt, if there was one."""
    reward: float | None = None
    """The reward that the page had given at the end; None if the suite has no automatic rewards."""


class Judge(Protocol):
    """Judges run in their own event loop, never in that of the browsers."""

    @property
    def name(self) -> str:
        """The name of the rule or of the model that judges."""

    @property
    def profile(self) -> str | None:
        """The variant of its rules; None if there is only one."""

    @property
    def needs_answer(self) -> bool:
        """Whether an episode without an answer fails without asking the judge; False for automatic rewards."""

    async def judge(self, attempt: Attempt) -> Verdict:
        """Called only for attempts without an error, and only for attempts with an answer if the judge needs one.

        A judge that cannot be reached raises WorldError; the attempt then stays `not_judged` and can be judged later.
        """


async def judged(judge: Judge | None, attempt: Attempt) -> Verdict:
    """The verdict on an attempt: the rules first, then the judge."""
    task_id = attempt.task.task_id
    if attempt.error is not None:
        return Verdict(task_id=task_id, outcome="error", reason=attempt.error, judge=RULES)
    if attempt.answer is None and (judge is None or judge.needs_answer):
        reason = f"The policy did not stop within {attempt.task.max_steps} steps."
        return Verdict(task_id=task_id, outcome="failure", score=0.0, reason=reason, judge=RULES)
    if judge is None:
        return Verdict(task_id=task_id, outcome="not_judged", reason="The suite has no judge.", judge=RULES)
    started = time.perf_counter()
    try:
        verdict = await judge.judge(attempt)
    except WorldError as error:
        verdict = Verdict(
            task_id=task_id,
            outcome="not_judged",
            reason=f"The judge failed: {error}",
            judge=judge.name,
            judge_profile=judge.profile,
        )
    cost = verdict.cost.model_copy(update={"seconds": time.perf_counter() - started})
    return verdict.model_copy(update={"cost": cost})
