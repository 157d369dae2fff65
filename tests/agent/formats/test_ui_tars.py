"""UI-TARS: replies and results as its authors publish them.

- README: github.com/bytedance/UI-TARS at 582f3a7, `codes/README.md` (a 1920x1080 screen, the doubao model).
- TUTORIAL: the same, `README_coordinates.md`; its picture `data/coordinate_process_image.png` has 1920x1080 pixels.
- PARSER: the same, `codes/tests/action_parser_test.py` (224x224) and the branches of `codes/ui_tars/action_parser.py`.
- DESKTOP: github.com/bytedance/UI-TARS-desktop at 02be0c2,
  `multimodal/gui-agent/action-parser/test/defaultActionParser.test.ts`; it gives raw coordinates, which are compared on
  a screen of 1000x1000, where thousandths are pixels.
"""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decisions import make_decision
from agent.formats.reading import assert_unreadable, read, screen
from focusmem.agent.formats.ui_tars import UiTars
from focusmem.errors import UnreadableActionError
from focusmem.schemas import Screenshot

PIXELS, THOUSANDTHS = UiTars(has_pixels=True), UiTars(has_pixels=False)
HD, SMALL, RAW, VGA = screen(1920, 1080), screen(224, 224), screen(1000, 1000), screen(640, 480)


def at(x, y):
    return "click", {"description": f"the point ({x}, {y})"}, (x, y)


PUBLISHED = [
    (
        "README", THOUSANDTHS, HD, "Thought: Click the button\nAction: click(point='<point>200 300</point>')",
        at(384, 324),
    ),
    ("TUTORIAL", PIXELS, HD, "Thought: xxx\nAction: click(start_box='(197,525)')", at(195, 519)),
    ("PARSER", PIXELS, SMALL, "Thought: test\nAction: click(point='<point>200 100</point>')", at(200, 100)),
    ("PARSER", PIXELS, SMALL, "Action: hotkey(key='ctrl v')", ("press_key", {"key": "ctrl+v"}, None)),
    ("PARSER", PIXELS, SMALL, "Action: hotkey(key='arrowdown')", ("press_key", {"key": "arrowdown"}, None)),
    ("PARSER", PIXELS, SMALL, "Action: press(key='enter')", ("press_key", {"key": "enter"}, None)),
    ("PARSER", PIXELS, SMALL, "Action: type(content='It's here')", ("type", {"text": "It's here"}, None)),
    ("PARSER", PIXELS, SMALL, "Action: type(content='mug\\n')", ("type", {"text": "mug"}, None)),
    ("PARSER", PIXELS, SMALL, "Action: left_single(start_box='(10,20)')", at(10, 20)),
    ("PARSER", PIXELS, SMALL, "Action: scroll(direction='down')", ("scroll", {"direction": "down"}, None)),
    (
        "PARSER", PIXELS, SMALL, "Action: scroll(point='<point>100 50</point>', direction='up')",
        ("scroll", {"direction": "up"}, (100, 50)),
    ),
    ("PARSER", PIXELS, SMALL, "Action: wait()", ("wait", {}, None)),
    ("PARSER", PIXELS, SMALL, "Action: finished()", ("stop", {"answer": ""}, None)),
    ("PARSER", PIXELS, SMALL, "Action: finished(content='12 \\'euros\\'')", ("stop", {"answer": "12 'euros'"}, None)),
    ("PARSER", PIXELS, SMALL, "Action: call_user()", ("stop", {"answer": ""}, None)),
    (
        "DESKTOP", THOUSANDTHS, RAW, "Thought: I need to click this button\nAction: click(start_box='(100,200)')",
        at(100, 200),
    ),
    (
        "DESKTOP", THOUSANDTHS, RAW,
        "Reflection: This is a reflection\nAction_Summary: This is a summary\n"
        "Action: type(text='Hello', start_box='(300,400)')",
        ("type", {"text": "Hello", "description": "the point (300, 400)"}, (300, 400)),
    ),
    (
        "DESKTOP", THOUSANDTHS, RAW,
        "Reflection: This is a reflection\nAction_Summary: This is a summary\n"
        "Action: type(text='Hello', start_box='<bbox>300 400</bbox>')",
        ("type", {"text": "Hello", "description": "the point (300, 400)"}, (300, 400)),
    ),
    ("DESKTOP", THOUSANDTHS, RAW, "Action: click(start_box='[637,964,637,964]')", at(637, 964)),
    ("DESKTOP", THOUSANDTHS, RAW, "Action: click(start_box='<bbox>637 964 637 964</bbox>')", at(637, 964)),
    ("DESKTOP", THOUSANDTHS, RAW, "Action: click(start_box='[130,226]')", at(130, 226)),
    ("DESKTOP", THOUSANDTHS, RAW, "Action: click(start_box='[348, 333, 928, 365]')", at(638, 349)),
    ("DESKTOP", THOUSANDTHS, RAW, "Action: click(start_box='[287, 111, 313, 124]')", at(300, 117)),
    ("DESKTOP", THOUSANDTHS, RAW, "Action: click(start_box='[0, 964, 10, 984]')", at(5, 974)),
    (
        "DESKTOP", THOUSANDTHS, RAW,
        "<Thought>I need to perform this action</Thought>\nAction_Summary: Click and type text\n"
        "Action: click(start_box='(100,200)')\n</Output>",
        at(100, 200),
    ),
    (
        "DESKTOP", THOUSANDTHS, RAW,
        "<think>\nOkay, clear the search bar first, then Action: type(content='news').\n</think>\n"
        "Thought: To search for news, first clear the existing text.\nAction: click(point='<point>510 150</point>')",
        at(510, 150),
    ),
    (
        "DESKTOP", THOUSANDTHS, RAW,
        "<think_xxx>Hmm, the previous action didn't work.</think_xxx>\n<computer_env>\n"
        "Action: click(point='<point>400 435</point>')\n</computer_env>",
        at(400, 435),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("source", "action_format", "seen", "reply", "expected"), PUBLISHED)
def test_published_replies(source, action_format, seen, reply, expected):
    assert read(action_format, reply, seen) == expected


def test_boxes_with_their_tokens_and_fences_are_read():
    fenced = "```\nThought: There.\nAction: click(start_box='<|box_start|>(100,200)<|box_end|>')\n```"
    assert read(THOUSANDTHS, fenced, RAW) == at(100, 200)


def test_a_line_break_alone_is_the_enter_key():
    assert read(PIXELS, "Action: type(content='\\n')", SMALL) == ("press_key", {"key": "Enter"}, None)


def test_the_thought_is_the_reason_and_a_control_lends_its_name():
    seen = screen(1000, 1000, ("Whole page", 0, 0, 1000, 1000), ("Search", 90, 190, 40, 40))
    choice = THOUSANDTHS.read("Thought: Press it.\nAction: click(start_box='(100,200)')", seen)
    assert (choice.action.arguments.description, choice.action.arguments.reasoning) == ("Search", "Press it.")


MANY = (
    "Thought: First, navigate to Baidu.\nAction: click(point='<point>403 81</point>')\n\ntype(content='baidu.com')\n\n"
    "hotkey(key='enter')"
)  # DESKTOP, "multiple actions"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (MANY, "contains 3 actions"),
        ("Action: drag(start_box='[130,226]', end_box='[200,226]')", "'drag' has no equivalent"),
        ("Action: left_double(start_box='(1,2)')", "'left_double' has no equivalent"),
        ("Action: right_single(start_box='(1,2)')", "'right_single' has no equivalent"),
        ("Action: scroll(direction='left')", "'scroll left' has no equivalent"),
        ("Action: open_computer()", "'open_computer' has no equivalent"),
        ("Action: click(end_box='[130,226]')", "neither a point nor a box"),
        ("Action: click(start_box='(1,2,3)')", "neither a point nor a box"),
        ("Action: click(start_box='(1e3,2)')", "neither a point nor a box"),
        ("Action: click(start_box='(5000,2)')", "far outside of the view"),
        ("Action: click(start_box='(-200,2)')", "far outside of the view"),
        ("Action: type(content='')", "'text' of type"),
        ("Action: hotkey(key='')", "'key' of press_key"),
        ("Action: click(__import__('os'))", "cannot be read"),
        ("Action: click", "no call"),
        ("I am not sure.", "no line that begins with 'Action:'"),
        ("", "no line"),
    ],
)
def test_anything_else_says_what_is_wrong(reply, words):
    assert_unreadable(THOUSANDTHS, reply, RAW, words)


@given(st.integers(0, 999), st.integers(0, 999))
def test_every_point_of_the_screen_stays_on_it(x, y):
    _, _, (left, top) = read(THOUSANDTHS, f"Action: click(start_box='({x},{y})')", VGA)
    assert (left, top) == (x * 640 // 1000, y * 480 // 1000)


@given(st.text(alphabet="acilk(start_box='1,2)\n\\ \"[]<>|", max_size=60))
def test_any_text_is_an_action_or_a_sentence(text):
    with contextlib.suppress(UnreadableActionError):  # any other error fails
        assert THOUSANDTHS.read(f"Action: click({text}", RAW).action.name == "click"


def test_the_prompt_shows_the_latest_screenshots_and_all_replies():
    decision = make_decision(num_steps=7)
    prompt = PIXELS.prompt(decision)
    pictures = [part for turn in prompt for part in turn.parts if isinstance(part, Screenshot)]
    kept = [decision.screenshots[step.screenshot.sha256] for step in decision.steps[-4:]]
    assert pictures == [*kept, decision.seen.screenshot]
    assert decision.task.instruction in prompt[0].parts[0]
    assert [turn.role for turn in prompt].count("assistant") == 7
    assert prompt[-1].parts == (decision.seen.screenshot,)
