import pytest

from factories import make_trajectory
from focusmem.errors import RecordError, StorageError
from focusmem.reports import RunFolder
from focusmem.schemas import save_trajectory
from reports.runs import make_episode, write_run


def test_episodes_come_in_the_order_of_their_folders(tmp_path):
    write_run(tmp_path / "run", [make_episode(10), make_episode(2), make_episode(1)])
    found = [stored.episode.task.task_id for stored in RunFolder.open(tmp_path / "run").episodes()]
    assert found == ["task-1", "task-2", "task-10"]


def test_episodes_may_lie_deeper_as_with_several_seeds(tmp_path):
    write_run(tmp_path / "run", [make_episode(1)])
    old = tmp_path / "run" / "episodes" / "task-1"
    old.rename(tmp_path / "seed-0")
    old.mkdir()
    (tmp_path / "seed-0").rename(old / "seed-0")
    assert RunFolder.open(tmp_path / "run").num_episodes == 1


def test_what_is_no_run_folder_says_so(tmp_path):
    with pytest.raises(StorageError, match=r"is not a run folder: there is no run.json"):
        RunFolder.open(tmp_path)


def test_a_run_without_episodes_says_so(tmp_path):
    with pytest.raises(StorageError, match="holds no episode"):
        RunFolder.open(write_run(tmp_path / "run", []))


def test_a_damaged_run_record_is_an_error(tmp_path):
    write_run(tmp_path / "run", [make_episode(1)])
    (tmp_path / "run" / "run.json").write_text("{}")
    with pytest.raises(RecordError, match="schema_version"):
        RunFolder.open(tmp_path / "run")


@pytest.mark.parametrize("damaged", ["episode.json", "trajectory/trajectory.json"])
def test_a_damaged_episode_is_skipped_named_and_counted(tmp_path, damaged):
    write_run(tmp_path / "run", [make_episode(1), make_episode(2)])
    (tmp_path / "run" / "episodes" / "task-1" / damaged).write_text("{")
    run = RunFolder.open(tmp_path / "run")
    assert [stored is None for stored in run.episodes()] == [True, False]
    assert run.num_skipped == 1
    assert "task-1 was skipped" in run.problems[0]


def test_an_episode_without_a_step_needs_no_trajectory(tmp_path):
    episode, _ = make_episode(1, "error", notes=(), answer=None, error="The site is down.")
    [stored] = RunFolder.open(write_run(tmp_path / "run", [(episode, None)])).episodes()
    assert stored.trajectory is None


def test_an_episode_with_steps_does(tmp_path):
    episode, _ = make_episode(1)
    run = RunFolder.open(write_run(tmp_path / "run", [(episode, None)]))
    assert list(run.episodes()) == [None]
    assert "there is no trajectory" in run.problems[0]


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": NaN}'])
def test_damaged_figures_are_named_and_left_out(tmp_path, text):
    write_run(tmp_path / "run", [make_episode(1)])
    (tmp_path / "run" / "results.json").write_text(text)
    run = RunFolder.open(tmp_path / "run")
    assert run.results() == {}
    assert "results.json" in run.problems[0]


@pytest.mark.parametrize("text", ["{", "[1]", "7", '[{"kind": "price"}]'])
def test_a_damaged_list_of_tasks_is_named_and_left_out(tmp_path, text):
    write_run(tmp_path / "run", [make_episode(1)])
    (tmp_path / "run" / "tasks.json").write_text(text)
    run = RunFolder.open(tmp_path / "run")
    assert run.task_places() == {}
    assert "tasks.json" in run.problems[0]


def test_a_recalled_name_never_leaves_the_folder(tmp_path):
    run = RunFolder.open(write_run(tmp_path / "run", [make_episode(1)]))
    trajectory, screenshots = make_trajectory(2)
    save_trajectory(tmp_path / "outside", trajectory, screenshots)
    save_trajectory(tmp_path / "run" / "recalled" / "inside", trajectory, screenshots)
    assert run.recalled("../../outside") is None
    assert run.recalled("missing") is None
    assert run.recalled("inside").trajectory == trajectory
