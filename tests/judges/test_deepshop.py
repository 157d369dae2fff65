import pytest

from focusmem.judges.deepshop import DeepShopJudge, parts_of
from judges.attempts import judge_with, make_attempt, pictures_of, text_of, verdict_of

PARTS = {"attribute": "a blue mug", "filter": "under 20 dollars", "sort": "lowest price first"}


@pytest.mark.parametrize(
    ("replies", "outcome", "num_unreadable", "strict"),
    [
        (["SUCCESS", "SUCCESS", "SUCCESS"], "success", 0, "success"),
        (["SUCCESS", "NOT SUCCESS", "SUCCESS"], "failure", 0, "failure"),
        (["SUCCESS", "?", "SUCCESS"], "failure", 1, "unreadable"),
        (["not NOT SUCCESS\nSUCCESS", "SUCCESS", "SUCCESS"], "failure", 0, "success"),
        (["", "", ""], "failure", 3, "unreadable"),
    ],
)
def test_all_parts_have_to_be_met_and_an_unreadable_reply_is_a_failure(replies, outcome, num_unreadable, strict):
    verdict = verdict_of(DeepShopJudge, replies, make_attempt(references=PARTS), profile="official")
    assert (verdict.outcome, verdict.num_unreadable, verdict.strict) == (outcome, num_unreadable, strict)
    assert verdict.cost.num_calls == 3


@pytest.mark.parametrize("absent", ["None", "none", "", "**", " None "])
def test_a_missing_part_is_not_asked_about(absent):
    task = make_attempt(references={**PARTS, "filter": absent}).task
    assert list(parts_of(task)) == ["attribute", "sort"]


def test_each_part_is_the_task_of_one_question():
    attempt = make_attempt(17, references={**PARTS, "sort": "None", "category": "Home"})
    judge, chat = judge_with(DeepShopJudge, ["SUCCESS", "SUCCESS"], profile="official")
    assert verdict_of(DeepShopJudge, ["SUCCESS", "SUCCESS"], attempt, profile="official").outcome == "success"
    prompt = judge.question(attempt, "a blue mug")
    assert "TASK: a blue mug" in text_of(prompt)
    assert "How much is the mug?" not in text_of(prompt)
    assert len(pictures_of(prompt)) == 15
    assert chat.asked == []


def test_a_task_without_parts_is_not_judged():
    assert verdict_of(DeepShopJudge, [], make_attempt(references={"sort": "None"}), profile="official").outcome == (
        "not_judged"
    )


def test_the_paper_judges_the_request_as_a_whole():
    attempt = make_attempt(7, references=PARTS)
    verdict = verdict_of(DeepShopJudge, ["<result>SUCCESS</result>"], attempt)
    assert (verdict.outcome, verdict.judge, verdict.judge_profile, verdict.cost.num_calls) == (
        "success",
        "deepshop",
        "paper",
        1,
    )
    assert verdict.cost.num_images == 5
