"""Compares the answer with the task's right answer, ignoring case, spaces, and punctuation at the ends."""

from focusmem.judges.base import Attempt
from focusmem.schemas import Verdict


class ExactAnswer:
    name = "exact answer"
    profile = None
    needs_answer = True

    async def judge(self, attempt: Attempt) -> Verdict:
        task, right = attempt.task, attempt.task.answer
        if right is None:
            reason = "The task has no right answer to compare with."
            return Verdict(task_id=task.task_id, outcome="not_judged", reason=reason, judge=self.name)
        is_won = is_same_answer(attempt.answer or "", right)
        return Verdict(
            task_id=task.task_id,
            outcome="success" if is_won else "failure",
            score=float(is_won),
            reason=f"The answer {attempt.answer!r:.200} {'equals' if is_won else 'differs from'} {right!r:.200}.",
            judge=self.name,
        )


def is_same_answer(answer: str, right: str) -> bool:
    return _normalised(answer) == _normalised(right)


def _normalised(text: str) -> str:
    return " ".join(text.lower().split()).strip(" .,!?\"'")
