import asyncio
from itertools import pairwise

import pytest

from focusmem.clients.base import ChatReply
from focusmem.errors import WorldError
from focusmem.judges.judge_model import JudgeModel
from focusmem.judges.screening import Auditor, sampled
from judges.attempts import RepliesOf, judge_with, make_attempt, pictures_of, text_of

KINDS = ["UNREACHABLE", "LOGIN_WALL", "CAPTCHA", "WAF_BLOCK", "GEO_BLOCK", "AD_HIJACK", "POPUP_BLOCK"]


@pytest.mark.parametrize("num", range(1, 40))
def test_steps_are_evenly_sampled_with_the_first_and_the_last(num):
    places = sampled(num, 12)
    assert len(places) == min(num, 12) == len(set(places))
    assert (places[0], places[-1]) == (0, num - 1)
    gaps = [after - before for before, after in pairwise(places)]
    assert max(gaps, default=1) - min(gaps, default=1) <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_obstacle_is_read(kind):
    judge, _ = judge_with(Auditor, [f'BLOCK {kind} step2 "Verify you are human"\n'])
    audit = asyncio.run(judge.audit(make_attempt()))
    assert (audit.decision, audit.kind, audit.step, audit.reason) == (
        "blocked",
        kind,
        2,
        '"Verify you are human"',
    )


@pytest.mark.parametrize(
    ("reply", "decision"),
    [
        ("OK", "ok"),
        (" OK \n", "ok"),
        ("<think>BLOCK CAPTCHA step1 x</think>OK", "ok"),
        ("OK.", "unreadable"),
        ("ok", "unreadable"),
        ("OK BLOCK CAPTCHA step1 x", "unreadable"),
        ("BLOCK CAPTCHA step1 x\nOK", "unreadable"),
        ("BLOCK CAPTCHA step1", "unreadable"),
        ("BLOCK CAPTCHA step1 ", "unreadable"),
        ("BLOCK CAPTCHA step0 x", "unreadable"),
        ("BLOCK CAPTCHA step4 x", "unreadable"),
        ("BLOCK CAPTCHA step 1 x", "unreadable"),
        ("BLOCK CAPTCHA x", "unreadable"),
        ("BLOCK ROBOTS step1 x", "unreadable"),
        ("block CAPTCHA step1 x", "unreadable"),
        ("It was blocked: BLOCK CAPTCHA step1 x", "unreadable"),
        ("", "unreadable"),
    ],
)
def test_only_the_strict_line_is_read_and_anything_else_is_no_block(reply, decision):
    judge, _ = judge_with(Auditor, [reply])
    audit = asyncio.run(judge.audit(make_attempt(3)))
    assert (audit.decision, audit.kind, audit.step) == (decision, None, None)


def test_a_reply_that_is_cut_off_is_no_block():
    reply = ChatReply("BLOCK CAPTCHA step1 Verify", is_cut_off=True)
    assert asyncio.run(Auditor(JudgeModel(RepliesOf(reply))).audit(make_attempt())).decision == "unreadable"


def test_an_auditor_that_cannot_be_reached_decides_nothing():
    audit = asyncio.run(Auditor(JudgeModel(RepliesOf(WorldError("Gone.")))).audit(make_attempt()))
    assert (audit.decision, audit.reason) == ("not_audited", "The auditor failed: Gone.")


def test_each_action_is_followed_by_the_screenshot_after_it_with_its_address():
    attempt = make_attempt(3)
    judge, chat = judge_with(Auditor, ["OK"])
    asyncio.run(judge.audit(attempt))
    [asked] = chat.asked
    after = [*attempt.pages[1:], attempt.screenshots[attempt.trajectory.closing.screenshot.sha256]]
    shown = [part for part in asked[1].parts if not isinstance(part, str)]
    assert [one.image().tobytes() for one in shown] == [one.image().tobytes() for one in after]
    texts = [part for part in asked[1].parts if isinstance(part, str)]
    assert texts[0] == "TASK: How much is the mug?"
    assert [text.splitlines()[0] for text in texts[1:4]] == ["Step 1, action:", "Step 2, action:", "Step 3, action:"]
    assert "<the search box> -> CLICK" in texts[1]
    assert "https://shop.example/1" in texts[1]
    assert "STOP: 12 euros" in texts[3]
    assert "https://shop.example/end" in texts[3]


def test_a_long_attempt_shows_twelve_steps_by_their_own_numbers():
    judge, chat = judge_with(Auditor, ["BLOCK CAPTCHA step30 x"])
    audit = asyncio.run(judge.audit(make_attempt(30)))
    assert len(pictures_of(chat.asked[0])) == 12
    assert "Step 1, action" in text_of(chat.asked[0])
    assert "Step 30, action" in text_of(chat.asked[0])
    assert audit.step == 30


def test_without_a_closing_page_the_last_action_has_no_screenshot():
    judge, chat = judge_with(Auditor, ["OK"])
    asyncio.run(judge.audit(make_attempt(2, closes=False)))
    assert len(pictures_of(chat.asked[0])) == 1
    assert "There is no screenshot after it." in text_of(chat.asked[0])
