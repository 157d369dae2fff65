import asyncio
import random
from itertools import islice

import pytest

from evaluation.minds import SolverMind
from factories import make_screenshot
from focusmem.agent.decision import Decision
from focusmem.agent.fronts.empty import EmptyFront
from focusmem.agent.policy_mind import PolicyMind
from focusmem.browser.opening import BrowserChoice
from focusmem.errors import ConfigError
from focusmem.evaluation.metrics import summarise
from focusmem.evaluation.suite_run import RunAbout, SuiteRun
from focusmem.judges.base import Attempt, judged
from focusmem.lab.policy.corpus import Corpus
from focusmem.lab.policy.texts import Texts
from focusmem.lab.suite import LabSuite, LabSuiteConfig
from focusmem.lab.world.raster_browser import RasterBrowser
from focusmem.lab.world.rollout import iter_tasks, roll_out, screenshot_of
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.tasks import task_of
from focusmem.lab.world.world import World
from focusmem.schemas import Observation, Step
from focusmem.suites.base import manifest_of


def expert_run(folder, num_tasks, browser):
    suite = LabSuite(LabSuiteConfig(num_tasks=num_tasks))
    run = SuiteRun(suite, SolverMind(suite.world), folder, RunAbout(method="expert"))
    run.run(BrowserChoice(kind=browser))
    return run.folder


def test_ids_are_namespaced_and_lead_back_to_their_tasks():
    suite = LabSuite(LabSuiteConfig(num_tasks=5))
    for one in suite.lab_tasks:
        assert one.task.task_id == f"lab/{one.name}"
        assert task_of(suite.world, one.task.task_id) == one
        assert suite.kind_of(one.task) == one.kind


def test_equal_settings_give_equal_manifests():
    manifests = [manifest_of(LabSuite(LabSuiteConfig(num_tasks=4, seed=seed))) for seed in (3, 3, 4)]
    assert manifests[0] == manifests[1]
    assert manifests[0].sha256 != manifests[2].sha256


def test_tasks_of_several_seeds_are_those_of_each():
    def tasks(**changes):
        return [task.task_id for task in LabSuite(LabSuiteConfig(num_tasks=2, **changes)).tasks]

    assert tasks(seed=4, num_seeds=3) == [*tasks(seed=4), *tasks(seed=5), *tasks(seed=6)]


def test_tasks_come_from_the_chosen_sites():
    assert {task.site for task in LabSuite(LabSuiteConfig(num_tasks=6, sites=("e-3", "e-4"))).tasks} == {"e-3", "e-4"}


def test_no_site_is_not_every_site():
    with pytest.raises(ConfigError, match="no site"):
        next(iter_tasks(World(0), "e", "evaluation", 0, sites=()))


@pytest.mark.parametrize(
    "values",
    [
        {"num_tasks": 0},
        {"seed": -1},
        {"num_seeds": 0},
        {"world_seed": -1},
        {"sites": ()},
        {"sites": ("e-0", "p-3")},
        {"sites": ("e-60",)},
        {"sites": ("amazon",)},
    ],
)
def test_config_names_the_field(values):
    with pytest.raises(ConfigError, match=next(iter(values))):
        LabSuite(LabSuiteConfig(**values))


def test_each_suite_has_its_own_sites_and_kinds():
    old, new = (LabSuite(LabSuiteConfig(num_tasks=25), name=name) for name in ("lab", "lab-entries"))
    assert {old.kind_of(task) for task in old.tasks}.isdisjoint({new.kind_of(task) for task in new.tasks})
    assert {new.kind_of(task) for task in new.tasks} == {"errand", "round", "notice", "relay"}
    assert {task.task_id.split("/")[0] for task in new.tasks} == {"lab-entries"}
    assert [task_of(new.world, task.task_id).task for task in new.tasks] == new.tasks
    with pytest.raises(ConfigError, match="eo-0 to eo-59"):
        LabSuite(LabSuiteConfig(sites=("e-0",)), name="lab-entries")


def test_the_judge_wants_the_right_answer():
    suite = LabSuite(LabSuiteConfig(num_tasks=1))
    [task] = suite.tasks
    outcomes = [
        asyncio.run(judged(suite.judge, Attempt(task, None, answer=answer))).outcome
        for answer in (task.answer, task.answer.upper() + ".", "something else", None)
    ]
    assert outcomes == ["success", "success", "failure", "failure"]


def test_the_expert_wins_every_task(tmp_path):
    results = summarise(expert_run(tmp_path, 4, "raster"))
    assert (results["success_rate"], results["num_tasks"]) == (1.0, 4)


@pytest.mark.browser
def test_the_same_episodes_in_chromium(tmp_path):
    runs = [expert_run(tmp_path / kind, 3, kind) for kind in ("raster", "chromium")]
    for ours, theirs in zip(*(run.episodes() for run in runs), strict=True):
        assert ours.outcome == theirs.outcome == "success"
        ours_done, theirs_done = (
            [(step.action, step.click_point, step.error, step.url) for step in one.trajectory().trajectory.steps]
            for one in (ours, theirs)
        )
        assert ours_done == theirs_done


def test_the_raster_needs_no_browser(monkeypatch):
    monkeypatch.delattr("focusmem.browser.opening.open_chromium")
    suite = LabSuite(LabSuiteConfig(num_tasks=1))

    async def open_one():
        make_browser = await suite.open_browsers(BrowserChoice(kind="raster"), None)
        return await make_browser(suite.tasks[0])

    assert isinstance(asyncio.run(open_one()), RasterBrowser)


@pytest.mark.parametrize("slips", [None, random.Random(1)])
def test_the_policy_is_asked_in_the_prompts_it_was_trained_on(policy, slips):
    """Token for token and picture for picture, also after something went wrong."""
    world = World(0)
    corpus = Corpus(world, policy.chat, picture=lambda step: screenshot_of(world, step))
    mind = PolicyMind(None, EmptyFront(), prompt=Texts.load().prompt)
    for task in islice(iter_tasks(world, "v", "memory", 2), 4):
        rollout = roll_out(world, task, Solver.expert(world, task), slips=slips)
        steps, screenshots = [], {}
        for at, step in enumerate(rollout.steps):
            screenshot = screenshot_of(world, step)
            seen = Observation(screenshot, "", "", ())
            asked = mind.prompt_of(Decision(task.task, "an episode", seen, steps, screenshots))
            assert asked == corpus.prompt_at(task, rollout.steps, at)
            screenshots[screenshot.digest] = screenshot
            steps.append(Step(screenshot=screenshot.ref(), action=step.action, error=step.error))


def test_history_comes_back_raw_before_the_prompt():
    task = next(iter_tasks(World(0), "e", "evaluation", 0)).task
    mind = PolicyMind(None, EmptyFront(), prompt=Texts.load().prompt, history=Texts.load().serialise)
    shots = [make_screenshot(number) for number in range(9)]
    for num_steps in range(9):
        steps = [Step(screenshot=shot.ref(), error="nothing") for shot in shots[:num_steps]]
        now = Observation(shots[num_steps], "", "", ())
        screenshots = {shot.digest: shot for shot in shots}
        asked = mind.prompt_of(Decision(task, "an episode", now, steps, screenshots))
        pictures = [part for turn in asked for part in turn.parts if not isinstance(part, str)]
        assert len(pictures) == num_steps + 1, "every event is in view, expired or not"
