import json
import re

from typer.testing import CliRunner

from focusmem.cli.main import app
from stored_runs import make_finished, make_task, write_run


def report(*words):
    return CliRunner().invoke(app, ["report", *map(str, words)])


def test_the_page_lies_in_the_run_unless_told(tmp_path):
    run = write_run(tmp_path / "run", [make_finished(1), make_finished(2)])
    result = report(run)
    assert result.exit_code == 0, result.output
    assert (run / "page.html").exists()
    assert "page.html: 2 episodes" in result.stdout


def test_many_problems_are_listed_on_the_page_and_not_all_on_the_screen(tmp_path):
    run = write_run(tmp_path / "run", [make_finished(number) for number in range(31)])
    for number in range(1, 31):
        (run / "episodes" / f"task-{number}" / "1" / "episode.json").write_text("{")
    told = report(run).stderr.splitlines()
    assert sum("was skipped" in line for line in told) == 10
    assert "... and 20 more, which the page lists" in told


def test_two_runs_as_json(tmp_path):
    one, other = (write_run(tmp_path / name, [make_finished(1), make_finished(2)]) for name in ("one", "other"))
    (other / "episodes" / "task-2" / "1" / "episode.json").write_text("{")
    result = report(one, other, "--out", tmp_path / "page.html", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["page"] == str(tmp_path / "page.html")
    assert (found["num_episodes"], found["num_skipped"]) == (3, 1)
    assert found["num_bytes"] == (tmp_path / "page.html").stat().st_size
    assert "task-2/1 was skipped" in result.stderr


def test_a_run_that_was_killed_shows_the_figures_so_far(tmp_path):
    tasks = [make_task(number) for number in range(4)]
    run = write_run(tmp_path / "run", [make_finished(1), make_finished(2, "error")], tasks=tasks, status="running")
    assert report(run).exit_code == 0
    index = re.search(r'id="index">(.*?)</script>', (run / "page.html").read_text()).group(1)
    [about] = json.loads(index)["runs"]
    assert (about["figures"]["success_rate"], about["figures"]["num_missing"]) == (0.25, 2)
    assert not (run / "results.json").exists(), "a page changes nothing about its run"
