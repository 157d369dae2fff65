"""The agent's loop: look, ask, read, act."""

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager

from focusmem.agent.live_episode import LiveEpisode, storable_text
from focusmem.agent.mind import Reply
from focusmem.browser.base import Browser, Performed
from focusmem.errors import BlockedError, PolicyError, WorldError
from focusmem.schemas import Observation, Step, parse_action
from focusmem.schemas.action import AnyAction

Ask = Callable[[LiveEpisode, Observation], Awaitable[Reply]]


async def run_episode(episode: LiveEpisode, browser: Browser, ask: Ask) -> None:
    """Until the policy stops, has no steps left, or the world breaks; the episode then tells which."""
    try:
        await browser.open(episode.task.start_url)
        while not episode.is_over:
            await _step(episode, browser, ask)
    except WorldError as error:
        episode.error = storable_text(str(error))
        episode.is_blocked = isinstance(error, BlockedError)


async def _step(episode: LiveEpisode, browser: Browser, ask: Ask) -> None:
    seconds: dict[str, float] = {}
    with _timed(seconds, "observe"):
        seen = await browser.observe()
    reply = await ask(episode, seen)
    action: AnyAction | None = None
    performed = Performed()
    try:
        with _timed(seconds, "act"):
            action = parse_action(reply.text)
            performed = await browser.perform(action)
    except PolicyError as error:  # words that cannot be read as an action are a step as well
        performed = Performed(error=str(error))
    except WorldError as error:
        performed = Performed(error=str(error))
        raise
    finally:  # what the policy wanted is kept also where the world did not survive it, or time ran out
        _keep(episode, seen, reply, action, performed, seconds)


def _keep(
    episode: LiveEpisode,
    seen: Observation,
    reply: Reply,
    action: AnyAction | None,
    performed: Performed,
    seconds: Mapping[str, float],
) -> None:
    step = Step(
        screenshot=seen.screenshot.ref(),
        action=action,
        reply=storable_text(reply.text),
        url=storable_text(seen.url),
        click_point=performed.click_point,
        error=None if performed.error is None else storable_text(performed.error),
    )
    parts = dict(sorted({**reply.notes.seconds, **seconds}.items()))
    episode.add(step, seen.screenshot, reply.notes.model_copy(update={"seconds": parts}))


@contextmanager
def _timed(seconds: dict[str, float], part: str) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds[part] = time.perf_counter() - started
