"""Adding to the world leaves the suite `lab` as it was: figures measured with it stay comparable."""

from hashlib import sha256
from itertools import islice

import pytest
from PIL import features

from focusmem.lab.world.experts import site_rollouts
from focusmem.lab.world.rollout import iter_tasks, roll_out, session_of
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.world import World
from focusmem.schemas import action_to_json, dump_record

TASKS = "61aa4c88a31d0f0a"
EPISODES = "81644e17988fde9d"
SCREENSHOTS = "14be7e7110a61d9a"
FREETYPE = "2.14.3"
"""The version of the library that drew the screenshots; others smooth letters differently."""


@pytest.fixture(scope="module")
def world():
    return World(0)


@pytest.fixture(scope="module")
def drawn(world):
    splits = (("e", "evaluation", 16), ("v", "memory", 4), ("m", "memory", 4), ("p", "bank", 4))
    return [task for split, use, num in splits for task in islice(iter_tasks(world, split, use, 0), num)]


@pytest.fixture(scope="module")
def steps(world, drawn):
    experts = [roll_out(world, task, Solver.expert(world, task)) for task in drawn[::4]]
    left = [rollout for number in range(2) for rollout in site_rollouts(world, f"e-{number}")]
    return [step for rollout in [*experts, *left] for step in rollout.steps]


def digest_of(parts) -> str:
    whole = sha256()
    for part in parts:
        whole.update(part if isinstance(part, bytes) else part.encode())
        whole.update(b"\0")
    return whole.hexdigest()[:16]


def test_tasks_are_those_of_before(drawn):
    assert digest_of(dump_record(task.task) for task in drawn) == TASKS


def test_episodes_and_pages_are_those_of_before(world, steps):
    seen = (f"{action_to_json(step.action)} {step.scroll} {world.scene(step.path)!r}" for step in steps)
    assert digest_of(seen) == EPISODES


def test_screenshots_are_those_of_before(world, steps):
    if features.version("freetype2") != FREETYPE:
        pytest.skip("another version of FreeType draws the letters")
    assert digest_of(session_of(world, step).image().tobytes() for step in steps) == SCREENSHOTS
