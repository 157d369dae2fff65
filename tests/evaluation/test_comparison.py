import json

import pytest
from typer.testing import CliRunner

from focusmem.cli.main import app
from focusmem.errors import ConfigError, RecordError, StorageError
from focusmem.evaluation.comparison import compare
from focusmem.intervals import mean_interval, paired_interval
from stored_runs import make_finished, make_task, store_outcomes, write_run

W, L, E, B, N = "success", "failure", "error", "blocked", "not_judged"


def test_a_comparison_by_hand(tmp_path):
    one = store_outcomes(tmp_path / "one", [W, W, W, L, L, W], num_steps=[2, 3, 4, 5, 6, 7])
    other = store_outcomes(tmp_path / "other", [W, L, L, W, L, W], num_steps=[4, 4, 4, 4, 4, 4], method="none")
    found = compare(one, other)
    assert (found["first"]["memory"], found["second"]["memory"]) == ("full", "none")
    assert found["num_pairs"] == 6
    assert (found["num_both_won"], found["num_both_lost"]) == (2, 1)
    assert (found["num_first_better"], found["num_second_better"]) == (2, 1)
    assert found["success_rates"] == [pytest.approx(4 / 6), pytest.approx(3 / 6)]
    assert found["success_difference"] == pytest.approx(1 / 6)
    assert found["success_difference_interval"] == list(paired_interval(2, 1, 6))
    assert found["mean_steps"] == [4.5, 4.0]
    assert found["steps_difference"] == 0.5
    assert found["steps_difference_interval"] is None, "too few tasks"


def test_steps_have_an_interval_if_there_are_enough_pairs(tmp_path):
    one = store_outcomes(tmp_path / "one", [W] * 10, num_steps=list(range(1, 11)))
    other = store_outcomes(tmp_path / "other", [W] * 10, num_steps=[4] * 10)
    assert compare(one, other)["steps_difference_interval"] == mean_interval(list(range(-3, 7)))


def test_in_the_other_order_the_signs_change(tmp_path):
    one, other = store_outcomes(tmp_path / "one", [W, W, W, L]), store_outcomes(tmp_path / "other", [L, W, L, W])
    ours, theirs = compare(one, other), compare(other, one)
    assert ours["success_difference"] == -theirs["success_difference"]
    low, high = theirs["success_difference_interval"]
    assert ours["success_difference_interval"] == pytest.approx([-high, -low])


def test_several_attempts_are_averaged_before_tasks_are_paired(tmp_path):
    one = store_outcomes(tmp_path / "one", [[W, L], [W, W], [L, L]])
    other = store_outcomes(tmp_path / "other", [[W, W], [L, W], [L, None]])
    found = compare(one, other)
    assert found["success_rates"] == [pytest.approx(0.5), pytest.approx(0.5)]
    assert (found["num_first_better"], found["num_second_better"], found["num_both_lost"]) == (1, 1, 1)
    assert (found["success_difference"], found["success_difference_interval"]) == (0.0, None), "three tasks are too few"


def test_with_several_attempts_the_interval_is_a_bootstrap_over_tasks(tmp_path):
    one = store_outcomes(tmp_path / "one", [[W, L]] * 5 + [[W, W]] * 5)
    other = store_outcomes(tmp_path / "other", [L] * 10)
    assert compare(one, other)["success_difference_interval"] == list(mean_interval([0.5] * 5 + [1.0] * 5))


def test_an_error_or_a_block_counts_as_not_won_and_lacks_steps(tmp_path):
    one = store_outcomes(tmp_path / "one", [W, E, W, B], num_steps=[2, 9, 4, 9])
    other = store_outcomes(tmp_path / "other", [L, W, E, L], num_steps=[3, 9, 9, 9])
    found = compare(one, other)
    assert found["num_pairs"] == 4
    assert found["success_rates"] == [0.5, 0.25]
    assert found["success_difference_interval"] == list(paired_interval(2, 1, 4))
    assert [(found[run]["num_errors"], found[run]["num_blocked"]) for run in ("first", "second")] == [(1, 1), (1, 0)]
    assert found["mean_steps"] == [2.0, 3.0], "only the first task ended by itself in both"


def test_runs_that_only_broke_have_no_steps_to_compare(tmp_path):
    one, other = store_outcomes(tmp_path / "one", [E]), store_outcomes(tmp_path / "other", [W])
    found = compare(one, other)
    assert (found["success_difference"], found["mean_steps"], found["steps_difference"]) == (-1.0, None, None)


def test_what_either_did_not_judge_or_attempt_is_left_out_of_both(tmp_path):
    one = store_outcomes(tmp_path / "one", [W, N, W, W, None, L])
    other = store_outcomes(tmp_path / "other", [L, L, N, W, W, None])
    found = compare(one, other)
    assert (found["num_tasks"], found["num_pairs"]) == (6, 2)
    assert (found["num_not_judged_in_both"], found["num_not_attempted_by_both"]) == (2, 2)
    assert found["success_difference"] == 0.5


def test_kinds_are_compared_apart(tmp_path):
    kinds = ["price", "price", "fact", "fact"]
    one = store_outcomes(tmp_path / "one", [W, W, L, L], kinds=kinds)
    other = store_outcomes(tmp_path / "other", [L, W, L, W], kinds=kinds)
    found = compare(one, other)["by_kind"]
    assert {kind: part["success_difference"] for kind, part in found.items()} == {"price": 0.5, "fact": -0.5}
    assert [part["num_pairs"] for part in found.values()] == [2, 2]


def test_runs_of_different_tasks_are_refused(tmp_path):
    one, other = store_outcomes(tmp_path / "one", [W, W, W]), store_outcomes(tmp_path / "other", [W])
    with pytest.raises(ConfigError, match=r"2 tasks are only in the first and 0 only in the second, .* shop/task-1\."):
        compare(one, other)


def test_tasks_that_only_share_their_names_are_refused(tmp_path):
    one = write_run(tmp_path / "one", [make_finished(1)])
    other = write_run(tmp_path / "other", [make_finished(1, task=make_task(1, instruction="How heavy is it?"))])
    with pytest.raises(ConfigError, match="the same names, but differ in content"):
        compare(one, other)


def test_what_cannot_be_compared_is_named(tmp_path):
    one = store_outcomes(tmp_path / "one", [W])
    with pytest.raises(StorageError, match="other is not the folder of a run"):
        compare(one, tmp_path / "other")
    for outcome in (N, None):
        with pytest.raises(ConfigError, match="no common task that was judged in both"):
            compare(one, store_outcomes(tmp_path / str(outcome), [outcome]))


def test_a_damaged_episode_is_an_error(tmp_path):
    one, other = (store_outcomes(tmp_path / name, [W]) for name in ("one", "other"))
    (other / "episodes" / "task-0" / "1" / "verdict.json").write_text("{")
    with pytest.raises(RecordError, match=r"verdict\.json"):
        compare(one, other)


def test_the_command_prints_a_table_or_json(tmp_path):
    one, other = (
        store_outcomes(tmp_path / name, outcomes, kinds=["a", "b"])
        for name, outcomes in (("one", [W, W]), ("other", [E, W]))
    )
    told = CliRunner().invoke(app, ["compare", str(one), str(other), "--json"])
    assert json.loads(told.stdout) == json.loads(json.dumps(compare(one, other)))
    told = CliRunner().invoke(app, ["compare", str(one), str(other)])
    assert told.exit_code == 0
    assert "Difference in success: +50.0% (" in told.stdout
    assert "Difference in steps: +0.00." in told.stdout
    assert "Errors: 0 and 1. Blocks: 0 and 0." in told.stdout
