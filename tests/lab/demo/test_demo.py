import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from browser.fixtures import descendants, is_gone
from focusmem.agent.live_episode import LiveEpisode
from focusmem.agent.mind import Reply
from focusmem.cli.demo_view import DemoView
from focusmem.cli.main import app
from focusmem.errors import CheckpointError, ConfigError, StorageError, UserError
from focusmem.files import FolderLock
from focusmem.lab.demo import demo as lab_demo
from focusmem.lab.demo import story as lab_demo_story
from focusmem.lab.demo.demo import METHODS, Audience, DemoConfig, Lane, choose_browser, demonstrate
from focusmem.lab.demo.story import Attempt, Brought, Parting, TaskStory, in_words, stories, told
from focusmem.lab.evaluate import EvaluateConfig
from focusmem.lab.shipped import Weights
from focusmem.lab.world.rollout import iter_tasks
from focusmem.lab.world.world import World
from focusmem.schemas import Screenshot, Step, make_action

ROOT = Path(__file__).parents[3]


def small(**changes) -> DemoConfig:
    return DemoConfig(**{"num_tasks": 2, "browser": "raster", "max_new_tokens": 4} | changes)


class Notes(Audience):
    """Writes down what there was to be seen."""

    def __init__(self):
        self.seen = []

    def begin(self, lanes, browser, why_raster):
        self.lanes = list(lanes)

    def see(self, lane):
        self.seen.append((lane.task.task.task_id, lane.method, lane.num_steps, lane.outcome))


@pytest.fixture(scope="module")
def watched(toy_weights, tmp_path_factory):
    notes, folder = Notes(), tmp_path_factory.mktemp("demo")
    return demonstrate(small(), Weights(toy_weights), folder, notes), notes


def test_tasks_are_the_first_that_the_seed_draws_on_the_banks_sites(watched):
    shown, notes = watched
    drawn = iter_tasks(World(0), "e", "evaluation", 0, sites=["e-0", "e-1"])
    assert list(shown.tasks) == [next(drawn) for _ in range(2)]
    assert [(lane.number, lane.method) for lane in notes.lanes] == [(n, method) for n in (1, 2) for method in METHODS]


def test_each_step_and_each_ending_can_be_watched(watched):
    _, notes = watched
    for lane in notes.lanes:
        own = [one for one in notes.seen if one[:2] == (lane.task.task.task_id, lane.method)]
        assert [one[2] for one in own] == [*range(1, 16), 15]
        assert [one[3] for one in own] == [None] * 15 + ["failure"], "a toy never answers"


def test_the_two_runs_are_whole_and_differ_in_memory_alone(watched):
    shown, _ = watched
    configs = [json.loads((shown.folder / method / "config.json").read_text()) for method in METHODS]
    differing = {name for name in configs[0] if configs[0][name] != configs[1][name]}
    assert differing == {"memory", "name", "latent_memory", "embedder"}
    for method in METHODS:
        assert json.loads((shown.folder / method / "run.json").read_text())["status"] == "finished"
        assert json.loads((shown.folder / method / "results.json").read_text())["num_tasks"] == 2


def test_one_page_holds_both_with_what_memory_brought_and_where_it_looked(watched):
    shown, _ = watched
    text = shown.page.path.read_text()
    assert (shown.page.num_episodes, shown.page.picture_folder, shown.page.problems) == (4, None, ())
    assert all(f'id="episode-{run}-{place}"' in text for run in (0, 1) for place in (0, 1))
    assert 'id="recalled-0"' in text
    assert '"levels"' in text
    assert "<title>without memory and with memory - focusmem trace</title>" in text
    assert '"label":"without memory","folder":null' in text


def test_what_is_told_is_what_the_runs_hold(watched):
    shown, _ = watched
    for story, task in zip(stories(shown), shown.tasks, strict=True):
        assert (story.task_id, story.right_answer) == (task.task.task_id, task.task.answer)
        assert story.outcomes == dict.fromkeys(METHODS, "failure")
        assert all(attempt.num_steps == 15 for attempt in story.attempts.values())
        assert sum(one.num_offered for one in story.brought) == 15 * 3, "three at each step"
        assert all(one.num_accepted == one.num_offered for one in story.brought), "a fresh gate is open"


@pytest.mark.parametrize("name", ["none/diary.txt", "full/config.json", "page.html"])
def test_what_is_no_demonstration_is_not_replaced(toy_weights, tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(StorageError, match=r"no demonstration's, since there is no demo.json"):
        demonstrate(small(), Weights(toy_weights), tmp_path)
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
    with pytest.raises(CheckpointError, match="stage_b"):
        demonstrate(small(), Weights(tmp_path / "weights"), tmp_path / "demo")
    assert (tmp_path / "demo" / "none" / "run.json").exists()


def test_two_demonstrations_do_not_share_a_folder(toy_weights, tmp_path):
    with FolderLock(tmp_path, "busy"), pytest.raises(StorageError, match="Another demonstration goes on"):
        demonstrate(small(), Weights(toy_weights), tmp_path)


def test_the_audience_is_told_of_one_thing_at_a_time(toy_weights):
    """One attempt ends while the mind of another is answering."""
    num_inside, most, inside = [0], [0], threading.Event()

    class Slow(Audience):
        def see(self, lane):
            num_inside[0] += 1
            most[0] = max(most[0], num_inside[0])
            inside.set()
            time.sleep(0.1)
            num_inside[0] -= 1

    task = next(iter_tasks(World(0), "e", "evaluation", 0))
    episode = LiveEpisode(task.task)

    class Answering:
        def ask(self, seen):
            return [Reply("stop")]

    class Fake:
        world, mind = World(0), Answering()

        def __init__(self, method):
            self.config = EvaluateConfig(memory="none", name=method)

        def tasks(self):
            return [task]

        async def attempt(self, make_browser, watch, *, mind):
            if self.config.method == "none":
                await asyncio.to_thread(mind.ask, [(episode, None)])
            else:
                await asyncio.to_thread(inside.wait)
                watch(episode)

    asyncio.run(lab_demo._SideBySide(lambda kind: [Fake(method) for method in METHODS], Slow()).run("raster"))
    assert most == [1]


def test_the_command_tells_a_story_and_where_the_page_is(watched, monkeypatch):
    shown, _ = watched
    monkeypatch.setattr(lab_demo, "demonstrate", lambda *words, **more: shown)
    result = CliRunner().invoke(app, ["demo", "--tasks", "2"])
    assert result.exit_code == 0, result.output
    assert all(task.task.instruction in result.stdout for task in shown.tasks)
    assert "Solved without memory: 0 of 2; with memory: 0 of 2." in result.stdout
    assert result.stderr == "Loading ...\n", "said at once, since loading takes a while"
    assert result.stdout.endswith(f"side by side: {shown.folder / 'page.html'}\n")


def test_the_view_counts_one_as_one(capsys):
    task = next(iter_tasks(World(0), "e", "evaluation", 0))
    lanes = [Lane(1, task, method) for method in METHODS]
    with DemoView() as view:
        view.begin(lanes, "raster", None)
        view.see(replace(lanes[0], num_steps=1, outcome="success"))
        view.see(replace(lanes[1], num_steps=2, outcome="failure"))
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("1 task on pages")
    assert said[-2:] == ["task 1, without memory: solved, 1 step", "task 1, with memory: not solved, 2 steps"]


@pytest.mark.parametrize("changes", [{"browser": "lynx"}, {"num_tasks": 0}])
def test_impossible_settings_are_refused(changes):
    with pytest.raises(ConfigError):
        small(**changes)


def test_what_is_missing_is_said_before_anything_is_done(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--weights", str(tmp_path), "--out", str(tmp_path / "demo")])
    assert isinstance(result.exception, StorageError)
    assert "focusmem lab pretrain" in str(result.exception)
    assert not (tmp_path / "demo").exists()


def test_without_chromium_the_raster_does_and_says_why(toy_weights, tmp_path, monkeypatch):
    async def process(self, allowed):
        raise UserError("There is no Chromium on this machine.")

    monkeypatch.setattr("focusmem.browser.chromium_process.ChromiumPool.process", process)
    monkeypatch.setattr(lab_demo, "DemoConfig", partial(DemoConfig, max_new_tokens=4))
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
    shutil.copytree(watched[0].folder, tmp_path, dirs_exist_ok=True)
    before = descendants()
    shown = demonstrate(small(num_tasks=1, browser="auto"), Weights(toy_weights), tmp_path)
    assert (shown.browser, shown.why_raster) == ("chromium", None)
    [story] = stories(shown)
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
    assert process.communicate(timeout=30)[1].endswith("focusmem: stopped\n")
    assert process.returncode == 130
    assert all(is_gone(pid) for pid in left)


# The story in words


def make_story(**changes) -> TaskStory:
    values = {
        "number": 1,
        "task_id": "e-0.price.evaluation.7",
        "site": "e-0",
        "kind": "price",
        "instruction": "How much is the lamp?",
        "right_answer": "$9.00",
        "outcomes": {"none": "failure", "full": "success"},
        "attempts": {
            "none": Attempt("failure", None, 15, 4.0, None),
            "full": Attempt("success", "$9.00", 6, 2.0, None),
        },
        "brought": (Brought("e-0.price.bank.1", "What costs the hat?", True, 6, 6), Brought("x", "Else", False, 1, 0)),
        "parting": Parting(2, {"none": "click 'Specs'", "full": "click 'Offer'"}),
    }
    return TaskStory(**values | changes)


def test_a_story_says_what_happened_and_why():
    text = "\n".join(told([make_story()]))
    assert "Task 1 (e-0.price.evaluation.7): How much is the lamp?" in text
    assert "Without memory: not solved, after 15 steps, without an answer" in text
    assert "With memory: solved, after 6 steps, with the answer '$9.00'" in text
    assert "They part at step 2. Without memory: click 'Specs'. With memory: click 'Offer'." in text
    assert "'What costs the hat?' (this site; the gate let it in at 6 of 6 steps)" in text
    assert "'Else' (another site; the gate let it in at 0 of 1 step)" in text
    assert "Solved without memory: 0 of 1; with memory: 1 of 1." in text


def test_a_story_in_which_nothing_came_and_the_world_broke():
    broken = Attempt("error", None, 1, 1.0, "The page has died.")
    text = "\n".join(told([make_story(attempts={"none": broken, "full": broken}, brought=(), parting=None)]))
    assert text.count("broken off after 1 step: The page has died.") == 2
    assert "Both did the same at every step." in text
    assert "Memory brought no trajectory." in text


def test_a_story_without_steps_tells_of_none():
    broken = Attempt("error", None, 0, 0.0, "There was no browser.")
    text = "\n".join(told([make_story(attempts={"none": broken, "full": broken}, brought=(), parting=None)]))
    assert "Neither took a step." in text
    assert "the same" not in text


def test_replies_that_are_no_action_are_told_apart():
    shot = Screenshot.from_image(Image.new("RGB", (2, 2))).ref()
    hm, ha, long = (Step(screenshot=shot, error="No action.", reply=reply) for reply in ("hm", "ha", "h" * 100))
    assert lab_demo_story._parting({"none": [hm, hm], "full": [hm, hm]}) is None
    parting = lab_demo_story._parting({"none": [hm, hm, hm], "full": [hm, ha, hm]})
    assert parting == Parting(2, {"none": "wrote 'hm', which is no action", "full": "wrote 'ha', which is no action"})
    assert lab_demo_story._parting({"none": [long], "full": []}).actions["none"] == (
        f"wrote '{'h' * 60}'..., which is no action"
    )


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (make_action("click", description="Specs"), "click 'Specs'"),
        (make_action("type", text="lamp", description="Search"), "type 'lamp' in 'Search'"),
        (make_action("scroll", direction="down"), "scroll down"),
        (make_action("press_key", key="Enter"), "press key 'Enter'"),
        (make_action("wait"), "wait"),
        (make_action("stop", answer="12"), "stop '12'"),
        (None, "wrote something that is no action"),
    ],
)
def test_actions_in_words(action, words):
    assert in_words(action) == words


def test_who_chose_the_raster_does_not_wait_for_chromium(monkeypatch):
    monkeypatch.delattr("focusmem.browser.chromium_process.ChromiumPool.process")
    assert asyncio.run(choose_browser("raster")) == ("raster", None)
