import json

import pytest

from factories import make_trajectory
from focusmem.errors import StorageError
from focusmem.reports import RunFolder
from focusmem.reports.page_data import LEVELS, PageData, first_divergence, heat_maps
from focusmem.schemas import AttentionMap, make_action, save_trajectory
from reports.runs import make_episode, make_notes, make_offer, with_action, write_run


def steps(*actions):
    plain = [action and action.model_dump(mode="json", exclude_none=True) for action in actions]
    return [{"action": action} for action in plain]


CLICK, WAIT, STOP = make_action("click", description="the logo"), make_action("wait"), make_action("stop", answer="1")


@pytest.mark.parametrize(
    ("first", "second", "place"),
    [
        ([CLICK, STOP], [CLICK, STOP], None),
        ([CLICK, STOP], [CLICK, WAIT, STOP], 1),
        ([CLICK], [CLICK, STOP], 1),
        ([CLICK, STOP], [make_action("click", description="the cart"), STOP], 0),
        ([CLICK, STOP], [CLICK, make_action("stop", answer="2")], 1),
        ([make_action("wait", reasoning="It loads.")], [make_action("wait", reasoning="Patience.")], None),
        ([None, STOP], [None, STOP], None),
        ([None], [WAIT], 0),
        ([], [], None),
        ([], [WAIT], 0),
    ],
)
def test_the_first_divergence(first, second, place):
    assert first_divergence(steps(*first), steps(*second)) == place


def page_data(*folders):
    return PageData([RunFolder.open(folder) for folder in folders])


def test_runs_are_paired_by_task(tmp_path):
    one = write_run(tmp_path / "one", [make_episode(1), make_episode(2)])
    other = write_run(tmp_path / "other", [make_episode(2, "failure"), make_episode(3)])
    rows = page_data(one, other).index["rows"]
    assert [row["task_id"] for row in rows] == ["task-1", "task-2", "task-3"]
    assert [row["states"] for row in rows] == [["success", None], ["success", "failure"], [None, "success"]]
    assert [row["episodes"] for row in rows] == [[0, None], [1, 0], [None, 1]]


def test_tasks_are_listed_as_the_run_has_them(tmp_path):
    folder = write_run(tmp_path / "run", [make_episode(number) for number in (1, 2, 10, 30)])
    tasks = [{"task_id": f"task-{number}", "kind": None} for number in (10, 99, 1)]
    (folder / "tasks.json").write_text(json.dumps(tasks))
    rows = page_data(folder).index["rows"]
    assert [row["task_id"] for row in rows] == ["task-10", "task-1", "task-2", "task-30"]


def test_runs_are_called_by_their_method_and_folder_or_as_the_caller_says(tmp_path):
    folders = [write_run(tmp_path / name, [make_episode(1)]) for name in ("one", "full")]
    runs = [RunFolder.open(folder) for folder in folders]
    named = [(run["label"], run["folder"]) for run in PageData(runs).index["runs"]]
    assert named == [("full", "one"), ("full", None)], "a name is not said twice"
    labelled = PageData(runs, labels=["without memory", "with memory"]).index["runs"]
    assert [(run["label"], run["folder"]) for run in labelled] == [("without memory", None), ("with memory", None)]


def test_a_pair_knows_where_it_parts(tmp_path):
    episode, attempt = make_episode(1)
    one = write_run(tmp_path / "one", [(episode, attempt)])
    other = write_run(tmp_path / "other", [(episode, with_action(attempt, 1, WAIT))])
    assert page_data(one, other).index["rows"][0]["divergence"] == 1
    assert page_data(one, one).index["rows"][0]["divergence"] is None


def test_each_picture_is_kept_once(tmp_path):
    trajectory, screenshots = make_trajectory(3, seed=5)
    notes = (make_notes(make_offer(trajectory)),) * 3
    episodes = [make_episode(1, notes=notes), make_episode(2, notes=notes)]
    one, other = (write_run(tmp_path / name, episodes) for name in ("one", "other"))
    for folder in (one, other):
        save_trajectory(folder / "recalled" / trajectory.trajectory_id, trajectory, screenshots)
    data = page_data(one, other)
    assert len(data.pictures.files) == 3 * 3  # two tasks and what was recalled
    assert len(data.recalled) == 1


def test_a_missing_picture_is_named(tmp_path):
    folder = write_run(tmp_path / "run", [make_episode(1)])
    lost = sorted((folder / "episodes" / "task-1" / "trajectory" / "screenshots").iterdir())[0]
    lost.unlink()
    data = page_data(folder)
    assert lost.stem not in data.pictures.files
    assert lost.name in data.index["problems"][0]
    assert len(data.episodes[0][0]["steps"]) == 3


def test_turns_of_the_prompt_are_kept_once(tmp_path):
    [episode] = page_data(write_run(tmp_path / "run", [make_episode(1)])).episodes[0]
    assert episode["texts"] == ["system: You act on web pages.", "user: Decide."]
    assert [step["prompt"] for step in episode["steps"]] == [[0, 1]] * 3


def test_the_runs_own_figures_are_shown(tmp_path):
    folder = write_run(tmp_path / "run", [make_episode(1)], success_rate=0.25, mean_steps=None)
    figures = page_data(folder).index["runs"][0]["figures"]
    assert figures["success_rate"] == 0.25
    assert figures["mean_steps"] is None
    assert figures["mean_prompt_tokens"] == 600


def test_figures_are_counted_where_the_run_left_none(tmp_path):
    outcomes = ["success", "success", "failure", "error", "not_judged"]
    episodes = [make_episode(number, outcome) for number, outcome in enumerate(outcomes)]
    episodes.append(make_episode(9, "failure", is_blocked=True))
    figures = page_data(write_run(tmp_path / "run", episodes)).index["runs"][0]["figures"]
    assert figures["num_episodes"] == 6
    assert [figures[f"num_{state}"] for state in ("success", "failure", "error", "blocked", "not_judged")] == [
        2, 1, 1, 1, 1,
    ]  # fmt: skip
    assert figures["success_rate"] == pytest.approx(2 / 3)
    assert figures["mean_step_s"] == pytest.approx(0.5)
    assert figures["accepted_rate"] is None


def test_a_run_of_which_nothing_can_be_read_is_an_error(tmp_path):
    folder = write_run(tmp_path / "run", [make_episode(1)])
    (folder / "episodes" / "task-1" / "episode.json").write_text("{")
    with pytest.raises(StorageError, match="No episode of"):
        page_data(folder)


def test_heat_is_relative_to_the_brightest_token_of_the_item():
    ref = make_trajectory(1)[0].steps[0].screenshot
    weights = [(0.4, 0.1), (0.0, 0.025)]
    maps = [AttentionMap(screenshot=ref, num_rows=1, num_columns=2, weights=own) for own in weights]
    found = heat_maps(maps)
    assert [[LEVELS.index(level) for level in own["levels"]] for own in found] == [[63, 32], [0, 16]]
    assert [own["share"] for own in found] == [0.5, 0.025]


def test_no_attention_at_all_stays_dark():
    ref = make_trajectory(1)[0].steps[0].screenshot
    [found] = heat_maps([AttentionMap(screenshot=ref, num_rows=1, num_columns=2, weights=(0.0, 0.0))])
    assert found["levels"] == "AA"
