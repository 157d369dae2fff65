import asyncio
import threading

import pytest

from factories import make_screenshot
from focusmem.clients.base import ChatReply
from focusmem.errors import ConfigError, WorldError
from focusmem.judges.base import judged
from focusmem.judges.inquiry import CountingInquiry, LiveInquiry, ask_all, digest_of
from focusmem.judges.judge_model import NO_ENDPOINT, JudgeModel
from focusmem.judges.mmina import MminaJudge
from focusmem.judges.webjudge import WebJudge
from focusmem.judges.webvoyager import WebVoyagerJudge
from focusmem.schemas import JudgeCost, Turn
from judges.attempts import RepliesOf, judge_with, make_attempt

PAID = {"num_prompt_tokens": 100, "num_reply_tokens": 10, "cost_usd": 0.5}


def prompt(text="Well?"):
    return (Turn("user", (text, make_screenshot(1))),)


def test_a_verdict_tells_what_was_asked_and_what_it_cost():
    replies = [
        ChatReply("yes", **PAID, departures=("the endpoint refused a temperature",)),
        ChatReply("no", num_prompt_tokens=50, num_reply_tokens=5, cost_usd=0.0, is_stored=True),
    ]
    model = JudgeModel(RepliesOf(*replies), name="m", max_together=1, departures=("judged by m",))
    attempt = make_attempt(references={"fuzzy_match": ["a", "b"]})
    verdict = asyncio.run(judged(MminaJudge(model), attempt))
    assert verdict.cost.model_copy(update={"seconds": 0.0}) == JudgeCost(
        num_calls=2, num_stored=1, num_prompt_tokens=150, num_reply_tokens=15, usd=0.5
    )
    assert verdict.consultation.model == "m"
    assert verdict.consultation.departures == ("judged by m", "the endpoint refused a temperature")
    assert [(one.part, one.text) for one in verdict.consultation.replies] == [
        ("reference 1", "yes"),
        ("reference 2", "no"),
    ]
    assert verdict.subject == attempt.digest


def test_replies_before_a_failure_are_kept_and_paid():
    replies = [
        ChatReply("**Key Points**:\n1. a", **PAID),
        ChatReply("Score: 4", **PAID),
        WorldError("The server is gone."),
    ]
    judge = WebJudge(JudgeModel(RepliesOf(*replies, ChatReply("Score: 4", **PAID)), max_together=1))
    verdict = asyncio.run(judged(judge, make_attempt(3)))
    assert (verdict.outcome, verdict.score, verdict.is_final) == ("not_judged", None, False)
    assert verdict.reason == "The judge failed: The server is gone."
    assert [one.part for one in verdict.consultation.replies] == ["key points", "screenshot 1", "screenshot 3"]
    assert (verdict.cost.num_calls, verdict.cost.usd) == (3, 1.5)


def test_a_wrong_setting_stops_the_judging():
    judge = WebVoyagerJudge(JudgeModel(RepliesOf(ConfigError("The key is wrong."))))
    with pytest.raises(ConfigError, match="key is wrong"):
        asyncio.run(judged(judge, make_attempt()))


def test_without_an_endpoint_only_the_rules_decide():
    judge = WebVoyagerJudge(JudgeModel(None, name="m"))
    verdict = asyncio.run(judged(judge, make_attempt()))
    assert (verdict.outcome, verdict.reason) == ("not_judged", f"The judge failed: {NO_ENDPOINT}")
    assert asyncio.run(judged(judge, make_attempt(answer=None))).outcome == "failure"


def test_no_more_questions_are_under_way_than_allowed():
    under_way, most, lock, full = 0, 0, threading.Lock(), threading.Barrier(3, timeout=60)

    class Counting(RepliesOf):
        def ask(self, prompt, *, seed=None, as_json=False):
            nonlocal under_way, most
            with lock:
                under_way += 1
                most = max(most, under_way)
            full.wait()  # three together, or the barrier breaks
            with lock:
                under_way -= 1
            return ChatReply("Score: 1")

    inquiry = LiveInquiry(JudgeModel(Counting(), max_together=3), "0" * 64)

    async def ask():
        return await ask_all(*(inquiry.ask(f"part {number}", prompt(str(number))) for number in range(9)))

    assert len(asyncio.run(ask())) == 9
    assert most == 3


def test_replies_keep_the_order_of_the_questions():
    inquiry = LiveInquiry(JudgeModel(RepliesOf(*[ChatReply("x")] * 4), max_together=4), "0" * 64)

    async def ask():
        await ask_all(*(inquiry.ask(f"part {number}", prompt()) for number in range(4)))

    asyncio.run(ask())
    assert [one.part for one in inquiry.consultation.replies] == ["part 0", "part 1", "part 2", "part 3"]


def test_text_that_no_record_can_hold_is_mended():
    judge, _ = judge_with(WebVoyagerJudge, ["<result>SUCCESS</result> \0 \ud800"])
    verdict = asyncio.run(judge.judge(make_attempt()))
    assert verdict.consultation.replies[0].text == "<result>SUCCESS</result> \ufffd \ufffd"


def test_stored_replies_are_parsed_again_without_a_model():
    replies = ["**Key Points**:\n1. a", "Score: 4", "Score: 2", "Score: 5", "Status: success"]
    judge, _ = judge_with(WebJudge, replies)
    attempt = make_attempt(3)
    verdict = asyncio.run(judged(judge, attempt))
    offline = WebJudge(JudgeModel(None))
    assert asyncio.run(offline.judge_stored(attempt, verdict)) == verdict


def test_a_stored_reply_to_another_prompt_is_told():
    judge, _ = judge_with(WebVoyagerJudge, ["<result>SUCCESS</result>"])
    verdict = asyncio.run(judge.judge(make_attempt()))
    again = asyncio.run(judge.judge_stored(make_attempt(instruction="How much is the hat?"), verdict))
    assert again.outcome == "success"
    assert again.consultation.departures == ("the stored reply to 'verdict' was given to another prompt",)


def test_an_estimate_is_what_is_asked_at_most():
    attempt = make_attempt(4)
    judge, chat = judge_with(WebJudge, lambda asked: "Score: 5\nStatus: success")
    estimate = asyncio.run(judge.estimate(attempt))
    assert chat.asked == []
    verdict = asyncio.run(judge.judge(attempt))
    assert (estimate.num_calls, estimate.num_images) == (verdict.cost.num_calls, verdict.cost.num_images) == (6, 8)
    assert estimate.num_prompt_tokens > 0
    assert estimate.num_reply_tokens > 0


def test_counting_asks_nobody():
    inquiry = CountingInquiry(lambda part: part.upper())
    assert asyncio.run(inquiry.ask("verdict", prompt())).text == "VERDICT"


def test_prompts_with_other_words_pictures_or_roles_differ():
    digests = [
        digest_of(prompt()),
        digest_of(prompt("Now?")),
        digest_of((Turn("system", prompt()[0].parts),)),
        digest_of((Turn("user", ("Well?", make_screenshot(2))),)),
    ]
    assert len(set(digests)) == 4
