import asyncio
import threading
from datetime import UTC, datetime

import pytest

import clocks
from clocks import PATIENT_S, put_forward
from evaluation.browsers import FakeBrowser
from evaluation.minds import ScriptedMind, make_task, say
from focusmem.errors import ConfigError, StorageError, WorldError
from focusmem.evaluation.run_store import RunStore, trajectory_name
from focusmem.evaluation.runner import Runner, RunnerConfig
from focusmem.evaluation.watcher import Watcher
from focusmem.files import is_safe_name
from focusmem.judges.exact_answer import ExactAnswer
from focusmem.schemas import Environment, Manifest, Run, RunFolder, load_trajectory
from focusmem.schemas.run_folder import task_folder

RIGHT, WRONG, WAIT = say("stop", answer="yes"), say("stop", answer="no"), say("wait")


def make_run(**changes) -> Run:
    values = {"run_id": "run", "command": (), "status": "running", "config": {}, "started_at": datetime.now(UTC)}
    return Run(**values | changes)


def begin(store, tasks, run=None, **settings):
    """`tasks` are records, or the names of such."""
    records = [make_task(one) if isinstance(one, str) else one for one in tasks]
    store.begin(run or make_run(), Manifest.of("tests", records, {}), Environment(), **settings)


def run(
    folder,
    lines,
    *,
    browsers=None,
    mind=None,
    judge=ExactAnswer(),  # noqa: B008
    num_attempts=1,
    watcher=None,
    is_late=None,
    **settings,
):
    """A run of the tasks named by `lines`; returns its episodes by task, and the browsers they had."""
    used = {}

    async def make_browser(task):
        used[task.task_id] = (browsers or {}).get(task.task_id, FakeBrowser)()
        return used[task.task_id]

    patient = {"patience_s": PATIENT_S, "episode_s": PATIENT_S}
    config = RunnerConfig(**{"num_parallel": 3, "num_retries": 0} | patient | settings)
    store, tasks = RunStore(folder), [make_task(name) for name in lines]
    store.begin(make_run(), Manifest.of("tests", tasks, {}, num_attempts=num_attempts), Environment())
    attempts = [(task, number) for number in range(1, num_attempts + 1) for task in tasks]
    runner = Runner(
        config,
        store,
        mind or ScriptedMind(lines),
        make_browser,
        judge,
        method="none",
        source="a test",
        watcher=watcher,
        is_late=is_late,
    )
    try:
        clocks.run(runner.run(attempts))
    finally:
        store.let_go()
    return {one.episode.task.task_id: one for one in store.folder.episodes()}, used


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
    stored = load_trajectory(tmp_path / "episodes" / "won" / "1" / "trajectory").trajectory
    assert (len(stored.steps), stored.outcome, stored.source) == (2, "success", "a test")
    assert stored.closing is not None, "what the last action led to is on record"
    assert len(set(mind.forgotten)) == len(mind.forgotten) == len(lines)
    assert all(browser.ended == ["closed"] for browser in used.values())


def test_no_more_side_by_side_than_allowed(tmp_path):
    lines = {f"task-{number}": [WAIT, RIGHT] for number in range(7)}
    mind = ScriptedMind(lines)
    run(tmp_path, lines, mind=mind, num_parallel=2)
    assert max(map(len, mind.lots)) == 2


def test_no_attempt_begins_once_it_is_late(tmp_path):
    lines, asked = dict.fromkeys("abc", RIGHT), []
    episodes, _ = run(
        tmp_path / "run", lines, num_parallel=1, is_late=lambda: bool(asked.append(None)) or len(asked) > 2
    )
    assert list(episodes) == ["a", "b"]


def test_finished_attempts_are_not_made_again(tmp_path):
    lines = {"one": [RIGHT], "two": [RIGHT]}
    before, _ = run(tmp_path, lines)
    (tmp_path / "episodes" / "two" / "1" / "episode.json").unlink()
    after, used = run(tmp_path, lines)
    assert list(used) == ["two"]
    assert run(tmp_path, lines)[1] == {}
    assert after["one"].episode == before["one"].episode
    assert after["two"].episode.trajectory_id == before["two"].episode.trajectory_id, "resuming keeps the run's key"


def test_each_attempt_at_a_task_has_a_folder_and_a_trajectory_of_its_own(tmp_path):
    run(tmp_path, {"one": [RIGHT], "two": [WRONG]}, num_attempts=3)
    found = RunFolder(tmp_path).episodes()
    assert [(one.episode.task.task_id, one.episode.attempt) for one in found] == [
        (name, number) for name in ("one", "two") for number in (1, 2, 3)
    ]
    assert len({one.episode.trajectory_id for one in found}) == 6


def test_two_runs_of_the_same_tasks_have_different_trajectory_ids(tmp_path):
    ids = [run(tmp_path / name, {"one": [RIGHT]})[0]["one"].episode.trajectory_id for name in ("a/run", "b/run")]
    assert ids[0] != ids[1]
    assert all(is_safe_name(trajectory_name("0a1b2c3d", name, 9_999)) for name in ("x" * 500, "shop/1", "e.1", ""))


def test_an_attempt_that_breaks_is_started_again(tmp_path):
    class Flaky(FakeBrowser):
        num_made = 0

        def __init__(self):
            super().__init__(dies_at=0 if Flaky.num_made < 2 else None)
            Flaky.num_made += 1

    class Told(Watcher):
        broken: list = []  # noqa: RUF012

        def broke(self, episode):
            self.broken.append((episode.num_broken, episode.error))

    episodes, _ = run(tmp_path, {"one": [WAIT, RIGHT]}, browsers={"one": Flaky}, num_retries=2, watcher=Told())
    assert (episodes["one"].outcome, episodes["one"].episode.num_broken) == ("success", 2)
    assert Told.broken == [(0, "The browser has died."), (1, "The browser has died.")]


def test_an_attempt_that_breaks_every_time_stays_an_error(tmp_path):
    episodes, _ = run(tmp_path, {"one": [WAIT]}, browsers={"one": lambda: FakeBrowser(dies_at=0)}, num_retries=2)
    assert (episodes["one"].outcome, episodes["one"].episode.num_broken) == ("error", 2)


def test_without_a_judge_only_silence_is_a_failure(tmp_path):
    episodes, _ = run(tmp_path, {"said": [RIGHT], "silent": [WAIT]}, judge=None)
    assert (episodes["said"].outcome, episodes["silent"].outcome) == ("not_judged", "failure")


def test_a_browser_that_hangs_is_ended_with_its_episode_and_the_others_go_on(tmp_path):
    ended = []

    class Ended(Watcher):
        def ended(self, episode, verdict):
            ended.append(episode.task.task_id)

    async def the_others_end():
        while len(ended) < 2:
            await asyncio.sleep(0.001)
        put_forward(PATIENT_S)

    browsers = {"hung": lambda: FakeBrowser(hangs_at=2, meanwhile=the_others_end)}
    lines = {"hung": [WAIT], "won": [WAIT, RIGHT], "also": [RIGHT]}
    episodes, used = run(tmp_path, lines, browsers=browsers, watcher=Ended(), patience_s=0.0)
    assert episodes["hung"].outcome == "error"
    assert f"longer than its limit of {PATIENT_S:g} s" in episodes["hung"].episode.error
    assert len(episodes["hung"].episode.notes) == 2, "what was done before is kept"
    assert used["hung"].ended == ["abandoned"]
    assert [episodes[name].outcome for name in ("won", "also")] == ["success", "success"]


def test_a_closing_look_that_hangs_does_not_undo_a_finished_episode(tmp_path):
    async def time_passes():
        put_forward(PATIENT_S)

    browsers = {"one": lambda: FakeBrowser(hangs_at=1, meanwhile=time_passes)}
    episodes, used = run(tmp_path, {"one": [RIGHT]}, browsers=browsers)
    assert (episodes["one"].outcome, used["one"].ended) == ("success", ["abandoned"])


def test_a_mind_that_hangs_costs_the_episodes_it_was_asked_about(tmp_path):
    free, loops = threading.Event(), []

    class Loops(Watcher):
        def began(self, episode):
            loops.append(asyncio.get_running_loop())

    def hang(decision):
        loops[0].put_forward(PATIENT_S)
        free.wait(PATIENT_S)
        return RIGHT

    lines = {"hung": [hang], "later": [RIGHT]}
    episodes, used = run(tmp_path, lines, num_parallel=1, watcher=Loops())
    free.set()
    assert (episodes["hung"].outcome, episodes["later"].outcome) == ("error", "success")
    assert used["hung"].ended == ["abandoned"]


def test_a_mind_that_the_world_fails_is_an_error_of_the_episode(tmp_path):
    def fail(decision):
        raise WorldError("The model's server is gone.")

    episodes, _ = run(tmp_path, {"one": [fail], "two": [RIGHT]}, num_parallel=1)
    assert (episodes["one"].episode.error, episodes["two"].outcome) == ("The model's server is gone.", "success")


def test_a_bug_stops_the_run_and_what_was_done_stays(tmp_path):
    def fail(decision):
        raise ZeroDivisionError

    lines = {"first": [RIGHT], "wrong": [fail], "never": [RIGHT]}
    with pytest.raises(ZeroDivisionError):
        run(tmp_path, lines, num_parallel=1)
    assert [path.name for path in (tmp_path / "episodes").iterdir()] == ["first"]


def test_a_browser_that_cannot_be_started_is_an_error_of_the_episode(tmp_path):
    def none():
        raise WorldError("Chromium died while it started.")

    episodes, _ = run(tmp_path, {"one": [RIGHT], "two": [RIGHT]}, browsers={"one": none})
    assert (episodes["one"].outcome, episodes["two"].outcome) == ("error", "success")


def test_a_judge_never_runs_in_the_browsers_event_loop(tmp_path):
    seen = []

    class Judge(ExactAnswer):
        async def judge(self, attempt):
            seen.append((asyncio.get_running_loop(), threading.current_thread().name))
            return await super().judge(attempt)

    class Loops(Watcher):
        def began(self, episode):
            seen.append((asyncio.get_running_loop(), threading.current_thread().name))

    run(tmp_path, {"one": [RIGHT]}, judge=Judge(), watcher=Loops())
    (browsers, _), (judges, thread) = seen
    assert browsers is not judges
    assert thread == "judge"


def test_a_task_may_be_called_anything(tmp_path):
    names = ["shop/1", "shop 1", "../escape", "plain"]
    assert len({task_folder(name) for name in names}) == len(names)
    assert all(is_safe_name(task_folder(name)) for name in names)
    assert task_folder("plain") == "plain"
    episodes, _ = run(tmp_path, {"shop/1": [RIGHT], "../escape": [RIGHT]})
    assert len(episodes) == 2
    assert {path.parents[1] for path in tmp_path.rglob("episode.json")} <= set((tmp_path / "episodes").iterdir())


def test_what_a_killed_run_had_half_written_is_cleared_away(tmp_path):
    half = tmp_path / "episodes" / "one" / "1" / ".trajectory.0123456789ab.partial"
    half.mkdir(parents=True)
    (half / "trajectory.json").write_text("{")
    (tmp_path / "episodes" / "one" / "1" / ".episode.json.0123456789ab.partial").write_text("{")
    store = RunStore(tmp_path)
    begin(store, ["one"])
    store.let_go()
    assert list((tmp_path / "episodes" / "one" / "1").iterdir()) == []
    episodes, _ = run(tmp_path, {"one": [RIGHT]})
    assert episodes["one"].outcome == "success"


def test_a_run_says_how_it_ended(tmp_path):
    store = RunStore(tmp_path)
    for problem, status in ((None, "finished"), ("ZeroDivisionError: ", "failed")):
        begin(store, ["one"])
        store.end(problem)
        found = store.folder.run()
        assert (found.status, found.error) == (status, problem)


def test_a_run_that_goes_on_is_not_begun_again_beside_it(tmp_path):
    first, second = RunStore(tmp_path), RunStore(tmp_path)
    begin(first, ["one"])
    half = tmp_path / "episodes" / "one" / "1" / ".trajectory.0123456789ab.partial"
    half.mkdir(parents=True)
    with pytest.raises(StorageError, match=f"at work on the run in {tmp_path};"):
        begin(second, ["one"])
    assert half.exists(), "what the first is writing is left alone"
    first.end()
    begin(second, ["one"])
    second.let_go()
    assert not half.exists()


def test_a_run_is_resumed_only_with_its_own_settings_and_tasks(tmp_path):
    store, refused = RunStore(tmp_path), RunStore(tmp_path)
    for _ in range(2):
        begin(store, ["one"], make_run(config={"policy": {"seed": 0, "device": "cpu"}}))
        store.end()
        with pytest.raises(ConfigError, match=r"other settings .*policy.seed is 0 there and 1 here"):
            begin(refused, ["one"], make_run(config={"policy": {"seed": 1, "device": "cpu"}}))
        with pytest.raises(ConfigError, match="run of other tasks"):
            begin(refused, ["two"], make_run(config={"policy": {"seed": 0, "device": "cpu"}}))
    other = make_run(config={"policy": {"seed": 0, "device": "cuda"}})
    with pytest.raises(ConfigError, match=r"policy.device is 'cpu' there and 'cuda' here"):
        begin(refused, ["one"], other)
    begin(store, ["one"], other, may_differ=["policy.device"])
    store.let_go()


def test_an_attempt_without_a_step_leaves_no_earlier_ones_trajectory(tmp_path):
    def none():
        raise WorldError("Chromium died while it started.")

    run(tmp_path, {"one": [RIGHT]})
    (tmp_path / "episodes" / "one" / "1" / "episode.json").unlink()  # as if killed before it was written
    run(tmp_path, {"one": [RIGHT]}, browsers={"one": none})
    left = sorted(path.name for path in (tmp_path / "episodes" / "one" / "1").iterdir())
    assert left == ["episode.json", "verdict.json"]


@pytest.mark.parametrize(
    "values", [{"num_parallel": 0}, {"episode_s": 0.0}, {"episode_s": float("nan")}, {"num_retries": -1}]
)
def test_config_names_the_field(values):
    with pytest.raises(ConfigError, match=next(iter(values))):
        RunnerConfig(**values)
