"""UI-Venus-1.5: every action of its web prompt, as `models/navigation/utils.py` of github.com/inclusionAI/UI-Venus at
c3a1442 writes it, and the sample place of `Venus_framework/policy/ui_venus_policy.py`. Its authors publish no results;
the reply in tags is the output format of that prompt.
"""

import pytest

from agent.decisions import make_decision
from agent.formats.reading import assert_unreadable, read, screen
from focusmem.agent.formats.ui_venus import UiVenus
from focusmem.schemas import Step

VENUS, SEEN = UiVenus(), screen(1280, 720)


def reply_of(action):
    return f"<think>The cart Click(box=(1,1)).</think>\n<action>{action}</action>\n<conclusion>Done so.</conclusion>"


ACTIONS = [
    ("Click(box=(868,487))", ("click", {"description": "the point (1111, 350)"}, (1111, 350))),
    ("Click(box=(483, 220))", ("click", {"description": "the point (618, 158)"}, (618, 158))),
    ("Scroll(direction='down')", ("scroll", {"direction": "down"}, None)),
    ("Scroll(start=(500,800), end=(500,200))", ("scroll", {"direction": "down"}, (640, 576))),
    ("Scroll(start=(500,200), end=(500,800))", ("scroll", {"direction": "up"}, (640, 144))),
    ("Type(content='standard_user')", ("type", {"text": "standard_user"}, None)),
    ("Launch(url='https://shop.example/')", ("goto", {"url": "https://shop.example/"}, None)),
    ("Wait()", ("wait", {}, None)),
    ("Finished(content='')", ("stop", {"answer": ""}, None)),
    ("CallUser(content='12 euros, it says')", ("stop", {"answer": "12 euros, it says"}, None)),
    ("PressEnter()", ("press_key", {"key": "Enter"}, None)),
    ("Hotkey(keys=['ctrl', 'c'])", ("press_key", {"key": "ctrl+c"}, None)),
]


@pytest.mark.parametrize(("action", "expected"), ACTIONS)
def test_the_actions_of_its_prompt(action, expected):
    assert read(VENUS, reply_of(action), SEEN) == expected


@pytest.mark.parametrize(
    "action",
    [
        "Drag(start=(1,1), end=(2,2))", "Launch(app='Maps')", "LongPress(box=(1,1))", "PressBack()", "PressHome()",
        "PressRecent()", "Hover(box=(1,1))", "DoubleClick(box=(1,1))", "Scroll(direction='left')",
        "Scroll(start=(800,500), end=(200,500))",
    ],
)  # fmt: skip
def test_actions_without_an_equivalent_say_so(action):
    assert_unreadable(
        VENUS, reply_of(action), SEEN, f"{action.partition('(')[0].title()[:4]}.*no equivalent|scroll left"
    )


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("Click(box=(1,1))", "contains 0 actions"),
        ("<action>Click(box=(1,1))</action><action>Wait()</action>", "contains 2 actions"),
        ("<action>Click(box=(1,1)),Click(box=(2,2))</action>", "cannot be read"),
        ("<action>Click(box=(2000,1))</action>", "far outside"),
        ("<action></action>", "no call"),
    ],
)
def test_anything_else_says_what_is_wrong(reply, words):
    assert_unreadable(VENUS, reply, SEEN, words)


def test_the_prompt_repeats_thoughts_and_actions_and_shows_one_screenshot():
    decision = make_decision(num_steps=1)
    shot = decision.steps[0].screenshot
    steps = [
        Step(screenshot=shot, reply=reply_of("Wait()"), action=decision.steps[0].action),
        Step(screenshot=shot, reply="<think>What?</think>nothing", error="The reply contains 0 actions."),
    ]
    [turn] = VENUS.prompt(make_decision(steps=steps)).__iter__()
    text, screenshot = turn.parts
    assert "Step 0: <think>The cart Click(box=(1,1)).</think><action>Wait()</action>\n" in text
    assert "Step 1: <think>What?</think><action>nothing</action> The last action did not work: The reply" in text
    assert screenshot == decision.seen.screenshot
    assert "did not work" not in UiVenus(shows_errors=False).prompt(make_decision(steps=steps))[0].parts[0]
