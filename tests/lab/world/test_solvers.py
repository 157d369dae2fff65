import asyncio
import random
from itertools import islice

import pytest

from focusmem.lab.world.address import Address
from focusmem.lab.world.pages import FACT_NAMES
from focusmem.lab.world.raster_browser import RasterBrowser
from focusmem.lab.world.rollout import iter_tasks, roll_out
from focusmem.lab.world.scene import VIEW_HEIGHT, Word
from focusmem.lab.world.server import LAB_LIMITS, LabServer
from focusmem.lab.world.session import ORIGIN
from focusmem.lab.world.solvers import GIVE_UP, Beliefs, Solver
from focusmem.lab.world.solving import make_solver, solve, solve_in, summary
from focusmem.lab.world.tasks import COMPARISONS, KINDS, MAX_STEPS, make_task
from focusmem.lab.world.world import World

NUM_TASKS = 150


@pytest.fixture(scope="module")
def world():
    return World(0)


@pytest.fixture(scope="module")
def tasks(world):
    return list(islice(iter_tasks(world, "e", "evaluation", 0), NUM_TASKS))


@pytest.fixture(scope="module")
def expert(world, tasks):
    return [roll_out(world, task, Solver.expert(world, task)) for task in tasks]


def test_the_expert_solves_everything_without_a_slip(expert):
    for rollout in expert:
        assert rollout.is_success, rollout.task.task.task_id
        assert 5 <= len(rollout.steps) <= 15
        assert [step.error for step in rollout.steps if step.error] == []


def test_half_of_the_tasks_are_long(world):
    """Over several draws together: single ones of this size vary by a few percent."""
    tasks = [task for seed in range(3) for task in islice(iter_tasks(world, "e", "evaluation", seed), NUM_TASKS)]
    num_steps = [len(roll_out(world, task, Solver.expert(world, task)).steps) for task in tasks]
    assert sum(num >= 8 for num in num_steps) >= len(tasks) / 2


def test_the_expert_never_errs_on_tasks_of_any_length(world):
    """Also on those that `iter_tasks` leaves out: only their number of steps may be a reason."""
    for number in range(60):
        for kind in KINDS[world.site(f"v-{number}").family]:
            task = make_task(world, f"v-{number}", kind, "bank", number)
            rollout = roll_out(world, task, Solver.expert(world, task))
            assert [step.error for step in rollout.steps if step.error] == []
            assert rollout.is_success or len(rollout.steps) == MAX_STEPS


def test_doing_nothing_solves_nothing(world, tasks):
    solved = solve(world, tasks, "nothing", 0, "raster")
    assert not any(one.is_success for one in solved)
    assert all(len(one.actions) == 1 for one in solved)


def test_the_explorer_solves_some(world, tasks, expert):
    solved = solve(world, tasks, "explorer", 0, "raster")
    assert 0.35 < summary(solved)["success_rate"] < 0.85
    assert all(one.answer in (one.gold, GIVE_UP) for one in solved), "it knows when it does not know"
    for one, best in zip(solved, expert, strict=True):
        assert len(best.steps) <= len(one.actions) <= MAX_STEPS or not one.is_success


def test_the_explorer_is_its_seed(world, tasks):
    once, again, other = (solve(world, tasks[:30], "explorer", seed, "raster") for seed in (1, 1, 2))
    assert once == again
    assert once != other


def test_who_believes_the_truth_is_the_expert(world, tasks, expert):
    """The explorer differs in its beliefs only."""
    for task, rollout in zip(tasks[:20], expert, strict=False):
        knowing = Solver.explorer(world, task, random.Random(0))
        knowing.beliefs = Beliefs.true(world.site(task.site_id))
        assert roll_out(world, task, knowing) == rollout


def test_the_first_fact_of_a_comparison_leaves_the_window(world, expert):
    """What the policy sees is the last three events: the first fact must be remembered."""
    checked = 0
    for rollout in expert:
        task = rollout.task
        if task.kind not in COMPARISONS:
            continue
        label = f"{FACT_NAMES[task.fact]}:".split()[0]
        seen = [
            index
            for index, step in enumerate(rollout.steps)
            if Address.parse(step.path).parts[:2] == ("entry", str(task.entries[0]))
            and any(
                isinstance(item, Word) and item.text == label and step.scroll <= item.top < step.scroll + VIEW_HEIGHT
                for item in world.scene(step.path).drawn
            )
        ]
        assert len(rollout.steps) - 1 - seen[-1] > 3
        checked += 1
    assert checked > 20


def test_a_browser_of_any_kind_gives_the_same_episode(world, tasks, expert):
    for task, rollout in zip(tasks[:10], expert, strict=False):
        browser = RasterBrowser(world)
        solved = asyncio.run(solve_in(browser, f"{ORIGIN}/", Solver.expert(world, task)))
        assert solved.actions == tuple(step.action for step in rollout.steps)
        assert solved.is_success


def test_begun_on_the_wrong_page_a_solver_goes_home_by_what_it_sees(world, tasks):
    """Never by an address: an agent cannot see one, and could only invent it."""

    class Astray(RasterBrowser):
        async def open(self, url):
            await super().open(f"{ORIGIN}/{url.split('/')[3]}/compare?seen=1")

    task = next(task for task in tasks if task.kind == "extreme")
    solved = asyncio.run(solve_in(Astray(world), f"{ORIGIN}/", Solver.expert(world, task)))
    assert solved.is_success
    assert solved.actions[0].arguments.description == f"{world.site(task.site_id).name} home"
    assert all(action.name != "goto" for action in solved.actions)


@pytest.mark.browser
@pytest.mark.parametrize("kind", ["compare", "extreme", "emblem", "fact"])
def test_chromium_sees_the_same_episode(chromium, world, tasks, expert, kind):
    task = next(task for task in tasks if task.kind == kind)
    [rollout] = [rollout for rollout in expert if rollout.task == task]
    with LabServer(world) as server:
        browser = chromium.browser(LAB_LIMITS, [server.host])
        solved = chromium.run(solve_in(browser, server.url, make_solver(world, task, "expert", 0)))
        chromium.run(browser.close())
    assert solved.actions == tuple(step.action for step in rollout.steps)
    assert solved.errors == ()
    assert solved.is_success


def test_an_expert_sets_right_what_goes_wrong_by_chance(world):
    """Most episodes with slips still end well, and every slip says what should have been done."""
    rng = random.Random(0)
    rollouts = [
        roll_out(world, task, Solver.expert(world, task), slips=rng)
        for task in islice(iter_tasks(world, "v", "memory", 3), 60)
    ]
    slips = [step for rollout in rollouts for step in rollout.steps if step.wanted]
    assert len(slips) > 20
    assert all(step.action != step.wanted for step in slips)
    assert any(step.error for step in slips), "haste: clicks on what is not in view yet"
    finished = [rollout for rollout in rollouts if rollout.answer not in (None, GIVE_UP)]
    assert all(rollout.is_success for rollout in finished)
    assert len(finished) > 0.7 * len(rollouts), "fifteen steps are not always enough"
