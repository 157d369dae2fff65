"""A judge model that several judgements use at once, with a limit on the number of open questions."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from focusmem.clients.base import ChatClient, ChatReply
from focusmem.errors import WorldError
from focusmem.schemas import Prompt

NO_ENDPOINT: Final = "No endpoint of a judge model was given; judge the run later with `focusmem judge RUN --url URL`."


class JudgeModel:
    """Asks in threads, so that the judges' event loop is not blocked."""

    def __init__(
        self,
        client: ChatClient | None,
        *,
        name: str | None = None,
        max_together: int = 8,
        seed: int | None = None,
        temperature: float = 0.0,
        departures: tuple[str, ...] = (),
    ) -> None:
        """Without a client, every question raises WorldError, so attempts stay `not_judged`. `name` is the model's name
        in verdicts, by default the client's. `temperature` is the temperature that the client requests. `departures`
        list what differs from the judge's profile.
        """
        self.client, self.seed, self.temperature, self.departures = client, seed, temperature, departures
        self.name = name or ("unknown" if client is None else client.identity)
        self.max_together = max_together
        self._threads = ThreadPoolExecutor(max_together, thread_name_prefix="judge")

    async def ask(
        self, make_prompt: Callable[[], Prompt], *, as_json: bool = False, num_before: int = 0
    ) -> tuple[Prompt, ChatReply]:
        """The prompt is built in the thread that asks, because its pictures must be encoded. Questions are asked in the
        order of the calls. `num_before` counts earlier replies to the same prompt. It changes the seed, so that a store
        of replies does not return an earlier reply.
        """
        if self.client is None:
            raise WorldError(NO_ENDPOINT)
        seed = (self.seed or 0) + num_before if num_before else self.seed
        ask = self.client.ask

        def question() -> tuple[Prompt, ChatReply]:
            prompt = make_prompt()
            return prompt, ask(prompt, seed=seed, as_json=as_json)

        return await asyncio.get_running_loop().run_in_executor(self._threads, question)
