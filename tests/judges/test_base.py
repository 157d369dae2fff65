import asyncio

import pytest

from evaluation.minds import make_task
from focusmem.errors import ConfigError, WorldError
from focusmem.judges.base import RULES, Attempt, judged
from focusmem.schemas import JudgeCost, Verdict

COST = JudgeCost(num_calls=1, num_prompt_tokens=50, num_reply_tokens=4)


class FakeJudge:
    """Notes what it was asked; `answer` returns a verdict or raises."""

    name = "fake"
    profile = "strict"

    def __init__(self, *, needs_answer=True, error=None):
        self.needs_answer, self.error = needs_answer, error
        self.asked = []

    async def judge(self, attempt):
        self.asked.append(attempt)
        if self.error is not None:
            raise self.error
        return Verdict(
            task_id=attempt.task.task_id,
            outcome="success",
            score=0.5,
            reason="Good.",
            judge=self.name,
            cost=COST,
        )


def verdict_on(judge, **values):
    return asyncio.run(judged(judge, Attempt(make_task("shop/1", max_steps=7), None, **values)))


def test_an_answer_is_the_judges_to_judge():
    judge = FakeJudge()
    verdict = verdict_on(judge, answer="12")
    assert (verdict.outcome, verdict.score, verdict.reason, verdict.judge) == ("success", 0.5, "Good.", "fake")
    assert [attempt.answer for attempt in judge.asked] == ["12"]
    assert verdict.cost.seconds > 0
    assert verdict.cost.model_copy(update={"seconds": 0.0}) == COST


@pytest.mark.parametrize("judge", [FakeJudge(), FakeJudge(needs_answer=False), None])
@pytest.mark.parametrize("answer", [None, "12"])
def test_an_error_comes_before_everything_else(judge, answer):
    verdict = verdict_on(judge, error="The browser has died.", answer=answer)
    assert (verdict.outcome, verdict.reason, verdict.judge, verdict.score) == (
        "error",
        "The browser has died.",
        RULES,
        None,
    )
    assert judge is None or judge.asked == []


@pytest.mark.parametrize("judge", [FakeJudge(), None])
def test_no_stop_within_the_budget_is_a_failure_without_a_call(judge):
    verdict = verdict_on(judge)
    assert (verdict.outcome, verdict.score, verdict.judge) == ("failure", 0.0, RULES)
    assert verdict.reason == "The policy did not stop within 7 steps."
    assert verdict.cost == JudgeCost()
    assert judge is None or judge.asked == []


def test_an_automatic_reward_needs_no_answer():
    judge = FakeJudge(needs_answer=False)
    assert verdict_on(judge).outcome == "success"
    assert [attempt.answer for attempt in judge.asked] == [None]


def test_an_empty_answer_is_an_answer():
    judge = FakeJudge()
    assert verdict_on(judge, answer="").outcome == "success"
    assert len(judge.asked) == 1


def test_without_a_judge_an_answer_is_not_judged():
    verdict = verdict_on(None, answer="12")
    assert (verdict.outcome, verdict.score, verdict.judge) == ("not_judged", None, RULES)


def test_a_judge_that_cannot_be_reached_leaves_the_attempt_not_judged():
    verdict = verdict_on(FakeJudge(error=WorldError("The server is gone.")), answer="12")
    assert (verdict.outcome, verdict.score, verdict.judge, verdict.judge_profile) == (
        "not_judged",
        None,
        "fake",
        "strict",
    )
    assert verdict.reason == "The judge failed: The server is gone."


@pytest.mark.parametrize("error", [ConfigError("The key is wrong."), ZeroDivisionError()])
def test_a_wrong_setting_or_a_bug_is_not_taken_for_the_worlds_fault(error):
    with pytest.raises(type(error)):
        verdict_on(FakeJudge(error=error), answer="12")
