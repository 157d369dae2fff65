"""The texts of a format's prompt, and the text about a failed action."""

from pathlib import Path

from focusmem.agent.decision import Decision
from focusmem.templates import Templates

_OWN_PROMPTS = Path(__file__).parent / "prompts"


class FormatTexts:
    """`prompts` is a folder with another wording, such as the one that a model's authors publish."""

    def __init__(self, name: str, slots: dict[str, set[str]], prompts: Path | None, *, shows_errors: bool) -> None:
        self._templates = Templates(prompts or _OWN_PROMPTS / name, slots=slots | {"problem": {"error"}})
        self._shows_errors = shows_errors

    @property
    def digest(self) -> str:
        return self._templates.digest if self._shows_errors else f"{self._templates.digest} without errors"

    def fill(self, name: str, /, **values: str | int) -> str:
        return self._templates.fill(name, **values)

    def problem(self, decision: Decision, number: int) -> str:
        """The error of the step before the given one, counted from zero; empty if there was none."""
        error = decision.steps[number - 1].error if number else None
        return self._templates.fill("problem", error=error) if error and self._shows_errors else ""
