from itertools import islice

import pytest

from focusmem.agent.decision import Decision
from focusmem.agent.fronts.turns import TurnsFront, show_raw
from focusmem.lab.memory.oracle import OracleRetriever, demonstration, show_notes
from focusmem.lab.policy.texts import Texts
from focusmem.lab.world.answers import experience
from focusmem.lab.world.rollout import iter_tasks, roll_out, screenshot_of
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.tasks import make_task, site_names, task_of
from focusmem.schemas import Observation


def decision_of(world, task):
    first = roll_out(world, task, Solver.expert(world, task)).steps[0]
    return Decision(task.task, f"{task.name} 1", Observation(screenshot_of(world, first), "", "", ()))


def test_a_demonstration_is_of_the_same_site_and_shows_what_is_needed(world):
    shares = []
    for task in islice(iter_tasks(world, "e", "evaluation", 1), 12):
        shown = demonstration(world, task)
        assert shown.task.site_id == task.site_id
        assert shown.task.task.annotations.template != task.task.annotations.template
        needed = set(experience(world, roll_out(world, task, Solver.expert(world, task)).steps))
        shares.append(len(needed & set(experience(world, shown.steps))) / len(needed))
    assert sum(shares) / len(shares) > 0.6


def test_what_a_demonstration_shows_was_not_asked(world):
    for task in islice(iter_tasks(world, "e", "evaluation", 0), 60):
        shown = demonstration(world, task).task
        assert shown.fact != task.fact or not shown.entries or not set(shown.entries) & set(task.entries)
        assert shown.task.annotations.instance != task.task.annotations.instance


def test_what_a_list_shows_first_was_not_asked_either(world):
    """Of all evaluation tasks whose answer is an entry of a list: neither the same question nor the same answer."""
    known = task_of(world, "lab/e-2.extreme.evaluation.398395")
    markets = [name for name in site_names("e") if world.site(name).family == "market"]
    others = [make_task(world, name, "extreme", "evaluation", number) for name in markets[:10] for number in range(4)]
    for task in [known, *others]:
        shown = demonstration(world, task).task
        assert shown.task.annotations.instance != task.task.annotations.instance
        assert shown.kind != "extreme" or shown.task.answer != task.task.answer


@pytest.mark.parametrize("memory", ["notes", "replay"])
def test_the_front_shows_the_demonstration_and_names_it(world, memory):
    oracle = OracleRetriever(world)
    show = show_notes(oracle) if memory == "notes" else show_raw(Texts.load().serialise)
    front = TurnsFront(memory, show, lambda turns: 7, num_found=1)
    task = next(iter_tasks(world, "e", "evaluation", 0))
    decision = decision_of(world, task)
    [search] = oracle.find([decision], front.num_found)
    [fronted] = front.place([()], [decision], [search])
    shown = demonstration(world, task)
    [item] = fronted.offered
    assert (item.trajectory_id, item.num_steps, item.is_accepted) == (shown.task.name, len(shown.steps), True)
    assert oracle.load(item.trajectory_id).trajectory.task_id == shown.task.task.task_id
    text = "".join(part for turn in fronted.turns for part in turn.parts if isinstance(part, str))
    pictures = [part for turn in fronted.turns for part in turn.parts if not isinstance(part, str)]
    assert len(pictures) == (0 if memory == "notes" else len(shown.steps))
    assert text
    assert oracle.find([decision], 1)[0].found[0].stored is search.found[0].stored, "made once for each task"
