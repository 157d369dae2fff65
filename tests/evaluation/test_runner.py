import asyncio
import threading
from datetime import UTC, datetime

import pytest

from evaluation.browsers import FakeBrowser
from evaluation.minds import ScriptedMind, make_task, say
from focusmem.errors import ConfigError, StorageError, WorldError
from focusmem.evaluation.run_store import RunStore, folder_name
from focusmem.evaluation.runner import Runner, RunnerConfig
from focusmem.files import is_safe_name
from focusmem.schemas import Environment, Run, load_trajectory, parse_record

RIGHT, WRONG, WAIT = say("stop", answer="yes"), say("stop", answer="no"), say("wait")


def run(folder, lines, *, browsers=None, mind=None, judge=lambda task, answer: answer == task.answer, **settings):
    """A run of the tasks named by `lines`; returns its episodes by task, and the browsers they had."""
    used = {}

    async def make_browser(task):
        used[task.task_id] = (browsers or {}).get(task.task_id, FakeBrowser)()
        return used[task.task_id]

    config = RunnerConfig(**{"method": "none", "source": "a test", "num_parallel": 3} | settings)
    store = RunStore(folder)
    tasks = [make_task(name) for name in lines]
    asyncio.run(Runner(config, store, mind or ScriptedMind(lines), make_browser, judge).run(tasks))
    return {one.task.task_id: one for one in store.episodes(list(lines))}, used


def test_every_task_is_attempted_judged_and_stored(tmp_path):
    lines = {"won": [WAIT, RIGHT], "lost": [WRONG], "endless": [WAIT], "again": [RIGHT], "more": [RIGHT]}
    mind = ScriptedMind(lines)
    episodes, used = run(tmp_path, lines, mind=mind)
    outcomes = {name: one.outcome for name, one in episodes.items()}
    assert outcomes == {
        "won": "success",
        "lost": "failure",
        "endless": "failure",
        "again": "success",
        "more": "success",
    }
    stored = load_trajectory(tmp_path / "episodes" / "won" / "trajectory").trajectory
    assert (len(stored.steps), stored.outcome, stored.source) == (2, "success", "a test")
    assert sorted(mind.forgotten) == sorted(lines)
    assert all(browser.ended == ["closed"] for browser in used.values())


def test_no_more_side_by_side_than_allowed(tmp_path):
    lines = {f"task-{number}": [WAIT, RIGHT] for number in range(7)}
    mind = ScriptedMind(lines)
    run(tmp_path, lines, mind=mind, num_parallel=2)
    assert max(map(len, mind.lots)) == 2


def test_what_is_done_is_not_done_again(tmp_path):
    lines = {"one": [RIGHT], "two": [RIGHT]}
    run(tmp_path, {"one": [RIGHT]})
    _, used = run(tmp_path, lines)
    assert list(used) == ["two"]
    assert run(tmp_path, lines)[1] == {}


def test_without_a_judge_only_silence_is_a_failure(tmp_path):
    episodes, _ = run(tmp_path, {"said": [RIGHT], "silent": [WAIT]}, judge=None)
    assert (episodes["said"].outcome, episodes["silent"].outcome) == ("not_judged", "failure")


def test_a_browser_that_hangs_is_ended_with_its_episode_and_the_others_go_on(tmp_path):
    browsers = {"hung": lambda: FakeBrowser(hangs_at=2)}
    lines = {"hung": [WAIT], "won": [WAIT, RIGHT], "also": [RIGHT]}
    episodes, used = run(tmp_path, lines, browsers=browsers, episode_s=0.5, patience_s=0.01)
    assert episodes["hung"].outcome == "error"
    assert "longer than it may, 0.5 s" in episodes["hung"].error
    assert len(episodes["hung"].notes) == 2, "what was done before is kept"
    assert used["hung"].ended == ["abandoned"]
    assert [episodes[name].outcome for name in ("won", "also")] == ["success", "success"]


def test_a_mind_that_hangs_costs_the_episodes_it_was_asked_about(tmp_path):
    free = threading.Event()

    def hang(episode, seen):
        free.wait(20)
        return RIGHT

    lines = {"hung": [hang], "later": [RIGHT]}
    episodes, used = run(tmp_path, lines, episode_s=0.4, num_parallel=1)
    free.set()
    assert (episodes["hung"].outcome, episodes["later"].outcome) == ("error", "success")
    assert used["hung"].ended == ["abandoned"]


def test_a_mind_that_the_world_fails_is_an_error_of_the_episode(tmp_path):
    def fail(episode, seen):
        raise WorldError("The model's server is gone.")

    episodes, _ = run(tmp_path, {"one": [fail], "two": [RIGHT]}, num_parallel=1)
    assert (episodes["one"].error, episodes["two"].outcome) == ("The model's server is gone.", "success")


def test_a_bug_stops_the_run_and_what_was_done_stays(tmp_path):
    def fail(episode, seen):
        raise ZeroDivisionError

    lines = {"first": [RIGHT], "wrong": [fail], "never": [RIGHT]}
    with pytest.raises(ZeroDivisionError):
        run(tmp_path, lines, num_parallel=1)
    assert [path.name for path in (tmp_path / "episodes").iterdir()] == ["first"]


def test_no_browser_to_be_had(tmp_path):
    def none():
        raise WorldError("Chromium died while it started.")

    episodes, _ = run(tmp_path, {"one": [RIGHT], "two": [RIGHT]}, browsers={"one": none})
    assert (episodes["one"].outcome, episodes["two"].outcome) == ("error", "success")


def test_a_task_may_be_called_anything(tmp_path):
    names = ["shop/1", "shop 1", "../escape", "", "plain"]
    assert len({folder_name(name) for name in names}) == len(names)
    assert all(is_safe_name(folder_name(name)) for name in names)
    assert folder_name("plain") == "plain"
    episodes, _ = run(tmp_path, {"shop/1": [RIGHT], "../escape": [RIGHT]})
    assert len(episodes) == 2
    assert {path.parent for path in tmp_path.rglob("episode.json")} <= set((tmp_path / "episodes").iterdir())


def make_run() -> Run:
    now = datetime.now(UTC)
    return Run(run_id="run", command=(), status="running", config={}, environment=Environment(), started_at=now)


def test_what_a_killed_run_had_half_written_is_cleared_away(tmp_path):
    half = tmp_path / "episodes" / "one" / ".trajectory.0123456789ab.partial"
    half.mkdir(parents=True)
    (half / "trajectory.json").write_text("{")
    (tmp_path / "episodes" / "one" / ".episode.json.0123456789ab.partial").write_text("{")
    store = RunStore(tmp_path)
    store.begin(make_run(), {"one": None})
    store.let_go()
    assert list((tmp_path / "episodes" / "one").iterdir()) == []
    episodes, _ = run(tmp_path, {"one": [RIGHT]})
    assert episodes["one"].outcome == "success"


def test_a_run_says_how_it_ended(tmp_path):
    store, record = RunStore(tmp_path), make_run()
    for problem, status in ((None, "finished"), ("ZeroDivisionError: ", "failed")):
        store.begin(record, {})
        store.end(record, problem)
        found = parse_record(Run, (tmp_path / "run.json").read_bytes(), "run.json")
        assert (found.status, found.error) == (status, problem)


def test_a_run_that_goes_on_is_not_begun_again_beside_it(tmp_path):
    first, second = RunStore(tmp_path), RunStore(tmp_path)
    first.begin(make_run(), {"one": None})
    half = tmp_path / "episodes" / "one" / ".trajectory.0123456789ab.partial"
    half.mkdir(parents=True)
    with pytest.raises(StorageError, match=f"at work on the run in {tmp_path};"):
        second.begin(make_run(), {"one": None})
    assert half.exists(), "what the first is writing is left alone"
    first.end(make_run())
    second.begin(make_run(), {"one": None})
    second.let_go()
    assert not half.exists()


def test_a_run_that_could_not_begin_holds_nothing(tmp_path):
    store, refused = RunStore(tmp_path), RunStore(tmp_path)
    for _ in range(2):
        store.begin(make_run(), {})
        store.end(make_run())
        with pytest.raises(ConfigError, match=r"other settings .*seed is None there and 1 here"):
            refused.begin(make_run().model_copy(update={"config": {"seed": 1}}), {})


def test_an_attempt_without_a_step_leaves_no_earlier_ones_trajectory(tmp_path):
    def none():
        raise WorldError("Chromium died while it started.")

    run(tmp_path, {"one": [RIGHT]})
    (tmp_path / "episodes" / "one" / "episode.json").unlink()  # as if killed before it was written
    run(tmp_path, {"one": [RIGHT]}, browsers={"one": none})
    assert [path.name for path in (tmp_path / "episodes" / "one").iterdir()] == ["episode.json"]


@pytest.mark.parametrize("values", [{"num_parallel": 0}, {"episode_s": 0.0}])
def test_config_names_the_field(values):
    with pytest.raises(ConfigError, match=next(iter(values))):
        RunnerConfig(method="none", source="a test", **values)
