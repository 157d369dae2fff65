import asyncio
from dataclasses import replace

import pytest

from focusmem.judges.automatic import AutomaticReward
from focusmem.judges.base import judged
from judges.attempts import make_attempt


@pytest.mark.parametrize("answer", [None, "12 euros"])
@pytest.mark.parametrize(
    ("reward", "outcome", "score"),
    [
        (1.0, "success", 1.0),
        (0.4, "success", 0.4),
        (1.5, "success", 1.0),
        (0.0, "failure", 0.0),
        (-1.0, "failure", 0.0),
        (None, "not_judged", None),
    ],
)
def test_a_reward_above_zero_is_a_success_whether_or_not_the_policy_stopped(answer, reward, outcome, score):
    attempt = replace(make_attempt(answer=answer), reward=reward)
    verdict = asyncio.run(judged(AutomaticReward(), attempt))
    assert (verdict.outcome, verdict.score, verdict.judge) == (outcome, score, "automatic")
