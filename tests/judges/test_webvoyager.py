import asyncio

import pytest

from focusmem.clients.base import ChatReply
from focusmem.judges.base import judged
from focusmem.judges.judge_model import JudgeModel
from focusmem.judges.webvoyager import WebVoyagerJudge
from judges.attempts import RepliesOf, judge_with, make_attempt, pictures_of, text_of, verdict_of

WON, LOST, OPEN = "success", "failure", "unreadable"


@pytest.mark.parametrize(
    ("reply", "reading", "strict"),
    [
        ("<result>SUCCESS</result>", WON, WON),
        ("It fits. <result>NOT SUCCESS</result>", LOST, LOST),
        ("<result>success</result>", WON, OPEN),
        ("<result> SUCCESS </result>", WON, WON),
        ("<RESULT>SUCCESS</RESULT>", WON, OPEN),
        ("It was not success. <result>SUCCESS</result>", WON, WON),
        ("<result>NOT SUCCESS</result> or <result>SUCCESS</result>", LOST, OPEN),
        ("<result>\nSUCCESS\n</result>", WON, WON),
        ("Not success at first.\n<result>\nSUCCESS\n</result>", LOST, WON),
        ("<result></result> SUCCESS", WON, OPEN),
        ("SUCCESS", WON, OPEN),
        ("The task was unsuccessful.", WON, OPEN),
        ("The task was not successful.", LOST, OPEN),
        ("<result>DONE</result>", OPEN, OPEN),
        ("<result>DONE</result> SUCCESS", OPEN, OPEN),
        ("FAILURE", OPEN, OPEN),
        ("", OPEN, OPEN),
        ("<think><result>SUCCESS</result></think><result>NOT SUCCESS</result>", LOST, LOST),
    ],
)
def test_the_papers_rules(reply, reading, strict):
    verdict = verdict_of(WebVoyagerJudge, [reply])
    assert (verdict.outcome, verdict.strict) == ("success" if reading == WON else "failure", strict)
    assert verdict.num_unreadable == (reading == OPEN)
    assert verdict.has_disagreement == ({reading, strict} == {WON, LOST})


@pytest.mark.parametrize(
    ("reply", "reading", "strict"),
    [
        ("SUCCESS", WON, WON),
        ("NOT SUCCESS", LOST, LOST),
        ("All is shown.\nVerdict: SUCCESS.", WON, WON),
        ("It is not NOT SUCCESS.\nVerdict: SUCCESS", LOST, WON),
        ("SUCCESS would need a price.\nVerdict: NOT SUCCESS", LOST, LOST),
        ("Verdict: SUCCESS\nThat is all.", WON, OPEN),
        ("SUCCESS or NOT SUCCESS", LOST, OPEN),
        ("UNSUCCESSFUL", WON, OPEN),
        ("success", OPEN, OPEN),
        ("not success", OPEN, OPEN),
        ("Not SUCCESS", WON, OPEN),
        ("FAILURE", OPEN, OPEN),
        ("", OPEN, OPEN),
    ],
)
def test_the_official_rules(reply, reading, strict):
    verdict = verdict_of(WebVoyagerJudge, [reply], profile="official")
    outcome = {WON: "success", LOST: "failure", OPEN: "not_judged"}[reading]
    assert (verdict.outcome, verdict.strict, verdict.num_unreadable) == (outcome, strict, reading == OPEN)
    assert verdict.is_final


@pytest.mark.parametrize(
    ("reply", "reading", "strict"),
    [
        ('{"thought": "t", "verdict": "SUCCESS"}', WON, WON),
        ('{"thought": "t", "verdict": "FAILURE"}', LOST, LOST),
        ('```json\n{"verdict": "SUCCESS"}\n```', WON, OPEN),
        ('{"verdict": "FAILURE"} {"verdict": "SUCCESS"}', WON, OPEN),
        ('{"verdict": "success"}', OPEN, OPEN),
        ('{"thought": "SUCCESS"}', OPEN, OPEN),
        ('{"verdict": "SUCC', OPEN, OPEN),
        ("SUCCESS", OPEN, OPEN),
    ],
)
def test_the_holistic_rules(reply, reading, strict):
    verdict = verdict_of(WebVoyagerJudge, [reply], profile="holistic")
    assert (verdict.outcome, verdict.strict) == ("success" if reading == WON else "failure", strict)


@pytest.mark.parametrize(("profile", "num_shown"), [("paper", 5), ("official", 15), ("holistic", 18)])
def test_the_last_screenshots_are_shown_in_order(profile, num_shown):
    attempt = make_attempt(18)
    judge, _ = judge_with(WebVoyagerJudge, [], profile=profile)
    prompt = judge.question(attempt, attempt.task.instruction)
    assert pictures_of(prompt) == attempt.pages[-num_shown:]
    assert pictures_of(prompt)[-1].digest == attempt.steps[-1].screenshot.sha256, "the page at the answer"
    if profile == "official":
        assert "15 screenshots at the end" in text_of(prompt)
        assert [type(part).__name__ for part in prompt[-1].parts] == ["str", *["Screenshot"] * 15, "str"]
    else:
        assert [turn.role for turn in prompt] == ["system", "user", "user"]


def test_without_a_step_there_is_no_picture():
    attempt = make_attempt()
    bare = type(attempt)(attempt.task, None, {}, "12")
    verdict = verdict_of(WebVoyagerJudge, ["<result>NOT SUCCESS</result>"], bare)
    assert (verdict.outcome, verdict.cost.num_images) == ("failure", 0)


def test_no_answer_fails_without_a_call():
    judge, chat = judge_with(WebVoyagerJudge, [])
    verdict = asyncio.run(judged(judge, make_attempt(answer=None)))
    assert (verdict.outcome, verdict.judge, chat.asked) == ("failure", "rules", [])


@pytest.mark.parametrize("profile", ["paper", "official", "holistic"])
def test_a_reply_that_is_cut_off_is_never_a_success(profile):
    reply = ChatReply('{"verdict": "SUCCESS"} <result>SUCCESS</result>', is_cut_off=True)
    judge = WebVoyagerJudge(JudgeModel(RepliesOf(reply)), profile=profile)
    verdict = asyncio.run(judge.judge(make_attempt()))
    assert verdict.outcome != "success"
    assert (verdict.num_unreadable, verdict.strict) == (1, "unreadable")


def test_the_seed_of_a_model_is_passed_on():
    client = RepliesOf(ChatReply("SUCCESS"))
    judge = WebVoyagerJudge(JudgeModel(client, seed=42), profile="official")
    asyncio.run(judge.judge(make_attempt()))
    assert client.seeds == [42]
