"""Our agent as one of BrowserGym's: `FocusMemAgentArgs` for its `ExpArgs`, and for AgentLab's studies.

BrowserGym calls the agent once for each step. Our own episode loop runs in a thread beside it, with a browser that
hands every action over to BrowserGym and gets back what BrowserGym then sees, so both worlds share one agent.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from focusmem.agent.decision import Decision
from focusmem.agent.live_episode import LiveEpisode
from focusmem.agent.loop import run_episode
from focusmem.agent.mind import Mind, Reply
from focusmem.browser.grounder import Grounder
from focusmem.browser.gym_page import ACTION_SETS, GymPage, goal_of
from focusmem.recipes.run_parts import Parts
from focusmem.recipes.run_settings import recipe
from focusmem.recipes.run_suite import make_suite
from focusmem.schemas import Task
from focusmem.settings import resolved

_OVER = None


class FocusMemAgent:
    """An agent for one episode, as BrowserGym makes them. It returns None, which ends the episode, in the step after
    `stop`, when its budget is used up, or when its policy cannot be reached.
    """

    def __init__(
        self, mind: Mind, *, max_steps: int = 15, grounder: Grounder | None = None, presses_enter: bool = False
    ) -> None:
        from browsergym.core.action.highlevel import HighLevelActionSet

        self.action_set = HighLevelActionSet(subsets=list(ACTION_SETS), strict=False, multiaction=True)
        self._mind, self._max_steps = mind, max_steps
        self._page = _HandedOver(grounder=grounder, presses_enter=presses_enter)
        self.live: LiveEpisode | None = None
        """The episode so far, as our own runs record it."""

    def obs_preprocessor(self, obs: Mapping[str, Any]) -> dict[str, Any]:
        """Leaves out what the agent does not read, so that it is not stored."""
        return {key: value for key, value in obs.items() if key != "dom_object"}

    def get_action(self, obs: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
        if self.live is None:
            task = Task(
                task_id="browsergym/task",
                instruction=goal_of(obs),
                start_url=str(obs["url"]),
                site="",
                max_steps=self._max_steps,
            )
            self.live = LiveEpisode(task)
            self._page.begin(_play(self.live, self._page, self._mind))
        code = self._page.next_code(obs)
        return code, self._info()

    def _info(self) -> dict[str, Any]:
        live = self.live
        last = live.notes[-1] if live is not None and live.notes else None
        stats = {} if last is None else {"num_prompt_tokens": last.num_prompt_tokens or 0}
        return {"think": None, "stats": stats, "extra_info": {"error": None if live is None else live.error}}


def _play(live: LiveEpisode, page: "_HandedOver", mind: Mind) -> Callable[[], None]:
    async def ask(decision: Decision) -> Reply:
        [reply] = await asyncio.to_thread(mind.ask, [decision])
        return reply

    def play() -> None:
        try:
            asyncio.run(run_episode(live, page, ask))
        finally:
            mind.forget(live.episode_id)

    return play


class _HandedOver(GymPage):
    """A browser whose actions somebody else performs."""

    def __init__(self, *, grounder: Grounder | None, presses_enter: bool) -> None:
        super().__init__(grounder=grounder, presses_enter=presses_enter)
        self._seen = queue.Queue[Mapping[str, Any]]()
        self._codes = queue.Queue[str | BaseException | None]()

    def begin(self, play: Callable[[], None]) -> None:
        def run() -> None:
            try:
                play()
            except BaseException as error:  # a bug shows in BrowserGym's own thread
                self._codes.put(error)
            else:
                self._codes.put(_OVER)

        threading.Thread(target=run, name="focusmem", daemon=True).start()

    def next_code(self, obs: Mapping[str, Any]) -> str | None:
        """Called by BrowserGym's side. None once the episode is over."""
        self._seen.put(obs)
        code = self._codes.get()
        if isinstance(code, BaseException):
            raise code
        return code

    async def open(self, url: str) -> None:
        self._obs = await asyncio.to_thread(self._seen.get)

    async def _step(self, code: str) -> None:
        self._codes.put(code)
        self._obs = await asyncio.to_thread(self._seen.get)

    async def close(self) -> None:
        """BrowserGym closes its own browser."""

    async def abandon(self) -> None:
        """BrowserGym closes its own browser."""


@dataclass
class FocusMemAgentArgs:
    """What BrowserGym pickles: settings of `focusmem run`, by name, and the agent made of them."""

    settings: dict[str, Any] = field(default_factory=dict)
    """Such as {"policy.name": "http://localhost:8000/v1", "policy.model": "my-model", "memory.name": "none"}."""
    recipe: str = "web"
    max_steps: int = 15
    agent_name: str = "focusmem"

    def make_agent(self) -> FocusMemAgent:
        page = {"suite.name": "https://example.org/", "suite.instruction": "none"}  # gives no task here
        settings = resolved(recipe(self.recipe), values={**page, **self.settings})
        parts = Parts(settings, make_suite(settings))
        return FocusMemAgent(parts.mind(), max_steps=self.max_steps, presses_enter=bool(settings.suite.presses_enter))

    def prepare(self) -> None:
        """Nothing has to be started."""

    def close(self) -> None:
        """Nothing has to be stopped."""

    def set_benchmark(self, benchmark: Any, demo_mode: bool) -> None:
        """Every benchmark is acted on in the same way."""

    def set_reproducibility_mode(self) -> None:
        """Decoding is greedy unless the settings say otherwise."""
