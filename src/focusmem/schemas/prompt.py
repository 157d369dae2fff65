"""Prompts: turns of text and screenshots. They are never stored, because they carry pixels."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from focusmem.errors import ConfigError
from focusmem.schemas.screenshot import Screenshot

TurnRole = Literal["system", "user", "assistant"]


class Instruction(str):
    """The words of a prompt that say what the task is, as a part of their own: `("Task: ", Instruction("Find ..."))`.

    A memory may pool them apart from the rest of the prompt. Otherwise the part is read like any other text.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Turn:
    role: TurnRole
    parts: tuple[str | Screenshot, ...]
    """Text and screenshots in reading order. The instruction of a decision's prompt is a part of its own, an
    `Instruction`."""

    def __post_init__(self) -> None:
        if self.role not in get_args(TurnRole):
            raise ConfigError(f"Turn.role is {self.role!r}; use one of {', '.join(get_args(TurnRole))}.")
        if not isinstance(self.parts, tuple):
            raise ConfigError(f"Turn.parts is a {type(self.parts).__name__}; use a tuple, such as ('text',).")
        for index, part in enumerate(self.parts):
            if not isinstance(part, str | Screenshot):
                kind = type(part).__name__
                raise ConfigError(f"Turn.parts[{index}] is a {kind}; use text (str) or a Screenshot.")


Prompt: TypeAlias = tuple[Turn, ...]
