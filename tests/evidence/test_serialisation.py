import pytest

from factories import make_item, make_screenshot
from focusmem.errors import ConfigError, RecordError, StorageError
from focusmem.evidence import Serialiser
from focusmem.schemas import Screenshot, action_to_json


def texts(prompt) -> list[str]:
    return [part for turn in prompt for part in turn.parts if isinstance(part, str)]


@pytest.mark.parametrize("role", ["episodic", "working"])
def test_a_turn_per_event_between_opening_and_closing(role):
    item, screenshots = make_item(role, num_steps=3)
    opening, *events, closing = Serialiser()(item, screenshots)
    assert role in opening.parts[0]
    assert item.instruction in opening.parts[0]
    assert "3" in closing.parts[0]
    assert len(events) == 3
    for event, step in zip(events, item.steps, strict=True):
        picture, text = event.parts
        assert isinstance(picture, Screenshot)
        assert picture.digest == step.screenshot.sha256
        assert action_to_json(step.action) in text
    assert {turn.role for turn in (opening, *events, closing)} == {"user"}


def test_a_longer_chunk_begins_with_the_shorter_one():
    item, screenshots = make_item("working", num_steps=4)
    shorter = item.model_copy(update={"steps": item.steps[:2]})
    serialise = Serialiser()
    assert serialise(item, screenshots)[:3] == serialise(shorter, screenshots)[:-1]


def test_an_unknown_task_is_said_plainly():
    item, screenshots = make_item("working", num_steps=1)
    [opening, *_] = Serialiser()(item.model_copy(update={"instruction": None}), screenshots)
    assert "not known" in opening.parts[0]


def test_a_missing_screenshot_is_a_clear_error():
    item, _ = make_item("episodic", num_steps=1)
    with pytest.raises(RecordError, match="is missing"):
        Serialiser()(item, {make_screenshot(123).digest: make_screenshot(123)})


def test_other_wordings_from_a_folder(tmp_path):
    for name, text in {
        "opening": "{{role}}/{{task}}",
        "event": "did {{action}}",
        "closing": "{{num_steps}}!",
    }.items():
        (tmp_path / f"{name}.txt").write_text(text)
    item, screenshots = make_item("episodic", num_steps=2)
    first, *_, last = texts(Serialiser(tmp_path)(item, screenshots))
    assert (first, last) == (f"episodic/{item.instruction}", "2!")


def test_a_folder_that_lacks_a_text_or_a_slot_is_refused(tmp_path):
    with pytest.raises(StorageError, match=r"opening\.txt"):
        Serialiser(tmp_path)
    (tmp_path / "opening.txt").write_text("only {{role}}")
    with pytest.raises(ConfigError, match="task"):
        Serialiser(tmp_path)


def test_a_step_whose_reply_could_not_be_read_says_so():
    item, screenshots = make_item("working", num_steps=2)
    unread = item.steps[0].model_copy(update={"action": None, "error": "The reply contains no JSON object."})
    changed = item.model_copy(update={"steps": (unread, item.steps[1])})
    _, first, *_ = Serialiser()(changed, screenshots)
    assert "none could be read" in first.parts[1]
    assert changed.content_digest() != item.content_digest()


def test_without_errors_an_unreadable_reply_is_shown_as_it_was_written():
    """As the prompt shows it, so that what another agent did in words is not lost."""
    item, screenshots = make_item("working", num_steps=2)
    unread = item.steps[0].model_copy(update={"action": None, "reply": "Hm.", "error": "There is no JSON object."})
    changed = item.model_copy(update={"steps": (unread, item.steps[1])})
    serialise = Serialiser(shows_errors=False)
    _, first, *_ = serialise(changed, screenshots)
    assert "Hm." in first.parts[1]
    assert "JSON" not in first.parts[1]
    assert serialise.digest != Serialiser().digest
