"""The laboratory's own wording of all prompts: short, since a small policy reads every word of them."""

from dataclasses import dataclass
from pathlib import Path

from focusmem.agent.prompt import PromptBuilder
from focusmem.evidence import Serialiser
from focusmem.lab.world.answers import QUESTIONS
from focusmem.templates import Templates

PROMPTS = Path(__file__).parent / "prompts"

_QUESTION_NAMES = sorted({name for names in QUESTIONS.values() for name in names} | {"transcribe"})


@dataclass(frozen=True)
class Texts:
    """What the agent is asked, how a record is told, and what is asked about it."""

    prompt: PromptBuilder
    serialise: Serialiser
    questions: Templates

    @classmethod
    def load(cls) -> "Texts":
        questions = Templates(PROMPTS / "questions", slots={name: set() for name in _QUESTION_NAMES})
        return cls(PromptBuilder(PROMPTS / "agent"), Serialiser(PROMPTS / "evidence"), questions)
