import pytest

from banks import WordEmbedder, make_run, make_stored
from focusmem.bank import Bank
from focusmem.bank.exchange import add_folders
from focusmem.bank.sources import find_sources, load_source
from focusmem.errors import RecordError, StorageError
from focusmem.schemas import save_trajectory

OUTCOMES = {
    (0, 1): "success",
    (0, 2): "success",
    (1, 1): "failure",
    (1, 2): "success",
    (2, 1): "error",
    (3, 1): "not_judged",
}


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "runs" / "one", OUTCOMES, key="1a")


@pytest.fixture
def bank(tmp_path):
    return Bank.create(tmp_path / "bank", WordEmbedder())


def add(bank, path, outcomes=("success",)):
    return add_folders(bank, find_sources(path), WordEmbedder(), outcomes=outcomes)


def test_only_won_episodes_of_a_run_are_added(run, bank):
    report = add(bank, run)
    assert report.added == ("0.1.1a", "0.2.1a", "1.2.1a")
    assert (report.num_skipped, report.failures) == (3, ())
    assert bank.stats().num_by_outcome == {"success": 3}
    assert bank.load("0.1.1a").trajectory.outcome == "success", "the verdict says so"


def test_attempts_and_runs_of_one_task_live_side_by_side(run, bank, tmp_path):
    make_run(tmp_path / "runs" / "two", OUTCOMES, key="2b")
    add(bank, run)
    report = add(bank, tmp_path / "runs" / "two")
    assert (len(report.added), report.failures) == (3, ())
    assert [entry.task_id for entry in bank.entries()] == ["shop/0"] * 4 + ["shop/1"] * 2


def test_any_outcome_takes_all_that_has_a_step(run, bank):
    report = add(bank, run, outcomes=None)
    assert (len(report.added), report.num_skipped) == (5, 1)
    assert bank.stats().num_by_outcome == {"success": 3, "failure": 1, "not_judged": 1}


def test_a_folder_of_runs_and_trajectories_gives_episodes_and_trajectories(run, bank, tmp_path):
    make_run(tmp_path / "runs" / "two", OUTCOMES, key="2b")
    stored = make_stored(9)
    save_trajectory(tmp_path / "runs" / "loose", stored.trajectory, stored.screenshots)
    report = add(bank, tmp_path / "runs")
    assert sorted(report.added) == ["0.1.1a", "0.1.2b", "0.2.1a", "0.2.2b", "1.2.1a", "1.2.2b", "trajectory-9"]


def test_what_memory_offered_is_added_only_by_name(run, bank):
    assert add(bank, run / "recalled").added == ("trajectory-700", "trajectory-701")


def test_an_attempt_that_is_not_finished_is_left_alone(run, bank):
    (run / "episodes" / "0" / "1" / "episode.json").unlink()
    assert "0.1.1a" not in add(bank, run, outcomes=None).added


def test_damaged_episodes_are_named(run, bank):
    (run / "episodes" / "0" / "1" / "verdict.json").write_text("{")
    (run / "episodes" / "0" / "2" / "trajectory" / "trajectory.json").unlink()
    report = add(bank, run)
    assert report.added == ("1.2.1a",)
    assert [failure.name for failure in report.failures] == [
        str(run / "episodes" / "0" / attempt / "trajectory") for attempt in ("1", "2")
    ]


def test_a_run_with_a_damaged_list_of_tasks_and_an_empty_folder_are_refused(run, tmp_path):
    (run / "tasks.json").write_text("{")
    with pytest.raises(RecordError, match=r"tasks\.json is not valid JSON"):
        find_sources(run)
    (tmp_path / "empty").mkdir()
    with pytest.raises(StorageError, match="holds no trajectory"):
        find_sources(tmp_path / "empty")


def test_a_trajectory_keeps_its_own_outcome(tmp_path):
    stored = make_stored(9, outcome="failure")
    save_trajectory(tmp_path / "trajectory", stored.trajectory, stored.screenshots)
    assert load_source(tmp_path / "trajectory").trajectory == stored.trajectory
