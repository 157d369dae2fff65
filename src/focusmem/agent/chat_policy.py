"""A policy behind a chat endpoint. It reads text and screenshots, so memory may be turns but not latent."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Self

from focusmem.agent.fronts.base import Fronted
from focusmem.agent.policy import Completion
from focusmem.clients.base import ChatClient
from focusmem.clients.openai_chat import ChatConfig, OpenAIChat
from focusmem.clients.options import EndpointOptions
from focusmem.clients.spending import Spending
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
    def connect(
        cls, url: str, model: str | None, generation: "GenerationConfig", options: EndpointOptions | None = None
    ) -> Self:
        """`url` is the endpoint's URL up to the API version, and `model` the model's name there."""
        if model is None:
            raise ConfigError(f"A policy behind an endpoint ({url}) needs the name of its model; give it with --model.")
        config = ChatConfig.of(
            url,
            model,
            options or EndpointOptions(),
            key_variable=KEY_VARIABLE,
            max_tokens=generation.max_new_tokens,
            temperature=generation.temperature,
            top_p=generation.top_p,
        )
        return cls(OpenAIChat(config))

    @property
    def identity(self) -> str:
        return self.client.identity

    @property
    def spending(self) -> Spending | None:
        """What its replies have cost so far; None if the client does not count."""
        return self.client.spending if isinstance(self.client, OpenAIChat) else None

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
        return Completion(
            reply.text,
            reply.num_prompt_tokens,
            thoughts=reply.reasoning,
            num_reply_tokens=reply.num_reply_tokens,
            cost_usd=reply.cost_usd,
            departures=reply.departures,
        )
