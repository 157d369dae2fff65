"""MolmoWeb: the actions that `agent/multimodal_agent.py` of github.com/allenai/molmoweb at 6a841b4 understands, on the
1280x720 screen of its `demo.ipynb`, whose stored output has the pixels (640, 270), (643.8, 465.8) and (632.3, 409.7);
the percentages here are those that give them. `gemini_type_text_at` is in thousandths there too.
"""

import json

import pytest

from agent.decisions import make_decision
from agent.formats.reading import assert_unreadable, read, screen
from focusmem.agent.formats.molmoweb import MolmoWeb
from focusmem.schemas import Step

MOLMO, SEEN = MolmoWeb(), screen(1280, 720)


def at(x, y):
    return "click", {"description": f"the point ({x}, {y})"}, (x, y)


ACTIONS = [
    ({"name": "goto", "url": "https://allenai.org"}, ("goto", {"url": "https://allenai.org"}, None)),
    ({"name": "mouse_click", "x": 50.0, "y": 37.5, "button": "left"}, at(640, 270)),
    ({"name": "click", "x": 50.3, "y": 64.7, "button": "left", "click_type": "single"}, at(643, 465)),
    ({"name": "click", "x": 49.4, "y": 56.9}, at(632, 409)),
    ({"name": "click", "x": 100, "y": 100}, at(1279, 719)),
    ({"name": "scroll", "delta_x": 0, "delta_y": 100}, ("scroll", {"direction": "down"}, None)),
    ({"name": "scroll", "delta_x": 0, "delta_y": -50.0}, ("scroll", {"direction": "up"}, None)),
    (
        {"name": "scroll_at", "x": 50, "y": 50, "delta_x": 0, "delta_y": 30},
        ("scroll", {"direction": "down"}, (640, 360)),
    ),
    ({"name": "keyboard_type", "text": "mugs\n"}, ("type", {"text": "mugs"}, None)),
    ({"name": "keyboard_press", "key": "Enter"}, ("press_key", {"key": "Enter"}, None)),
    ({"name": "keyboard_press", "key": "ControlOrMeta+a"}, ("press_key", {"key": "Control+a"}, None)),
    (
        {"name": "gemini_type_text_at", "x": 500, "y": 375, "text": "mugs", "press_enter": True},
        ("type", {"text": "mugs", "description": "the point (640, 270)"}, (640, 270)),
    ),
    ({"name": "noop", "noop_reason": "loading"}, ("wait", {}, None)),
    ({"name": "send_msg_to_user", "msg": "[ANSWER] Done"}, ("stop", {"answer": "Done"}, None)),
    ({"name": "send_msg_to_user", "msg": "[EXIT]"}, ("stop", {"answer": ""}, None)),
    (
        {"name": "report_infeasible", "infeasibility_reason": "No such shop."},
        ("stop", {"answer": "No such shop."}, None),
    ),
]


@pytest.mark.parametrize(("action", "expected"), ACTIONS)
def test_its_actions_with_and_without_a_thought(action, expected):
    assert read(MOLMO, json.dumps({"thought": "On I go.", "action": action}), SEEN) == expected
    assert read(MOLMO, json.dumps(action), SEEN) == expected


@pytest.mark.parametrize(
    "action",
    [
        {"name": "dblclick", "x": 1, "y": 1}, {"name": "click", "x": 1, "y": 1, "button": "right"},
        {"name": "click", "x": 1, "y": 1, "click_type": "double"}, {"name": "hover_at", "x": 1, "y": 1},
        {"name": "mouse_drag_and_drop", "from_x": 1}, {"name": "browser_nav", "nav_type": "go_back", "index": -1},
        {"name": "scroll", "delta_x": 40, "delta_y": 0}, {"name": "send_msg_to_user", "msg": "One moment."},
    ],
)  # fmt: skip
def test_actions_without_an_equivalent_say_so(action):
    assert_unreadable(MOLMO, json.dumps({"thought": "", "action": action}), SEEN, f"{action['name']}.*no equivalent")


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("click it", "not one JSON object"),
        ("[" * 10_000, "not one JSON object"),
        ("[1]", "no action"),
        ('{"action": "click"}', "no action"),
        ('{"action": {"name": 7}}', "no action"),
        ('{"name": "click", "x": "50", "y": 1}', "'x' should be a number"),
        ('{"name": "click", "x": 50}', "'y' should be a number"),
        ('{"name": "click", "x": NaN, "y": 1}', "far outside"),
        ('{"name": "click", "x": 640, "y": 270}', "far outside"),
        ('{"name": "keyboard_type", "text": 5}', "'text' should be a text"),
        ('{"name": "goto"}', "'url' of goto"),
    ],
)
def test_anything_else_says_what_is_wrong(reply, words):
    assert_unreadable(MOLMO, reply, SEEN, words)


def test_the_prompt_has_the_parts_of_its_template():
    decision = make_decision(num_steps=1)
    old = '{"thought": "Look.", "action": {"name": "click", "x": 50.0, "y": 37.5}}'
    step = Step(screenshot=decision.steps[0].screenshot, reply=old, action=decision.steps[0].action)
    text, screenshot = MOLMO.prompt(make_decision(steps=[step] * 5))[0].parts
    assert text.startswith(
        "molmo_web_think: \n# GOAL\nHow much is mug 0?\n\n# PREVIOUS STEPS\n## Step 3\nTHOUGHT: Look.\n"
    )
    assert "ACTION: {'name': 'click', 'x': 50.0, 'y': 37.5}\n## Step 4\n" in text
    assert text.count("## Step") == 3
    assert "# CURRENTLY ACTIVE PAGE\nPage 0: Shop | https://shop.example/now\n\n# NEXT STEP\n" in text
    assert screenshot == decision.seen.screenshot
