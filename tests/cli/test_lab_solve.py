import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from focusmem.cli.main import app

ROW = ["task_id", "kind", "instruction", "is_success", "num_steps", "answer", "gold"]


def focusmem(*words, env=None, before="pass"):
    """As from a shell; `before` is Python that runs first."""
    code = f"import sys; {before}; sys.argv = {['focusmem', *words]!r}; from focusmem.cli.main import main; main()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)


def document(*words):
    result = CliRunner().invoke(app, ["lab", "solve", *words, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_document_holds_rates_and_a_row_for_each_task():
    found = document("--solver", "explorer", "--tasks", "12", "--seed", "4")
    rows = found["tasks"]
    assert all(list(row) == ROW for row in rows)
    assert found["num_tasks"] == len(rows) == 12
    assert found["success_rate"] == sum(row["is_success"] for row in rows) / 12
    assert found["mean_steps"] == sum(row["num_steps"] for row in rows) / 12
    assert all(row["is_success"] == (row["answer"] == row["gold"]) for row in rows)


def test_equal_options_give_equal_documents_and_seeds_matter():
    once = document("--tasks", "5", "--seed", "1")
    assert once == document("--tasks", "5", "--seed", "1")
    ids = [row["task_id"] for row in once["tasks"]]
    assert ids != [row["task_id"] for row in document("--tasks", "5", "--seed", "2")["tasks"]]
    other = document("--tasks", "5", "--seed", "1", "--world-seed", "9")
    assert [row["instruction"] for row in other["tasks"]] != [row["instruction"] for row in once["tasks"]]


def test_solvers_are_what_they_are_called():
    rates = {name: document("--solver", name, "--tasks", "30")["success_rate"] for name in ("expert", "nothing")}
    assert rates == {"expert": 1.0, "nothing": 0.0}


def test_the_table_has_a_row_for_each_kind_and_one_for_all():
    result = CliRunner().invoke(app, ["lab", "solve", "--tasks", "30"])
    assert result.exit_code == 0
    kinds = {row["kind"] for row in document("--tasks", "30")["tasks"]}
    for word in ("kind", "success", "tasks", "mean steps", "all", "100.0%", *kinds):
        assert word in result.stdout
    assert "expert in raster 30/30" in result.stderr, "the progress line"


@pytest.mark.parametrize("option", ["solver", "browser"])
def test_a_name_that_does_not_exist(option):
    result = focusmem("lab", "solve", f"--{option}", "netscape")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"focusmem: The {option} is 'netscape'; choose one of")
    assert len(result.stderr.splitlines()) == 1


def test_each_suite_has_its_own_tasks():
    entries = document("--suite", "lab-entries", "--tasks", "8")
    assert entries["success_rate"] == 1.0
    assert entries["suite"] == "lab-entries"
    assert all(row["task_id"].startswith("lab-entries/") for row in entries["tasks"])
    assert all(row["task_id"].startswith("lab/") for row in document("--tasks", "8")["tasks"])
    wrong = CliRunner().invoke(app, ["lab", "solve", "--suite", "laboratory"])
    assert "choose lab or lab-entries" in str(wrong.exception)


def test_statistics_count_what_is_shown_and_needed():
    result = CliRunner().invoke(app, ["lab", "statistics", "--tasks", "12", "--json"])
    assert result.exit_code == 0, result.output
    kinds = json.loads(result.stdout)["kinds"]
    assert kinds["all"]["num_tasks"] == 12
    assert kinds["all"]["least_ratio"] >= 8
    assert (
        "bits needed" in CliRunner().invoke(app, ["lab", "statistics", "--tasks", "4"], env={"COLUMNS": "200"}).stdout
    )
    refused = CliRunner().invoke(app, ["lab", "statistics", "--suite", "lab"])
    assert "use --suite lab-entries" in str(refused.exception)


def test_no_tasks_are_a_mistake():
    assert CliRunner().invoke(app, ["lab", "solve", "--tasks", "0"]).exit_code == 2


def test_help_opens_with_a_line_to_paste():
    result = CliRunner().invoke(app, ["lab", "solve", "--help"])
    assert "focusmem lab solve --solver explorer --tasks 20" in result.output


def test_without_playwright_it_says_what_to_install():
    result = focusmem(
        "lab", "solve", "--tasks", "1", "--browser", "chromium", before="sys.modules['playwright'] = None"
    )
    assert result.returncode == 2
    assert result.stderr == (
        "focusmem: This needs the package 'playwright', which is not installed: pip install playwright\n"
    )


@pytest.mark.browser
def test_without_a_browser_it_says_what_to_install(tmp_path):
    nowhere = {"PATH": str(tmp_path), "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    result = focusmem("lab", "solve", "--tasks", "1", "--browser", "chromium", env=nowhere)
    assert result.returncode == 2
    assert result.stderr.startswith("focusmem: There is no Chromium on this machine.")


@pytest.mark.browser
def test_in_chromium_the_document_is_the_same():
    options = ["--tasks", "2", "--seed", "3"]
    drawn = document(*options)
    seen = json.loads(focusmem("lab", "solve", *options, "--browser", "chromium", "--json").stdout)
    assert seen.pop("browser") == "chromium"
    assert drawn.pop("browser") == "raster"
    assert seen == drawn
