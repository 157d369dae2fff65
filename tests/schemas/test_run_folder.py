import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import make_trajectory
from focusmem.errors import RecordError, StorageError
from focusmem.files import is_safe_name
from focusmem.schemas import (
    Manifest,
    ManifestTask,
    RunFolder,
    Verdict,
    dump_record,
    is_run,
    parse_record,
    read_episode,
    run_name,
    save_trajectory,
)
from focusmem.schemas.run_folder import task_folder
from schemas.strategies import FAST, texts
from stored_runs import make_finished, make_task, write_run


def manifest(*numbers, **options):
    return Manifest.of("shop", [make_task(number) for number in numbers], {"shop/task-1": "price"}, **options)


def folder_of(path, *finished, **options):
    return RunFolder.open(write_run(path / "run", finished, **options))


# The frozen set of tasks


def test_equal_tasks_have_equal_digests_and_any_change_shows():
    assert manifest(1, 2).sha256 == manifest(1, 2, num_attempts=3).sha256
    changed = Manifest.of("shop", [make_task(1), make_task(2, answer="13 euros")], {})
    assert len({manifest(1, 2).sha256, manifest(2, 1).sha256, manifest(1).sha256, changed.sha256}) == 4


def test_a_manifest_lists_every_attempt_task_after_task():
    found = manifest(1, 2, num_attempts=2)
    assert list(found.attempts()) == [("shop/task-1", 1), ("shop/task-2", 1), ("shop/task-1", 2), ("shop/task-2", 2)]
    assert found.kind_of == {"shop/task-1": "price", "shop/task-2": None}
    assert parse_record(Manifest, dump_record(found), "tasks.json") == found


@pytest.mark.parametrize("names", [("shop/a", "shop/a"), ("shop/a", "other/a"), ("a", "shop/a")])
def test_two_tasks_never_share_a_folder(names):
    tasks = tuple(ManifestTask(task_id=name) for name in names)
    with pytest.raises(ValueError, match="would share the folder a"):
        Manifest(suite="shop", sha256="0" * 64, tasks=tasks)


def test_a_manifest_holds_a_task_at_least():
    with pytest.raises(ValueError, match="holds no task"):
        manifest()


@FAST
@given(st.lists(texts.filter(str.strip), min_size=2, max_size=6, unique=True))
def test_any_task_id_has_a_folder_of_its_own(names):
    folders = [task_folder(f"suite/{name}") for name in names]
    assert all(map(is_safe_name, folders))
    assert len(set(folders)) == len(names)
    assert task_folder("suite/task-1") == "task-1"


def test_the_name_of_a_run_is_that_of_its_folder(tmp_path):
    assert run_name(tmp_path / "full-7") == "full-7"
    odd = [run_name(tmp_path / name) for name in ("a b", "a|b")]
    assert all(map(is_safe_name, odd))
    assert odd[0] != odd[1]


# Reading


def test_a_stored_run_is_read_back(tmp_path):
    finished = [make_finished(2, attempt=2), make_finished(1), make_finished(2), make_finished(3, "failure")]
    tasks = [make_task(number) for number in (1, 2, 3, 4)]
    folder = folder_of(tmp_path, *finished, tasks=tasks)
    assert folder.run().num_tasks == 4
    assert folder.manifest().num_attempts == 2
    assert folder.environment().packages == {"torch": "2.13"}
    episodes = folder.episodes()
    own = [(one.episode.task.task_id, one.episode.attempt) for one in episodes]
    assert own == [("shop/task-1", 1), ("shop/task-2", 1), ("shop/task-2", 2), ("shop/task-3", 1)]
    assert [one.folder for one in episodes] == folder.places(folder.manifest())
    assert [one.is_won for one in episodes] == [True, True, True, False]
    assert folder.is_finished("shop/task-2", 2)
    assert not folder.is_finished("shop/task-1", 2)


def test_an_attempt_without_its_last_file_is_not_finished(tmp_path):
    folder = folder_of(tmp_path, make_finished(1), make_finished(2))
    (folder.place("shop/task-1", 1) / "episode.json").unlink()
    assert [one.episode.task.task_id for one in folder.episodes()] == ["shop/task-2"]


def test_a_trajectory_has_the_outcome_of_the_present_verdict(tmp_path):
    _, _, recording = made = make_finished(1)
    folder = folder_of(tmp_path, made)
    [stored] = folder.episodes()
    trajectory = stored.trajectory()
    assert trajectory.trajectory.outcome == "success"
    assert trajectory.trajectory.steps == recording[0].steps
    assert set(trajectory.screenshots) == set(recording[1])
    again = stored.verdict.model_copy(update={"outcome": "failure"})
    (stored.folder / "verdict.json").write_bytes(dump_record(again))
    assert folder.episodes()[0].trajectory().trajectory.outcome == "failure"


def test_an_episode_without_a_step_has_no_trajectory(tmp_path):
    [stored] = folder_of(tmp_path, make_finished(1, "error", notes=(), answer=None)).episodes()
    assert stored.trajectory() is None
    assert not stored.is_judged


def test_what_is_no_run_says_what_it_lacks(tmp_path):
    with pytest.raises(StorageError, match=r"is not the folder of a run: it has no run\.json"):
        RunFolder.open(tmp_path)
    folder = folder_of(tmp_path, make_finished(1))
    assert is_run(folder.path)
    (folder.path / "tasks.json").unlink()
    assert not is_run(folder.path)
    with pytest.raises(StorageError, match=r"has no tasks\.json"):
        RunFolder.open(folder.path)


# Damage


@pytest.mark.parametrize("name", ["episode.json", "verdict.json", "trajectory/trajectory.json"])
def test_a_damaged_attempt_is_an_error_that_names_the_file(tmp_path, name):
    folder = folder_of(tmp_path, make_finished(1))
    path = folder.place("shop/task-1", 1) / name
    path.write_text("{")
    with pytest.raises(RecordError, match=path.name.replace(".", r"\.")):
        folder.episodes()[0].trajectory()


def test_a_verdict_on_another_task_is_an_error(tmp_path):
    folder = folder_of(tmp_path, make_finished(1))
    place = folder.place("shop/task-1", 1)
    other = Verdict(task_id="shop/task-2", outcome="success", reason="It is right.", judge="exact answer")
    (place / "verdict.json").write_bytes(dump_record(other))
    with pytest.raises(RecordError, match="judges the task shop/task-2, not shop/task-1"):
        read_episode(place)


@pytest.mark.parametrize("elsewhere", ["task-1/2", "task-2/1"])
def test_an_attempt_in_the_folder_of_another_is_an_error(tmp_path, elsewhere):
    folder = folder_of(tmp_path, make_finished(1))
    moved = folder.path / "episodes" / elsewhere
    shutil.copytree(folder.place("shop/task-1", 1), moved)
    with pytest.raises(RecordError, match="records attempt 1 at shop/task-1"):
        read_episode(moved)


def test_the_trajectory_of_another_attempt_is_an_error(tmp_path):
    folder = folder_of(tmp_path, make_finished(1), make_finished(2))
    one, other = folder.episodes()
    shutil.rmtree(one.folder / "trajectory")
    shutil.copytree(other.folder / "trajectory", one.folder / "trajectory")
    with pytest.raises(RecordError, match=r"holds the trajectory .*-task-2-1, but its episode belongs to .*-task-1-1"):
        one.trajectory()


def test_an_episode_with_steps_needs_its_trajectory(tmp_path):
    folder = folder_of(tmp_path, make_finished(1))
    path = folder.place("shop/task-1", 1) / "episode.json"
    plain = json.loads(path.read_text())
    del plain["trajectory_id"]
    path.write_text(json.dumps(plain))
    with pytest.raises(RecordError, match="has 3 steps but no trajectory"):
        folder.episodes()[0].trajectory()


# Figures and recalled trajectories


def test_figures_are_read_if_there_are_any(tmp_path):
    folder = folder_of(tmp_path, make_finished(1))
    assert folder.results() is None
    write_run(folder.path, [], results={"success_rate": 0.5}, tasks=[make_task(1)])
    assert folder.results() == {"success_rate": 0.5}


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": NaN}', "[" * 100_000])
def test_damaged_figures_are_an_error(tmp_path, text):
    folder = folder_of(tmp_path, make_finished(1))
    (folder.path / "results.json").write_text(text)
    with pytest.raises(RecordError, match=r"results\.json"):
        folder.results()


def test_the_name_of_a_recalled_trajectory_never_leaves_the_folder(tmp_path):
    folder = folder_of(tmp_path, make_finished(1))
    trajectory, screenshots = make_trajectory(2)
    save_trajectory(tmp_path / "outside", trajectory, screenshots)
    save_trajectory(folder.path / "recalled" / "inside", trajectory, screenshots)
    assert folder.recalled("../../outside") is None
    assert folder.recalled("missing") is None
    assert folder.recalled("inside") == folder.path / "recalled" / "inside"
