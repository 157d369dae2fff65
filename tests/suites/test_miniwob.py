"""MiniWoB++ from its package, in Chromium: the pages reward what the seven actions do."""

import asyncio
import http.client
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from browser.fixtures import descendants, is_gone
from clocks import PATIENT_S
from evaluation.minds import ScriptedMind, say
from focusmem.browser.base import BrowserLimits
from focusmem.browser.opening import BrowserChoice
from focusmem.errors import ConfigError, MissingPackageError, WorldError
from focusmem.evaluation.judging import stored_attempt
from focusmem.evaluation.metrics import summarise
from focusmem.evaluation.rejudging import Rejudging
from focusmem.evaluation.run_store import RunStore
from focusmem.evaluation.runner import RunnerConfig
from focusmem.evaluation.suite_run import RunAbout, SuiteRun
from focusmem.judges.automatic import AutomaticReward
from focusmem.schemas import make_action
from focusmem.suites import miniwob
from focusmem.suites.miniwob import MINIWOB_LIMITS, ORIGIN, MiniWob, page_server, task_list
from suites.miniwob_solver import PLANS, SelectorGrounder, SolverMind

LIMITS = BrowserLimits(
    width=MINIWOB_LIMITS.width,
    height=MINIWOB_LIMITS.height,
    scale=MINIWOB_LIMITS.scale,
    settle_s=0.0,
    wait_s=0.0,
    load_s=PATIENT_S,
    action_s=3 * PATIENT_S,
    step_s=6 * PATIENT_S,
)
PATIENT_LIMITS = replace(LIMITS, settle_s=0.5, wait_s=1.0)
"""For pages that move."""
FEW = ("click-test-2", "enter-text", "click-checkboxes")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """The instructions of these tests are read once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOCUSMEM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def suite(folder, names, limits=LIMITS, **options):
    ids = folder / "ids.txt"
    ids.write_text("\n".join(names))
    return MiniWob(judge=AutomaticReward(), ids=ids, limits=limits, **options)


def play(folder, made, mind, *, num_parallel=2, num_attempts=1):
    run = SuiteRun(
        made,
        mind,
        folder / "run",
        RunAbout(method="script"),
        runner=RunnerConfig(num_parallel=num_parallel, patience_s=0.0, num_retries=0),
        num_attempts=num_attempts,
    )
    run.run(BrowserChoice(grounder=SelectorGrounder()))
    return run.folder


def names_of(episodes):
    return [one.episode.task.task_id.removeprefix("miniwob/").partition(".")[0] for one in episodes]


# The list


def test_every_task_of_the_package_is_listed_or_left_out_with_a_reason():
    listed = task_list()
    assert len(listed.tasks) + len(listed.left_out) == 125
    assert len(listed.tasks) >= 60
    assert not set(listed.tasks) & set(listed.left_out)
    assert all(reason.endswith(".") for reason in listed.left_out.values())
    pages = {path.rpartition("/")[2].removesuffix(".html") for path in miniwob._files() if path.startswith("/miniwob/")}
    assert {*listed.tasks, *listed.left_out} <= pages


def test_a_missing_package_names_itself(monkeypatch):
    def missing(name):
        raise miniwob.PackageNotFoundError

    monkeypatch.setattr(miniwob, "version", missing)
    with pytest.raises(MissingPackageError, match=r"pip install focusmem\[miniwob\]"):
        MiniWob(judge=None)


# The server


def test_only_files_of_the_package_are_served():
    def ask(path):
        connection = http.client.HTTPConnection(server.host, timeout=PATIENT_S)
        connection.request("GET", path)
        reply = connection.getresponse()
        body = reply.read()
        connection.close()
        return reply.status, body

    with page_server() as server:
        status, page = ask("/miniwob/click-test.html?seed=0")
        assert (status, b"Click Test Task" in page) == (200, True)
        assert b"wobReward" in ask("/core/core.js")[1], "our script is a part of theirs"
        for path in ("/", "/environment.py", "/../environment.py", "/miniwob/%2e%2e/core/core.js", "/etc/passwd"):
            assert ask(path)[0] == 404


# In Chromium


@pytest.mark.browser
def test_a_solver_is_rewarded_and_what_is_wrong_is_not(tmp_path):
    made = suite(tmp_path, FEW)
    tasks = {task.task_id: task for task in made.tasks}
    assert list(tasks) == ["miniwob/click-checkboxes.0", "miniwob/click-test-2.0", "miniwob/enter-text.0"]
    assert tasks["miniwob/click-test-2.0"].instruction == "Click button ONE."
    assert made.revision == "miniwob 1.1.0, seed 0"
    folder = play(tmp_path, made, SolverMind())
    episodes = folder.episodes()
    assert [(one.episode.reward, one.outcome, one.episode.error) for one in episodes] == [(1.0, "success", None)] * 3
    for one in episodes:
        assert one.episode.answer is None, "the page ended the episode"
        stored = one.trajectory()
        assert stored.trajectory.steps[0].url.startswith(f"{ORIGIN}/miniwob/")
        shot = stored.screenshots[stored.trajectory.steps[0].screenshot.sha256]
        assert (shot.width, shot.height) == LIMITS.screenshot_size
    assert summarise(folder)["success_rate"] == 1.0
    assert stored_attempt(episodes[0]).reward == 1.0
    assert Rejudging(RunStore(folder.path), [AutomaticReward()], again=True).judge() == 0, "the reward is in the record"

    wrong = {task_id: [say("click", description="#query")] * 9 for task_id in tasks}
    wrong["miniwob/click-test-2.0"] = [say("click", description="#subbtn2")]
    wrong["miniwob/enter-text.0"] = [say("stop", answer="done")]
    (tmp_path / "wrong").mkdir()
    folder = play(tmp_path / "wrong", suite(tmp_path / "wrong", FEW, max_steps=2), ScriptedMind(wrong))
    found = {one.episode.task.task_id: (one.episode.reward, len(one.episode.notes)) for one in folder.episodes()}
    assert found == {
        "miniwob/click-checkboxes.0": (0.0, 2),
        "miniwob/click-test-2.0": (-1.0, 1),
        "miniwob/enter-text.0": (0.0, 1),
    }
    assert summarise(folder)["num_won"] == 0


@pytest.mark.browser
@pytest.mark.slow
def test_another_seed_is_another_problem_and_the_reward_of_another_page_does_not_count(tmp_path):
    first, other = (suite(tmp_path, ["enter-text"], seed=seed) for seed in (0, 1))
    assert first.tasks[0].task_id != other.tasks[0].task_id
    assert first.tasks[0].instruction != other.tasks[0].instruction

    async def work():
        async with AsyncExitStack() as stack:
            make_browser = await first.open_browsers(BrowserChoice(grounder=SelectorGrounder()), stack)
            browser = await make_browser(first.tasks[0])
            stack.push_async_callback(browser.close)
            await browser.open(first.tasks[0].start_url)
            before = await browser.observe()
            left = await browser.perform(make_action("goto", url=f"{ORIGIN}/miniwob/click-test.html?seed=0"))
            done = await browser.perform(make_action("click", description="#subbtn"))
            after = await browser.observe()
            wrong = await make_browser(first.tasks[0].model_copy(update={"instruction": "Enter nothing."}))
            stack.push_async_callback(wrong.close)
            with pytest.raises(WorldError, match=r"but the task is 'Enter nothing\.'"):
                await wrong.open(first.tasks[0].start_url)
            return before, left, done, after

    before, left, done, after = asyncio.run(work())
    assert (left.error, done.error) == (None, None)
    assert (before.reward, before.is_over, after.reward, after.is_over) == (0.0, False, 0.0, False)
    assert after.url == f"{ORIGIN}/miniwob/click-test.html?seed=0"


def test_pages_of_the_package_are_not_drawn_without_a_browser(tmp_path, monkeypatch):
    monkeypatch.setattr(miniwob, "instructions", lambda names, seed: dict.fromkeys(names, "Do it."))

    async def work():
        async with AsyncExitStack() as stack:
            await suite(tmp_path, ["click-test"]).open_browsers(BrowserChoice(kind="raster"), stack)

    with pytest.raises(ConfigError, match="use --browser chromium"):
        asyncio.run(work())


@pytest.mark.browser
@pytest.mark.slow
def test_a_scripted_solver_is_rewarded_on_at_least_25_tasks(tmp_path):
    episodes = play(tmp_path, suite(tmp_path, PLANS, PATIENT_LIMITS), SolverMind()).episodes()
    won = [name for name, one in zip(names_of(episodes), episodes, strict=True) if (one.episode.reward or 0) > 0]
    assert len(won) >= 25
    assert sorted(set(PLANS) - set(won)) == []


@pytest.mark.browser
@pytest.mark.slow
def test_every_listed_task_opens_acts_and_is_scored(tmp_path):
    made = suite(tmp_path, task_list().tasks, PATIENT_LIMITS)
    lines = [say("click", description="#wrap"), say("wait"), say("stop", answer="")]
    folder = play(tmp_path, made, ScriptedMind({task.task_id: lines for task in made.tasks}))
    episodes = folder.episodes()
    assert sorted(names_of(episodes)) == sorted(task_list().tasks)
    assert Counter(one.outcome for one in episodes).keys() <= {"success", "failure"}
    for one in episodes:
        assert one.episode.error is None
        assert one.episode.reward is not None
        assert one.episode.notes
    first = [one.trajectory().trajectory.steps[0] for one in episodes]
    assert all(step.action is not None and step.error is None for step in first)


@pytest.mark.browser
@pytest.mark.slow
def test_eight_episodes_side_by_side_leave_no_process_behind(tmp_path):
    before = descendants()
    names = (
        "click-test",
        "click-test-2",
        "click-button",
        "click-link",
        "click-tab",
        "enter-text",
        "focus-text",
        "click-dialog",
    )
    folder = play(tmp_path, suite(tmp_path, names, PATIENT_LIMITS), SolverMind(), num_parallel=8, num_attempts=2)
    assert [one.episode.reward for one in folder.episodes()] == [1.0] * 16
    assert all(is_gone(pid) for pid in descendants() - before)
