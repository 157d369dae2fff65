import asyncio

import pytest

from focusmem.judges.action_history import action_history
from focusmem.judges.base import judged
from focusmem.judges.webjudge import WebJudge, read_key_points, read_look, read_verdict
from focusmem.schemas import JudgeReply, make_action
from judges.attempts import judge_with, make_attempt, pictures_of, text_of, verdict_of

POINTS = "**Key Points**:\n1. Name the price."
FIVE, TWO = "**Reasoning**: It shows the price.\n**Score**: 5", "**Reasoning**: Nothing.\n**Score**: 2"


def reply(text, **values):
    return JudgeReply(part="screenshot 1", text=text, prompt="0" * 64, **values)


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("**Key Points**:\n1. One.\n2. Two.", "\n1. One.\n2. Two."),
        ("Sure.\n\n**Key Points**:\n\n  1. One.\n\n  2. Two.", "\n1. One.\n2. Two."),
        ("**Key Points**: 1. One. **Key Points**: 2. Two.", "1. One. "),
        ("Key Points: a Key Points: 1. One.", "1. One."),
        ("1. One.\n2. Two.", "1. One.\n2. Two."),
        ("", ""),
    ],
)
def test_key_points(text, points):
    assert read_key_points(text) == points


@pytest.mark.parametrize(
    ("text", "score", "thought"),
    [
        ("**Reasoning**: It is there.\n**Score**: 4", 4, "It is there. **Score**: 4"),
        ("**Reasoning**: It is\nthere.\n\n**Score**: 4", 4, "It is there."),
        ("1. **Reasoning**: It is there.\n\n2. **Score**: [3]", 3, "It is there."),
        ("Score: 2", 2, "Score: 2"),
        ("**Reasoning**: a **Reasoning**: b\n\n**Score**: 5", 5, "b"),
        ("**Score**: 0 of 5", 5, "**Score**: 0 of 5"),
        ("**Score**: 9", None, ""),
        ("The Score is hard to give.\n**Score**: 5", None, ""),
        ("The Score is 2.\n**Score**: 5", 2, "The Score is 2. **Score**: 5"),
        ("**SCORE**: 5", None, ""),
        ("**Reasoning**:\n\n**Score**: 4", 4, "**Score**: 4"),
        ("", None, ""),
    ],
)
def test_the_score_and_the_thought_of_a_screenshot(text, score, thought):
    look = read_look(reply(text))
    assert (look.score, look.thought) == (score, thought)


def test_an_echo_scores_nothing():
    assert read_look(reply("**Score**: 5", is_echo=True)).score is None


@pytest.mark.parametrize(
    ("text", "reading", "strict"),
    [
        ('Thoughts: fine.\nStatus: "success"', "success", "success"),
        ("Thoughts: no.\nStatus: failure", "failure", "failure"),
        ("Thoughts: no.\n**Status:** **Failure**", "failure", "failure"),
        ("**Status**: success", "unreadable", "success"),
        ("STATUS: SUCCESS", "success", "success"),
        ("Status: unsuccessful", "success", "unreadable"),
        ("Status: not success", "success", "unreadable"),
        ("Status: success? No. Status: failure", "success", "unreadable"),
        ("The status: unclear.\nStatus: success", "failure", "success"),
        ("Status: failure\nStatus: success", "failure", "unreadable"),
        ("Status: done", "failure", "unreadable"),
        ("Status:", "failure", "unreadable"),
        ("success", "unreadable", "unreadable"),
        ("", "unreadable", "unreadable"),
    ],
)
def test_the_verdict_and_its_strict_reading(text, reading, strict):
    assert read_verdict(text) == reading
    verdict = verdict_of(WebJudge, [POINTS, TWO, TWO, TWO, text])
    assert (verdict.outcome, verdict.strict) == ("success" if reading == "success" else "failure", strict)
    assert verdict.num_unreadable == (reading == "unreadable")


def test_three_stages_with_the_screenshots_that_reach_the_threshold():
    attempt = make_attempt(4)
    scores = [FIVE, TWO, FIVE.replace("5", "3").replace("price", "name"), "no score"]
    judge, chat = judge_with(WebJudge, [POINTS, *scores, 'Thoughts: ...\nStatus: "success"'])
    verdict = asyncio.run(judge.judge(attempt))
    assert (verdict.outcome, verdict.num_unreadable) == ("success", 1)
    assert [one.part for one in verdict.consultation.replies] == [
        "key points", "screenshot 1", "screenshot 2", "screenshot 3", "screenshot 4", "verdict",
    ]  # fmt: skip
    points, *looks, last = chat.asked
    assert (pictures_of(points), [len(pictures_of(look)) for look in looks]) == ([], [1] * 4)
    assert all("1. Name the price." in text_of(look) for look in looks)
    shown = [picture.image().tobytes() for picture in pictures_of(last)]
    assert shown == [attempt.pages[place].image().tobytes() for place in (0, 2)]
    assert "1. It shows the price. **Score**: 5\n2. It shows the name. **Score**: 3" in text_of(last)
    assert "1. <the search box> -> CLICK\n2. <the search box> -> TYPE: blue mug\n3. <page> -> PRESS_KEY: Enter" in (
        text_of(last)
    )
    assert "12 euros" not in text_of(last), "the answer is not shown"
    assert verdict.cost.num_images == 6


def test_the_first_fifty_screenshots_are_shown_not_the_best():
    attempt = make_attempt(53)
    replies = [FIVE.replace("5", "3")] * 52 + [FIVE]
    judge, chat = judge_with(WebJudge, [POINTS, *replies, "Status: success"])
    asyncio.run(judge.judge(attempt))
    assert [picture.image().tobytes() for picture in pictures_of(chat.asked[-1])] == [
        page.image().tobytes() for page in attempt.pages[:50]
    ]


def test_without_a_screenshot_that_matters_the_section_is_left_out():
    judge, chat = judge_with(WebJudge, [POINTS, TWO, TWO, TWO, "Status: failure"])
    asyncio.run(judge.judge(make_attempt()))
    assert pictures_of(chat.asked[-1]) == []
    assert "Screenshots that may matter follow" not in text_of(chat.asked[-1])


def test_the_paper_wants_an_answer_and_the_official_judge_does_not():
    attempt = make_attempt(2, answer=None)
    for profile, num_asked in (("paper", 0), ("official", 5)):
        judge, chat = judge_with(WebJudge, [POINTS, TWO, TWO, TWO, "Status: success"], profile=profile)
        verdict = asyncio.run(judged(judge, attempt))
        assert (verdict.outcome == "success", len(chat.asked)) == (profile == "official", num_asked)
    assert len(attempt.pages) == 3, "the closing page counts after an action that may have changed it"


def test_history_holds_actions_only():
    attempt = make_attempt(7)
    steps = list(attempt.steps)
    steps[0] = steps[0].model_copy(update={"error": "Nothing of that name."})
    steps[1] = steps[1].model_copy(update={"action": None, "error": "Unreadable."})
    steps[4] = steps[4].model_copy(update={"action": make_action("type", text="mug", reasoning="I guess.")})
    assert action_history(steps) == [
        "<the search box> -> CLICK (did not work)",
        "<page> -> PRESS_KEY: Enter",
        "<page> -> SCROLL: down",
        "<page> -> TYPE: mug",
        "<page> -> GOTO: https://shop.example/cart",
    ]
