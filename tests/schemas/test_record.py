import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import make_trajectory
from focusmem.errors import RecordError
from focusmem.schemas import Trajectory, dump_record, parse_record
from focusmem.schemas.record import MAX_DOCUMENT_BYTES, MAX_TEXT_LENGTH
from schemas.strategies import FAST, environments, items, runs, steps, tasks, trajectories, verdicts

any_record = st.one_of(trajectories, items, tasks, verdicts, runs, environments, steps)


@FAST
@given(any_record)
def test_what_is_written_is_read_back(record):
    assert parse_record(type(record), dump_record(record), "here") == record


@FAST
@given(any_record)
def test_writing_again_gives_the_same_bytes(record):
    data = dump_record(record)
    assert dump_record(parse_record(type(record), data, "here")) == data


def test_stored_text_is_readable_and_leaves_absent_values_out():
    trajectory = make_trajectory(1)[0].model_copy(update={"instruction": "Wie viel kostet das M\u00fcsli?"})
    text = dump_record(trajectory).decode()
    assert '\n  "instruction": "Wie viel kostet das M\u00fcsli?",\n' in text
    assert text.endswith("}\n")
    assert "null" not in text


@FAST
@given(st.binary(max_size=40) | st.text(st.characters(), max_size=40))
def test_any_input_is_read_or_refused_in_one_sentence(data):
    with pytest.raises(RecordError) as caught:
        parse_record(Trajectory, data, "notes.json")
    assert str(caught.value).startswith("notes.json")
    assert str(caught.value).endswith(".")


def test_no_cut_off_document_is_read_as_another_record():
    trajectory, _ = make_trajectory(2)
    data = dump_record(trajectory)
    for cut in range(len(data) - 2):
        with pytest.raises(RecordError):
            parse_record(Trajectory, data[:cut], "cut.json")
    assert parse_record(Trajectory, data[:-1], "only the last newline is gone") == trajectory


@FAST
@given(st.data())
def test_a_changed_byte_is_refused_or_gives_a_valid_record(data):
    stored = bytearray(dump_record(make_trajectory(1)[0]))
    stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    try:
        record = parse_record(Trajectory, bytes(stored), "changed.json")
    except RecordError:
        return
    assert parse_record(Trajectory, dump_record(record), "again") == record


def changed(**fields) -> str:
    """A stored trajectory with some top-level fields replaced; values are raw JSON."""
    document = json.loads(dump_record(make_trajectory(1)[0]))
    others = {name: json.dumps(value) for name, value in document.items()}
    return "{" + ", ".join(f'"{name}": {value}' for name, value in {**others, **fields}.items()) + "}"


def test_the_helper_above_writes_a_valid_document():
    assert parse_record(Trajectory, changed(), "here") == make_trajectory(1)[0]


REFUSED = {
    "NaN": (changed(site="NaN"), "contains NaN"),
    "Infinity": (changed(site="-Infinity"), "contains -Infinity"),
    "float overflow": (changed(site="1e999"), "too large"),
    "huge integer": (changed(site="1" + "0" * 5000), "more than 64 bits"),
    "65 bits": (changed(site=str(2**64)), "more than 64 bits"),
    "escaped surrogate": (changed(site='"\\ud800"'), "the document"),
    "surrogate in a key": (changed(extra='{"\\udfff": 1}'), "the document"),
    "raw surrogate": (changed(site='"\ud800"'), "not valid UTF-8"),
    "invalid UTF-8": (changed().encode() + b"\xff", "not valid UTF-8"),
    "UTF-16": (changed().encode("utf-16"), "not valid UTF-8"),
    "byte order mark": ("\ufeff" + changed(), "not valid JSON"),
    "NUL": (changed(site='"a\\u0000b"'), "site should not contain a NUL"),
    "duplicate key": (changed()[:-1] + ', "site": "again"}', 'has the key "site" twice'),
    "unknown field": (changed(colour='"red"'), "colour is not a known field"),
    "missing field": (
        changed().replace('"instruction"', '"instructions"'),
        "instruction is missing and instructions is not a known field",
    ),
    "number for text": (changed(site="3"), "site should be a valid string (found 3)"),
    "null for text": (changed(site="null"), "site should be a valid string (found null)"),
    "no steps": (changed(steps="[]"), "steps"),
    "steps as object": (changed(steps="{}"), "steps"),
    "unknown outcome": (changed(outcome='"won"'), "outcome should be 'success'"),
    "long text": (changed(site=f'"{"x" * (MAX_TEXT_LENGTH + 1)}"'), "site is too long"),
    "trailing text": (changed() + "x", "Extra data"),
    "two documents": (changed() + changed(), "Extra data"),
    "an array": ("[]", "one JSON object"),
    "nothing": ("", "not valid JSON"),
    "deep array": (changed(site="[" * 100_000), "nested too deeply"),
    "deep object": (changed(site='{"a":' * 100_000), "nested too deeply"),
    "deep, but only for pydantic": (changed(site="[" * 300 + "]" * 300), "the document"),
    "a megabyte of braces": ("{" * 2**20, "not valid JSON"),
    "too large": (" " * (MAX_DOCUMENT_BYTES + 1), "too large"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_documents_are_refused_with_the_reason(text, message):
    with pytest.raises(RecordError) as caught:
        parse_record(Trajectory, text, "bad.json")
    assert str(caught.value).startswith("bad.json")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("version", ["0", "-1", "true", "1.0", '"1"', "null", "[1]"])
def test_what_is_no_version_is_refused(version):
    with pytest.raises(RecordError, match="schema_version should be a positive integer"):
        parse_record(Trajectory, changed(schema_version=version), "old.json")


def test_a_newer_version_says_what_to_do():
    with pytest.raises(RecordError, match=r"new\.json has schema_version 2.*reads 1; update focusmem"):
        parse_record(Trajectory, changed(schema_version="2", surprise="1"), "new.json")


def test_a_document_without_version_is_refused():
    with pytest.raises(RecordError, match="has no schema_version, so it is not a Trajectory"):
        parse_record(Trajectory, changed().replace('"schema_version": 1, ', ""), "foreign.json")


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "/etc/passwd",
        "a/b",
        "a\\\\b",
        "a\\u0000",
        ".",
        "..",
        ".hidden",
        "",
        "x" * 129,
        "a b",
        "a.",
        "\\u00fc",
        "a\\n",
    ],
)
def test_an_identifier_stays_inside_its_folder(name):
    with pytest.raises(RecordError, match="trajectory_id should be usable as a file name"):
        parse_record(Trajectory, changed(trajectory_id=f'"{name}"'), "bad.json")


@pytest.mark.parametrize("digest", ["../" * 20 + "x" * 4, "A" * 64, "a" * 63, "a" * 65, "", "a" * 64 + "\\n", "/" * 64])
def test_a_digest_is_nothing_but_a_digest(digest):
    text = changed().replace(make_trajectory(1)[0].steps[0].screenshot.sha256, digest)
    with pytest.raises(RecordError, match=r"steps\[0\]\.screenshot\.sha256 "):
        parse_record(Trajectory, text, "bad.json")


def test_the_message_names_the_field_inside_an_action():
    text = changed().replace('"answer": "12 euros"', '"answer": 12')
    with pytest.raises(
        RecordError, match=r"steps\[0\]\.action\.arguments\.answer should be a valid string \(found 12\)"
    ):
        parse_record(Trajectory, text, "bad.json")


def test_the_message_lists_the_actions_there_are():
    text = changed().replace('"name": "stop"', '"name": "tap"')
    with pytest.raises(RecordError, match=r"steps\[0\]\.action should be one of 'click', .*, not 'tap'"):
        parse_record(Trajectory, text, "bad.json")


def test_a_record_too_large_to_be_read_is_not_written():
    trajectory, _ = make_trajectory(1)
    step = trajectory.steps[0].model_copy(update={"error": "x" * MAX_TEXT_LENGTH, "url": "y" * MAX_TEXT_LENGTH})
    with pytest.raises(RecordError, match="This Trajectory is too large"):
        dump_record(trajectory.model_copy(update={"steps": (step,) * 200}))
