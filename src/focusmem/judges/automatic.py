"""Judges by the page's own reward, as in MiniWoB++: a reward above 0 is a success."""

from focusmem.judges.base import Attempt
from focusmem.schemas import Verdict


class AutomaticReward:
    name = "automatic"
    profile = None
    needs_answer = False

    async def judge(self, attempt: Attempt) -> Verdict:
        task_id, reward = attempt.task.task_id, attempt.reward
        if reward is None:
            reason = "No reward was recorded."
            return Verdict(task_id=task_id, outcome="not_judged", reason=reason, judge=self.name)
        return Verdict(
            task_id=task_id,
            outcome="success" if reward > 0 else "failure",
            score=min(max(reward, 0.0), 1.0),
            reason=f"The page gave the reward {reward:g}.",
            judge=self.name,
        )
