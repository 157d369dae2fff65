"""Which of a site's conventions a task needs, and which an episode shows. A trajectory is useful if it shows what is
needed.
"""

from collections.abc import Sequence

from focusmem.lab.world.address import Address
from focusmem.lab.world.answers import facts_seen
from focusmem.lab.world.office_answers import NOTICE, lists_in, used_way
from focusmem.lab.world.pages import FACT_NAMES
from focusmem.lab.world.rollout import RolloutStep
from focusmem.lab.world.tasks import LabTask
from focusmem.lab.world.world import World

_FACT_OF_NAME = {name.lower(): fact for fact, name in FACT_NAMES.items()}


def needed_way(world: World, task: LabTask) -> str:
    """The convention that determines where the answer is: a group of facts, the offer, the picture or the menu. At an
    office, the list that is needed first.
    """
    if task.request is not None:
        return NOTICE if task.request.notices else task.request.needs[0].list_name
    site = world.site(task.site_id)
    if task.category is not None:
        return "menu"
    assert task.fact is not None
    return "picture" if task.fact in site.rules.picture_facts else site.group_of(task.fact)


def shown_ways(world: World, steps: Sequence[RolloutStep]) -> set[str]:
    """The conventions whose form on this site can be inferred from these steps."""
    return {way for step in steps for way in _shown_at(world, step)}


def followed_ways(world: World, steps: Sequence[RolloutStep], at: int) -> set[str]:
    """The conventions that the action of a step follows, inferred from the action itself or from the part of an entry
    that it opens. An entry itself is opened in the same way on every site.
    """
    if _is_at_office(world, steps[at]):
        address = Address.parse(steps[at].path)
        way = used_way(world.office(address.site_id), address, steps[at].action)
        return set() if way is None else {way}
    followed = _told_by_action(world, steps[at])
    led_to = steps[at + 1 : at + 2]
    if led_to and led_to[0].path != steps[at].path:
        match Address.parse(led_to[0].path).parts:
            case ("entry", _, _, *_):
                followed |= _told_by_page(world, led_to[0]) - _told_by_page(world, steps[at])
    return followed


def _shown_at(world: World, step: RolloutStep) -> set[str]:
    if _is_at_office(world, step):
        address = Address.parse(step.path)
        return set(lists_in(world.office(address.site_id), [address]))
    return _told_by_action(world, step) | _told_by_page(world, step)


def _is_at_office(world: World, step: RolloutStep) -> bool:
    return world.family(Address.parse(step.path).site_id) == "office"


def _told_by_action(world: World, step: RolloutStep) -> set[str]:
    address = Address.parse(step.path)
    site = world.site(address.site_id)
    own, action = site.conventions, step.action
    clicked = action.arguments.description if action.name == "click" else None
    told = {name for name in ("dialog", "edition") if clicked and clicked == getattr(own, name)}
    if action.name == "type" and site.found_by(action.arguments.text):
        told.add("query")
    if address.parts[:1] == ("kind",) and clicked == own.menu:
        told.add("menu")
    return told


def _told_by_page(world: World, step: RolloutStep) -> set[str]:
    address = Address.parse(step.path)
    site = world.site(address.site_id)
    own = site.conventions
    match address.parts:
        case ("entry", _) if own.edition is None:
            return {name for name in ("offer", "picture") if getattr(own, name) is None}
        case ("entry", _, "edition", label) if label == own.edition:
            return {"picture"} if own.picture is None else set()
        case ("entry", _, "picture"):
            return {"picture"}
        case ("entry", _, "part", _):
            return {site.group_of(_FACT_OF_NAME[name]) for name in facts_seen(world, step)}
    return set()
