import json

import pytest

from factories import FIELDS
from focusmem.errors import ConfigError, StorageError
from focusmem.lab.policy.texts import PROMPTS
from focusmem.training.questions import SUBTYPES, TARGETS, Questions, problem_with, schema_text
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


@pytest.mark.parametrize("subtype", FIELDS)
def test_an_answer_holds_exactly_its_fields(subtype):
    good = json.loads(good_answer(subtype, 3))
    assert problem_with(subtype, json.dumps(good)) is None
    assert problem_with(subtype, json.dumps(dict(reversed(good.items())))) is None
    first = FIELDS[subtype][0]
    assert "is not a known field" in problem_with(subtype, json.dumps(good | {"more": "x"}))
    assert f"{first} is missing" in problem_with(subtype, json.dumps({k: v for k, v in good.items() if k != first}))
    assert f"{first} should be a valid string" in problem_with(subtype, json.dumps(good | {first: 3}))
    others = next(other for other in FIELDS if other != subtype)
    assert problem_with(subtype, good_answer(others, 3)) is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("It went well.", "not valid JSON"),
        ('{"initial_state": "a", "observed_change": "b"', "not valid JSON"),
        ('```json\n{"initial_state": "a"}\n```', "not valid JSON"),
        ("[]", "should hold one JSON object"),
        ('{"initial_state": "a", "initial_state": "b"}', "twice"),
    ],
)
def test_what_is_no_object_is_no_target(text, message):
    assert message in problem_with("working_change", text)


def test_an_anchor_names_an_action():
    good = json.loads(good_answer("episodic_anchor", 1))
    for wrong in ({"name": "wait"}, {"name": "wait", "arguments": {}, "why": "x"}, "wait"):
        assert problem_with("episodic_anchor", json.dumps(good | {"anchor_action": wrong})) is not None


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
