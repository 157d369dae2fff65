from itertools import islice

import pytest

from focusmem.lab.world.address import Address
from focusmem.lab.world.rollout import iter_tasks, roll_out
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.ways import followed_ways, needed_way, shown_ways
from focusmem.lab.world.world import World


@pytest.fixture(scope="module")
def world():
    return World(0)


@pytest.fixture(scope="module")
def episodes(world):
    tasks = islice(iter_tasks(world, "v", "evaluation", 0), 60)
    return [roll_out(world, task, Solver.expert(world, task)) for task in tasks]


def test_only_choices_follow_a_way(world, episodes):
    followed = set()
    for episode in episodes:
        for at, step in enumerate(episode.steps):
            own = followed_ways(world, episode.steps, at)
            followed |= own
            if step.action.name in ("scroll", "press_key", "stop"):
                assert not own, "these are the same on every site"
            if own:
                assert step.action.name in ("click", "type")
            is_entry = at + 1 < len(episode.steps) and len(Address.parse(episode.steps[at + 1].path).parts) == 2
            if step.action.name == "click" and is_entry:
                assert own <= {"dialog", "menu", "edition"}, "an entry is opened by its name everywhere"
    assert {"dialog", "query", "menu", "edition", "picture", "offer"} < followed


def test_what_an_episode_follows_it_also_shows(world, episodes):
    for episode in episodes:
        steps = episode.steps
        followed = set().union(*(followed_ways(world, steps, at) for at in range(len(steps))))
        assert followed <= shown_ways(world, steps)


def test_the_way_a_task_needs_is_followed_or_there_at_once(world, episodes):
    """Where the answer stands on the entry itself, nobody has to choose."""
    num_followed = 0
    for episode in episodes:
        needed, steps = needed_way(world, episode.task), episode.steps
        assert needed in shown_ways(world, steps)
        num_followed += any(needed in followed_ways(world, steps, at) for at in range(len(steps)))
    assert num_followed > len(episodes) / 3
