import json

import pytest
from typer.testing import CliRunner

from evaluation.stored_runs import store_run
from focusmem.cli.main import app
from focusmem.errors import ConfigError, StorageError
from focusmem.evaluation.comparison import compare
from focusmem.intervals import mean_interval, paired_interval
from reports.runs import make_episode, write_run

W, L, E, B = "success", "failure", "error", "blocked"


def test_a_comparison_by_hand(tmp_path):
    one = store_run(tmp_path / "one", [W, W, W, L, L, W], steps=[2, 3, 4, 5, 6, 7])
    other = store_run(tmp_path / "other", [W, L, L, W, L, W], steps=[4, 4, 4, 4, 4, 4], method="none")
    found = compare(one, other)
    assert (found["first"]["memory"], found["second"]["memory"]) == ("full", "none")
    assert found["num_pairs"] == 6
    assert (found["num_both_won"], found["num_both_lost"]) == (2, 1)
    assert (found["num_only_first_won"], found["num_only_second_won"]) == (2, 1)
    assert found["success_rates"] == [pytest.approx(4 / 6), pytest.approx(3 / 6)]
    assert found["success_difference"] == pytest.approx(1 / 6)
    assert found["success_difference_interval"] == list(paired_interval(2, 1, 6))
    assert found["mean_steps"] == [4.5, 4.0]
    assert found["steps_difference"] == 0.5
    assert found["steps_difference_interval"] is None, "too few to tell"


def test_steps_have_an_interval_where_there_are_enough_pairs(tmp_path):
    one = store_run(tmp_path / "one", [W] * 10, steps=list(range(1, 11)))
    other = store_run(tmp_path / "other", [W] * 10, steps=[4] * 10)
    assert compare(one, other)["steps_difference_interval"] == mean_interval(list(range(-3, 7)))


def test_turned_round_it_says_the_opposite(tmp_path):
    one, other = store_run(tmp_path / "one", [W, W, W, L]), store_run(tmp_path / "other", [L, W, L, W])
    ours, theirs = compare(one, other), compare(other, one)
    assert ours["success_difference"] == -theirs["success_difference"]
    low, high = theirs["success_difference_interval"]
    assert ours["success_difference_interval"] == pytest.approx([-high, -low])


def test_what_either_did_not_judge_is_left_out_of_both(tmp_path):
    one = store_run(tmp_path / "one", [W, E, W, W, None, L])
    other = store_run(tmp_path / "other", [L, L, B, W, W, None])
    found = compare(one, other)
    assert (found["num_tasks"], found["num_pairs"]) == (6, 2)
    assert (found["num_not_judged_in_both"], found["num_not_attempted_by_both"]) == (2, 2)
    assert found["success_difference"] == 0.5


def test_kinds_are_told_apart(tmp_path):
    kinds = ["price", "price", "fact", "fact"]
    one = store_run(tmp_path / "one", [W, W, L, L], kinds=kinds)
    other = store_run(tmp_path / "other", [L, W, L, W], kinds=kinds)
    found = compare(one, other)["by_kind"]
    assert {kind: part["success_difference"] for kind, part in found.items()} == {"price": 0.5, "fact": -0.5}
    assert [part["num_pairs"] for part in found.values()] == [2, 2]


def test_runs_of_different_tasks_are_refused(tmp_path):
    one, other = store_run(tmp_path / "one", [W, W, W]), store_run(tmp_path / "other", [W])
    with pytest.raises(ConfigError, match="2 stand only in the first, 0 only in the second, for example task-1"):
        compare(one, other)


def test_tasks_that_only_share_their_name_are_refused(tmp_path):
    one, other = store_run(tmp_path / "one", [W]), store_run(tmp_path / "other", [W])
    path = other / "episodes" / "task-0" / "episode.json"
    path.write_text(path.read_text().replace("How much is mug", "How heavy is mug"))
    with pytest.raises(ConfigError, match="task-0 is not the same"):
        compare(one, other)


def test_what_is_no_run_is_named(tmp_path):
    one = store_run(tmp_path / "one", [W])
    with pytest.raises(StorageError, match="other is not a run"):
        compare(one, tmp_path / "other")
    with pytest.raises(ConfigError, match="no task in common"):
        compare(one, store_run(tmp_path / "errors", [E]))


def test_runs_without_a_list_of_tasks_are_known_by_their_episodes(tmp_path):
    one, other = (write_run(tmp_path / name, [make_episode(1), make_episode(2)]) for name in ("one", "other"))
    assert compare(one, other)["num_pairs"] == 2


def test_the_command_prints_a_table_or_json(tmp_path):
    one, other = store_run(tmp_path / "one", [W, W], kinds=["a", "b"]), store_run(tmp_path / "other", [L, W])
    told = CliRunner().invoke(app, ["compare", str(one), str(other), "--json"])
    assert json.loads(told.stdout) == json.loads(json.dumps(compare(one, other)))
    told = CliRunner().invoke(app, ["compare", str(one), str(other)])
    assert told.exit_code == 0
    assert "Success differs by +50.0%" in told.stdout
    assert "Steps differ by +0.00 (95 % interval -)." in told.stdout
