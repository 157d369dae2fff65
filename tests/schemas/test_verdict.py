import pytest

from focusmem.schemas import JudgeCost, Verdict, dump_record, parse_record


def verdict(**changes) -> Verdict:
    values = {"task_id": "shop/1", "outcome": "success", "score": 1.0, "reason": "It is right.", "judge": "rule"}
    return Verdict(**values | changes)


def test_comes_back_as_it_was():
    made = verdict(cost=JudgeCost(num_calls=1, seconds=0.5), raw="{}", judge_profile="strict")
    assert parse_record(Verdict, dump_record(made), "verdict.json") == made


@pytest.mark.parametrize("outcome", ["error", "not_judged"])
def test_only_a_success_or_a_failure_has_a_score(outcome):
    with pytest.raises(ValueError, match=f"has a score, yet its outcome is {outcome}"):
        verdict(outcome=outcome)
    assert verdict(outcome=outcome, score=None).score is None


@pytest.mark.parametrize("changes", [{"score": 1.1}, {"outcome": "won"}, {"judge": " "}, {"cost": {"seconds": -1.0}}])
def test_nothing_else_is_accepted(changes):
    with pytest.raises(ValueError, match="validation error"):
        verdict(**changes)
