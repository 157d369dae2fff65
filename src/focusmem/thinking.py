"""Sets a model's thinking aside, before its reply is read.

Reasoning models write their thoughts before the answer: in tags such as `<think>` (Qwen3, DeepSeek-R1, UI-Venus), and
some of them put the answer between tags too (GLM-4.1V-Thinking: `<answer>`, and `<|begin_of_box|>` within it). Thoughts
quote pages and consider actions that the model then rejects, so nothing in them counts as its answer.
"""

import re
from dataclasses import dataclass
from typing import Final

_NAMES: Final = r"think\w*|thoughts?|reasoning"
_OPENING: Final = re.compile(rf"\s*<({_NAMES})>", re.IGNORECASE)
_CLOSING: Final = re.compile(rf"</(?:{_NAMES})>", re.IGNORECASE)
_ANSWER: Final = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL)
_BOX: Final = re.compile(r"<\|begin_of_box\|>(.*?)(?:<\|end_of_box\|>|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Thinking:
    thoughts: str
    """What the model thought, without the tags; empty if it did not think aloud."""
    answer: str
    """Everything else; empty if the reply ended before an answer began."""


def set_thinking_aside(reply: str) -> Thinking:
    """Separates a reply into thoughts and answer. A reply without any of these tags is an answer as it stands.

    Tags count only where models write them: thoughts at the beginning, the answer's tags at the beginning of what is
    left. The same characters inside an answer, such as text that is to be typed, stay there.
    """
    thoughts, rest = list[str](), reply
    while opening := _OPENING.match(rest):
        closing = re.compile(rf"</{opening[1]}>", re.IGNORECASE).search(rest, opening.end())
        end, after = (closing.start(), closing.end()) if closing else (len(rest), len(rest))
        thoughts.append(rest[opening.end() : end].strip())
        rest = rest[after:]
    if not thoughts and (split := _unopened(rest)):
        thoughts, rest = [split[0].strip()], split[1]
    return Thinking("\n\n".join(filter(None, thoughts)), _unboxed(_unwrapped(rest)))


def _unopened(reply: str) -> tuple[str, str] | None:
    """Thoughts whose opening tag stands in the prompt, as some chat templates have it, and what follows them. A reply
    that begins with an object is an action from its first character on.
    """
    closing = None if reply.lstrip().startswith(("{", "[", "`")) else _CLOSING.search(reply)
    return (reply[: closing.start()], reply[closing.end() :]) if closing else None


def _unwrapped(rest: str) -> str:
    """The contents of the answer's tags, if the reply continues with them."""
    return "\n".join(_ANSWER.findall(rest)) if rest.lstrip().startswith("<answer>") else rest


def _unboxed(rest: str) -> str:
    """The contents of the boxes, if there are any. With several, the reader has all of them, and refuses the reply."""
    boxes = _BOX.findall(rest) if not rest.lstrip().startswith("{") else []
    return "\n".join(box.strip() for box in boxes) if boxes else rest
