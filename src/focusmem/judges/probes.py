"""The shared part of judges of single items: one question to a model, answered with one JSON object."""

from collections.abc import Callable
from typing import Any, TypeVar

from focusmem.judges.inquiry import LiveInquiry, spoken
from focusmem.schemas import JudgeReply, Prompt
from focusmem.schemas.objects_in_text import objects_in
from focusmem.schemas.record import STRICT_DECODER

ValueT = TypeVar("ValueT")

NUM_TRIES = 2


async def ask_for_object(
    inquiry: LiveInquiry, prompt: Prompt, read: Callable[[dict[str, Any]], ValueT | None]
) -> tuple[ValueT | None, int]:
    """Returns what `read` finds in the reply's JSON object, and the number of unreadable replies. After an unreadable
    reply the question is asked once more.
    """
    for number in range(NUM_TRIES):
        reply = await inquiry.ask(f"answer {number + 1}", prompt, as_json=True, num_before=number)
        found = only_object(reply)
        value = None if found is None else read(found)
        if value is not None:
            return value, number
    return None, NUM_TRIES


def only_object(reply: JudgeReply) -> dict[str, Any] | None:
    """Returns the JSON object of a reply that holds exactly one. Several equal objects count as one."""
    objects, broken = objects_in(spoken(reply))
    if not reply.is_usable or broken is not None or len({one.canonical for one in objects}) != 1:
        return None
    found: dict[str, Any] = STRICT_DECODER.decode(objects[0].text)
    return found
