import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from focusmem.errors import UnreadableActionError
from focusmem.schemas import ACTION_NAMES, action_schema_text, action_to_json, make_action, parse_action
from focusmem.schemas.action import MAX_ARGUMENT_LENGTH, MAX_REPLY_LENGTH, Click, ClickArguments
from schemas.strategies import FAST, actions, texts

WAIT = '{"name": "wait", "arguments": {}}'
prose = texts.map(lambda text: text.replace("{", "("))


@FAST
@given(actions)
def test_an_action_reads_back_from_its_own_json(action):
    assert parse_action(action_to_json(action)) == action


@FAST
@given(actions, prose, prose)
def test_an_action_is_found_in_prose(action, before, after):
    assert parse_action(before + action_to_json(action) + after) == action


@FAST
@given(actions, prose)
def test_an_action_is_found_in_a_fenced_block(action, before):
    pretty = json.dumps(json.loads(action_to_json(action)), indent=2)
    assert parse_action(f"{before}\n```json\n{pretty}\n```\nDone.") == action


@FAST
@given(actions)
def test_an_action_may_be_repeated(action):
    text = action_to_json(action)
    assert parse_action(f"{text} So: {text}") == action


@FAST
@given(actions)
def test_the_json_is_one_line_with_exactly_two_keys(action):
    text = action_to_json(action)
    assert len(text.splitlines()) == 1
    assert list(json.loads(text)) == ["name", "arguments"]
    assert None not in json.loads(text)["arguments"].values()


def test_the_json_keeps_its_order_and_its_letters():
    action = make_action("type", text="M\u00fcsli", description="the box", reasoning="Search first.")
    assert action_to_json(action) == (
        '{"name": "type", "arguments": {"text": "M\u00fcsli", "description": "the box", "reasoning": "Search first."}}'
    )


def test_the_longest_action_can_be_read_back():
    longest = "\x01" * MAX_ARGUMENT_LENGTH
    action = make_action("type", text=longest, description=longest, reasoning=longest)
    assert parse_action(action_to_json(action)) == action


@pytest.mark.parametrize(
    "braces", ["{x}", "{}", "{ }", '{"x"}', "{{", "}}", "{'a': 1}", "f(x) = {y | y > 0}", "{a: {b}}"]
)
def test_braces_that_are_not_json_are_skipped(braces):
    assert parse_action(f"{braces} {WAIT} {braces}") == make_action("wait")


def click(arguments: str) -> str:
    return f'{{"name": "click", "arguments": {arguments}}}'


REFUSED = {
    "nothing": ("", "no JSON object"),
    "prose": ("I click the button.", "no JSON object"),
    "only braces": ("{x} {}", "no JSON object"),
    "a string with JSON": (json.dumps(WAIT), "no JSON object"),
    "two actions": (WAIT + click('{"description": "x"}'), "more than one"),
    "an action and something else": (WAIT + '{"a": 1}', "more than one"),
    "not closed": (WAIT[:-1], "not closed"),
    "cut in the first key": ('{"na', "no JSON object"),
    "cut in a name": ('{"name": "wa', "not closed"),
    "cut in a value": ('{"name": "wait", "arguments": {"reasoning": "I', "not closed"),
    "missing comma": (
        '{"name": "wait" "arguments": {}}',
        "malformed: Expecting ',' delimiter near \"\\\"arguments",
    ),
    "raw newline": (click('{"description": "a\nb"}'), "malformed"),
    "single quotes inside": ("{\"name\": 'wait'}", "malformed"),
    "broken before a good one": ('{"name": } ' + WAIT, "malformed"),
    "no name": ('{"arguments": {}}', 'no "name"; the actions are click, type, scroll'),
    "wrapped": (f'{{"action": {WAIT}}}', 'no "name"'),
    "unknown name": (
        WAIT.replace("wait", "tap"),
        'no action "tap"; the actions are click, type, scroll, press_key',
    ),
    "name is a number": ('{"name": 3, "arguments": {}}', "no action 3"),
    "name is an array": ('{"name": [1], "arguments": {}}', "no action [1]"),
    "long name": (WAIT.replace("wait", "w" * 5000), "no action"),
    "no arguments": ('{"name": "wait"}', '"arguments" is missing'),
    "arguments is null": (
        '{"name": "wait", "arguments": null}',
        '"arguments" should be an object (found null)',
    ),
    "argument beside": ('{"name": "wait", "arguments": {}, "url": "x"}', '"url" is not a known field'),
    "missing argument": (click("{}"), 'The argument "description" of click is missing.'),
    "unknown argument": (
        WAIT.replace("{}", '{"seconds": 3}'),
        'wait has no argument "seconds"; it takes reasoning',
    ),
    "empty description": (click('{"description": ""}'), "should not be empty"),
    "blank description": (click('{"description": " \\n"}'), "should not be empty"),
    "number for text": (
        click('{"description": 3}'),
        'The argument "description" of click should be a valid string',
    ),
    "list for text": (click('{"description": ["x"]}'), "should be a valid string"),
    "bad direction": ('{"name": "scroll", "arguments": {"direction": "left"}}', "should be 'up' or 'down'"),
    "empty text": ('{"name": "type", "arguments": {"text": ""}}', "should not be empty"),
    "NaN": (click('{"description": NaN}'), "contains NaN"),
    "1e999": (click('{"description": 1e999}'), "too large"),
    "huge integer": (click(f'{{"description": {"9" * 5000}}}'), "64 bits"),
    "duplicate key": (click('{"description": "a", "description": "b"}'), 'the key "description" twice'),
    "escaped surrogate": (click('{"description": "\\ud800"}'), "half of a surrogate pair"),
    "raw surrogate": (click('{"description": "\udfff"}'), "half of a surrogate pair"),
    "NUL": (click('{"description": "a\\u0000"}'), "NUL"),
    "long argument": (click(f'{{"description": "{"x" * (MAX_ARGUMENT_LENGTH + 1)}"}}'), "too long"),
    "long reply": (WAIT + " " * MAX_REPLY_LENGTH, "The reply is too long"),
    "nested": (click('{"description": ' + "[" * 300 + "]" * 300 + "}"), "nested too deeply"),
    "nested very deeply": (click('{"description": ' + "[" * 90_000), "nested too deeply"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_an_unreadable_reply_is_answered_with_what_is_wrong(text, message):
    with pytest.raises(UnreadableActionError) as caught:
        parse_action(text)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 250
    assert "\n" not in str(caught.value)


def test_no_cut_off_action_is_read_as_another_one():
    text = action_to_json(make_action("type", text="a } b", description='the "big" {box}', reasoning="\u00fc\n"))
    for cut in range(len(text)):
        with pytest.raises(UnreadableActionError):
            parse_action(text[:cut])


@FAST
@given(st.text(st.sampled_from('{}[]":,\\ ax1\n') | st.characters(), max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        action = parse_action(text)
    except UnreadableActionError:
        return
    assert parse_action(action_to_json(action)) == action


@pytest.mark.parametrize(
    "pattern",
    [
        "{",
        '{"',
        '{"a":',
        '{"a":[',
        '{"\\',
        '{"a',
        "{ ",
        '{"a":1}',
        '{"a":{"b":1},',
        "```{",
        '"',
        "\\",
        '{"":"{',
        '{"x" ',
    ],
)
def test_hostile_replies_take_no_time(pattern):
    started = time.process_time()
    with pytest.raises(UnreadableActionError):
        parse_action(pattern * (MAX_REPLY_LENGTH // len(pattern)))
    assert time.process_time() - started < 5  # seconds of this process: it takes 0.1, and a quadratic search minutes


def test_a_megabyte_of_braces_is_refused():
    with pytest.raises(UnreadableActionError, match="too long"):
        parse_action("{" * 2**20)


def test_the_schema_tells_about_all_actions_and_arguments():
    *lines, shared = action_schema_text().splitlines()
    shown = {line["name"]: list(line["arguments"]) for line in map(json.loads, lines)}
    assert shown == {
        "click": ["description"],
        "type": ["text", "description"],
        "scroll": ["direction"],
        "press_key": ["key"],
        "goto": ["url"],
        "wait": [],
        "stop": ["answer"],
    }
    assert tuple(shown) == ACTION_NAMES
    assert "<up | down: " in action_schema_text()
    assert '"description": "<optional: ' in action_schema_text()
    assert '"reasoning"' in shared


def test_an_answer_may_be_empty():
    assert parse_action('{"name": "stop", "arguments": {"answer": ""}}') == make_action("stop", answer="")


def test_actions_are_immutable_and_comparable():
    action = make_action("click", description="x")
    assert action == Click(arguments=ClickArguments(description="x"))
    assert hash(action) == hash(make_action("click", description="x"))
    with pytest.raises(ValidationError):
        action.name = "stop"
