import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import FIELDS
from focusmem.errors import ConfigError, StorageError
from focusmem.lab.policy.texts import PROMPTS
from focusmem.training.questions import SUBTYPES, TARGETS, Discarded, Questions, read_answer, schema_text
from toys import evidence
from training.samples import good_answer


def test_targets_have_the_papers_fields():
    assert {subtype: list(kind.model_fields) for subtype, kind in TARGETS.items()} == FIELDS
    assert [subtype for own in SUBTYPES.values() for subtype in own] == list(FIELDS)


def test_a_schema_shows_the_object_to_return():
    assert schema_text(TARGETS["episodic_anchor"]) == (
        '{"anchor_state": "...", "anchor_action": {"name": "...", "arguments": {...}}, "decision_basis": "..."}'
    )
    assert schema_text(TARGETS["working_state"]).endswith('"last_recorded_action": {...}}')


def problem_with(subtype: str, text: str) -> str:
    answer = read_answer(subtype, text)
    assert isinstance(answer, Discarded), answer
    return f"{answer.reason}: {answer.message}"


@pytest.mark.parametrize("subtype", FIELDS)
def test_an_answer_holds_exactly_its_fields(subtype):
    good, first = json.loads(good_answer(subtype, 3)), FIELDS[subtype][0]
    for text in (json.dumps(good), json.dumps(dict(reversed(good.items())))):
        assert read_answer(subtype, text) == text
    assert json.loads(read_answer(subtype, json.dumps({"more": "x"} | good))) == good
    for blank in ("", " \n", [], [""]):
        problem = problem_with(subtype, json.dumps(good | {first: blank}))
        assert problem == f"empty field: The answer says nothing in {first}."
    assert f"{first} is missing" in problem_with(subtype, json.dumps({k: v for k, v in good.items() if k != first}))
    assert f"{first} should be a valid string" in problem_with(subtype, json.dumps(good | {first: 3}))
    others = next(other for other in FIELDS if other != subtype)
    assert problem_with(subtype, good_answer(others, 3)).startswith("wrong fields")


CHANGE = '{"initial_state": "a shop", "observed_change": "one \\"mug\\" {more}", "latest_observed_state": "``` full"}'
OTHER = CHANGE.replace("a shop", "a forum")


@pytest.mark.parametrize(
    "text",
    [
        CHANGE,
        f"```json\n{CHANGE}\n```",
        f"```\n{CHANGE}\n```\nLet me know if you need more.",
        f"Here is the JSON object you asked for:\n\n{CHANGE}",
        f"Sure! The record shows {{two}} pages and {{}}.\n```json\n{CHANGE}\n```",
        f"[{CHANGE}]",
        f"```json\n[\n  {CHANGE}\n]\n```",
        f"{CHANGE}\n{CHANGE}",
        f"{CHANGE}\n{CHANGE[:40]}",
        f'{{"answer": {CHANGE}}}\n{CHANGE}',
        CHANGE[:-1] + ",}",
        f"[{CHANGE[:-1]},}},\n]\n{CHANGE}",
        f'The last action was {{"name": "wait", "arguments": {{}}}}.\n{CHANGE}',
    ],
)
def test_an_answer_may_be_wrapped_as_an_action_may(text):
    assert read_answer("working_change", text) == CHANGE


@pytest.mark.parametrize(
    "text",
    [
        f'{{"answer": {CHANGE}}}',
        f'```json\n{{"answer": {CHANGE[:-1]},}},}}\n```',
        CHANGE[:-1] + " ,\n}",
        CHANGE[:-1] + ', "confidence": 0.9}',
        CHANGE[:-1] + ', "latest_action": {"name": "wait", "arguments": {}}, "notes": [1, 2,],}',
    ],
)
def test_what_surrounds_the_fields_is_left_out(text):
    assert json.loads(read_answer("working_change", text)) == json.loads(CHANGE)


def test_a_list_of_texts_is_one_text():
    change = json.loads(CHANGE)
    text = json.dumps(change | {"observed_change": ["the cart is full, ", "", "and paid,}"]})
    answer = read_answer("working_change", text)
    assert json.loads(answer) == change | {"observed_change": "the cart is full, ; and paid,}"}
    assert read_answer("working_change", answer) == answer
    for wrong in (["x", 3], [["x"]], {"x": "y"}):
        text = json.dumps(change | {"observed_change": wrong})
        assert problem_with("working_change", text).startswith("wrong fields: ")


WORDS = st.text(alphabet=st.characters(exclude_characters="{", exclude_categories=("Cs",)), max_size=30)
VALUES = st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=30).filter(
    str.strip
)


@given(
    answer=st.fixed_dictionaries(dict.fromkeys(FIELDS["working_change"], VALUES)),
    before=WORDS,
    after=WORDS,
    wrapped=st.sampled_from(
        ["{}", "[{}]", "[{},\n]", '{{"answer": {},}}', "```json\n{}\n```", "```\n[{}]\n```", "{0}\n{0}"]
    ),
    indent=st.sampled_from([None, 2]),
    is_ascii=st.booleans(),
)
def test_any_wrapping_of_a_good_object_is_read_back(answer, before, after, wrapped, indent, is_ascii):
    text = json.dumps(answer, indent=indent, ensure_ascii=is_ascii)
    assert json.loads(read_answer("working_change", f"{before}{wrapped.format(text)}{after}")) == answer


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no object: "),
        ("It went well.", "no object: "),
        ("[]", "no object: "),
        ("{}", "no object: "),
        ('{"initial_state": "a", "observed_change": "b"', "cut off: "),
        (f"```json\n{CHANGE[:-1]}", "cut off: "),
        ('{"initial_state": "a" "observed_change": "b"}', "malformed: .* delimiter"),
        ('{"initial_state": "a", "initial_state": "b"}', "malformed: .*twice"),
        ('{"a": ' + "[" * 100_000, "malformed: .*nested too deeply"),
        ('```json\n{"initial_state": "a"}\n```', "wrong fields: .*is missing"),
        (f'{{"answer": {{"answer": {CHANGE}}}}}', "wrong fields: "),
        (f'{{"answer": {CHANGE}, "or": {OTHER}}}', "wrong fields: "),
        (f'{{"answer": {CHANGE}}}\n{OTHER}', "several objects: "),
        (CHANGE.replace("a shop", " "), "empty field: .*initial_state"),
        (f"[{CHANGE}, {OTHER}]", "several objects: .*2 different"),
        (f"{CHANGE} or rather {OTHER}", "several objects: "),
    ],
)
def test_what_cannot_be_a_target_is_discarded_with_its_reason(text, message):
    assert re.match(message, problem_with("working_change", text))


@given(st.text())
def test_garbage_is_discarded_and_never_raises(text):
    assert isinstance(read_answer("working_change", text), Discarded)


def test_an_anchor_names_an_action():
    good = json.loads(good_answer("episodic_anchor", 1))
    for wrong in (
        {"name": "wait"},
        {"name": "wait", "arguments": {}, "why": "x"},
        {"name": "", "arguments": {}},
        "wait",
    ):
        assert problem_with("episodic_anchor", json.dumps(good | {"anchor_action": wrong})).startswith("wrong fields")


def test_teacher_and_student_are_asked_the_same():
    questions = Questions()
    for name in ("describe", *FIELDS):
        assert questions.ask_about(evidence(0), name) == (*evidence(0), *questions.ask(name))
    [turn] = questions.ask("working_change")
    assert schema_text(TARGETS["working_change"]) in turn.parts[0]


def test_the_laboratorys_wording_fits():
    folder = PROMPTS / "questions"
    questions = Questions(folder)
    assert questions.ask("describe")[0].parts == ("Describe the record.",)
    assert questions.digest != Questions().digest
    assert Questions().digest == Questions().digest


def test_a_folder_without_all_texts_is_refused(tmp_path):
    with pytest.raises(StorageError, match=r"describe\.txt"):
        Questions(tmp_path)
    for path in (PROMPTS / "questions").iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "describe.txt").write_text("Describe {{everything}}.")
    with pytest.raises(ConfigError, match="everything"):
        Questions(tmp_path)
