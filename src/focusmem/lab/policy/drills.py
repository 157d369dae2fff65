"""Drills of single skills, apart from whole episodes: comparing two numbers, and seeing whether something is in view.

Episodes alone teach these skills slowly, because only about one decision in ten needs them.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

from focusmem.lab.world.address import Address
from focusmem.lab.world.rollout import Rollout, RolloutStep
from focusmem.lab.world.scene import SCROLL_PIXELS, Scene
from focusmem.lab.world.session import PageSession
from focusmem.lab.world.site import Site
from focusmem.lab.world.tasks import NUMBERS, LabTask, more_of, number_of, wanted_of
from focusmem.lab.world.world import World
from focusmem.schemas import Turn, action_to_json, make_action
from focusmem.schemas.action import AnyAction

NUM_SOUGHT = 6
"""Names that are searched in one view; half of them are not in it."""
NUM_WEIGHINGS = 8
"""Pairs of numbers that are compared in one row."""


def weighing(world: World, task: LabTask) -> list[Turn]:
    """A comparison with both values given in words: the policy only has to compare them and name the right one."""
    facts = [world.site(task.site_id).entries[index].facts[task.fact or ""] for index in task.entries]
    return [
        Turn("user", (f"Task: {task.task.instruction}",)),
        Turn("user", (f"Read: {', '.join(facts)}",)),
        Turn("assistant", (action_to_json(make_action("stop", answer=task.task.answer or "")),)),
    ]


def weighings(site: Site, rng: random.Random) -> list[Turn]:
    """Repeated questions which of two values is larger or smaller. The answer is the value, or the name it belongs to.

    Here the choice is one or two tokens of an answer. In a real comparison it is hidden among thirty tokens that are
    only copied.
    """
    turns: list[Turn] = []
    while len(turns) < 2 * NUM_WEIGHINGS:
        fact, wants_more, is_named = rng.choice(NUMBERS[site.family]), rng.random() < 0.5, rng.random() < 0.5
        pair = rng.sample(site.entries, 2)
        if number_of(pair[0], fact) == number_of(pair[1], fact):
            continue
        right = wanted_of(pair, fact, wants_more)
        shown = [f"{entry.name}: {entry.facts[fact]}" if is_named else entry.facts[fact] for entry in pair]
        question = f"Which is {more_of(fact, wants_more)}? {', '.join(shown)}"
        turns += [Turn("user", (question,)), Turn("assistant", (right.name if is_named else right.facts[fact],))]
    return turns


def decisive_views(world: World, rollout: Rollout) -> list[RolloutStep]:
    """For each entry of a comparison, the last view that shows its value."""
    entries, fact = world.site(rollout.task.site_id).entries, rollout.task.fact or ""
    views: dict[int, RolloutStep] = {}
    for step in rollout.steps:
        for index in rollout.task.entries:
            value = entries[index].facts[fact].split()[0]
            words = (word for word in world.scene(step.path).words() if word.is_in_view(step.scroll))
            if Address.parse(step.path).parts[:2] == ("entry", str(index)) and value in {word.text for word in words}:
                views[index] = step
    return [views[index] for index in rollout.task.entries]


def somewhere_on(world: World, step: RolloutStep, rng: random.Random) -> RolloutStep:
    """The page of a step, at a random scroll position."""
    max_scroll = world.scene(step.path).max_scroll
    return replace(step, scroll=rng.choice([*range(0, max_scroll, SCROLL_PIXELS), max_scroll]))


def sought(world: World, step: RolloutStep, rng: random.Random) -> list[tuple[str, AnyAction]]:
    """Names, each with the action that leads to it: a click if it is in view, otherwise a scroll.

    Empty if a dialog covers the page.
    """
    scene, site = world.scene(step.path), world.site(Address.parse(step.path).site_id)
    controls = PageSession(world, step.path, scroll=step.scroll, typed=step.typed).controls()
    in_view = {control.name for control in controls if control.kind != "field"}
    if in_view & set(site.dialog_buttons):
        return []
    readable = " ".join(word.text for word in scene.words() if word.is_readable(step.scroll))
    # Names that are cut by the edge are left out: they can be clicked but hardly be read.
    ways = {name: make_action("click", description=name) for name in in_view if name in readable}
    away = _out_of_view(scene, step.scroll, in_view)
    if Address.parse(step.path).parts[:1] == ("find",) and step.scroll < scene.max_scroll:
        # Names further down in the results, or in no result.
        others = [entry.name for entry in site.entries if entry.name not in scene.text()]
        away |= {name: make_action("scroll", direction="down") for name in rng.sample(others, min(3, len(others)))}
    found = _some(ways, rng) + _some(away, rng)
    return rng.sample(found, len(found))


def _out_of_view(scene: Scene, scroll: int, in_view: set[str]) -> dict[str, AnyAction]:
    return {
        control.name: make_action("scroll", direction="up" if control.box.top < scroll else "down")
        for control in scene.controls
        if control.kind != "field" and control.name not in in_view
    }


def _some(ways: dict[str, AnyAction], rng: random.Random) -> list[tuple[str, AnyAction]]:
    return rng.sample(sorted(ways.items(), key=lambda way: way[0]), min(NUM_SOUGHT // 2, len(ways)))


def searching(picture: Turn, found: Sequence[tuple[str, AnyAction]]) -> list[Turn]:
    """One view, and the action that leads to each of some names."""
    turns = [picture]
    for name, action in found:
        turns += [Turn("user", (f"Find: {name}",)), Turn("assistant", (action_to_json(action),))]
    return turns
