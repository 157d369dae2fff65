"""Fara: the three actions of the log in the README of github.com/microsoft/fara at 3f3f1fd, with the place that it
gives for the click on its 1440x900 screen, and every other action of `src/fara/_prompts.py`.
"""

import json

import pytest

from agent.decisions import make_decision
from agent.formats.reading import assert_unreadable, read, screen
from focusmem.agent.formats.fara import Fara
from focusmem.schemas import Screenshot

FARA, SEEN = Fara(), screen(1440, 900)


def reply_of(thoughts="", **arguments):
    call = json.dumps({"name": "computer_use", "arguments": arguments})
    return f"{thoughts}\n<tool_call>\n{call}\n</tool_call>"


STORES = "The closest GameStop store to zip code 90028 is located at 5533 W Sunset Blvd."
SEARCHED = "https://www.bing.com/search?q=GameStop+store+locator+zip+code+90028"

ACTIONS = [
    # The log: "I clicked at coordinates (1083.0252100840337, 37.16517857142858)."
    (
        reply_of("To begin, I will click on the 'Trade-In' button", action="left_click", coordinate=[1074, 37]),
        ("click", {"description": "the point (1083, 37)"}, (1083, 37)),
    ),
    (reply_of(action="web_search", query="GameStop store locator zip code 90028"), ("goto", {"url": SEARCHED}, None)),
    (reply_of(STORES, action="terminate", status="success"), ("stop", {"answer": STORES}, None)),
    (
        reply_of(action="type", coordinate=[714, 448], text="mugs", press_enter=True),
        ("type", {"text": "mugs", "description": "the point (720, 450)"}, (720, 450)),
    ),
    (reply_of(action="type", text="mugs"), ("type", {"text": "mugs"}, None)),
    (reply_of(action="scroll", pixels=-500), ("scroll", {"direction": "down"}, None)),
    (reply_of(action="scroll", pixels=500), ("scroll", {"direction": "up"}, None)),
    (reply_of(action="key", keys=["Control", "a"]), ("press_key", {"key": "Control+a"}, None)),
    (reply_of(action="visit_url", url="shop.example"), ("goto", {"url": "shop.example"}, None)),
    (reply_of(action="wait", time=3), ("wait", {}, None)),
    (reply_of(action="pause_and_memorize_fact", fact="12 euros"), ("wait", {}, None)),
]


@pytest.mark.parametrize(("reply", "expected"), ACTIONS)
def test_its_actions(reply, expected):
    assert read(FARA, reply, SEEN) == expected


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (reply_of(action="mouse_move", coordinate=[1, 1]), "'mouse_move' has no equivalent"),
        (reply_of(action="history_back"), "'history_back' has no equivalent"),
        (reply_of(action="scroll", pixels=0), "no equivalent"),
        (reply_of(action="left_click"), "should be"),
        (reply_of(action="left_click", coordinate=[1, "2"]), "should be a number"),
        (reply_of(action="left_click", coordinate=[3000, 2]), "far outside"),
        (reply_of(action="type", coordinate=[1, 1], text=""), "'text' of type"),
        (reply_of(), "'None' has no equivalent"),
        ("I click.", "contains 0 calls"),
        (reply_of(action="wait") * 2, "contains 2 calls"),
        ("<tool_call>click</tool_call>", "no JSON object"),
        ('<tool_call>{"arguments": 7}</tool_call>', "no JSON object"),
    ],
)
def test_anything_else_says_what_is_wrong(reply, words):
    assert_unreadable(FARA, reply, SEEN, words)


def test_the_prompt_keeps_the_task_and_the_latest_three_screenshots():
    decision = make_decision(num_steps=4)
    prompt = FARA.prompt(decision)
    assert [turn.role for turn in prompt] == ["system", "user", *["assistant"] * 2, *["user", "assistant"] * 2, "user"]
    assert "96x64" not in prompt[0].parts[0], "the size as the model sees it"
    assert "84x56" in prompt[0].parts[0]
    assert prompt[1].parts == (decision.task.instruction,)
    pictures = [part for turn in prompt for part in turn.parts if isinstance(part, Screenshot)]
    kept = [decision.screenshots[step.screenshot.sha256] for step in decision.steps[-2:]]
    assert pictures == [*kept, decision.seen.screenshot]
    assert prompt[-1].parts[1].startswith("Current URL: https://shop.example/now\n")
