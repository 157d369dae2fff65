import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from browser.sites import Site
from clocks import PATIENT_S
from focusmem.browser.base import BrowserLimits
from focusmem.browser.opening import BrowserChoice
from focusmem.errors import ConfigError, RecordError, StorageError
from focusmem.judges.exact_answer import ExactAnswer
from focusmem.schemas import Annotations, make_action
from focusmem.suites.base import manifest_of
from focusmem.suites.task_file import TaskSuite

LINE = {
    "task_id": "blue-mug",
    "instruction": "How much is the blue mug?",
    "start_url": "https://shop.example/",
    "site": "shop.example",
}


def write(folder, *lines, name="mine.jsonl"):
    path = folder / name
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def read(folder, *lines, **settings):
    return TaskSuite.from_file(write(folder, *lines), **settings)


def test_tasks_are_named_after_the_file_and_blank_lines_are_skipped(tmp_path):
    suite = read(tmp_path, LINE, "", "   ", LINE | {"task_id": "shop/red mug"}, "")
    assert (suite.name, [task.task_id for task in suite.tasks]) == ("mine", ["mine/blue-mug", "mine/shop/red mug"])
    [task, _] = suite.tasks
    assert (task.instruction, task.start_url, task.site) == (LINE["instruction"], LINE["start_url"], LINE["site"])


def test_optional_fields_have_defaults(tmp_path):
    [bare] = read(tmp_path, LINE).tasks
    assert (bare.answer, bare.max_steps, bare.allowed_sites, bare.annotations) == (None, 15, (), Annotations())
    full = LINE | {
        "answer": "12 euros",
        "max_steps": 30,
        "allowed_sites": ["pay.example", "127.0.0.1:8000"],
        "annotations": {"instance": "blue mug"},
    }
    [task] = read(tmp_path, full).tasks
    assert (task.answer, task.max_steps) == ("12 euros", 30)
    assert task.allowed_sites == ("pay.example", "127.0.0.1:8000")
    assert task.annotations == Annotations(instance="blue mug")
    assert {one.max_steps for one in read(tmp_path, full, LINE | {"task_id": "b"}, max_steps=4).tasks} == {4}


def test_answers_are_compared_if_any_task_has_one(tmp_path):
    assert read(tmp_path, LINE).judge is None
    assert isinstance(read(tmp_path, LINE, LINE | {"task_id": "b", "answer": "x"}).judge, ExactAnswer)


def test_several_sites_are_summed_up_apart(tmp_path):
    other = LINE | {"task_id": "b", "site": "map.example"}
    suite = read(tmp_path, LINE, other)
    assert [suite.kind_of(task) for task in suite.tasks] == ["shop.example", "map.example"]
    suite = read(tmp_path, LINE, LINE | {"task_id": "b"})
    assert [suite.kind_of(task) for task in suite.tasks] == [None, None]


def test_the_manifest_is_frozen_by_its_hash(tmp_path):
    manifest = manifest_of(read(tmp_path, LINE), num_attempts=3)
    assert (manifest.suite, manifest.num_attempts, list(manifest.kind_of)) == ("mine", 3, ["mine/blue-mug"])
    assert manifest == manifest_of(read(tmp_path, "", LINE), num_attempts=3)
    assert manifest.sha256 != manifest_of(read(tmp_path, LINE | {"answer": "12 euros"})).sha256


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "is not valid JSON"),
        ("[]", "should hold one JSON object"),
        ({}, "is missing"),
        (LINE | {"task_id": " "}, "task_id should not be empty or blank"),
        (LINE | {"answr": "x"}, "answr is not a known field"),
        ({"instruktion": "x"} | {k: v for k, v in LINE.items() if k != "instruction"}, "instruktion is not a known"),
        (LINE | {"max_steps": 0}, "max_steps should be greater than or equal to 1"),
        (LINE | {"max_steps": "9"}, "max_steps should be a valid integer"),
        (LINE | {"start_url": "shop.example"}, "https://shop.example/. Put http:// or https:// in front of it (found"),
        (LINE | {"start_url": "ftp://shop.example/"}, "start_url is not the address of a page"),
        (LINE | {"start_url": "https://me@shop.example/"}, "start_url is not the address of a page"),
        (LINE | {"start_url": "http://[bad/"}, "start_url is not the address of a page"),
        (LINE | {"allowed_sites": ["https://pay.example/"]}, "allowed_sites is not a list of hosts"),
        (json.dumps(LINE)[:-1] + ', "site": "x"}', 'has the key "site" twice'),
    ],
)
def test_a_bad_line_is_named_with_its_file_and_number(tmp_path, line, words):
    path = write(tmp_path, LINE, "", line)
    with pytest.raises(RecordError) as caught:
        TaskSuite.from_file(path)
    assert f"{path}, line 3" in str(caught.value)
    assert words in str(caught.value)


def test_an_id_stands_once(tmp_path):
    with pytest.raises(RecordError, match=r"mine\.jsonl, line 2: the task id 'blue-mug' is used twice"):
        read(tmp_path, LINE, LINE)


def test_a_file_without_tasks_or_no_file_is_refused(tmp_path):
    with pytest.raises(RecordError, match="holds no task"):
        read(tmp_path, "", " ")
    with pytest.raises(StorageError):
        TaskSuite.from_file(tmp_path / "nothing.jsonl")


def test_a_file_may_be_called_anything(tmp_path):
    suite = TaskSuite.from_file(write(tmp_path, LINE, name="my tasks!.jsonl"))
    [task] = suite.tasks
    assert suite.name.startswith("tasks-")
    assert task.task_id == f"{suite.name}/blue-mug"


# A single page.


def test_a_page_and_an_instruction_are_a_task():
    suite = TaskSuite.from_page("https://shop.example:8000/list?a=b", "Find the opening hours.")
    [task] = suite.tasks
    assert (suite.name, suite.judge, suite.kind_of(task)) == ("page", None, None)
    assert (task.start_url, task.site, task.max_steps, task.answer) == (
        "https://shop.example:8000/list?a=b",
        "shop.example",
        15,
        None,
    )
    assert task.task_id.startswith("page/")
    assert TaskSuite.from_page("https://shop.example:8000/list?a=b", "Find the opening hours.").tasks == suite.tasks
    [other] = TaskSuite.from_page("https://shop.example:8000/list?a=b", "Find the address.", max_steps=3).tasks
    assert (other.task_id != task.task_id, other.max_steps) == (True, 3)


@pytest.mark.parametrize("url", ["shop.example", "ftp://shop.example/", "https://", "http://[bad/", "https://a b/", ""])
def test_what_is_not_an_address_is_refused(url):
    with pytest.raises(ConfigError, match="start_url is not the address of a page"):
        TaskSuite.from_page(url, "Find the opening hours.")


def test_a_page_needs_an_instruction():
    with pytest.raises(ConfigError, match="instruction should not be empty"):
        TaskSuite.from_page("https://shop.example/", " ")


# Browsers.


def test_pages_of_ones_own_are_not_drawn_by_the_raster(tmp_path):
    async def work():
        async with AsyncExitStack() as stack:
            await read(tmp_path, LINE).open_browsers(BrowserChoice(kind="raster"), stack)

    with pytest.raises(ConfigError, match="use --browser chromium"):
        asyncio.run(work())


@pytest.mark.browser
def test_a_task_is_opened_with_the_suites_view_and_no_other_host():
    patient = {"load_s": PATIENT_S, "action_s": 2 * PATIENT_S, "step_s": 2 * PATIENT_S}
    limits = BrowserLimits(width=400, height=300, settle_s=0.0, wait_s=0.0, **patient)

    async def work(suite):
        async with AsyncExitStack() as stack:
            make_browser = await suite.open_browsers(BrowserChoice(), stack)
            [task] = suite.tasks
            browser = await make_browser(task)
            await browser.open(task.start_url)
            done = await browser.perform(make_action("goto", url="http://elsewhere.test/"))
            seen = await browser.observe()
            await browser.close()
            return done, seen

    with Site() as site:
        suite = TaskSuite.from_page(f"{site.url}/second", "Look around.", limits=limits)
        done, seen = asyncio.run(work(suite))
    assert (seen.title, seen.screenshot.width, seen.screenshot.height) == ("Second", 400, 300)
    assert "elsewhere.test does not belong to this task" in done.error


def test_a_page_on_www_stands_for_its_whole_site(monkeypatch):
    async def open_chromium(limits, choice, stack):
        async def launch(hosts, presses_enter):
            return hosts

        return launch

    async def work(task):
        async with AsyncExitStack() as stack:
            make_browser = await suite.open_browsers(BrowserChoice(), stack)
            return await make_browser(task)

    monkeypatch.setattr("focusmem.suites.task_file.open_chromium", open_chromium)
    suite = TaskSuite.from_page("https://WWW.Shop.example/", "Look around.")
    task = suite.tasks[0].model_copy(update={"allowed_sites": ("pay.example",)})
    assert asyncio.run(work(task)) == ["shop.example", "pay.example"]
