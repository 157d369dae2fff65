"""`focusmem suites` from the command line."""

import json

import pytest
from typer.testing import CliRunner

from focusmem.cli.main import app
from focusmem.errors import ConfigError, StorageError
from focusmem.recipes.run_settings import lab, web
from focusmem.recipes.run_suite import SUITES, make_suite
from focusmem.settings import resolved
from focusmem.suites.miniwob import task_list
from suites.benchmark_files import several_hops, shopping_row, write_deepshop, write_mmina, write_webvoyager


def invoke(*words, code=0):
    result = CliRunner().invoke(app, ["suites", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code
    return result.stdout


def made(**suite):
    name = suite.pop("name")
    assignments = [f"suite.{key}={json.dumps(value)}" for key, value in suite.items()]
    return make_suite(resolved(web(), values={"suite.name": name}, assignments=assignments))


def test_every_suite_is_listed_with_what_it_needs():
    listed = json.loads(invoke("list", "--json"))["suites"]
    assert [one["suite"] for one in listed] == list(SUITES)
    assert all({"suite", "about", "needs"} <= one.keys() for one in listed)
    assert "mmina-shopping" in invoke("list")


def test_check_says_what_was_read_and_what_was_refused(tmp_path):
    write_deepshop(tmp_path)
    data = write_mmina(tmp_path, shopping=[shopping_row(1), several_hops(2)])
    text = invoke("check", tmp_path)
    assert f"{tmp_path}/deepshop_test.jsonl: deepshop, 2 tasks, 0 refused" in text
    assert f"{data}/shopping: mmina-shopping, 1 tasks, 1 refused" in text
    assert f"{data}/shopping/2.json: a task with several hops" in text
    assert f"focusmem run deepshop --data {tmp_path}/deepshop_test.jsonl" in text
    [shop, deepshop] = json.loads(invoke("check", tmp_path, "--json"))["files"]
    assert (shop["num_tasks"], len(shop["refused"]), deepshop["num_tasks"]) == (1, 1, 2)
    assert deepshop["revision"].startswith("files ")


def test_check_of_nothing_says_so(tmp_path):
    assert "holds no task files" in invoke("check", tmp_path, code=1)
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.jsonl").write_text("{}")
    assert "x.jsonl: no suite, 0 tasks, 1 refused" in invoke("check", tmp_path, code=1)


def test_show_names_the_tasks_of_miniwob_and_why_others_are_left_out():
    text = invoke("show", "miniwob")
    assert "drag-box: It takes dragging" in text
    assert f"tasks ({len(task_list().tasks)})" in text
    about = json.loads(invoke("show", "miniwob", "--json"))
    assert len(about["tasks"]) + len(about["left_out"]) == 125


def test_show_says_where_data_comes_from_and_what_a_task_asks(tmp_path):
    assert "github.com/MinorJerry/WebVoyager" in invoke("show", "webvoyager")
    data = write_webvoyager(tmp_path)
    told = invoke(
        *("show", "webvoyager/Google Flights--8", "--data", data, "--json", "--set", "suite.dates_from=2027-01-01")
    )
    task = json.loads(told)
    assert task["instruction"] == "Find a flight from Oslo to Rome on Jan. 20th."
    assert task["date_shift"]["original"] == "Find a flight from Oslo to Rome on Jan. 3rd."
    with pytest.raises(ConfigError, match="has no task webvoyager/X--1; its first one is webvoyager/Allrecipes--0"):
        invoke("show", "webvoyager/X--1", "--data", data)
    for name in ("nosuch", "nosuch/1"):
        with pytest.raises(ConfigError, match="There is no suite 'nosuch'"):
            invoke("show", name)


# Suites from the settings of a run


def test_a_benchmark_without_data_says_where_to_get_it(tmp_path):
    with pytest.raises(ConfigError, match=r"not a part of focusmem\. DeepShop's tasks are data/deepshop_test\.jsonl"):
        made(name="deepshop")
    with pytest.raises(StorageError, match="There is no"):
        made(name="deepshop", data=str(tmp_path / "nothing"))


def test_every_setting_reaches_the_tasks(tmp_path):
    data, ids = write_webvoyager(tmp_path), tmp_path / "ids"
    ids.write_text("Google Flights--8")
    suite = made(
        name="webvoyager",
        data=str(data),
        ids=str(ids),
        revision="5a78967",
        dates_from="2027-01-01",
        hosts={"www.google.com": "http://127.0.0.1:9"},
        allowed_hosts=["a.example"],
        presses_enter=False,
        max_steps=7,
    )
    [task] = suite.tasks
    assert (task.start_url, task.allowed_sites) == ("http://127.0.0.1:9/travel/flights/", ("a.example",))
    assert (task.presses_enter, task.max_steps, suite.revision) == (False, 7, "5a78967")
    assert task.date_shift.num_days == 1113
    shop = made(
        name="mmina-shopping", data=str(write_mmina(tmp_path, shopping=[shopping_row(1)])), shop="http://shop.example"
    )
    assert shop.tasks[0].start_url == "http://shop.example/"


@pytest.mark.parametrize(
    ("suite", "words"),
    [
        ({"name": "miniwob", "data": "x"}, "suite.data is for mmina-wikipedia"),
        ({"name": "deepshop", "data": "x", "seed": 3}, "suite.seed is for miniwob"),
        ({"name": "deepshop", "data": "x", "shop": "http://a.example"}, "suite.shop is for mmina-shopping"),
        ({"name": "https://a.example/", "instruction": "Look.", "ids": "x"}, "suite.ids is for benchmarks"),
        ({"name": "deepshop", "data": "x", "instruction": "Look."}, "--instruction is only for"),
        ({"name": "nosuch"}, "use lab, .*miniwob, mmina-wikipedia"),
    ],
)
def test_settings_that_a_suite_does_not_use_are_refused(suite, words):
    with pytest.raises(ConfigError, match=words):
        made(**suite)


def test_typing_presses_enter_as_the_suite_or_the_user_says(tmp_path):
    assert made(name="deepshop", data=str(write_deepshop(tmp_path))).tasks[0].presses_enter is True
    page = {"name": "https://a.example/", "instruction": "Look."}
    assert made(**page).tasks[0].presses_enter is None
    assert made(**page, presses_enter=True).tasks[0].presses_enter is True
    mine = tmp_path / "mine.jsonl"
    row = {"task_id": "a", "instruction": "x", "start_url": "https://a.example/", "site": "", "presses_enter": True}
    mine.write_text(json.dumps(row))
    assert made(name=str(mine)).tasks[0].presses_enter is True
    assert made(name=str(mine), presses_enter=False).tasks[0].presses_enter is False
    with pytest.raises(ConfigError, match="`type` only fills the field"):
        make_suite(resolved(lab(), values={"suite.presses_enter": True}))
