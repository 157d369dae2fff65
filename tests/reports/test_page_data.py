import pytest

from factories import make_screenshot, make_trajectory
from focusmem.errors import StorageError
from focusmem.reports.page_data import LEVELS, PageData, first_divergence, heat_maps
from focusmem.schemas import AttentionMap, RunFolder, make_action, save_trajectory
from stored_runs import (
    make_consultation,
    make_finished,
    make_notes,
    make_offer,
    make_task,
    with_action,
    with_closing,
    write_run,
)


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
    one = write_run(tmp_path / "one", [make_finished(1), make_finished(2)])
    other = write_run(tmp_path / "other", [make_finished(2, "failure"), make_finished(3)])
    rows = page_data(one, other).index["rows"]
    assert [row["task_id"] for row in rows] == ["shop/task-1", "shop/task-2", "shop/task-3"]
    assert [row["states"] for row in rows] == [["success", None], ["success", "failure"], [None, "success"]]
    assert [row["episodes"] for row in rows] == [[0, None], [1, 0], [None, 1]]


def test_tasks_are_listed_in_the_order_of_the_run(tmp_path):
    tasks = [make_task(number) for number in (10, 99, 1, 2)]
    folder = write_run(tmp_path / "run", [make_finished(number) for number in (1, 2, 10)], tasks=tasks)
    rows = page_data(folder).index["rows"]
    assert [row["task_id"] for row in rows] == ["shop/task-10", "shop/task-1", "shop/task-2"]


def test_attempts_at_a_task_are_rows_of_their_own_and_are_paired_by_number(tmp_path):
    one = write_run(tmp_path / "one", [make_finished(1), make_finished(1, "failure", attempt=2), make_finished(2)])
    other = write_run(tmp_path / "other", [make_finished(1, attempt=2), make_finished(2, "error")])
    rows = page_data(one, other).index["rows"]
    assert [(row["task_id"], row["attempt"]) for row in rows] == [
        ("shop/task-1", 1), ("shop/task-1", 2), ("shop/task-2", 1),
    ]  # fmt: skip
    assert [row["states"] for row in rows] == [["success", None], ["failure", "success"], ["success", "error"]]
    alone = page_data(write_run(tmp_path / "alone", [make_finished(1)])).index["rows"]
    assert alone[0]["attempt"] is None, "a single attempt needs no number"


def test_runs_are_called_by_their_method_and_folder_or_as_the_caller_says(tmp_path):
    folders = [write_run(tmp_path / name, [make_finished(1)]) for name in ("one", "full")]
    runs = [RunFolder.open(folder) for folder in folders]
    named = [(run["label"], run["folder"]) for run in PageData(runs).index["runs"]]
    assert named == [("full", "one"), ("full", None)], "a name is not said twice"
    labelled = PageData(runs, labels=["without memory", "with memory"]).index["runs"]
    assert [(run["label"], run["folder"]) for run in labelled] == [("without memory", None), ("with memory", None)]


def test_a_pair_knows_its_first_difference(tmp_path):
    finished = make_finished(1)
    one = write_run(tmp_path / "one", [finished])
    other = write_run(tmp_path / "other", [finished._replace(recording=with_action(finished.recording, 1, WAIT))])
    assert page_data(one, other).index["rows"][0]["divergence"] == 1
    assert page_data(one, one).index["rows"][0]["divergence"] is None


def test_each_picture_is_kept_once(tmp_path):
    trajectory, screenshots = make_trajectory(3, seed=5)
    notes = (make_notes(make_offer(trajectory)),) * 3
    episodes = [make_finished(1, notes=notes), make_finished(2, notes=notes)]
    one, other = (write_run(tmp_path / name, episodes) for name in ("one", "other"))
    for folder in (one, other):
        save_trajectory(folder / "recalled" / trajectory.trajectory_id, trajectory, screenshots)
    data = page_data(one, other)
    assert len(data.pictures.files) == 3 * 3  # two tasks and what was recalled
    assert len(data.recalled) == 1


def test_a_missing_picture_is_named(tmp_path):
    folder = write_run(tmp_path / "run", [make_finished(1)])
    lost = sorted((folder / "episodes" / "task-1" / "1" / "trajectory" / "screenshots").iterdir())[0]
    lost.unlink()
    data = page_data(folder)
    assert lost.stem not in data.pictures.files
    assert lost.name in data.index["problems"][0]
    assert len(data.episodes[0][0]["steps"]) == 3


def test_turns_of_the_prompt_are_kept_once(tmp_path):
    [episode] = page_data(write_run(tmp_path / "run", [make_finished(1)])).episodes[0]
    assert episode["texts"] == ["system: You act on web pages.", "user: Decide."]
    assert [step["prompt"] for step in episode["steps"]] == [[0, 1]] * 3


def test_a_closing_screenshot_is_kept_with_its_picture(tmp_path):
    finished, screenshot = make_finished(1), make_screenshot(77)
    recording = with_closing(finished.recording, screenshot, "https://shop.example/bought")
    data = page_data(write_run(tmp_path / "run", [finished._replace(recording=recording), make_finished(2)]))
    assert data.episodes[0][0]["closing"] == {
        "picture": screenshot.digest,
        "size": [96, 64],
        "url": "https://shop.example/bought",
    }
    assert screenshot.digest in data.pictures.files
    assert [row["has_closing"] for row in data.index["rows"]] == [[True], [False]]


def test_an_episode_has_its_verdict_and_an_error_may_be_a_block(tmp_path):
    finished = [
        make_finished(1, verdict={"score": 1.0, "consultation": make_consultation("yes")}),
        make_finished(2, "blocked", num_broken=2),
    ]
    one, other = page_data(write_run(tmp_path / "run", finished)).episodes[0]
    assert (one["state"], one["verdict"]["score"], one["verdict"]["consultation"]["replies"][0]["text"]) == (
        "success",
        1.0,
        "yes",
    )
    assert (other["state"], other["verdict"]["outcome"], other["num_broken"]) == ("blocked", "error", 2)


def counted(manifest, episodes):
    return {"success_rate": len(episodes) / len(manifest.tasks)}


@pytest.mark.parametrize(
    ("status", "results", "rate"),
    [("finished", {"success_rate": 0.25}, 0.25), ("finished", None, 0.5), ("running", {"success_rate": 0.25}, 0.5)],
)
def test_a_finished_run_shows_its_own_figures_and_any_other_is_counted(tmp_path, status, results, rate):
    tasks = [make_task(1), make_task(2)]
    folder = write_run(tmp_path / "run", [make_finished(1)], tasks=tasks, status=status, results=results)
    data = PageData([RunFolder.open(folder)], count_figures=counted)
    assert data.index["runs"][0]["figures"] == {"success_rate": rate}


def test_damaged_figures_are_named_and_counted_again(tmp_path):
    folder = write_run(tmp_path / "run", [make_finished(1)])
    (folder / "results.json").write_text("{")
    data = PageData([RunFolder.open(folder)], count_figures=counted)
    assert data.index["runs"][0]["figures"] == {"success_rate": 1.0}
    assert "results.json" in data.index["problems"][0]


def test_the_page_tells_on_which_code_and_machine(tmp_path):
    folder = write_run(tmp_path / "run", [make_finished(1)])
    assert page_data(folder).index["runs"][0]["environment"]["packages"] == {"torch": "2.13"}
    (folder / "environment.json").unlink()
    data = page_data(folder)
    assert data.index["runs"][0]["environment"] is None
    assert "environment.json" in data.index["problems"][0]


@pytest.mark.parametrize("damaged", ["episode.json", "verdict.json", "trajectory/trajectory.json"])
def test_a_damaged_episode_is_skipped_named_and_counted(tmp_path, damaged):
    folder = write_run(tmp_path / "run", [make_finished(1), make_finished(2)])
    (folder / "episodes" / "task-1" / "1" / damaged).write_text("{")
    seen = []
    data = PageData([RunFolder.open(folder)], seen.append)
    assert (seen, data.num_skipped) == ([False, True], 1)
    assert [episode["task"]["task_id"] for episode in data.episodes[0]] == ["shop/task-2"]
    assert "task-1/1 was skipped" in data.index["problems"][0]


def test_a_damaged_recalled_trajectory_is_named_once(tmp_path):
    trajectory, screenshots = make_trajectory(1, seed=5)
    notes = (make_notes(make_offer(trajectory)),) * 3
    folder = write_run(tmp_path / "run", [make_finished(1, notes=notes)])
    kept = folder / "recalled" / trajectory.trajectory_id
    save_trajectory(kept, trajectory, screenshots)
    (kept / "trajectory.json").write_text("{")
    data = page_data(folder)
    assert data.episodes[0][0]["steps"][0]["offered"][0]["recalled"] is None
    assert len(data.index["problems"]) == 1


def test_a_run_of_which_nothing_can_be_read_is_an_error(tmp_path):
    folder = write_run(tmp_path / "run", [make_finished(1)])
    (folder / "episodes" / "task-1" / "1" / "episode.json").write_text("{")
    with pytest.raises(StorageError, match="No episode of"):
        page_data(folder)
    with pytest.raises(StorageError, match="has no finished episode"):
        page_data(write_run(tmp_path / "other", [], tasks=[make_task(1)]))


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
