import json

import pytest
from PIL import Image
from typer.testing import CliRunner

from focusmem.cli.main import app
from focusmem.errors import ConfigError
from focusmem.evaluation.comparison import compare
from focusmem.evaluation.metrics import summarise
from focusmem.evaluation.table import tabulate
from focusmem.schemas import RunFolder
from stored_runs import store_outcomes

W, L = "success", "failure"
KINDS = ["fact", "fact", "price", "price"]


@pytest.fixture
def runs(tmp_path):
    return [
        store_outcomes(tmp_path / "none", [L, L, W, "error"], kinds=KINDS, method="none"),
        store_outcomes(tmp_path / "re|play", [W, L, W, L], num_steps=[5, 4, 3, 2], kinds=KINDS, method="replay"),
        store_outcomes(tmp_path / "full", [W, W, W, L], kinds=KINDS),
    ]


def test_a_row_holds_the_figures_of_the_run_and_of_its_comparisons(runs):
    rows = tabulate(runs)["rows"]
    for run, row in zip(runs, rows, strict=True):
        own = summarise(RunFolder.open(run))
        assert {name: row[name] for name in own} == own
    assert rows[0]["over_first"] is rows[0]["over_previous"] is None
    for other, name in ((runs[0], "over_first"), (runs[1], "over_previous")):
        found = compare(runs[2], other)
        gain = rows[2][name]
        assert gain.pop("other") == str(other)
        assert gain == {part: found[part] for part in gain}
    assert rows[2]["over_first"]["success_difference"] == 0.5
    assert rows[2]["over_previous"]["success_difference"] == 0.25


def test_one_run_is_no_table(runs):
    with pytest.raises(ConfigError, match="at least two runs"):
        tabulate(runs[:1])


def test_runs_of_other_tasks_are_refused(tmp_path, runs):
    with pytest.raises(ConfigError, match="different tasks"):
        tabulate([*runs, store_outcomes(tmp_path / "more", [W, W, W, L, L])])


def test_the_command_prints_draws_and_pastes(tmp_path, runs):
    names = [str(run) for run in runs]
    drawn = tmp_path / "table.png"
    told = CliRunner().invoke(app, ["table", *names, "--plot", str(drawn), "--json"])
    assert told.exit_code == 0
    assert json.loads(told.stdout) == tabulate(runs)
    with Image.open(drawn) as picture:
        assert picture.width > picture.height

    lines = CliRunner().invoke(app, ["table", *names, "--markdown"]).stdout.splitlines()
    assert lines[2].startswith("| none | 25.0% (")
    assert "| 2 | 1 | 0 | 0 | - | - |" in lines[2]
    assert lines[3].startswith(r"| re\|play | 50.0% (")
    assert "| +25.0% (" in lines[3]
    assert len({line.replace(r"\|", "").count("|") for line in lines if line.startswith("|")}) == 1
    assert lines[-1].startswith("Tasks: "), "the set of tasks stands below the table"

    assert "+50.0%" in CliRunner().invoke(app, ["table", *names], env={"COLUMNS": "200"}).stdout


def test_the_command_prints_kinds_of_tasks(runs):
    lines = CliRunner().invoke(app, ["table", *map(str, runs), "--by-kind", "--markdown"]).stdout.splitlines()
    assert lines[0] == "| run | all | fact | price |"
    rates = [[cell.split()[0] for cell in line.split("|")[-4:-1]] for line in lines[2:] if line.startswith("|")]
    assert rates == [["25.0%", "0.0%", "50.0%"], ["50.0%", "50.0%", "50.0%"], ["75.0%", "100.0%", "50.0%"]]


def test_several_attempts_of_few_tasks_have_no_interval_and_are_drawn_all_the_same(tmp_path):
    runs = [store_outcomes(tmp_path / name, [[W, L], [W, W]]) for name in ("one", "other")]
    told = CliRunner().invoke(app, ["table", *map(str, runs), "--plot", str(tmp_path / "table.png")])
    assert told.exit_code == 0, told.output
    assert "2 tasks, 2 attempts at each" in told.stdout
    assert (tmp_path / "table.png").exists()
    once = store_outcomes(tmp_path / "once", [[W], [L]])
    told = CliRunner().invoke(app, ["table", *map(str, [*runs, once])])
    assert "2 tasks, 1 or 2 attempts at each" in told.stdout


def test_a_run_without_a_judge_cannot_be_compared(tmp_path):
    runs = [store_outcomes(tmp_path / name, [outcome]) for name, outcome in (("one", W), ("other", "not_judged"))]
    with pytest.raises(ConfigError, match="judged in both"):
        tabulate(runs)
