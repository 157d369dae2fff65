import json
import os

import pytest
from typer.testing import CliRunner

from focusmem.cli.main import app
from focusmem.clients.base import ChatReply
from focusmem.errors import ConfigError, RecordError, WorldError
from focusmem.evaluation.comparison import ReadRun
from focusmem.evaluation.overall import overall, unweighted_mean
from focusmem.evaluation.run_store import RunStore
from focusmem.evaluation.screening import estimate_screening, read_screening, screen
from focusmem.judges.judge_model import JudgeModel
from focusmem.judges.screening import Auditor
from focusmem.schemas import Manifest, RunFolder
from judges.attempts import text_of
from stored_runs import make_finished, make_task, store_outcomes, write_run


@pytest.fixture(autouse=True)
def no_sync(monkeypatch):
    """No test here needs its files after a crash."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


class Auditing:
    """Finds a CAPTCHA in the tasks whose numbers it is given."""

    identity = "scripted"

    def __init__(self, *blocked, unreadable=(), gone=()):
        self.blocked, self.unreadable, self.gone, self.asked = blocked, unreadable, gone, []

    def ask(self, prompt, *, seed=None, as_json=False):
        number = int(text_of(prompt).partition("TASK: How much is mug number ")[2].partition("?")[0])
        if number in self.gone:
            raise WorldError("The server is gone.")
        self.asked.append(number)
        text = (
            "?" if number in self.unreadable else "BLOCK CAPTCHA step2 Press & Hold" if number in self.blocked else "OK"
        )
        return ChatReply(text, num_prompt_tokens=5, num_reply_tokens=1, cost_usd=0.5)


def auditor(client):
    return Auditor(JudgeModel(client, name="m", max_together=2, departures=("judged by m",)))


def reference(folder):
    """Tasks 0 to 5: success, three failures, a block and an error."""
    outcomes = ["success", "failure", "failure", "failure", "blocked", "error"]
    return RunStore(store_outcomes(folder, outcomes))


def test_only_failed_attempts_are_audited_and_the_rest_is_frozen(tmp_path):
    store, client = reference(tmp_path), Auditing(2, 4, unreadable=(3,))
    assert estimate_screening(store.folder, auditor(client)).num_calls == 4
    screening = screen(store, auditor(client))
    assert sorted(client.asked) == [1, 2, 3, 4]
    assert [one.task_id for one in screening.blocked] == ["shop/task-2", "shop/task-4"]
    assert {(one.kind, one.step, one.reason) for one in screening.blocked} == {("CAPTCHA", 2, "Press & Hold")}
    assert screening.kept == tuple(f"shop/task-{number}" for number in (0, 1, 3, 5))
    counts = screening.num_succeeded, screening.num_audited, screening.num_unreadable, screening.num_errors
    assert counts == (1, 4, 1, 1)
    assert (screening.cost.usd, screening.model, screening.departures) == (2.0, "m", ("judged by m",))
    assert (
        read_screening(tmp_path) == read_screening(tmp_path / "screening.json") == store.folder.screening() == screening
    )


def test_a_suite_is_screened_once(tmp_path):
    store = reference(tmp_path)
    screen(store, auditor(Auditing()))
    with pytest.raises(ConfigError, match="screened once"):
        screen(store, auditor(Auditing()))
    assert len(screen(store, auditor(Auditing(1)), again=True).blocked) == 1


def test_a_screening_that_broke_freezes_nothing_and_goes_on(tmp_path):
    store, back = reference(tmp_path), Auditing(2)
    with pytest.raises(WorldError, match="1 of 4 attempts could not be audited"):
        screen(store, auditor(Auditing(2, gone=(3,))))
    assert store.folder.screening() is None
    assert estimate_screening(store.folder, auditor(back)).num_calls == 1
    assert len(screen(store, auditor(back)).blocked) == 1
    assert back.asked == [3]


@pytest.mark.parametrize(
    ("outcomes", "problem"),
    [
        ([["failure", "failure"]], "has 2 attempts at each task"),
        (["failure", None], "lacks 1 of its 2 tasks"),
        (["failure", "not_judged"], "not judged"),
    ],
)
def test_a_run_that_is_no_reference_is_refused(outcomes, problem, tmp_path):
    with pytest.raises(ConfigError, match=problem):
        screen(RunStore(store_outcomes(tmp_path, outcomes)), auditor(Auditing()))


def test_a_suite_of_which_nothing_is_left_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="Every task"):
        screen(RunStore(store_outcomes(tmp_path, ["failure"])), auditor(Auditing(0)))


def test_a_screening_file_of_another_form_is_refused(tmp_path):
    path = tmp_path / "screening.json"
    path.write_text("{}")
    with pytest.raises(RecordError, match="schema_version"):
        read_screening(path)


# The frozen subset as denominator


def test_rates_are_over_the_frozen_subset(tmp_path):
    screening = screen(reference(tmp_path / "reference"), auditor(Auditing(2, 4)))
    run = ReadRun.read(
        store_outcomes(tmp_path / "run", ["success", "success", "success", "failure", "failure", "error"])
    )
    whole, within = run.figures, run.within(screening).figures
    assert (whole["success_rate"], within["success_rate"]) == (3 / 6, 2 / 4)
    assert (within["num_tasks"], within["num_failed"], within["num_errors"], within["num_blocked"]) == (4, 1, 1, 0)


def test_a_run_of_the_subset_alone_stays_as_it_is_and_other_tasks_are_refused(tmp_path):
    screening = screen(reference(tmp_path / "reference"), auditor(Auditing(2, 4)))
    tasks = [make_task(number) for number in (0, 1, 3, 5)]
    subset = ReadRun.read(write_run(tmp_path / "subset", [make_finished(0)], tasks=tasks))
    assert subset.within(screening).figures == subset.figures
    other = ReadRun.read(store_outcomes(tmp_path / "other", ["success"] * 7))
    with pytest.raises(ConfigError, match="other tasks than those that were screened"):
        other.within(screening)


# Overall


def suite_run(folder, suite, outcomes, method="full"):
    """A run of another suite than `shop`."""
    path = store_outcomes(folder / f"{suite}-{method}", outcomes, method=method)
    manifest = json.loads((path / "tasks.json").read_text())
    (path / "tasks.json").write_text(json.dumps(manifest | {"suite": suite}))
    assert RunFolder(path).manifest() == Manifest(**{**dict(RunFolder(path).manifest()), "suite": suite})
    return path


def test_overall_is_the_unweighted_mean_before_rounding(tmp_path):
    paths = [
        suite_run(tmp_path, "a", ["success"] + ["failure"] * 2),
        suite_run(tmp_path, "b", ["success", "error"]),
        suite_run(tmp_path, "a", ["failure", "success", "success"], method="none"),
    ]
    found = overall([ReadRun.read(path) for path in paths])
    assert found["suites"] == ["a", "b"]
    assert [(row["memory"], row["overall"]) for row in found["rows"]] == [("full", (1 / 3 + 1 / 2) / 2), ("none", None)]
    told = CliRunner().invoke(app, ["table", "--overall", *map(str, paths), "--markdown"])
    assert told.exit_code == 0, told.output
    assert (
        "| full | - | 33.3% (6.1% to 79.2%) of 3; 2 / 0 / 0 | 50.0% (9.5% to 90.5%) of 2; 0 / 1 / 0 | 41.67% |"
        in told.stdout
    )
    assert json.loads(CliRunner().invoke(app, ["table", "--overall", *map(str, paths), "--json"]).stdout) == found


def test_overall_takes_the_frozen_subsets(tmp_path):
    screen(reference(tmp_path / "reference"), auditor(Auditing(2, 4)))
    path = store_outcomes(tmp_path / "run", ["success", "success", "failure", "failure", "failure", "error"])
    told = CliRunner().invoke(app, ["table", "--overall", str(path), "--subset", str(tmp_path / "reference"), "--json"])
    assert json.loads(told.stdout)["rows"][0]["overall"] == 2 / 4


def test_two_runs_of_one_method_in_one_suite_are_refused(tmp_path):
    run = ReadRun.read(store_outcomes(tmp_path, ["success"]))
    with pytest.raises(ConfigError, match="runs of the same method"):
        overall([run, run])


def test_a_subset_of_a_suite_without_a_run_is_refused(tmp_path):
    screening = screen(reference(tmp_path / "reference"), auditor(Auditing()))
    run = ReadRun.read(suite_run(tmp_path, "a", ["success"]))
    with pytest.raises(ConfigError, match="subset is given for shop"):
        overall([run], [screening])


@pytest.mark.parametrize(
    ("rates", "mean"), [((0.5, 0.25), 0.375), ((1 / 3,), 1 / 3), ((0.5, None), None), ((), None), ((0.0, 0.0), 0.0)]
)
def test_the_mean_of_rates(rates, mean):
    assert unweighted_mean(rates) == mean
