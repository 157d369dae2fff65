import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from browser.fixtures import descendants, is_gone
from clocks import PATIENT_S
from evaluation.minds import make_task
from focusmem.agent.live_episode import LiveEpisode
from focusmem.cli.live_view import LiveView
from focusmem.cli.main import app
from focusmem.errors import CheckpointError, ConfigError, StorageError, UserError
from focusmem.evaluation.watcher import Watcher
from focusmem.files import FolderLock
from focusmem.lab.demo.demo import METHODS
from focusmem.lab.demo.story import stories
from focusmem.lab.shipped import Weights
from focusmem.lab.world.rollout import iter_tasks
from focusmem.lab.world.world import World
from focusmem.recipes import demo as demo_recipe
from focusmem.recipes.demo import DemoConfig, demonstrate
from focusmem.schemas import RunFolder, Verdict
from focusmem.settings import flattened

ROOT = Path(__file__).parents[2]


def small(**changes) -> DemoConfig:
    return DemoConfig(**{"num_tasks": 2, "browser": "raster", "max_new_tokens": 4} | changes)


class Notes:
    """Writes down what there is to be seen."""

    def __init__(self):
        self.seen = []

    def __call__(self, opening):
        self.opening = opening
        return lambda method: _Seeing(method, self.seen)


class _Seeing(Watcher):
    def __init__(self, method, seen):
        self.method, self.seen = method, seen

    def replied(self, episode, text):
        self.seen.append((episode.task.task_id, self.method, len(episode.steps) + 1, None))

    def ended(self, episode, verdict):
        self.seen.append((episode.task.task_id, self.method, len(episode.steps), verdict.outcome))


def quiet(opening):
    return lambda method: Watcher()


@pytest.fixture(scope="module")
def watched(toy_weights, tmp_path_factory):
    """A demonstration with toys: its opening, what it left, and what was seen."""
    notes = Notes()
    opening, shown = demonstrate(small(), Weights(toy_weights), tmp_path_factory.mktemp("demo"), notes)
    return opening, shown, notes.seen


def test_tasks_are_the_first_that_the_seed_draws_on_the_banks_sites(watched):
    opening, _, _ = watched
    drawn = iter_tasks(World(0), "e", "evaluation", 0, sites=["e-0", "e-1"])
    assert opening.suite.lab_tasks == [next(drawn) for _ in range(2)]


def test_each_step_and_each_ending_can_be_watched(watched):
    opening, _, seen = watched
    for task in opening.suite.tasks:
        for method in METHODS:
            own = [one for one in seen if one[:2] == (task.task_id, method)]
            assert [one[2] for one in own] == [*range(1, 16), 15]
            assert [one[3] for one in own] == [None] * 15 + ["failure"], "a toy never answers"


def test_the_two_runs_are_whole_and_differ_in_memory_alone(watched):
    _, shown, _ = watched
    runs = [RunFolder(shown.folder / method).run() for method in METHODS]
    configs = [flattened(run.config) for run in runs]
    differing = {name for name in {**configs[0], **configs[1]} if configs[0].get(name) != configs[1].get(name)}
    assert {name for name in differing if not name.startswith("settings.memory.")} == {
        "identities.memory",
        "identities.retriever",
    }
    assert [run.status for run in runs] == ["finished", "finished"]
    for method in METHODS:
        assert json.loads((shown.folder / method / "results.json").read_text())["num_tasks"] == 2


def test_one_page_holds_both_with_what_memory_brought_and_where_it_looked(watched):
    _, shown, _ = watched
    text = shown.page.path.read_text()
    assert (shown.page.num_episodes, shown.page.picture_folder, shown.page.problems) == (4, None, ())
    assert all(f'id="episode-{run}-{place}"' in text for run in (0, 1) for place in (0, 1))
    assert 'id="recalled-0"' in text
    assert '"levels"' in text
    assert "<title>without memory and with memory - focusmem trace</title>" in text
    assert '"label":"without memory","folder":null' in text


def test_the_story_is_what_the_runs_hold(watched):
    opening, shown, _ = watched
    for story, task in zip(stories(shown.folder, opening.suite.lab_tasks), opening.suite.tasks, strict=True):
        assert (story.task_id, story.right_answer) == (task.task_id, task.answer)
        assert story.outcomes == dict.fromkeys(METHODS, "failure")
        assert all(attempt.num_steps == 15 for attempt in story.attempts.values())
        assert sum(one.num_offered for one in story.brought) == 15 * 3, "three at each step"
        assert all(one.num_accepted == one.num_offered for one in story.brought), "a fresh gate is open"


@pytest.mark.parametrize("name", ["none/diary.txt", "full/run.json", "page.html"])
def test_what_is_not_from_a_demonstration_is_not_replaced(toy_weights, tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(StorageError, match=r"no demo.json beside it"):
        demonstrate(small(), Weights(toy_weights), tmp_path, quiet)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]


def test_an_earlier_demonstration_stays_until_everything_is_loaded(toy_weights, tmp_path):
    for name in ("policy", "embedder", "bank"):
        (tmp_path / "weights" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "weights" / name).symlink_to(toy_weights / name)
    (tmp_path / "weights" / "memory").mkdir()
    (tmp_path / "weights" / "memory" / "full").symlink_to(toy_weights / "memory" / "action-only")
    (tmp_path / "demo" / "none").mkdir(parents=True)
    for name in ("demo.json", "none/run.json"):
        (tmp_path / "demo" / name).write_text("{}")
    with pytest.raises(CheckpointError, match="trained as the memory 'action-only'"):
        demonstrate(small(), Weights(tmp_path / "weights"), tmp_path / "demo", quiet)
    assert (tmp_path / "demo" / "none" / "run.json").exists()


def test_two_demonstrations_do_not_share_a_folder(toy_weights, tmp_path):
    with FolderLock(tmp_path, "busy"), pytest.raises(StorageError, match="Another demonstration is running"):
        demonstrate(small(), Weights(toy_weights), tmp_path, quiet)


def test_the_command_tells_a_story_and_where_the_page_is(watched, monkeypatch):
    opening, shown, _ = watched
    monkeypatch.setattr(demo_recipe, "demonstrate", lambda *words, **more: (opening, shown))
    result = CliRunner().invoke(app, ["demo", "--tasks", "2", "--out", str(shown.folder)])
    assert result.exit_code == 0, result.output
    assert all(task.instruction in result.stdout for task in opening.suite.tasks)
    assert "Solved without memory: 0 of 2; with memory: 0 of 2." in result.stdout
    assert result.stderr == "Loading ...\n", "printed at once, because loading takes a while"
    assert result.stdout.endswith(f"side by side: {shown.folder / 'page.html'}\n")


def test_elsewhere_than_on_a_terminal_the_view_prints_endings(capsys):
    task = make_task("a")
    with LiveView(["without memory", "with memory"], [(task, 1)]) as view:
        for run, num_steps, outcome in (("without memory", 1, "success"), ("with memory", 2, "failure")):
            episode = LiveEpisode(task)
            watcher = view.watcher(run)
            watcher.began(episode)
            watcher.replied(episode, "{")
            episode.steps = [None] * num_steps
            watcher.ended(episode, Verdict(task_id="a", outcome=outcome, reason="", judge="a test"))
    said = capsys.readouterr().err.splitlines()
    assert said == ["task 1, without memory: solved, 1 step", "task 1, with memory: not solved, 2 steps"]


@pytest.mark.parametrize("changes", [{"browser": "lynx"}, {"num_tasks": 0}, {"seed": -1}])
def test_impossible_settings_are_refused(changes):
    with pytest.raises(ConfigError):
        small(**changes)


def test_what_is_missing_is_named_before_anything_is_done(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--weights", str(tmp_path), "--out", str(tmp_path / "demo")])
    assert isinstance(result.exception, StorageError)
    assert "focusmem lab pretrain" in str(result.exception)
    assert not (tmp_path / "demo").exists()


def test_without_chromium_the_raster_does_and_says_why(toy_weights, tmp_path, monkeypatch):
    async def process(self, allowed):
        raise UserError("There is no Chromium on this machine.")

    monkeypatch.setattr("focusmem.browser.chromium_process.ChromiumPool.process", process)
    monkeypatch.setattr(demo_recipe, "DemoConfig", partial(DemoConfig, max_new_tokens=4))
    words = ["demo", "--tasks", "1", "--seed", "3", "--weights", str(toy_weights), "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["/usr/bin/focusmem", *words, "--json"])
    (tmp_path / "none").mkdir()
    for name in ("demo.json", "none/earlier.txt", "mine.txt"):
        (tmp_path / name).write_text("{}")
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert Path(document["page"]).exists()
    assert (document["browser"], document["why_raster"]) == ("raster", "There is no Chromium on this machine.")
    assert "There is no Chromium on this machine." in result.stderr
    assert document["num_solved"] == {"none": 0, "full": 0}
    [row] = document["tasks"]
    assert (row["seed"], row["outcomes"]) == (3, {"none": "failure", "full": "failure"})
    assert "task 1, with memory: not solved, 15 steps" in result.stderr
    assert json.loads((tmp_path / "full" / "run.json").read_text())["command"] == ["focusmem", *words, "--json"]
    assert json.loads((tmp_path / "demo.json").read_text())["seed"] == 3
    assert (tmp_path / "mine.txt").exists()
    assert not (tmp_path / "none" / "earlier.txt").exists(), "an earlier demonstration is replaced"
    assert isinstance(CliRunner().invoke(app, [*words, "--browser", "chromium"]).exception, UserError)
    assert Path(document["page"]).exists(), "nothing takes its place"


@pytest.mark.browser
def test_in_chromium_it_is_the_same_and_takes_the_place_of_an_earlier_one(watched, toy_weights, tmp_path):
    shutil.copytree(watched[1].folder, tmp_path, dirs_exist_ok=True)
    before = descendants()
    opening, shown = demonstrate(small(num_tasks=1, browser="auto"), Weights(toy_weights), tmp_path, quiet)
    assert (opening.browser, opening.why_raster) == ("chromium", None)
    [story] = stories(tmp_path, opening.suite.lab_tasks)
    assert story.outcomes == dict.fromkeys(METHODS, "failure")
    assert shown.page.num_episodes == 2, "nothing is left of the four"
    assert all(is_gone(pid) for pid in descendants() - before)


@pytest.mark.browser
def test_stopped_by_ctrl_c_it_leaves_nothing_running(toy_weights, tmp_path):
    words = ["demo", "--browser", "chromium", "--weights", str(toy_weights), "--out", str(tmp_path / "demo")]
    process = subprocess.Popen(
        [sys.executable, "-m", "focusmem.cli.main", *words],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where tests run in the background
    )
    while "3." not in process.stderr.readline():  # the tasks have been told, and it begins
        assert process.poll() is None
    while len(descendants(process.pid)) < 4:
        assert process.poll() is None
        time.sleep(0.02)
    left = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=PATIENT_S)[1].endswith("focusmem: stopped\n")
    assert process.returncode == 130
    assert all(is_gone(pid) for pid in left)
