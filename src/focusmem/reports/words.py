"""Actions, outcomes and counts in words, for people who watch a run or read about it."""

from focusmem.schemas import Outcome
from focusmem.schemas.action import AnyAction

OUTCOMES: dict[Outcome, str] = {
    "success": "solved",
    "failure": "not solved",
    "error": "broken off",
    "not_judged": "not judged",
}


def in_words(action: AnyAction | None) -> str:
    """An action in words; None stands for an unreadable reply."""
    if action is None:
        return "wrote something that is no action"
    arguments = action.arguments.model_dump(exclude_none=True, exclude={"reasoning"})
    values = " in ".join(repr(value) if name != "direction" else value for name, value in arguments.items())
    return f"{action.name.replace('_', ' ')} {values}".strip()


def counted(num: int, word: str) -> str:
    return f"{num} {word}{'' if num == 1 else 's'}"
