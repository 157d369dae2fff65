import pytest

from focusmem.errors import ConfigError, StorageError
from focusmem.templates import Templates


def make(tmp_path, text: str, slots: set[str]) -> Templates:
    (tmp_path / "greeting.txt").write_text(text)
    return Templates(tmp_path, slots={"greeting": slots})


def test_values_are_inserted_once_and_never_searched_for_slots(tmp_path):
    templates = make(tmp_path, "To {{name}}: {{body}} ({{name}})\n", {"name", "body"})
    assert templates.fill("greeting", name="{{body}}", body=r"\1 $x") == r"To {{body}}: \1 $x ({{body}})"


def test_slots_must_be_those_expected(tmp_path):
    with pytest.raises(ConfigError, match="nmae"):
        make(tmp_path, "Hello {{nmae}}", {"name"})


def test_a_missing_value_is_ours_to_mend(tmp_path):
    with pytest.raises(KeyError):
        make(tmp_path, "Hello {{name}}", {"name"}).fill("greeting")


def test_a_file_that_cannot_be_read(tmp_path):
    (tmp_path / "greeting.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(StorageError, match="greeting"):
        Templates(tmp_path, slots={"greeting": set()})


def test_an_optional_slot_may_be_left_out_but_no_other_put_in(tmp_path):
    (tmp_path / "greeting.txt").write_text("Hello")
    assert Templates(tmp_path, slots={"greeting": {"name"}}, optional=frozenset({"name"})).fill("greeting") == "Hello"
    (tmp_path / "greeting.txt").write_text("Hello {{stranger}}")
    with pytest.raises(ConfigError, match="stranger"):
        Templates(tmp_path, slots={"greeting": {"name"}}, optional=frozenset({"name"}))


def test_pieces_say_which_slot_they_fill(tmp_path):
    templates = make(tmp_path, "{{name}}, {{body}}!", {"name", "body"})
    pieces = templates.pieces("greeting", name="{{body}}", body="x")
    assert pieces == [(None, ""), ("name", "{{body}}"), (None, ", "), ("body", "x"), (None, "!")]
