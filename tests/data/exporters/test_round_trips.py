"""What is exported and imported again is the same, but for what each exporter says that its format cannot hold."""

import json
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from data.exporters.attempts import PICTURES, attempts, make_attempt, readable_steps, there_and_back
from focusmem.data.exporters.molmoweb import MolmoWebExporter
from focusmem.data.exporters.online_mind2web import OnlineMind2WebExporter
from focusmem.data.exporters.registry import EXPORTERS
from focusmem.data.exporters.webvoyager import WebVoyagerExporter
from focusmem.data.importers.base import Choice, RejectedError
from focusmem.data.importers.molmoweb import MolmoWebImporter
from focusmem.data.importers.online_mind2web import OnlineMind2WebImporter
from focusmem.data.importers.webvoyager import WebVoyagerImporter
from focusmem.errors import RecordError
from focusmem.schemas import Step, make_action

FEW = settings(max_examples=15, deadline=None)
FORMATS = [
    (WebVoyagerExporter(), WebVoyagerImporter()),
    (OnlineMind2WebExporter(), OnlineMind2WebImporter()),
    (MolmoWebExporter(), MolmoWebImporter()),
]


def plain(action):
    """Name and arguments, without reasoning that says nothing."""
    values = action.arguments.model_dump(exclude_none=True)
    if not values.get("reasoning", "x").strip():
        del values["reasoning"]
    return action.name, values


def types(attempt):
    return any(step.action is not None and step.action.name == "type" for step in attempt.steps)


def pages(attempt_or_imported):
    found = [step.screenshot.sha256 for step in attempt_or_imported.steps]
    closing = attempt_or_imported.closing
    return found + ([] if closing is None else [closing.screenshot.sha256])


def answer_of(imported):
    last = imported.steps[-1].action
    return last.arguments.answer if last is not None and last.name == "stop" else None


# WebVoyager


def as_webvoyager(action):
    """The action as WebVoyager's format can hold it."""
    name, values = plain(action)

    def scrub(text):
        return text.replace("ANSWER", "answer").replace("Action:", "action:")

    def rounded(text):
        return text.replace("[", "(").replace("]", ")")

    held = {
        key: rounded(scrub(text)) for key, text in values.items() if key not in ("reasoning", "answer", "direction")
    }
    description = held.get("description")
    if description is not None and (description.strip().isdecimal() or description == "WINDOW"):
        held["description"] = f"'{description}'"
    held |= {key: values[key] for key in ("direction",) if key in values}
    held |= {key: rounded(values[key].strip()) for key in ("answer",) if key in values}
    held |= {key: scrub(values[key]).strip() for key in ("reasoning",) if key in values}
    return name, held


@FEW
@given(attempts())
def test_webvoyager_keeps_actions_errors_answer_and_screenshots(attempt):
    with tempfile.TemporaryDirectory() as folder:
        back = there_and_back(attempt, *FORMATS[0], Path(folder))
    assert pages(back) == [page.digest for page in attempt.pages]
    for step, original in zip(back.steps, attempt.steps, strict=True):
        if original.action is None:
            assert step.action is None
        else:
            assert plain(step.action) == as_webvoyager(original.action)
        if original.action is None or original.action.name != "stop":
            assert step.error == ((original.error or "").strip() or None)
    assert back.task.task_id == attempt.task.task_id
    assert back.task.presses_enter == (True if types(attempt) else None)
    assert back.task.start_url == attempt.task.start_url
    assert back.task.instruction == " ".join(attempt.task.instruction.split())


@FEW
@given(attempts())
def test_webvoyagers_evaluation_finds_task_and_answer(attempt):
    """With the patterns of `auto_eval.py`, as they stand in it."""
    with tempfile.TemporaryDirectory() as folder:
        FORMATS[0][0].write(attempt, Path(folder) / "task")
        messages = json.loads((Path(folder) / "task" / "interact_messages.json").read_text())
    told = messages[1]["content"][0]["text"]
    task = re.search(r"Now given a task:(.+?)Please interact with", told)[1].strip()
    assert task == " ".join(attempt.task.instruction.split())
    last = messages[-1]["content"]
    if attempt.answer is None:
        assert "Action: ANSWER" not in last
    else:
        assert "Action: ANSWER" in last
        found = re.search(r"ANSWER[; ]+\[?(.[^\]]*)\]?", last)[1].strip()
        assert found == attempt.answer.strip().replace("[", "(").replace("]", ")").strip()


# Online-Mind2Web


def is_plain_line(step):
    """Whether the wording of a line leaves no doubt where the element and the value end."""
    values = plain(step.action)[1]
    is_clear = all(mark not in json.dumps(values) for mark in ("->", "(did not work)"))
    return is_clear and values.get("description") != "page"


@FEW
@given(attempts(has_unreadable=False, step=readable_steps.filter(is_plain_line)))
def test_online_mind2web_keeps_actions_answer_and_screenshots(attempt):
    with tempfile.TemporaryDirectory() as folder:
        back = there_and_back(attempt, *FORMATS[1], Path(folder))
    assert pages(back) == [page.digest for page in attempt.pages]
    assert [plain(step.action) for step in back.steps] == [plain(step.action) for step in attempt.steps]
    assert [step.error is None for step in back.steps] == [step.error is None for step in attempt.steps]
    assert back.task.instruction == attempt.task.instruction.strip()
    assert back.task.task_id == attempt.task.task_id


def test_online_mind2web_shows_an_unreadable_step_but_cannot_read_it_back(tmp_path):
    attempt = make_attempt([Step(screenshot=PICTURES[1].ref(), error="It could not be read.")], "12 euros")
    exporter, importer = FORMATS[1]
    [change] = exporter.write(attempt, tmp_path / "task")
    assert "1 unreadable" in change
    assert len(list((tmp_path / "task" / "trajectory").iterdir())) == 2
    with pytest.raises(RejectedError, match="2 screenshots do not fit 0 actions"):
        importer.read(tmp_path / "task", Choice("om2w"))


# MolmoWeb


def is_plain_for_molmoweb(step):
    """Texts that end in a line break, and a key's name that means another key on a Mac, are read as the harness means
    them.
    """
    values = plain(step.action)[1]
    return not values.get("text", "").endswith("\n") and "ControlOrMeta" not in values.get("key", "")


@FEW
@given(attempts(step=readable_steps.filter(is_plain_for_molmoweb)))
def test_molmoweb_keeps_actions_places_addresses_errors_answer_and_screenshots(attempt):
    with tempfile.TemporaryDirectory() as folder:
        back = there_and_back(attempt, *FORMATS[2], Path(folder))
    assert pages(back) == [page.digest for page in attempt.pages]
    for step, original in zip(back.steps, attempt.steps, strict=True):
        if original.action is None:
            assert step.action is None
            assert step.reply == (((original.reply or "").strip() and original.reply) or None)
        else:
            name, values = plain(original.action)
            assert plain(step.action) == (
                name,
                values | ({"answer": values["answer"].strip()} if name == "stop" else {}),
            )
        assert (step.url, step.error) == (original.url, original.error)
        assert step.click_point == original.click_point
    assert back.task.presses_enter == (attempt.task.presses_enter is True if types(attempt) else None)
    assert back.task.instruction == attempt.task.instruction.strip()


# All


@pytest.mark.parametrize(("exporter", "importer"), FORMATS, ids=EXPORTERS)
def test_a_folder_is_named_after_the_task_in_its_benchmark(exporter, importer):
    assert exporter.folder("webvoyager/Google Flights--8").removeprefix("task") == "Google Flights--8"


@pytest.mark.parametrize("exporter", EXPORTERS.values(), ids=EXPORTERS)
@pytest.mark.parametrize("task_id", ["shop/..", "shop/a/b", "shop/a\\b", "shop/a\nb", "shop/" + "x" * 300, "."])
def test_an_id_that_leads_elsewhere_is_no_folder(exporter, task_id):
    with pytest.raises(RecordError, match="cannot be the name of a folder"):
        exporter.folder(task_id)


@pytest.mark.parametrize(("exporter", "importer"), FORMATS, ids=EXPORTERS)
def test_screenshots_are_written_byte_for_byte_without_the_page_after_the_answer(exporter, importer, tmp_path):
    steps = [Step(screenshot=PICTURES[1].ref(), action=make_action("wait"))]
    attempt = make_attempt(steps, "12 euros", closing=None)
    exporter.write(attempt, tmp_path / "one")
    written = sorted(path.read_bytes() for path in (tmp_path / "one").rglob("*.png"))
    assert written == sorted(page.png for page in attempt.pages)
