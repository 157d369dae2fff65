"""Hostile files: each is refused by name and reason, the good result beside it is imported, nothing lands elsewhere."""

import json
import os
import struct
import zlib
from unittest.mock import patch

import pytest

from data.importers.results import (
    CLICK,
    DONE,
    REQUEST,
    answered,
    browser_use_step,
    molmoweb_step,
    picture_uri,
    webvoyager_messages,
    write_browser_use,
    write_comem,
    write_json,
    write_mind2web,
    write_molmoweb,
    write_webvoyager,
)
from focusmem.recipes.interchange import ImportRequest, import_results
from focusmem.schemas import RunFolder

pytestmark = pytest.mark.hostile


@pytest.fixture(autouse=True)
def quick():
    with patch("os.fsync", new=lambda handle: None):
        yield


def write_good(form, folder):
    match form:
        case "webvoyager":
            write_webvoyager(folder, webvoyager_messages("Wait", "ANSWER; 12"), name="taskGood--1")
        case "online-mind2web":
            write_mind2web(folder, name="good")
        case "molmoweb":
            write_molmoweb(folder, ("noop", {}), answered(), name="good")
        case "browser-use":
            write_browser_use(folder / "good", browser_use_step(DONE, message=REQUEST), name="good.json")
        case "comem":
            write_comem(folder, '{"name": "wait", "arguments": {}}', name="good")


def rejected(form, tmp_path):
    """The only refusal beside one good result."""
    results = tmp_path / "results"
    write_good(form, results)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    record = import_results(ImportRequest(format=form, path=results, out=tmp_path / "run"))
    assert record.num_imported == 1
    [one] = record.rejected
    assert record.num_by_reason == {one.reason: 1}
    assert {path for path in tmp_path.rglob("*") if path.is_file() and tmp_path / "run" not in path.parents} == before
    assert len(RunFolder.open(tmp_path / "run").episodes()) == 1
    return one


def bomb():
    """A header that promises 90,000 by 90,000 pixels."""

    def part(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", 90_000, 90_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", zlib.compress(bytes(1000))) + part(b"IEND", b"")


PICTURES = {
    "no picture": b"<html>",
    "empty": b"",
    "cut off": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "a bomb": bomb(),
}


@pytest.mark.parametrize("data", PICTURES.values(), ids=PICTURES)
@pytest.mark.parametrize("form", ["webvoyager", "online-mind2web", "molmoweb"])
def test_a_picture_that_is_none(form, data, tmp_path):
    place = {
        "webvoyager": lambda: write_webvoyager(tmp_path / "results", webvoyager_messages("Wait")),
        "online-mind2web": lambda: write_mind2web(tmp_path / "results"),
        "molmoweb": lambda: write_molmoweb(tmp_path / "results", ("noop", {})),
    }[form]()
    picture = next(place.rglob("*1*.png"))
    picture.write_bytes(data)
    one = rejected(form, tmp_path)
    assert one.reason == "not a usable screenshot"
    assert one.name == str(place)


@pytest.mark.parametrize("name", ["../../secret.png", "/etc/hostname", "..", "a\0b", "x" * 5000, "", 7, None])
def test_a_screenshot_outside_its_folder(name, tmp_path):
    (tmp_path / "results").mkdir()
    write_molmoweb(tmp_path / "results", ("noop", {}))
    (tmp_path / "results" / "secret.png").write_bytes(
        (tmp_path / "results/shop_4/images/screenshot_001.png").read_bytes()
    )
    step = molmoweb_step("noop", {}) | {"screenshot": name}
    write_json(tmp_path / "results" / "shop_4" / "trajectory.json", {"1": step})
    one = rejected("molmoweb", tmp_path)
    is_missing = name in ("", 7, None, "x" * 5000)
    assert one.reason == ("screenshot missing" if is_missing else "path leads out of the folder")


def test_a_link_to_a_picture_elsewhere(tmp_path):
    place = write_webvoyager(tmp_path / "results", webvoyager_messages("Wait"))
    (place / "screenshot1.png").rename(tmp_path / "elsewhere.png")
    (place / "screenshot1.png").symlink_to(tmp_path / "elsewhere.png")
    assert rejected("webvoyager", tmp_path).reason == "path leads out of the folder"


def test_a_link_to_messages_elsewhere(tmp_path):
    place = write_webvoyager(tmp_path / "results", webvoyager_messages("Wait"))
    (place / "interact_messages.json").rename(tmp_path / "elsewhere.json")
    (place / "interact_messages.json").symlink_to(tmp_path / "elsewhere.json")
    assert rejected("webvoyager", tmp_path).reason == "unreadable file"


def test_a_linked_folder_of_pictures(tmp_path):
    place = write_mind2web(tmp_path / "results")
    (place / "trajectory").rename(tmp_path / "elsewhere")
    (place / "trajectory").symlink_to(tmp_path / "elsewhere")
    assert rejected("online-mind2web", tmp_path).reason == "path leads out of the folder"


def test_a_pipe_instead_of_a_picture_does_not_wait(tmp_path):
    place = write_mind2web(tmp_path / "results")
    (place / "trajectory" / "1_full_screenshot.png").unlink()
    os.mkfifo(place / "trajectory" / "1_full_screenshot.png")
    assert rejected("online-mind2web", tmp_path).reason == "not a usable screenshot"


@pytest.mark.parametrize("form", ["webvoyager", "online-mind2web", "molmoweb", "browser-use", "comem"])
@pytest.mark.parametrize("kind", ["deep", "huge", "not JSON", "not UTF-8", "half a character"])
def test_a_file_that_is_hard_to_read(form, kind, tmp_path):
    results = tmp_path / "results"
    path = {
        "webvoyager": results / "taskA--1" / "interact_messages.json",
        "online-mind2web": results / "a" / "result.json",
        "molmoweb": results / "a" / "metadata.json",
        "browser-use": results / "a.json",
        "comem": results / "a.jsonl",
    }[form]
    path.parent.mkdir(parents=True, exist_ok=True)
    if form == "molmoweb":
        write_json(path.parent / "trajectory.json", {})
    texts = {"deep": b"[" * 200_000, "not JSON": b"{", "not UTF-8": b'"\xff"', "half a character": rb'["\ud800"]'}
    if kind == "huge":
        with path.open("wb") as file:
            file.truncate(300 * 2**20)  # takes no room on the disk
    else:
        path.write_bytes(texts[kind])
    one = rejected(form, tmp_path)
    assert one.reason == ("fields missing or wrong" if kind == "half a character" else "unreadable file")
    assert "a" in one.name


def test_ids_that_climb_out_stay_inside_the_run(tmp_path):
    write_mind2web(tmp_path / "results", name="odd", task_id="../../../climber")
    import_results(ImportRequest(format="online-mind2web", path=tmp_path / "results", out=tmp_path / "run"))
    [stored] = RunFolder.open(tmp_path / "run").episodes()
    assert stored.episode.task.task_id == "online-mind2web/../../../climber"
    assert stored.folder.resolve().is_relative_to((tmp_path / "run" / "episodes").resolve())
    assert not list(tmp_path.rglob("climber"))


def test_two_results_for_one_task(tmp_path):
    write_mind2web(tmp_path / "results", name="again", task_id="good")
    assert rejected("online-mind2web", tmp_path).reason == "two results for one task"


def test_more_steps_than_a_trajectory_holds(tmp_path):
    step = molmoweb_step("noop", {})
    place = write_molmoweb(tmp_path / "results", ("noop", {}))
    write_json(place / "trajectory.json", {str(number): step for number in range(1, 1002)})
    assert "more than 1000 steps" in rejected("molmoweb", tmp_path).detail


def test_numbers_that_are_none(tmp_path):
    place = write_molmoweb(tmp_path / "results", ("noop", {}))
    text = json.dumps({"1": molmoweb_step("click", CLICK)}).replace("10.0", "NaN")
    (place / "trajectory.json").write_text(text)
    assert rejected("molmoweb", tmp_path).reason == "fields missing or wrong"


@pytest.mark.parametrize("uri", ["data:image/png;base64,!!!!", "https://evil.example/x.png", 7, picture_uri()[:-40]])
def test_a_picture_in_text_that_is_none(uri, tmp_path):
    message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": uri}}]}
    one = {"messages": [message], "response": '{"name": "wait", "arguments": {}}'}
    write_comem(tmp_path / "results", rounds=[one])
    assert rejected("comem", tmp_path).reason == "not a usable screenshot"


def test_a_history_never_reads_the_paths_that_it_names(tmp_path):
    write_good("browser-use", tmp_path / "other")
    step = browser_use_step(DONE, message=REQUEST)
    step["state"]["screenshot_path"] = str(tmp_path / "other" / "good" / "screenshots" / "step_1.png")
    write_json(tmp_path / "results" / "a.json", {"history": [step]})
    assert rejected("browser-use", tmp_path).reason == "screenshot missing"
