"""Results of other agents as a run, and a run as result folders."""

import json

import pytest
from typer.testing import CliRunner

from data.importers.results import answered, look, webvoyager_messages, write_mind2web, write_molmoweb, write_webvoyager
from factories import make_trajectory
from focusmem.bank.sources import find_sources, load_source
from focusmem.cli.main import app
from focusmem.clients.scripted import ScriptedChat
from focusmem.errors import ConfigError
from focusmem.recipes.interchange import ImportRequest, export_run, import_results
from focusmem.recipes.judge import JudgeRequest, judge_run
from focusmem.schemas import RunFolder, Step, make_action
from focusmem.schemas.import_record import ImportRecord
from focusmem.schemas.record import parse_record
from stored_runs import make_finished, make_task, with_closing, write_run


def focusmem(*words, exit_code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == exit_code, (result.output, result.exception)
    return result


@pytest.fixture
def results(tmp_path):
    """Two good results and one with an action that has no equivalent."""
    folder = tmp_path / "results"
    write_webvoyager(folder, webvoyager_messages("Type [2]; blue mug", "ANSWER; 12 euros"), name="taskShop--1")
    write_webvoyager(folder, [*webvoyager_messages("Click [2]", "Wait"), look()], name="taskShop--2")
    write_webvoyager(folder, webvoyager_messages("GoBack", "ANSWER; 12 euros"), name="taskShop--3")
    return folder


def test_an_import_is_a_run_that_can_be_judged_shown_and_added_to_a_bank(results, tmp_path):
    run = tmp_path / "run"
    words = ("data", "import", "webvoyager", results, "--out", run, "--agent", "gpt-4v", "--source", "their runs")
    told = focusmem(*words, exit_code=1).stdout
    assert "2 imported, 1 refused" in told
    assert "refused for 'no equivalent of GoBack': 1" in told
    assert str(results / "taskShop--3") in told.replace("\n", "")
    stored = RunFolder.open(run).episodes()
    assert [one.episode.task.task_id for one in stored] == ["webvoyager/Shop--1", "webvoyager/Shop--2"]
    assert [one.episode.answer for one in stored] == ["12 euros", None]
    assert [one.trajectory().trajectory.closing is None for one in stored] == [True, False]
    assert [one.episode.task.presses_enter for one in stored] == [True, None]
    assert {one.episode.method for one in stored} == {"gpt-4v"}
    assert {one.trajectory().trajectory.source for one in stored} == {"their runs"}
    assert {one.outcome for one in stored} == {"not_judged"}

    judge_run(run, JudgeRequest(judges=("webvoyager:official",)), client=ScriptedChat(["SUCCESS"]))
    assert [one.outcome for one in RunFolder.open(run).episodes()] == ["success", "failure"]
    focusmem("trajectory", "check", run)
    focusmem("report", run)
    to_add = [load_source(folder).trajectory for folder in find_sources(run)]  # what `bank add` reads
    assert [(one.source, one.outcome) for one in to_add] == [("their runs", "success"), ("their runs", "failure")]


def test_what_was_refused_is_kept_in_the_run(results, tmp_path):
    run = tmp_path / "run"
    told = json.loads(focusmem("data", "import", "webvoyager", results, "--out", run, "--json", exit_code=1).stdout)
    record = parse_record(ImportRecord, (run / "import.json").read_bytes(), "import.json")
    assert record.model_dump(mode="json") == told
    assert record.num_by_reason == {"no equivalent of GoBack": 1}
    assert RunFolder.open(run).run().status == "finished"


def test_an_import_that_yields_nothing_leaves_nothing(results, tmp_path):
    with pytest.raises(ConfigError, match="None of 1 results could be imported: 1 no equivalent of GoBack"):
        import_results(ImportRequest(format="webvoyager", path=results / "taskShop--3", out=tmp_path / "run"))
    with pytest.raises(ConfigError, match="holds nothing that looks like a result"):
        import_results(ImportRequest(format="molmoweb", path=results, out=tmp_path / "run"))
    with pytest.raises(ConfigError, match="does not exist"):
        import_results(ImportRequest(format="molmoweb", path=tmp_path / "no", out=tmp_path / "run"))
    with pytest.raises(ConfigError, match="choose one of webvoyager, online-mind2web"):
        import_results(ImportRequest(format="moo", path=results, out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_verdicts_in_the_files_name_their_judge(tmp_path):
    write_molmoweb(tmp_path / "results", answered(), verdicts={"deepshop": "SUCCESS"})
    request = ImportRequest(format="molmoweb", path=tmp_path / "results", out=tmp_path / "run", suite="deepshop")
    import_results(request)
    [stored] = RunFolder.open(tmp_path / "run").episodes()
    assert stored.episode.task.task_id == "deepshop/shop_4"
    assert (stored.verdict.judge, stored.verdict.judge_profile, stored.outcome) == ("deepshop", "imported", "success")
    assert stored.trajectory().trajectory.outcome == "success"


def test_instructions_may_come_from_a_file(tmp_path):
    from data.importers.results import DONE, browser_use_step, write_browser_use

    history = write_browser_use(tmp_path / "h", browser_use_step(DONE))
    (tmp_path / "told.json").write_text('{"mug": "Buy a mug."}')
    focusmem(
        "data", "import", "browser-use", history, "--out", tmp_path / "run", "--instructions", tmp_path / "told.json"
    )
    [stored] = RunFolder.open(tmp_path / "run").episodes()
    assert stored.episode.task.instruction == "Buy a mug."


# Exporting


@pytest.fixture
def run(tmp_path):
    """A success, an attempt without an answer, an error, one without a step, and a second attempt."""
    unanswered = make_trajectory(3, seed=2)
    steps = (*unanswered[0].steps[:2], Step(screenshot=unanswered[0].steps[2].screenshot, action=make_action("wait")))
    unanswered = unanswered[0].model_copy(update={"steps": steps}), unanswered[1]
    return write_run(
        tmp_path / "run",
        [
            make_finished(1),
            make_finished(1, attempt=2),
            make_finished(
                2,
                "failure",
                recording=with_closing(unanswered, make_trajectory(1, seed=9)[1].popitem()[1]),
                answer=None,
            ),
            make_finished(3, "error", error="The site is down."),
            make_finished(4, "not_judged", answer=None, notes=()),
        ],
        tasks=[make_task(number) for number in (1, 2, 3, 4)],
    )


@pytest.mark.parametrize(
    ("form", "files"),
    [
        (
            "webvoyager",
            {"tasktask-1/interact_messages.json", "tasktask-1/screenshot3.png", "tasktask-2/screenshot4.png"},
        ),
        ("online-mind2web", {"task-1/result.json", "task-1/trajectory/2_full_screenshot.png"}),
        ("molmoweb", {"task-1/trajectory.json", "task-1/metadata.json", "task-2/images/screenshot_004.png"}),
    ],
)
def test_a_run_becomes_result_folders(run, form, files, tmp_path):
    told = json.loads(focusmem("data", "export", run, form, "--out", tmp_path / "out", "--json", exit_code=1).stdout)
    written = {
        path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()
    }
    assert files <= written
    assert len(list((tmp_path / "out").iterdir())) == told["num_exported"] == 2
    assert [one["reason"] for one in told["left_out"]] == ["ended by an error", "no step"]
    assert told["cannot_hold"]


def test_people_are_told_what_the_format_cannot_hold(run, tmp_path):
    told = focusmem("data", "export", run, "webvoyager", "--out", tmp_path / "out", exit_code=1).stdout
    assert "Not in this format: addresses of pages" in told
    assert "left out for 'ended by an error': 1" in told
    assert "2 exported, 2 left out" in told


def test_one_attempt_at_each_task_is_exported(run, tmp_path):
    assert export_run(run, "molmoweb", tmp_path / "second", attempt=2).names == ("task-1",)
    with pytest.raises(ConfigError, match="no finished attempt number 3"):
        export_run(run, "molmoweb", tmp_path / "third", attempt=3)
    assert not (tmp_path / "third").exists()


def test_an_export_replaces_nothing(run, tmp_path):
    (tmp_path / "out").mkdir()
    result = CliRunner().invoke(app, ["data", "export", str(run), "molmoweb", "--out", str(tmp_path / "out")])
    assert "exists already" in str(result.exception)


@pytest.mark.parametrize("form", ["webvoyager", "online-mind2web", "molmoweb"])
def test_an_exported_import_is_imported_with_equal_tasks_answers_and_pictures(form, tmp_path):
    write_mind2web(tmp_path / "results")
    import_results(ImportRequest(format="online-mind2web", path=tmp_path / "results", out=tmp_path / "one", suite="s"))
    export_run(tmp_path / "one", form, tmp_path / "out")
    import_results(ImportRequest(format=form, path=tmp_path / "out", out=tmp_path / "two", suite="s"))
    [first], [second] = (RunFolder.open(tmp_path / name).episodes() for name in ("one", "two"))
    assert second.episode.task.task_id == first.episode.task.task_id
    assert second.episode.task.instruction == first.episode.task.instruction
    assert second.episode.answer == first.episode.answer
    steps, others = (one.trajectory().trajectory.steps for one in (first, second))
    assert [step.action for step in others] == [step.action for step in steps]
    assert [step.screenshot for step in others] == [step.screenshot for step in steps]
