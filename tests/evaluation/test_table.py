import json

import pytest
from PIL import Image
from typer.testing import CliRunner

from evaluation.stored_runs import store_run
from focusmem.cli.main import app
from focusmem.errors import ConfigError
from focusmem.evaluation.comparison import compare
from focusmem.evaluation.metrics import summarise
from focusmem.evaluation.run_store import RunStore
from focusmem.evaluation.table import tabulate

W, L = "success", "failure"


@pytest.fixture
def runs(tmp_path):
    return [
        store_run(tmp_path / "none", [L, L, W, L], method="none"),
        store_run(tmp_path / "replay", [W, L, W, L], steps=[5, 4, 3, 2], method="replay").rename(tmp_path / "re|play"),
        store_run(tmp_path / "full", [W, W, W, L]),
    ]


def test_a_row_tells_what_the_run_and_its_comparisons_tell(runs):
    rows = tabulate(runs)["rows"]
    for run, row in zip(runs, rows, strict=True):
        own = summarise(RunStore(run))
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
    with pytest.raises(ConfigError, match="two runs or more"):
        tabulate(runs[:1])


def test_runs_of_other_tasks_do_not_stand_under_one_another(tmp_path, runs):
    with pytest.raises(ConfigError, match="different tasks"):
        tabulate([*runs, store_run(tmp_path / "more", [W, W, W, L, L])])


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
    assert "| - | - |" in lines[2]
    assert lines[3].startswith(r"| re\|play | 50.0% (")
    assert "| +25.0% (" in lines[3]
    assert len({line.replace(r"\|", "").count("|") for line in lines}) == 1

    assert "+50.0%" in CliRunner().invoke(app, ["table", *names], env={"COLUMNS": "200"}).stdout


def test_a_run_with_nothing_judged_is_said_so(tmp_path):
    runs = [store_run(tmp_path / name, ["error", W if name == "one" else "error"]) for name in ("one", "other")]
    with pytest.raises(ConfigError, match="both have judged"):
        tabulate(runs)
