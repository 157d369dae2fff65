"""Everything that can go wrong at once, in one run with real Chromium: each is told for what it is, and nothing else is
lost.
"""

import asyncio
import os
import signal

import pytest

import clocks
from browser.fixtures import descendants, is_gone
from browser.sites import Site
from clocks import PATIENT_S
from evaluation.minds import ScriptedMind, make_task, say
from evaluation.test_runner import begin
from focusmem.browser.base import BrowserLimits
from focusmem.browser.chromium import ChromiumBrowser
from focusmem.browser.chromium_process import ChromiumPool
from focusmem.browser.clock import Clock
from focusmem.evaluation.metrics import summarise
from focusmem.evaluation.run_store import RunStore
from focusmem.evaluation.runner import Runner, RunnerConfig
from focusmem.judges.exact_answer import ExactAnswer
from focusmem.schemas import check_trajectory

pytestmark = pytest.mark.browser

SIZE = {"width": 640, "height": 480, "settle_s": 0.0, "wait_s": 0.0}
PATIENT = BrowserLimits(**SIZE, load_s=PATIENT_S, action_s=2 * PATIENT_S, step_s=4 * PATIENT_S, episode_s=9 * PATIENT_S)
SHORT = BrowserLimits(**SIZE, load_s=0.0, action_s=1.0)
"""Only for what never ends, so that a slow machine changes nothing."""
YES, HOME, SECOND = say("stop", answer="yes"), say("goto", url="/"), say("click", description="Second page")


class FaultyWorld:
    """Tasks on awkward pages, and a mind that can reach for the browser of the episode it is asked about."""

    def __init__(self, site):
        self.site = site
        self.browsers = {}
        self.pids = {}
        self.loop = None

    def signal(self, number, reply):
        """A line that does something to the Chromium of its episode before it answers."""

        def line(decision):
            pid = self.pids[decision.task.task_id] = self.browsers[decision.task.task_id]._process._pid
            os.kill(pid, number)
            return reply

        return line

    def hurried(self, line):
        """A line to an action that never ends; from now on the limits of its episode are short."""

        def shortened(decision):
            self.browsers[decision.task.task_id]._clock = Clock(SHORT)
            return line(decision) if callable(line) else line

        return shortened

    def run(self, folder, scripts, *, hurried=(), **settings):
        """`scripts` holds for each task the path it starts on and the mind's lines. Start pages of the tasks in
        `hurried` never open."""
        tasks = [make_task(name, self.site.url + path) for name, (path, *_) in scripts.items()]
        mind = ScriptedMind({name: lines for name, (_, *lines) in scripts.items()})

        async def whole():
            self.loop = asyncio.get_running_loop()
            async with ChromiumPool(max_users=1) as pool:

                async def make_browser(task):
                    limits = SHORT if task.task_id in hurried else PATIENT
                    browser = await ChromiumBrowser.launch(limits, [self.site.host], pool=pool)
                    self.browsers[task.task_id] = browser
                    return browser

                patient = {"episode_s": 3 * PATIENT_S}
                config = RunnerConfig(**{"num_parallel": 5, "num_retries": 0} | patient | settings)
                runner = Runner(config, store, mind, make_browser, ExactAnswer(), method="none", source="a test")
                await runner.run([(task, 1) for task in tasks])

        store = RunStore(folder)
        begin(store, tasks)
        clocks.run(whole())
        store.end()
        return store.folder, {one.episode.task.task_id: one for one in store.folder.episodes()}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One run with all faults in it. Returns its folder, its episodes, and the processes it started."""
    before = descendants()
    with Site() as site:
        world = FaultyWorld(site)
        scripts = {
            "healthy-1": ("/", SECOND, YES),
            "killed": ("/", SECOND, world.signal(signal.SIGKILL, HOME), YES),
            "stopped": ("/", world.hurried(world.signal(signal.SIGSTOP, SECOND)), YES),
            "never": ("/never", YES),
            "never-link": ("/", world.hurried(say("click", description="Never")), YES),
            "alerts": ("/alerts", YES),
            "alerts-later": ("/", world.hurried(say("goto", url="/alerts")), YES),
            "busy": ("/busy", world.hurried(say("click", description="Think hard")), YES),
            "strays": ("/", say("goto", url="/redirect?http://elsewhere.test/"), YES),
            "strays-at-once": ("/redirect?http://elsewhere.test/", YES),
            "tall": ("/tall", *[say("scroll", direction="down")] * 3, say("press_key", key="End"),
                     say("click", description="The end"), YES),
            "garbage": ("/", "I would rather not.", '{"name": "destroy"}', "\0\ud800", "{" * 5000, ""),
            "refused": ("/refused", YES),
            "shut-out": ("/", say("goto", url="/too-many"), YES),
            "healthy-2": ("/", SECOND, HOME, YES),
            "healthy-3": ("/", SECOND, say("stop", answer="no")),
        }  # fmt: skip
        place = tmp_path_factory.mktemp("runs") / "faults"
        folder, episodes = world.run(place, scripts, hurried=("never", "alerts"))
    return folder, episodes, descendants() - before


def steps(run, name):
    return run[1][name].trajectory().trajectory.steps


def test_every_episode_is_on_record_and_whole(run):
    _, episodes, _ = run
    assert len(episodes) == 16
    for name, stored in episodes.items():
        place = stored.folder / "trajectory"
        if place.exists():
            assert check_trajectory(place) == []
            assert len(steps(run, name)) == len(stored.episode.notes)
        else:
            assert stored.episode.notes == ()


def test_the_table_counts_them_apart(run):
    found = summarise(run[0])
    assert (found["num_errors"], found["num_blocked"], found["num_missing"]) == (8, 2, 0)
    assert (found["num_tasks"], found["num_judged"]) == (16, 6)
    assert found["success_rate"] == pytest.approx(4 / 16), "errors and blocks count as not won"
    assert found["judged_success_rate"] == pytest.approx(4 / 6)


def test_the_others_are_not_lost(run):
    outcomes = [run[1][f"healthy-{number}"].outcome for number in (1, 2, 3)]
    assert outcomes == ["success", "success", "failure"]


@pytest.mark.parametrize(
    ("name", "num_steps", "reason"),
    [
        ("killed", 2, "The action goto failed"),
        ("stopped", 1, "The action click took too long"),
        ("never", 0, "Opening the start page took too long"),
        ("never-link", 1, "The action click took too long"),
        ("alerts", 0, "Opening the start page took too long"),
        ("alerts-later", 1, "The action goto took too long"),
        ("busy", 1, "The action click took too long"),
        ("strays-at-once", 0, "elsewhere.test does not belong to this task"),
    ],
)
def test_what_the_world_did_is_an_error_with_its_reason(run, name, num_steps, reason):
    episode = run[1][name].episode
    assert (run[1][name].outcome, episode.is_blocked) == ("error", False)
    assert reason in episode.error
    assert len(episode.notes) == num_steps
    if num_steps:
        last = steps(run, name)[-1]
        assert last.action is not None, "what the policy wanted is on record"
        assert reason in last.error


@pytest.mark.parametrize(("name", "status"), [("refused", "HTTP 403"), ("shut-out", "HTTP 429")])
def test_a_site_that_refuses_is_blocked(run, name, status):
    episode = run[1][name].episode
    assert (run[1][name].outcome, episode.is_blocked) == ("error", True)
    assert status in episode.error


def test_leaving_the_allow_list_is_told_to_the_policy_which_may_go_on(run):
    assert run[1]["strays"].outcome == "success"
    first, last = steps(run, "strays")
    assert "elsewhere.test does not belong to this task" in first.error
    assert last.url == first.url, "the page stays"


def test_a_very_tall_page_is_seen_view_by_view(run):
    assert run[1]["tall"].outcome == "success"
    seen = steps(run, "tall")
    assert {(step.screenshot.width, step.screenshot.height) for step in seen} == {(640, 480)}
    assert [step.error for step in seen] == [None] * 6
    assert seen[-1].url.endswith("/second")


def test_garbage_is_fifteen_unreadable_steps_and_a_failure(run):
    episode = run[1]["garbage"].episode
    assert (run[1]["garbage"].outcome, episode.answer, len(episode.notes)) == ("failure", None, 15)
    assert not any(note.is_readable for note in episode.notes)
    assert all(step.action is None and step.error for step in steps(run, "garbage"))


def test_no_process_outlives_the_run(run):
    assert all(is_gone(pid) for pid in run[2])


def test_an_episode_over_its_limit_is_ended_with_its_chromium(tmp_path):
    """Chromium does not obey, and the browser's own limits would let it go on."""
    with Site() as site:
        world = FaultyWorld(site)

        async def time_passes_in_the_click():
            while world.browsers["hung"]._limit is None:
                await asyncio.sleep(0.001)
            world.loop.put_forward(PATIENT_S)

        def hang(decision):
            asyncio.run_coroutine_threadsafe(time_passes_in_the_click(), world.loop)
            return world.signal(signal.SIGSTOP, SECOND)(decision)

        scripts = {"hung": ("/", hang), "next": ("/", SECOND, YES)}
        _, episodes = world.run(tmp_path / "run", scripts, num_parallel=1, episode_s=PATIENT_S)
    assert episodes["hung"].outcome == "error"
    assert f"longer than its limit of {PATIENT_S:g} s" in episodes["hung"].episode.error
    assert len(episodes["hung"].episode.notes) == 1
    assert is_gone(world.pids["hung"])
    assert episodes["next"].outcome == "success"
