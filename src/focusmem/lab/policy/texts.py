"""The laboratory's own wording of all prompts. It is short, because every word costs a small policy time."""

from dataclasses import dataclass
from pathlib import Path

from focusmem.agent.prompt import PromptBuilder
from focusmem.evidence import Serialiser
from focusmem.lab.world.answers import QUESTIONS
from focusmem.lab.world.probes import PROBES
from focusmem.templates import Templates

PROMPTS = Path(__file__).parent / "prompts"

_QUESTION_NAMES = sorted({name for names in QUESTIONS.values() for name in names} | {"transcribe"})


@dataclass(frozen=True)
class Texts:
    """The texts of the agent's prompt, of records, and of the questions and probes about records."""

    prompt: PromptBuilder
    serialise: Serialiser
    questions: Templates
    probes: Templates

    @classmethod
    def load(cls, *, shows_errors: bool = True) -> "Texts":
        """Without `shows_errors`, prompts and records do not say which actions failed."""
        questions = Templates(PROMPTS / "questions", slots={name: set() for name in _QUESTION_NAMES})
        probes = Templates(PROMPTS / "probes", slots={name: set() for names in PROBES.values() for name in names})
        prompt = PromptBuilder(PROMPTS / "agent", shows_errors=shows_errors)
        return cls(prompt, Serialiser(PROMPTS / "evidence", shows_errors=shows_errors), questions, probes)
