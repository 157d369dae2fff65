"""Six probes of the content of a record, and their right answers. They are never used to train a memory.

As in the paper (Appendix D), there are three for each role: a description, the functional information in another form
than in training, and what is left to do or must not be repeated.
"""

from collections.abc import Sequence
from typing import Final

from focusmem.lab.world.answers import facts_seen, state_of
from focusmem.lab.world.rollout import Rollout, RolloutStep
from focusmem.lab.world.world import World
from focusmem.schemas import Role
from focusmem.schemas.action import AnyAction

PROBES: Final[dict[Role, tuple[str, ...]]] = {
    "episodic": ("semantic_episodic", "aligned_episodic", "transfer_episodic"),
    "working": ("semantic_working", "aligned_working", "transfer_working"),
}
NOTHING: Final = "nothing"


def probe_answer(world: World, probe: str, rollout: Rollout, start: int, stop: int) -> str:
    """The right reply to a probe about the steps of an episode from `start` to before `stop`."""
    category, role = probe.split("_")
    steps = rollout.steps[start:stop]
    if category == "semantic":
        return _described(world, rollout, steps, is_whole=role == "episodic")
    if category == "aligned":
        return _procedure(world, steps) if role == "episodic" else _change(world, steps)
    return f"Left: {_left(world, rollout, stop)}. Failed: {_failed(steps)}."


def _described(world: World, rollout: Rollout, steps: Sequence[RolloutStep], *, is_whole: bool) -> str:
    last = steps[-1].action
    shown = [f"{name} {value}" for step in steps[-2:] for name, value in facts_seen(world, step).items()]
    end = f"answered {last.arguments.answer}" if last.name == "stop" else state_of(world, steps[-1])
    return (
        f"Wanted: {rollout.task.task.instruction} Did: {'; '.join(_in_words(step.action) for step in steps)}. "
        f"Saw: {'; '.join(dict.fromkeys(shown)) or NOTHING}. {'End' if is_whole else 'Now'}: {end}."
    )


def _procedure(world: World, steps: Sequence[RolloutStep]) -> str:
    states = dict.fromkeys(state_of(world, step) for step in steps)
    last = steps[-1]
    basis = "; ".join(f"{name} {value}" for name, value in facts_seen(world, last).items())
    return f"Way: {' > '.join(states)}. Key: {_in_words(last.action)}. Seen: {basis or state_of(world, last)}."


def _change(world: World, steps: Sequence[RolloutStep]) -> str:
    states = list(dict.fromkeys(state_of(world, step) for step in steps))
    return f"Now: {state_of(world, steps[-1])}. Changed: {' > '.join(states) if len(states) > 1 else NOTHING}."


def _left(world: World, rollout: Rollout, stop: int) -> str:
    """The next state that the episode still had to reach."""
    if stop >= len(rollout.steps):
        return NOTHING
    now = state_of(world, rollout.steps[stop - 1])
    later = (state_of(world, step) for step in rollout.steps[stop:])
    return next((f"reach {state}" for state in later if state != now), "answer")


def _failed(steps: Sequence[RolloutStep]) -> str:
    """The actions that an error or the expert's own judgement marks as wrong."""
    wrong = [_in_words(step.action) for step in steps if step.error is not None or step.wanted is not None]
    return "; ".join(dict.fromkeys(wrong)) or NOTHING


def _in_words(action: AnyAction) -> str:
    given = [str(value) for value in action.arguments.model_dump().values() if value is not None]
    return " ".join([action.name, *given])
