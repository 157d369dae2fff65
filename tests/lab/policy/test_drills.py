import random
from collections import Counter

import pytest

from focusmem.judges.exact_answer import is_same_answer
from focusmem.lab.policy.drills import decisive_views, somewhere_on, sought, weighing, weighings
from focusmem.lab.world.rollout import roll_out
from focusmem.lab.world.session import PageSession
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.tasks import COMPARISONS, KINDS, make_task
from focusmem.lab.world.world import World
from focusmem.schemas import make_action, parse_action


@pytest.fixture(scope="module")
def world():
    return World(0)


def expert_episode(world, site_id, kind, number):
    task = make_task(world, site_id, kind, "memory", number)
    return roll_out(world, task, Solver.expert(world, task))


def some_episodes(world):
    for number in range(24):
        site_id = f"p-{number}"
        yield expert_episode(world, site_id, random.Random(number).choice(KINDS[world.site(site_id).family]), number)


def test_what_is_said_to_be_in_view_can_be_clicked_and_nothing_else(world):
    rng, num = random.Random(0), {"click": 0, "scroll": 0}
    for rollout in some_episodes(world):
        for step in rollout.steps:
            view = somewhere_on(world, step, rng)
            for name, action in sought(world, view, rng):
                session = PageSession(world, view.path, scroll=view.scroll, typed=view.typed)
                error = session.perform(make_action("click", description=name)).error
                assert (error is None) == (action.name == "click"), (view.path, view.scroll, name)
                num[action.name] += 1
    assert min(num.values()) > 100


def test_what_is_to_be_clicked_can_be_read(world):
    rng = random.Random(2)
    for rollout in some_episodes(world):
        for step in rollout.steps:
            view = somewhere_on(world, step, rng)
            words = {word.text for word in world.scene(view.path).words() if word.is_readable(view.scroll)}
            for name, action in sought(world, view, rng):
                assert action.name == "scroll" or set(name.split()) <= words


def test_a_scroll_leads_towards_what_stands_elsewhere_on_the_page(world):
    rng, num = random.Random(1), 0
    for rollout in some_episodes(world):
        for step in rollout.steps:
            view = somewhere_on(world, step, rng)
            places = {control.name: control.box.top for control in world.scene(view.path).controls}
            for name, action in sought(world, view, rng):
                if action.name == "scroll" and name in places:
                    is_above = places[name] < view.scroll
                    assert action.arguments.direction == ("up" if is_above else "down")
                    num += 1
    assert num > 50


def test_a_comparison_in_words_holds_both_values_and_the_right_answer(world):
    for number in range(20):
        site_id = f"p-{number}"
        kind = next(kind for kind in KINDS[world.site(site_id).family] if kind in COMPARISONS)
        task = make_task(world, site_id, kind, "memory", number)
        _, told, reply = weighing(world, task)
        gold = task.task.answer
        assert is_same_answer(parse_action(reply.parts[0]).arguments.answer, gold)
        assert gold.startswith(told.parts[0].removeprefix("Read: "))


def test_the_decisive_views_show_both_values(world):
    num = 0
    for number in range(60):
        site_id = f"p-{number}"
        kind = next(kind for kind in KINDS[world.site(site_id).family] if kind in COMPARISONS)
        rollout = expert_episode(world, site_id, kind, number)
        if not rollout.is_success:
            continue
        for index, view in zip(rollout.task.entries, decisive_views(world, rollout), strict=True):
            value = world.site(site_id).entries[index].facts[rollout.task.fact].split()[0]
            words = [word.text for word in world.scene(view.path).words() if word.is_in_view(view.scroll)]
            assert value in words
            num += 1
    assert num > 20


def test_of_two_numbers_the_one_that_was_asked_for_is_said(world):
    rng, num = random.Random(3), Counter()
    for number in range(40):
        site = world.site(f"p-{number}")
        value_of = {entry.name: set(entry.facts.values()) for entry in site.entries}
        turns = weighings(site, rng)
        for asked, said in zip(turns[::2], turns[1::2], strict=True):
            word, pair = asked.parts[0].removeprefix("Which is ").split("? ")
            one, other = pair.split(", ")
            is_named = ": " in pair
            names = [part.split(": ")[0] for part in (one, other)] if is_named else [one, other]
            values = [part.split(": ")[-1] for part in (one, other)]
            if is_named:
                assert all(value in value_of[name] for name, value in zip(names, values, strict=True))
            first, second = (int("".join(filter(str.isdigit, value.removesuffix("km2")))) for value in values)
            is_first = (first > second) == (word in ("larger", "later"))
            assert said.parts[0] == names[0 if is_first else 1]
            num[is_named, is_first] += 1
    assert len(num) == 4
    assert min(num.values()) > 50, "neither place is the better guess"
