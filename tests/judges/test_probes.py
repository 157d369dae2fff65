import asyncio

import pytest

from factories import make_screenshot, make_steps
from focusmem.clients.base import ChatReply
from focusmem.errors import RecordError, WorldError
from focusmem.judges.action_validity import ActionValidityJudge, CandidateAction
from focusmem.judges.content_probe import ContentProbeJudge, ProbeAnswer
from focusmem.judges.judge_model import JudgeModel
from judges.attempts import RepliesOf, judge_with, pictures_of, text_of

STEPS, SCREENSHOTS = make_steps(3)
PROBE = ProbeAnswer("item-1", "working", "aligned", "State what changed.", STEPS, "The price appeared.", SCREENSHOTS)
CANDIDATE = CandidateAction("item-1", "Buy the mug.", STEPS[:2], make_screenshot(7), '{"name": "wait"}', SCREENSHOTS)


@pytest.mark.parametrize(
    ("replies", "score", "num_unreadable", "is_readable"),
    [
        (['{"score": 70, "reasoning": "Most of it."}'], 70, 0, True),
        (['```json\n{"score": 0}\n```'], 0, 0, True),
        (['{"score": 100} {"score": 100}'], 100, 0, True),
        (["70", '{"score": 65}'], 65, 1, True),
        (['{"score": 101}', '{"score": 65}'], 65, 1, True),
        (['{"score": -1}', '{"score": 65}'], 65, 1, True),
        (['{"score": 70.5}', '{"score": 65}'], 65, 1, True),
        (['{"score": "70"}', '{"score": 65}'], 65, 1, True),
        (['{"score": true}', '{"score": 65}'], 65, 1, True),
        (['{"score": 70} {"score": 10}', '{"score": 65}'], 65, 1, True),
        (['{"score": 70', '{"reasoning": "70"}'], 0, 2, False),
        (["", "nothing"], 0, 2, False),
    ],
)
def test_a_score_is_asked_for_once_more_and_then_zero_and_counted(replies, score, num_unreadable, is_readable):
    judge, chat = judge_with(ContentProbeJudge, replies)
    found = asyncio.run(judge.score(PROBE))
    assert (found.score, found.num_unreadable, found.is_readable) == (score, num_unreadable, is_readable)
    assert len(chat.asked) == len(replies) == found.cost.num_calls
    assert len(set(map(str, map(text_of, chat.asked)))) == 1, "the same question"


def test_the_second_question_has_another_seed_so_that_no_store_answers_it():
    client = RepliesOf(ChatReply("?"), ChatReply('{"score": 5}'))
    asyncio.run(ContentProbeJudge(JudgeModel(client)).score(PROBE))
    assert client.seeds == [None, 1]


def test_a_probe_shows_the_evidence_and_not_who_answered():
    judge, chat = judge_with(ContentProbeJudge, ['{"score": 70, "reasoning": "Most of it."}'])
    found = asyncio.run(judge.score(PROBE))
    [asked] = chat.asked
    assert pictures_of(asked) == list(SCREENSHOTS.values())
    text = text_of(asked)
    for words in ("Memory role: working", "Probe category: aligned", "State what changed.", "The price appeared."):
        assert words in text
    assert '{"name": "click"' in text
    assert "item-1" not in text
    assert (found.reason, found.item_id, found.category) == ("Most of it.", "item-1", "aligned")


@pytest.mark.parametrize(
    ("replies", "is_valid", "num_unreadable"),
    [
        (['{"valid": true, "reasoning": "It waits."}'], True, 0),
        (['{"valid": false}'], False, 0),
        (['{"valid": "true"}', '{"valid": true}'], True, 1),
        (["true", "valid"], False, 2),
        (['{"valid": 1}', '{"valid": null}'], False, 2),
    ],
)
def test_an_action_is_valid_only_if_the_judge_says_so(replies, is_valid, num_unreadable):
    judge, chat = judge_with(ActionValidityJudge, replies)
    found = asyncio.run(judge.judge(CANDIDATE))
    assert (found.is_valid, found.num_unreadable, found.is_readable) == (is_valid, num_unreadable, num_unreadable < 2)
    assert len(chat.asked) == len(replies)


def test_a_candidate_is_shown_with_history_screen_and_actions():
    judge, chat = judge_with(ActionValidityJudge, ['{"valid": true}'])
    asyncio.run(judge.judge(CANDIDATE))
    [asked] = chat.asked
    assert pictures_of(asked) == [*list(SCREENSHOTS.values())[:2], make_screenshot(7)]
    text = text_of(asked)
    for words in ("Buy the mug.", '{"name": "wait"}', "press_key", "blue mug"):
        assert words in text


@pytest.mark.parametrize("kind", [ContentProbeJudge, ActionValidityJudge])
def test_a_model_that_cannot_be_reached_scores_nothing(kind):
    judge = kind(JudgeModel(RepliesOf(WorldError("Gone."))))
    with pytest.raises(WorldError, match="Gone"):
        asyncio.run(judge.score(PROBE) if kind is ContentProbeJudge else judge.judge(CANDIDATE))


def test_evidence_without_its_screenshots_is_refused():
    judge, _ = judge_with(ContentProbeJudge, [])
    bare = ProbeAnswer("item-1", "working", "aligned", "State what changed.", STEPS, "x")
    with pytest.raises(RecordError, match="screenshot of step 1"):
        asyncio.run(judge.score(bare))
