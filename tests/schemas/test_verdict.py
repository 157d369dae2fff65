import pytest

from focusmem.files import is_safe_name
from focusmem.schemas import Consultation, JudgeCost, JudgeReply, Verdict, dump_record, parse_record


def verdict(**changes) -> Verdict:
    values = {"task_id": "shop/1", "outcome": "success", "score": 1.0, "reason": "It is right.", "judge": "rule"}
    return Verdict(**values | changes)


def test_comes_back_as_it_was():
    reply = JudgeReply(part="verdict", text="{}", prompt="0" * 64, is_cut_off=True)
    asked = Consultation(model="m", prompts="1" * 64, departures=("no temperature",), replies=(reply,))
    cost = JudgeCost(num_calls=1, seconds=0.5, usd=0.25)
    made = verdict(cost=cost, consultation=asked, judge_profile="strict", strict="failure", num_unreadable=1)
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


def test_costs_add_up_and_an_unknown_price_makes_the_sum_unknown():
    cheap, dear = JudgeCost(num_calls=1, num_images=2, usd=0.25), JudgeCost(num_calls=2, num_stored=1, usd=0.5)
    assert cheap + dear == JudgeCost(num_calls=3, num_images=2, num_stored=1, usd=0.75)
    assert JudgeCost() + cheap == cheap
    assert (cheap + JudgeCost(num_calls=1)).usd is None
    assert (JudgeCost() + JudgeCost()).usd is None


@pytest.mark.parametrize(
    ("outcome", "num_unreadable", "is_final"),
    [("failure", 0, True), ("not_judged", 0, False), ("not_judged", 1, True), ("success", 2, True)],
)
def test_a_judgement_is_final_unless_the_judge_could_not_be_asked(outcome, num_unreadable, is_final):
    assert verdict(outcome=outcome, score=None, num_unreadable=num_unreadable).is_final == is_final


@pytest.mark.parametrize(("judge", "profile"), [("!!!", None), ("../x", "."), ("a" * 99, None), ("rule", "\u00e9")])
def test_a_key_is_always_a_file_name(judge, profile):
    assert is_safe_name(verdict(judge=judge, judge_profile=profile).key)


def test_keys_tell_judges_apart():
    asked = Consultation(model="m", prompts="1" * 64)
    made = [
        verdict(),
        verdict(judge_profile="paper"),
        verdict(consultation=asked),
        verdict(consultation=asked.model_copy(update={"model": "n"})),
        verdict(consultation=asked.model_copy(update={"prompts": "2" * 64})),
        verdict(consultation=asked.model_copy(update={"temperature": 1.0})),
    ]
    assert len({one.key for one in made}) == len(made)
    assert verdict(outcome="failure", score=None).key == verdict().key == "rule"


@pytest.mark.parametrize(
    ("outcome", "strict", "disagrees"),
    [
        ("success", "failure", True),
        ("failure", "success", True),
        ("success", "success", False),
        ("failure", "unreadable", False),
        ("not_judged", "success", False),
        ("success", None, False),
    ],
)
def test_parsers_disagree_if_one_reads_the_opposite(outcome, strict, disagrees):
    assert verdict(outcome=outcome, score=None, strict=strict).has_disagreement == disagrees
