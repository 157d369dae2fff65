"""The right description of a record and the right answers to the four functional questions, computed by the world.

The policy learns to give these from screenshots, and content probes are scored against them field by field.
"""

import json
from collections.abc import Sequence
from typing import Any

from focusmem.lab.world.address import Address
from focusmem.lab.world.office_answers import lists_in, state_at, values_at
from focusmem.lab.world.offices import LISTS
from focusmem.lab.world.pages import FACT_NAMES
from focusmem.lab.world.rollout import Rollout, RolloutStep
from focusmem.lab.world.world import World
from focusmem.schemas import action_to_json

_FAMILIES = {"market": "a market", "encyclopedia": "an encyclopedia", "office": "an office"}
QUESTIONS = {
    "episodic": ("describe", "episodic_summary", "episodic_anchor"),
    "working": ("describe", "working_state", "working_change"),
}


def state_of(world: World, step: RolloutStep) -> str:
    """The state of the page at a step, in a few words that can be checked on its screenshot."""
    address = Address.parse(step.path)
    if world.family(address.site_id) == "office":
        return state_at(world.office(address.site_id), address)
    site = world.site(address.site_id)
    scene = world.scene(step.path)
    if {control.name for control in scene.controls} == set(site.dialog_buttons):
        return "dialog"
    match address.parts:
        case ():
            return "home"
        case ("find",):
            words = address.query.get("q", "")
            return f"nothing found for {words}" if "Nothing found" in scene.text() else f"results for {words}"
        case ("kind", category):
            return f"list of kind {category}"
        case ("menu", _, label):
            return f"empty menu {label}"
        case ("menu", _):
            return f"menu {site.conventions.menu}"
        case ("entry", number):
            return f"{'short ' if site.conventions.edition else ''}entry {site.entries[int(number)].name}"
        case ("entry", number, "edition", label):
            is_whole = label == site.conventions.edition
            return f"{'entry' if is_whole else 'dead end of'} {site.entries[int(number)].name}"
        case ("entry", number, "part", section):
            return f"{section} of {site.entries[int(number)].name}"
        case ("entry", number, "picture"):
            return f"picture of {site.entries[int(number)].name}"
        case ("join",):
            return "sign up page"
    return "unknown page"


def facts_seen(world: World, step: RolloutStep) -> dict[str, str]:
    """The facts visible at a step, by name."""
    address = Address.parse(step.path)
    if world.family(address.site_id) == "office":
        return values_at(world.office(address.site_id), address)
    match address.parts:
        case ("entry", number, "part", section):
            entry = world.site(address.site_id).entries[int(number)]
            in_view = {word.text for word in world.scene(step.path).words() if word.is_readable(step.scroll)}
            facts = world.site(address.site_id).facts_in(section)
            return {
                FACT_NAMES[fact].lower(): entry.facts[fact]
                for fact in facts
                if f"{FACT_NAMES[fact].split()[-1]}:" in in_view
            }
    return {}


def experience(world: World, steps: Sequence[RolloutStep]) -> list[str]:
    """The site's conventions that these steps show, in the order in which they appear."""
    site_id = Address.parse(steps[0].path).site_id
    if world.family(site_id) == "office":
        passed = lists_in(world.office(site_id), [Address.parse(step.path) for step in steps])
        return [f"staff pass the {LISTS[name].title.lower()}" for name in passed]
    site = world.site(site_id)
    own = site.conventions
    found: list[str] = []
    for step in steps:
        action, parts = step.action, Address.parse(step.path).parts
        clicked = action.arguments.description if action.name == "click" else None
        if clicked and clicked == own.dialog:
            found.append(f"dialog closes with {own.dialog}")
        elif clicked and clicked == own.edition:
            found.append(f"whole entry by {own.edition}")
        elif clicked == own.menu and parts[:1] == ("kind",):
            found.append(f"lists are set in {own.menu}")
        elif clicked and clicked == own.picture and parts[:1] == ("entry",):
            found.append(f"picture is under {own.picture}")
        elif action.name == "type" and site.found_by(action.arguments.text):
            found.append(f"search wants {_QUERY_WORDS[own.query]}")
        if names := list(facts_seen(world, step)):
            found.append(f"{' and '.join(names)} in {parts[3]}")
    return list(dict.fromkeys(found))


_QUERY_WORDS = {"full": "the full name", "last": "the last word", "first": "the first word"}


def answer_to(world: World, question: str, rollout: Rollout, steps: Sequence[RolloutStep]) -> str:
    """The right reply to a question about these steps of an episode."""
    if question == "describe":
        return _description(world, rollout, steps)
    return json.dumps(_FIELDS[question](world, rollout, steps), ensure_ascii=False)


def notes(world: World, steps: Sequence[RolloutStep]) -> str:
    """The `experience` of these steps as a short text for a prompt; of an office, all values of its lists."""
    site_id = Address.parse(steps[0].path).site_id
    told = experience(world, steps)
    if world.family(site_id) == "office":
        told = [f"{name} {value}" for name, value in values_of_lists(world, steps).items()]
    return f"Notes on {world.name(site_id)}: " + "; ".join(told) + "."


def values_of_lists(world: World, steps: Sequence[RolloutStep]) -> dict[str, str]:
    """The values of an office's own lists that these steps show; notices, which are another day's, are left out."""
    found: dict[str, str] = {}
    for step in steps:
        address = Address.parse(step.path)
        if lists_in(world.office(address.site_id), [address]):
            found |= facts_seen(world, step)
    return found


def _description(world: World, rollout: Rollout, steps: Sequence[RolloutStep]) -> str:
    site_id = rollout.task.site_id
    states = list(dict.fromkeys(state_of(world, step) for step in steps))
    sentences = [f"{world.name(site_id)}, {_FAMILIES[world.family(site_id)]}", "; ".join(states)]
    ways = experience(world, steps)
    sentences += ["; ".join(ways)] if ways else []
    facts = _all_facts(world, steps)
    sentences += [_listed(facts)] if facts else []
    last = steps[-1].action
    sentences += [f"answer {last.arguments.answer}"] if last.name == "stop" else []
    return ". ".join(sentences) + "."


def _summary(world: World, rollout: Rollout, steps: Sequence[RolloutStep]) -> dict[str, Any]:
    name = world.name(rollout.task.site_id)
    return {
        "progress_summary": f"{len(steps)} steps on {name}, ended at {state_of(world, steps[-1])}",
        "useful_experience": "; ".join(experience(world, steps)) or "none",
        "task_constraints": rollout.task.task.instruction,
        "anchor_decision": _last_action(steps),
    }


def _anchor(world: World, rollout: Rollout, steps: Sequence[RolloutStep]) -> dict[str, Any]:
    return {
        "anchor_state": state_of(world, steps[-1]),
        "anchor_action": json.loads(action_to_json(steps[-1].action)),
        "decision_basis": _listed(facts_seen(world, steps[-1])) or state_of(world, steps[-1]),
    }


def _working_state(world: World, rollout: Rollout, steps: Sequence[RolloutStep]) -> dict[str, Any]:
    return {
        "latest_observed_state": state_of(world, steps[-1]),
        "important_state_facts": _listed(_all_facts(world, steps)) or "none",
        "current_progress": "; ".join(dict.fromkeys(state_of(world, step) for step in steps)),
        "remaining_constraints": rollout.task.task.instruction,
        "last_recorded_action": json.loads(action_to_json(steps[-1].action)),
    }


def _working_change(world: World, rollout: Rollout, steps: Sequence[RolloutStep]) -> dict[str, Any]:
    states = list(dict.fromkeys(state_of(world, step) for step in steps))
    return {
        "initial_state": states[0],
        "observed_change": " then ".join(states[1:]) or "none",
        "latest_observed_state": state_of(world, steps[-1]),
    }


_FIELDS = {
    "episodic_summary": _summary,
    "episodic_anchor": _anchor,
    "working_state": _working_state,
    "working_change": _working_change,
}


def _all_facts(world: World, steps: Sequence[RolloutStep]) -> dict[str, str]:
    """All facts seen, with their entries, in the order in which they were first seen."""
    found: dict[str, str] = {}
    for step in steps:
        address = Address.parse(step.path)
        if world.family(address.site_id) == "office":
            found |= facts_seen(world, step)
            continue
        for name, value in facts_seen(world, step).items():
            entry = world.site(address.site_id).entries[int(address.parts[1])]
            found.setdefault(f"{name} of {entry.name}", value)
    return found


def _listed(facts: dict[str, str]) -> str:
    return "; ".join(f"{name} {value}" for name, value in facts.items())


def _last_action(steps: Sequence[RolloutStep]) -> str:
    return action_to_json(steps[-1].action)
