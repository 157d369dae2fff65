"""The actions of an agent, without its answer and its thoughts, worded as Online-Mind2Web words them."""

from collections.abc import Iterable

from focusmem.schemas import Step
from focusmem.schemas.action import AnyAction


def action_history(steps: Iterable[Step]) -> list[str]:
    """Returns one line for each action that was performed or tried. Unreadable replies and the answer get no line."""
    return [_line(step, step.action) for step in steps if step.action is not None and step.action.name != "stop"]


def _line(step: Step, action: AnyAction) -> str:
    failed = " (did not work)" if step.error is not None else ""
    values = action.arguments.model_dump(exclude_none=True, exclude={"reasoning", "description"})
    description = getattr(action.arguments, "description", None)
    subject = "<page>" if description is None else f"<{description}>"
    value = "".join(f": {text}" for text in values.values())
    return f"{subject} -> {action.name.upper()}{value}{failed}"
