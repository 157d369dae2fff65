import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.minds import make_task
from focusmem.judges.base import Attempt, judged
from focusmem.judges.exact_answer import ExactAnswer, is_same_answer


def verdict_on(answer, right):
    return asyncio.run(judged(ExactAnswer(), Attempt(make_task("shop/1", answer=right), None, answer=answer)))


@pytest.mark.parametrize("answer", ["12 euros", "12 Euros.", " 12   euros ", '"12 euros"', "12\teuros!"])
def test_case_spaces_and_punctuation_at_the_ends_do_not_matter(answer):
    verdict = verdict_on(answer, "12 euros")
    assert (verdict.outcome, verdict.score, verdict.judge) == ("success", 1.0, "exact answer")
    assert verdict.cost.num_calls == 0


@pytest.mark.parametrize("answer", ["", "12", "about 12 euros", "12 euros or 13 euros", "1 2 euros", "12, euros"])
def test_anything_else_is_a_failure_that_shows_both(answer):
    verdict = verdict_on(answer, "12 euros")
    assert (verdict.outcome, verdict.score) == ("failure", 0.0)
    assert repr(answer) in verdict.reason
    assert "'12 euros'" in verdict.reason


def test_a_task_without_a_known_answer_is_not_judged():
    verdict = verdict_on("12 euros", None)
    assert (verdict.outcome, verdict.score) == ("not_judged", None)


@given(st.text(), st.text())
def test_likeness_is_mutual_and_everything_is_like_itself(one, other):
    assert is_same_answer(one, one)
    assert is_same_answer(one, other) == is_same_answer(other, one)


@given(st.text(max_size=3_000) | st.sampled_from(["\0", "\ud800", "x" * 90_000]))
def test_any_answer_can_be_judged(answer):
    assert verdict_on(answer, "12 euros").outcome in ("success", "failure")
