"""Each reader on files in its harness's shape: what becomes of actions, elements, errors, answers and verdicts."""

import base64
import shutil

import pytest

from data.importers.results import (
    CLICK,
    DONE,
    ELEMENT,
    OMITTED,
    PICTURES,
    REQUEST,
    answered,
    browser_use_step,
    look,
    molmoweb_step,
    said,
    task_words,
    webvoyager_messages,
    write_browser_use,
    write_comem,
    write_json,
    write_mind2web,
    write_molmoweb,
    write_webvoyager,
)
from focusmem.data.importers.base import Choice, RejectedError
from focusmem.data.importers.registry import IMPORTERS


def read(form, place, **instructions):
    return IMPORTERS[form].read(place, Choice("suite", instructions))


def told(imported):
    """Name and arguments of every action, without the reasoning."""
    found = []
    for step in imported.steps:
        values = (
            {} if step.action is None else step.action.arguments.model_dump(exclude_none=True, exclude={"reasoning"})
        )
        found.append((step.action and step.action.name, *values.values()))
    return found


def refusal(form, place):
    with pytest.raises(RejectedError) as refused:
        read(form, place)
    return refused.value.reason


# WebVoyager


def test_webvoyager_actions_become_ours(tmp_path):
    actions = ["Type [2]; blue mug", "Type [2]; [blue mug]", "Click [7]", "Click 7", "Scroll [WINDOW]; [down]"]
    actions += ["Scroll [3]; up", "Wait", "Google", "ANSWER; [12 euros]"]
    imported = read(
        "webvoyager", write_webvoyager(tmp_path, webvoyager_messages(*actions), num_pictures=0) and _copies(tmp_path)
    )
    assert told(imported) == [
        ("type", "blue mug", "the element labelled 2"),
        ("type", "blue mug", "the element labelled 2"),
        ("click", "the element labelled 7"),
        ("click", "the element labelled 7"),
        ("scroll", "down"),
        ("scroll", "up"),
        ("wait",),
        ("goto", "https://www.google.com/"),
        ("stop", "12 euros"),
    ]
    assert imported.task.task_id == "suite/Shop--4"
    assert imported.task.instruction == "Find a blue mug."
    assert (imported.task.start_url, imported.task.site) == ("https://www.shop.example/", "shop.example")
    assert imported.task.presses_enter is True
    assert imported.steps[0].action.arguments.reasoning == "The box is there."


def _copies(tmp_path, num=9):
    for number in range(1, num + 1):
        (tmp_path / "taskShop--4" / f"screenshot{number}.png").write_bytes(PICTURES[number % 5].png)
    return tmp_path / "taskShop--4"


def test_webvoyager_describes_an_element_while_its_text_is_still_there(tmp_path):
    elements = '[0]: "Home";\t[2]: <input> "Search; all", "box";\t[12]: "Cart\n2 items";'
    messages = [
        {"role": "system", "content": "Imagine."},
        {"role": "user", "content": task_words().strip() + OMITTED},
        said("Click [2]"),
        look(elements),
        said("Type [2]; mug"),
        look(elements),
        said("Click [12]"),
    ]
    imported = read("webvoyager", write_webvoyager(tmp_path, messages))
    assert told(imported) == [
        ("click", "the element labelled 2"),
        ("type", "mug", 'the element labelled 2: <input> "Search; all", "box"'),
        ("click", 'the element labelled 12: "Cart\n2 items"'),
    ]


def test_webvoyager_counts_screenshots_by_turns_and_takes_none_after_a_failed_action(tmp_path):
    failed = "The action you have chosen cannot be exected."
    messages = [
        *webvoyager_messages("Click [99]"),
        {"role": "user", "content": failed},
        {"role": "assistant", "content": "I give up."},
        look(note=" note: not a textbox."),
        said("Wait"),
        look(),
    ]
    place = write_webvoyager(tmp_path, messages, num_pictures=4)
    (place / "screenshot2.png").unlink()
    imported = read("webvoyager", place)
    assert told(imported) == [("click", "the element labelled 99"), (None,), ("wait",)]
    assert [step.error for step in imported.steps] == [failed, "note: not a textbox.", None]
    shown = [PICTURES[index].digest for index in (0, 0, 2, 3)]
    assert [*(step.screenshot.sha256 for step in imported.steps), imported.closing.screenshot.sha256] == shown
    assert imported.steps[1].reply == "I give up."


@pytest.mark.parametrize(
    ("messages", "num_pictures", "reason"),
    [
        ([{"role": "system", "content": "Imagine."}], 0, "no step"),
        (webvoyager_messages("GoBack"), None, "no equivalent of GoBack"),
        (webvoyager_messages("Wait", "Wait"), 1, "screenshot missing"),
        (webvoyager_messages("ANSWER; 12", "Wait"), None, "fields missing or wrong"),
        (webvoyager_messages("Wait", opening="Do something. "), None, "fields missing or wrong"),
        ([{"role": "system"}], 0, "fields missing or wrong"),
        ({"role": "system"}, 0, "fields missing or wrong"),
        ([1, 2], 0, "fields missing or wrong"),
        (webvoyager_messages("Wait", opening=task_words(task=" ")), None, "no instruction"),
    ],
)
def test_webvoyager_refuses(tmp_path, messages, num_pictures, reason):
    if isinstance(messages, list) and all(isinstance(one, dict) for one in messages):
        place = write_webvoyager(tmp_path, messages, num_pictures=num_pictures)
    else:
        place = write_json(tmp_path / "taskA" / "interact_messages.json", messages).parent
    assert refusal("webvoyager", place) == reason


# Online-Mind2Web


def test_online_mind2web_pairs_actions_with_the_pages_before_them(tmp_path):
    imported = read("online-mind2web", write_mind2web(tmp_path))
    assert told(imported) == [("type", "blue mug", "input"), ("click", 'button class="go"'), ("stop", "12 euros")]
    assert [step.screenshot.sha256 for step in imported.steps] == [picture.digest for picture in PICTURES[:3]]
    assert imported.steps[1].action.arguments.reasoning == "I click."
    assert imported.task.task_id == "suite/fb7b"
    assert imported.outcome == "not_judged"


def test_online_mind2web_sorts_pages_by_their_number(tmp_path):
    place = write_mind2web(tmp_path, num_pictures=0)
    for number, picture in zip((10, 2, 0), PICTURES, strict=False):
        (place / "trajectory" / f"{number}_full_screenshot.png").write_bytes(picture.png)
    imported = read("online-mind2web", place)
    assert [step.screenshot.sha256 for step in imported.steps] == [PICTURES[index].digest for index in (2, 1, 0)]


@pytest.mark.parametrize("response", [None, ...])
def test_online_mind2web_without_an_answer_ends_with_the_last_page(tmp_path, response):
    imported = read("online-mind2web", write_mind2web(tmp_path, final_result_response=response))
    assert len(imported.steps) == 2
    assert imported.closing.screenshot.sha256 == PICTURES[2].digest


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("<a> -> CLICK", ("click", "a")),
        ("[link] Mugs -> CLICK", ("click", "[link] Mugs")),
        ("<page> -> TYPE: a: b", ("type", "a: b")),
        ("<select> -> SELECT: Blue", ("type", "Blue", "select")),
        ("<page> -> SCROLL: Down", ("scroll", "down")),
        ("<page> -> SCROLL UP", ("scroll", "up")),
        ("<page> -> PRESS_KEY: Enter", ("press_key", "Enter")),
        ("<page> -> Press Key: Enter", ("press_key", "Enter")),
        ("<page> -> GOTO: https://shop.example/", ("goto", "https://shop.example/")),
        ("<page> -> WAIT", ("wait",)),
    ],
)
def test_online_mind2web_reads_a_line(tmp_path, line, action):
    place = write_mind2web(tmp_path, action_history=[line], num_pictures=2, thoughts=...)
    assert told(read("online-mind2web", place))[0] == action


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"action_history": ["<a> -> HOVER", "<a> -> CLICK"]}, "no equivalent of HOVER"),
        ({"action_history": ["I clicked it", "<a> -> CLICK"]}, "fields missing or wrong"),
        ({"action_history": ...}, "fields missing or wrong"),
        ({"action_history": [1, 2]}, "fields missing or wrong"),
        ({"task": ...}, "no instruction"),
        ({"task": "  "}, "no instruction"),
        ({"num_pictures": 2}, "actions and screenshots do not fit together"),
        ({"num_pictures": 4}, "actions and screenshots do not fit together"),
        ({"action_history": ["<a> -> SCROLL: left", "<a> -> CLICK"]}, "fields missing or wrong"),
        ({"action_history": [], "final_result_response": ..., "num_pictures": 1}, "no step"),
    ],
)
def test_online_mind2web_refuses(tmp_path, changes, reason):
    assert refusal("online-mind2web", write_mind2web(tmp_path, **changes)) == reason


# MolmoWeb


@pytest.mark.parametrize(
    ("name", "values", "action", "point"),
    [
        ("click", CLICK, ("click", "button Search"), (14, 22)),
        ("click", CLICK | {"node_properties": None}, ("click", "the point (14, 22)"), (14, 22)),
        ("click", CLICK | {"bbox": [0.0, 500.0, 8.0, 4.0]}, ("click", "button Search"), None),
        ("mouse_click", {"x": 5.4, "y": 6.0, "button": "left"}, ("click", "the point (5, 6)"), (5, 6)),
        ("keyboard_type", {"text": "blue mug"}, ("type", "blue mug"), None),
        ("keyboard_type", {"text": "blue mug\n"}, ("type", "blue mug"), None),
        ("keyboard_type", {"text": "\n"}, ("press_key", "Enter"), None),
        ("gemini_type_text_at", {"x": 5, "y": 6, "text": "mug"}, ("type", "mug"), (5, 6)),
        ("keyboard_press", {"key": "ControlOrMeta+a"}, ("press_key", "Control+a"), None),
        ("scroll", {"delta_x": 0, "delta_y": -300}, ("scroll", "up"), None),
        ("scroll_at", {"x": 5, "y": 6, "delta_x": 0, "delta_y": 300}, ("scroll", "down"), (5, 6)),
        ("goto", {"url": "https://shop.example/"}, ("goto", "https://shop.example/"), None),
        ("noop", {"noop_reason": "loading"}, ("wait",), None),
        ("send_msg_to_user", {"msg": "12 euros"}, ("stop", "12 euros"), None),
    ],
)
def test_molmoweb_actions_become_ours(tmp_path, name, values, action, point):
    imported = read("molmoweb", write_molmoweb(tmp_path, (name, values)))
    assert told(imported) == [action]
    assert imported.steps[0].click_point == point


def test_molmoweb_drops_the_exit_after_the_answer(tmp_path):
    place = write_molmoweb(tmp_path, ("noop", {}), answered(), answered("[EXIT]"))
    imported = read("molmoweb", place)
    assert told(imported) == [("wait",), ("stop", "12 euros")]
    assert imported.task.start_url == "https://shop.example/"


def test_molmoweb_steps_come_in_the_order_of_their_numbers(tmp_path):
    steps = {str(number): molmoweb_step("keyboard_press", {"key": str(number)}) for number in (10, 9, 1)}
    place = write_molmoweb(tmp_path, ("noop", {}))
    write_json(place / "trajectory.json", steps)
    assert [action[1] for action in told(read("molmoweb", place))] == ["1", "9", "10"]


@pytest.mark.parametrize(
    ("words", "description"),
    [
        ("left click on link 'Blue mug' (clickable)", "link 'Blue mug'"),
        ("left click on element with bid=42 (not clickable)", "the point (14, 22)"),
        ("left mouse_click at (x=1, y=2)", "the point (14, 22)"),
        ("the blue mug", "the blue mug"),
    ],
)
def test_molmoweb_takes_an_element_from_the_words_of_the_harness(tmp_path, words, description):
    place = write_molmoweb(tmp_path, ("noop", {}))
    step = molmoweb_step("click", CLICK | {"node_properties": None}, description=words)
    write_json(place / "trajectory.json", {"1": step})
    assert told(read("molmoweb", place)) == [("click", description)]


@pytest.mark.parametrize(
    ("verdicts", "outcome", "judge"),
    [
        ({"webvoyager": "SUCCESS"}, "success", "webvoyager"),
        ({"deepshop": "FAILURE"}, "failure", "deepshop"),
        ({"webvoyager": "SUCCESS", "deepshop": "FAILURE"}, "not_judged", None),
        ({"webvoyager": None}, "not_judged", None),
        ({}, "not_judged", None),
    ],
)
def test_molmoweb_verdicts_are_taken_over_if_they_agree(tmp_path, verdicts, outcome, judge):
    imported = read("molmoweb", write_molmoweb(tmp_path, answered(), verdicts=verdicts))
    assert (imported.outcome, imported.judge) == (outcome, judge)


def test_molmoweb_keeps_steps_without_an_action_and_a_last_look(tmp_path):
    place = write_molmoweb(tmp_path, ("noop", {}), ("noop", {}), ("noop", {}))
    steps = {str(number): molmoweb_step(None, None, number=number) for number in (1, 3)}
    steps["1"] |= {"error": {"type": "ValueError", "message": "no JSON"}, "raw_output": "hm"}
    steps["2"] = molmoweb_step("noop", {}, number=2)
    write_json(place / "trajectory.json", steps)
    imported = read("molmoweb", place)
    assert told(imported) == [(None,), ("wait",)]
    assert (imported.steps[0].error, imported.steps[0].reply) == ("ValueError: no JSON", "hm")
    assert imported.closing.screenshot.sha256 == PICTURES[2].digest


@pytest.mark.parametrize(
    ("actions", "reason"),
    [
        ([("browser_nav", {"nav_type": "go_back", "index": -1})], "no equivalent of go_back"),
        ([("hover_at", {"x": 1, "y": 2})], "no equivalent of hover_at"),
        ([("report_infeasible", {"infeasibility_reason": "gone"})], "no equivalent of report_infeasible"),
        ([("click", CLICK | {"button": "right"})], "no equivalent of right single click"),
        ([("scroll", {"delta_x": 100, "delta_y": 0})], "no equivalent of scroll to the side"),
        (
            [("keyboard_type", {"text": "a\n"}), ("keyboard_type", {"text": "b"})],
            "no equivalent of typing that only sometimes presses Enter",
        ),
        ([("mouse_click", {"x": "1", "y": 2})], "fields missing or wrong"),
        ([("mouse_click", {"x": float("inf"), "y": 2})], "fields missing or wrong"),
        ([("click", CLICK | {"bbox": [1, 2]})], "fields missing or wrong"),
        ([answered(), ("noop", {})], "fields missing or wrong"),
        (
            [("click", CLICK | {"bbox": None, "node_properties": None})],
            "no equivalent of click on an element that nothing describes",
        ),
        ([], "no step"),
    ],
)
def test_molmoweb_refuses(tmp_path, actions, reason):
    assert refusal("molmoweb", write_molmoweb(tmp_path, *actions)) == reason


def test_molmoweb_names_an_attempt_that_broke(tmp_path):
    place = write_molmoweb(tmp_path, ("noop", {}))
    (place / "errors").mkdir()
    for name in ("trajectory.json", "metadata.json", "images"):
        shutil.move(place / name, place / "errors" / name)
    assert IMPORTERS["molmoweb"].find(tmp_path) == [place]
    assert refusal("molmoweb", place) == "not a whole attempt"


# browser-use


@pytest.mark.parametrize(
    ("action", "converted"),
    [
        ({"click": {"index": 3}}, ("click", "Search all mugs (input)")),
        ({"click_element_by_index": {"index": 3}}, ("click", "Search all mugs (input)")),
        ({"input": {"index": 3, "text": "mug", "clear": True}}, ("type", "mug", "Search all mugs (input)")),
        ({"input_text": {"index": 3, "text": "mug"}}, ("type", "mug", "Search all mugs (input)")),
        ({"select_dropdown": {"index": 3, "text": "Blue"}}, ("type", "Blue", "Search all mugs (input)")),
        ({"scroll": {"down": False, "pages": 1.0}}, ("scroll", "up")),
        ({"scroll": {}}, ("scroll", "down")),
        ({"send_keys": {"keys": "Enter"}}, ("press_key", "Enter")),
        ({"navigate": {"url": "https://shop.example/", "new_tab": False}}, ("goto", "https://shop.example/")),
        ({"go_to_url": {"url": "https://shop.example/"}}, ("goto", "https://shop.example/")),
        ({"search": {"query": "blue mug", "engine": "bing"}}, ("goto", "https://www.bing.com/search?q=blue+mug")),
        ({"search_google": {"query": "mug"}}, ("goto", "https://www.google.com/search?q=mug")),
        ({"wait": {"seconds": 3}}, ("wait",)),
        (DONE, ("stop", "12 euros")),
    ],
)
def test_browser_use_actions_become_ours(tmp_path, action, converted):
    imported = read(
        "browser-use", write_browser_use(tmp_path, browser_use_step(action, element=ELEMENT, message=REQUEST))
    )
    assert told(imported) == [converted]
    assert imported.task.instruction == "Find a blue mug."
    assert imported.task.task_id == "suite/mug"
    assert imported.steps[0].action.arguments.reasoning == "I see a box.\nFind it."


def test_browser_use_keeps_places_errors_and_empty_steps(tmp_path):
    steps = [
        browser_use_step({"click": {"coordinate_x": 5, "coordinate_y": 6}}, error="It moved.", message=REQUEST),
        browser_use_step(number=2, model_output=None, result=[{"error": "No reply."}]),
        browser_use_step(DONE, number=3),
    ]
    imported = read("browser-use", write_browser_use(tmp_path, *steps))
    assert told(imported) == [("click", "the point (5, 6)"), (None,), ("stop", "12 euros")]
    assert imported.steps[0].click_point == (5, 6)
    assert [step.error for step in imported.steps] == ["It moved.", "No reply.", None]


def test_browser_use_finds_pictures_beside_the_history_or_inside_it(tmp_path):
    inside = browser_use_step(DONE, message=REQUEST)
    inside["state"] |= {"screenshot": base64.b64encode(PICTURES[3].png).decode(), "screenshot_path": None}
    imported = read("browser-use", write_browser_use(tmp_path, inside))
    assert imported.steps[0].screenshot.sha256 == PICTURES[3].digest
    windows = browser_use_step(DONE, message=REQUEST)
    windows["state"]["screenshot_path"] = "C:\\Users\\me\\screenshots\\step_2.png"
    imported = read("browser-use", write_browser_use(tmp_path, windows))
    assert imported.steps[0].screenshot.sha256 == PICTURES[1].digest


def test_browser_use_takes_the_instruction_from_the_user(tmp_path):
    place = write_browser_use(tmp_path, browser_use_step(DONE))
    assert refusal("browser-use", place) == "no instruction"
    assert read("browser-use", place, mug="Buy it.").task.instruction == "Buy it."


@pytest.mark.parametrize(("verdict", "outcome"), [(True, "success"), (False, "failure"), (None, "not_judged")])
def test_browser_use_believes_its_judge_but_not_the_agent(tmp_path, verdict, outcome):
    result = {"is_done": True, "success": True}
    if verdict is not None:
        result["judgement"] = {"reasoning": "Seen.", "verdict": verdict, "failure_reason": ""}
    place = write_browser_use(tmp_path, browser_use_step(DONE, message=REQUEST, result=[result]))
    assert read("browser-use", place).outcome == outcome


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (browser_use_step({"go_back": {}}), "no equivalent of go_back"),
        (browser_use_step({"extract": {"query": "price"}}), "no equivalent of extract"),
        (
            browser_use_step({"navigate": {"url": "https://a.example/", "new_tab": True}}),
            "no equivalent of navigate in a new tab",
        ),
        (
            browser_use_step({"input": {"index": 1, "text": "a", "clear": False}}),
            "no equivalent of typing behind what a field holds",
        ),
        (browser_use_step({"wait": {}}, DONE), "actions and screenshots do not fit together"),
        (browser_use_step(DONE, number=9), "screenshot missing"),
        (browser_use_step(DONE, state=None), "fields missing or wrong"),
        (browser_use_step({"done": {"success": True}}), "fields missing or wrong"),
    ],
)
def test_browser_use_refuses(tmp_path, step, reason):
    assert refusal("browser-use", write_browser_use(tmp_path, step | {"state_message": REQUEST})) == reason


# CoMEM


@pytest.mark.parametrize(
    ("response", "action"),
    [
        ('Action: {"name": "click", "arguments": {"description": "the mug"}}', ("click", "the mug")),
        ('So:\n```json\n{"name": "wait", "arguments": {}}\n```', ("wait",)),
        ('{"name": "press_key", "arguments": {"key": "Enter"}}', ("press_key", "Enter")),
        (
            'Action: {"name": "type", "arguments": {"text": "mug", "field_description": "the box"}}',
            ("type", "mug", "the box"),
        ),
        ('{"name": "scroll", "arguments": {"direction": "down"}}', ("scroll", "down")),
        ('{"name": "goto_url", "arguments": {"url": "https://shop.example/"}}', ("goto", "https://shop.example/")),
        ('{"name": "stop", "arguments": {"answer": "12 euros"}}', ("stop", "12 euros")),
        ("I am lost.", (None,)),
    ],
)
def test_comem_actions_become_ours(tmp_path, response, action):
    imported = read("comem", write_comem(tmp_path, response))
    assert told(imported) == [action]
    assert imported.task.task_id == "suite/c1"
    assert imported.task.site == "shopping"
    assert imported.task.presses_enter == (True if action[0] == "type" else None)
    assert imported.steps[0].reply == response


def test_comem_outcomes_come_from_its_evaluation(tmp_path):
    wait = '{"name": "wait", "arguments": {}}'
    assert read("comem", write_comem(tmp_path, wait)).outcome == "success"
    assert read("comem", write_comem(tmp_path, wait, part="negative")).outcome == "failure"
    first = write_comem(tmp_path, wait, part="positive", split_type="positive_part")
    assert read("comem", first).outcome == "failure"
    assert read("comem", write_comem(tmp_path, wait, evaluation={})).outcome == "not_judged"
    rest = write_comem(tmp_path, wait, part="negative", split_type="negative_part")
    assert refusal("comem", rest) == "not a whole attempt"


def test_comem_shows_the_last_picture_of_a_round(tmp_path):
    place = write_comem(tmp_path, "a", "b")
    assert [step.screenshot.sha256 for step in read("comem", place).steps] == [one.digest for one in PICTURES[:2]]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"responses": ['{"name": "map_search", "arguments": {}}']}, "no equivalent of map_search"),
        (
            {"responses": ['{"name": "goto_url", "arguments": {"page_name": "wiki"}}']},
            "no equivalent of goto_url with a name instead of an address",
        ),
        ({"responses": ['{"name": "click", "arguments": {}}']}, "fields missing or wrong"),
        ({"responses": [], "task_description": "x"}, "no step"),
        ({"responses": ["a"], "task_description": None}, "no instruction"),
        (
            {"responses": [], "rounds": [{"messages": [], "response": "a"}]},
            "actions and screenshots do not fit together",
        ),
        ({"responses": [], "rounds": None}, "fields missing or wrong"),
    ],
)
def test_comem_refuses(tmp_path, changes, reason):
    changes = dict(changes)
    place = write_comem(tmp_path, *changes.pop("responses"), **changes)
    assert refusal("comem", place) == reason
