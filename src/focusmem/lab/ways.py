"""Which of a site's ways a task needs, and which an episode shows: what makes a trajectory worth finding."""

from collections.abc import Sequence

from focusmem.lab.answers import facts_seen
from focusmem.lab.pages import FACT_NAMES, Address
from focusmem.lab.rollout import RolloutStep
from focusmem.lab.tasks import LabTask
from focusmem.lab.world import World

_FACT_OF_NAME = {name.lower(): fact for fact, name in FACT_NAMES.items()}


def needed_way(world: World, task: LabTask) -> str:
    """The convention that decides where the answer is: a group of facts, the offer, the picture or the menu."""
    site = world.site(task.site_id)
    if task.category is not None:
        return "menu"
    assert task.fact is not None
    return "picture" if task.fact in site.rules.picture_facts else site.group_of(task.fact)


def shown_ways(world: World, steps: Sequence[RolloutStep]) -> set[str]:
    """The conventions whose form on this site can be told from these steps."""
    return {way for step in steps for way in _shown_at(world, step)}


def followed_ways(world: World, steps: Sequence[RolloutStep], at: int) -> set[str]:
    """The conventions that the action of a step goes by: told by the action itself, or by the page it leads to."""
    led_to = steps[at + 1 : at + 2]
    is_elsewhere = bool(led_to) and led_to[0].path != steps[at].path
    return _shown_at(world, steps[at]) | (_shown_at(world, led_to[0]) if is_elsewhere else set())


def _shown_at(world: World, step: RolloutStep) -> set[str]:
    address = Address.parse(step.path)
    site = world.site(address.site_id)
    own, action = site.conventions, step.action
    clicked = action.arguments.description if action.name == "click" else None
    shown = {name for name in ("dialog", "edition") if clicked and clicked == getattr(own, name)}
    if action.name == "type" and site.found_by(action.arguments.text):
        shown.add("query")
    match address.parts:
        case ("kind", _) if clicked == own.menu:
            shown.add("menu")
        case ("entry", _) if own.edition is None:
            shown |= {name for name in ("offer", "picture") if getattr(own, name) is None}
        case ("entry", _, "edition", label) if label == own.edition:
            shown |= {"picture"} if own.picture is None else set()
        case ("entry", _, "picture"):
            shown.add("picture")
        case ("entry", _, "part", _):
            shown |= {site.group_of(_FACT_OF_NAME[name]) for name in facts_seen(world, step)}
    return shown
