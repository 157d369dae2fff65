import pytest

from focusmem.errors import RecordError
from focusmem.judges.mmina import MminaJudge, clean_answer, read_official, read_paper
from judges.attempts import judge_with, make_attempt, text_of, verdict_of

FUZZY = {"fuzzy_match": ["12 euros"]}


@pytest.mark.parametrize(
    ("reply", "paper", "official", "strict"),
    [
        ("yes", "success", "unreadable", "success"),
        ("Yes", "success", "success", "success"),
        ("Yes.", "success", "success", "success"),
        ('"yes"', "success", "unreadable", "success"),
        ("YES", "success", "unreadable", "success"),
        ("no", "failure", "failure", "failure"),
        ("No.", "failure", "failure", "failure"),
        ("Yes and no", "success", "success", "unreadable"),
        ("yesterday", "success", "unreadable", "unreadable"),
        ("I do not know", "failure", "failure", "unreadable"),
        ("No. Yesterday it was 12.", "success", "success", "unreadable"),
        ("correct", "unreadable", "unreadable", "unreadable"),
        ("", "unreadable", "unreadable", "unreadable"),
        ("<think>Is it yes? Yes!</think>no", "failure", "failure", "failure"),
        ("<think>Is it", "unreadable", "unreadable", "unreadable"),
    ],
)
def test_every_reply_is_read_by_the_rules_of_each_profile(reply, paper, official, strict):
    for profile, reading in (("paper", paper), ("official", official)):
        verdict = verdict_of(MminaJudge, [reply], make_attempt(references=FUZZY), profile=profile)
        assert verdict.outcome == ("success" if reading == "success" else "failure")
        assert (verdict.num_unreadable, verdict.strict) == (int(reading == "unreadable"), strict)
        assert verdict.parser == f"mmina {profile}"


def test_the_readers_alone():
    assert (read_paper("YES"), read_official("YES")) == ("success", "unreadable")


@pytest.mark.parametrize(
    ("answer", "cleaned"),
    [
        ("'Yes'", "yes"),
        ('"Yes"', "yes"),
        ("'\"Yes\"'", '"yes"'),
        ("'Yes", "'yes"),
        ("'", ""),
        ("", ""),
        (" Yes ", " yes "),
    ],
)
def test_one_matching_pair_of_quotes_is_removed(answer, cleaned):
    assert clean_answer(answer) == cleaned


@pytest.mark.parametrize(
    ("references", "answer", "outcome"),
    [
        ({"exact_match": "12 Euros"}, "'12 euros'", "success"),
        ({"exact_match": "12"}, "12 euros", "failure"),
        ({"must_include": ["12", "EURO"]}, "It costs 12 euros.", "success"),
        ({"must_include": ["12", "dollar"]}, "It costs 12 euros.", "failure"),
        ({"must_include": []}, "anything", "success"),
        ({"exact_match": "12", "must_include": ["2"]}, "12", "success"),
        ({"exact_match": "12", "must_include": ["3"]}, "12", "failure"),
        ({"reference_answers": {"must_include": ["12"]}}, "12", "success"),
    ],
)
def test_strings_are_compared_without_a_model(references, answer, outcome):
    verdict = verdict_of(MminaJudge, [], make_attempt(answer=answer, references=references))
    assert (verdict.outcome, verdict.cost.num_calls, verdict.strict) == (outcome, 0, None)


@pytest.mark.parametrize(
    ("replies", "outcome"), [(["yes", "yes"], "success"), (["yes", "no"], "failure"), (["no", "yes"], "failure")]
)
def test_every_reference_has_to_match(replies, outcome):
    verdict = verdict_of(MminaJudge, replies, make_attempt(references={"fuzzy_match": ["12", "euros"]}))
    assert (verdict.outcome, verdict.cost.num_calls) == (outcome, 2)


def test_a_string_that_fails_is_not_mended_by_the_model():
    references = {"must_include": ["13"], "fuzzy_match": ["12 euros"]}
    verdict = verdict_of(MminaJudge, ["yes"], make_attempt(references=references))
    assert (verdict.outcome, verdict.strict, verdict.reason) == (
        "failure",
        "failure",
        "The answer '12 euros' lacks '13'.",
    )


def test_the_right_answer_stands_in_for_missing_references_and_without_both_nothing_is_judged():
    judge, chat = judge_with(MminaJudge, ["yes"])
    assert "Reference answer: a dozen" in text_of(judge._question(make_attempt(), "a dozen"))
    assert (
        verdict_of(MminaJudge, ["yes"], make_attempt(answer="12", closes=False), profile="paper").outcome
        == "not_judged"
    )
    assert chat.asked == []


def test_the_paper_asks_with_the_question_and_the_official_judge_without():
    attempt = make_attempt(answer="12 EUROS", references=FUZZY)
    for profile, shows_question, shown in (("paper", True, "12 EUROS"), ("official", False, "12 euros")):
        judge, _ = judge_with(MminaJudge, [], profile=profile)
        text = text_of(judge._question(attempt, "12 euros"))
        assert ("How much is the mug?" in text) == shows_question
        assert f"\n{shown}\n</data" in text


@pytest.mark.parametrize("references", [{"exact_match": ["12"]}, {"fuzzy_match": "12"}, {"must_include": [12]}])
def test_references_of_another_form_are_refused(references):
    with pytest.raises(RecordError, match="references of shop/1"):
        verdict_of(MminaJudge, [], make_attempt(references=references))
