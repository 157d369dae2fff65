"""Attempts for judges, and judges with a scripted model."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from factories import make_screenshot, make_steps
from focusmem.clients.base import ChatReply
from focusmem.clients.scripted import ScriptedChat
from focusmem.judges.base import Attempt, judged
from focusmem.judges.judge_model import JudgeModel
from focusmem.schemas import Closing, Prompt, Screenshot, Task, Trajectory, Verdict


def make_attempt(
    num_steps: int = 3, *, answer: str | None = "12 euros", closes: bool = True, **changes: Any
) -> Attempt:
    """`num_steps` screenshots that all differ; the last action is `stop` if there is an answer. `changes` are those of
    the task.
    """
    steps, screenshots = make_steps(num_steps + (answer is None))
    steps = steps[:num_steps]
    end = make_screenshot(999)
    values = {
        "task_id": "shop/1",
        "instruction": "How much is the mug?",
        "start_url": "https://shop.example/",
        "site": "",
    }
    task = Task(**values | changes)
    trajectory = Trajectory(
        trajectory_id="attempt",
        task_id=task.task_id,
        instruction=task.instruction,
        start_url=task.start_url,
        site="",
        steps=steps,
        closing=Closing(screenshot=end.ref(), url="https://shop.example/end") if closes else None,
        source="a run",
    )
    return Attempt(task, trajectory, {**screenshots, end.digest: end}, answer)


def judge_with(kind: Any, replies: Sequence[str] | Callable[[Prompt], str], **values: Any) -> tuple[Any, ScriptedChat]:
    """A judge whose model says what the script says, one question at a time."""
    chat = ScriptedChat(replies)
    return kind(JudgeModel(chat, max_together=1), **values), chat


def verdict_of(kind: Any, replies: Sequence[str], attempt: Attempt | None = None, **values: Any) -> Verdict:
    judge, _ = judge_with(kind, replies, **values)
    return asyncio.run(judged(judge, attempt or make_attempt()))


def text_of(prompt: Prompt) -> str:
    return "\n".join(part for turn in prompt for part in turn.parts if isinstance(part, str))


def pictures_of(prompt: Prompt) -> list[Screenshot]:
    return [part for turn in prompt for part in turn.parts if isinstance(part, Screenshot)]


def echo(prompt: Prompt) -> str:
    """A model that repeats what it is asked."""
    return text_of(prompt)


class RepliesOf:
    """A client that returns whole replies, or raises what it is given, one after the other."""

    identity = "scripted"

    def __init__(self, *replies: ChatReply | Exception) -> None:
        self.replies, self.seeds = list(replies), []

    def ask(self, prompt: Prompt, *, seed: int | None = None, as_json: bool = False) -> ChatReply:
        self.seeds.append(seed)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply
