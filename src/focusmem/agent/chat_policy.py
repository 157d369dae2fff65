"""A policy behind a chat endpoint. It reads text and screenshots, so memory may be turns but not latent."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Self

from focusmem.agent.fronts.base import Fronted
from focusmem.agent.policy import Completion
from focusmem.clients.base import ChatClient
from focusmem.clients.openai_chat import ChatConfig, OpenAIChat
from focusmem.errors import ConfigError, WorldError
from focusmem.schemas import Prompt

if TYPE_CHECKING:
    from focusmem.model.generation import GenerationConfig

KEY_VARIABLE: Final = "FOCUSMEM_POLICY_KEY"


class ChatPolicy:
    """Sends all prompts of a batch at the same time. A request that fails does not affect the others."""

    def __init__(self, client: ChatClient) -> None:
        self.client = client

    @classmethod
    def connect(cls, address: str, generation: "GenerationConfig") -> Self:
        """`address` is the endpoint's URL up to the API version, then `#` and the model's name."""
        config = ChatConfig.of(
            address,
            key_variable=KEY_VARIABLE,
            max_tokens=generation.max_new_tokens,
            temperature=generation.temperature,
            top_p=generation.top_p,
        )
        return cls(OpenAIChat(config))

    @property
    def identity(self) -> str:
        return self.client.identity

    def reply(self, asked: Sequence[Fronted], *, seeds: Sequence[int] | None = None) -> list[Completion]:
        if any(one.row is not None for one in asked):
            raise ConfigError(
                "A chat endpoint reads text and screenshots, but latent memory is made of embeddings. Use a policy in "
                "this process (a folder or a hub id), or a memory that is shown as text."
            )
        with ThreadPoolExecutor(max_workers=max(1, len(asked)), thread_name_prefix="chat-policy") as threads:
            return list(threads.map(self._ask, asked, seeds or [None] * len(asked)))

    def num_tokens(self, turns: Prompt) -> None:
        """Always None: an endpoint counts tokens only when it generates a reply."""

    def forget(self, episode_id: str) -> None:
        """Nothing to free: this policy keeps nothing between replies."""

    def _ask(self, asked: Fronted, seed: int | None) -> Completion:
        try:
            reply = self.client.ask((*asked.turns, *asked.prompt), seed=seed)
        except WorldError as error:
            return Completion(error=error)
        return Completion(reply.text, reply.num_prompt_tokens)
