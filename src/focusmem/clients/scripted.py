"""A chat model whose replies are given beforehand, for tests and examples."""

from collections.abc import Callable, Sequence

from focusmem.clients.base import ChatReply
from focusmem.errors import WorldError
from focusmem.schemas import Prompt


class ScriptedChat:
    """Replies with the given texts in order, or with the result of a function of the prompt. Keeps the prompts."""

    def __init__(self, replies: Sequence[str] | Callable[[Prompt], str], *, name: str = "scripted") -> None:
        self.identity, self.asked = name, list[Prompt]()
        self._replies = replies

    def ask(self, prompt: Prompt, *, seed: int | None = None, as_json: bool = False) -> ChatReply:
        self.asked.append(prompt)
        if callable(self._replies):
            return ChatReply(self._replies(prompt))
        if len(self.asked) > len(self._replies):
            raise WorldError(f"The script '{self.identity}' has only {len(self._replies)} replies.")
        return ChatReply(self._replies[len(self.asked) - 1])
