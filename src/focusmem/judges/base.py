"""The seam: a judge, and the rules that hold before every judge."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from focusmem.errors import RecordError, WorldError
from focusmem.files import sha256_hex
from focusmem.schemas import Screenshot, Step, Task, Trajectory, Verdict
from focusmem.schemas.screenshot import ScreenshotRef

RULES = "rules"
"""The judge's name in verdicts that are decided without a judge."""


@dataclass(frozen=True)
class Attempt:
    """The information that a judge gets."""

    task: Task
    trajectory: Trajectory | None
    """None if the attempt has no step."""
    screenshots: Mapping[str, Screenshot] = field(default_factory=dict)
    """The screenshots of the trajectory by digest, the closing one included."""
    answer: str | None = None
    """The answer in the policy's `stop` action; None if it did not stop within its budget."""
    error: str | None = None
    """The error of the world that ended the attempt, if there was one."""
    reward: float | None = None
    """The reward that the page had given at the end; None if the suite has no automatic rewards."""

    @property
    def steps(self) -> tuple[Step, ...]:
        return () if self.trajectory is None else self.trajectory.steps

    @property
    def pages(self) -> list[Screenshot]:
        """The screenshots in chronological order. The closing screenshot is included only after an action that may have
        changed the page, so not after `stop`.
        """
        references = [step.screenshot for step in self.steps]
        closing = None if self.trajectory is None else self.trajectory.closing
        if closing is not None and self.answer is None:
            references.append(closing.screenshot)
        return [self.screenshot(reference) for reference in references]

    def screenshot(self, reference: ScreenshotRef) -> Screenshot:
        if reference.sha256 not in self.screenshots:
            raise RecordError(
                f"The screenshot {reference.sha256[:12]}... of an attempt at {self.task.task_id} is missing."
            )
        return self.screenshots[reference.sha256]

    @property
    def digest(self) -> str:
        """A digest that is equal for attempts that look the same to every judge."""
        trajectory = (
            None
            if self.trajectory is None
            else self.trajectory.model_dump(mode="json", exclude={"trajectory_id", "source", "outcome"})
        )
        task = self.task.model_dump(mode="json")
        return sha256_hex(json.dumps([task, trajectory, self.answer, self.reward], sort_keys=True).encode())


class Judge(Protocol):
    """Judges run in their own event loop, never in the browsers' event loop."""

    @property
    def name(self) -> str:
        """The name of the judging rule or model."""

    @property
    def profile(self) -> str | None:
        """The variant of its rules; None if there is only one."""

    @property
    def needs_answer(self) -> bool:
        """Whether an episode without an answer fails without asking the judge. It is False for automatic rewards."""

    async def judge(self, attempt: Attempt) -> Verdict:
        """Called only for attempts without an error, and only for attempts with an answer if the judge needs one.

        A judge that cannot be reached raises WorldError; the attempt then stays `not_judged` and can be judged later.
        """


def needs_judge(judge: Judge | None, attempt: Attempt) -> bool:
    """Whether the judge must decide. The rules alone decide an attempt with an error, and an attempt without an answer
    if the judge needs one.
    """
    return attempt.error is None and (attempt.answer is not None or (judge is not None and not judge.needs_answer))


async def judged(judge: Judge | None, attempt: Attempt) -> Verdict:
    """The verdict on an attempt. The rules are applied first, then the judge is asked."""
    task_id = attempt.task.task_id
    if attempt.error is not None:
        return Verdict(task_id=task_id, outcome="error", reason=attempt.error, judge=RULES)
    if not needs_judge(judge, attempt):
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
