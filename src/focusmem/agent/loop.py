"""The agent's loop: observe the page, ask the mind, parse the reply, perform the action."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from focusmem.agent.decision import Decision
from focusmem.agent.formats.base import Choice
from focusmem.agent.live_episode import LiveEpisode
from focusmem.agent.mind import Reply
from focusmem.agent.timing import timed
from focusmem.browser.base import Browser, Performed
from focusmem.errors import BlockedError, PolicyError, UnreadableActionError, WorldError
from focusmem.schemas import Observation, Step, StepNotes
from focusmem.schemas.action import AnyAction
from focusmem.schemas.record import storable_text
from focusmem.thinking import Thinking, set_thinking_aside

Ask = Callable[[Decision], Awaitable[Reply]]

_log = logging.getLogger(__name__)


async def run_episode(episode: LiveEpisode, browser: Browser, ask: Ask) -> None:
    """Runs until the policy stops, the page ends the task, the step budget is used up, or the world breaks; `episode`
    records which.
    """
    try:
        await browser.open(episode.task.start_url)
        while not episode.is_over:
            await _step(episode, browser, ask)
        if episode.closing is None:
            await _close(episode, browser)
    except WorldError as error:
        episode.error = storable_text(str(error))
        episode.is_blocked = isinstance(error, BlockedError)


async def _close(episode: LiveEpisode, browser: Browser) -> None:
    """Observes the page after the last action. If the world breaks during this, the episode's result stays, unless the
    result is the page's reward.
    """
    try:
        seen = await browser.observe()
    except WorldError as error:
        if episode.reward is not None:
            raise
        _log.warning("The closing observation of %s failed: %s", episode.task.task_id, error)
    else:
        episode.close(seen)


async def _step(episode: LiveEpisode, browser: Browser, ask: Ask) -> None:
    started, seconds = time.perf_counter(), dict[str, float]()
    with timed(seconds, "observe"):
        seen = await browser.observe()
    episode.look(seen)
    if episode.is_ended_by_page:
        episode.close(seen)
        return
    with timed(seconds, "wait"):
        reply = await ask(episode.decision(seen))
    # Time that the mind does not report as a part is waiting time, mostly for decisions of other episodes.
    seconds["wait"] = max(0.0, seconds["wait"] - sum(reply.notes.seconds.values()))
    action: AnyAction | None = None
    performed, thinking = Performed(), set_thinking_aside(reply.text)
    try:
        with timed(seconds, "act"):
            choice = _read(reply, thinking, seen)
            action = choice.action
            performed = await browser.perform(action, choice.point)
    except PolicyError as error:  # an unreadable reply is a step as well
        performed = Performed(error=str(error))
    except WorldError as error:
        performed = Performed(error=str(error))
        raise
    finally:  # the step is recorded even when the world broke or time ran out
        notes = _with_thoughts(_timed_notes(reply, seconds, time.perf_counter() - started), thinking)
        _keep(episode, seen, reply.text, action, performed, notes)


def _read(reply: Reply, thinking: Thinking, seen: Observation) -> Choice:
    if thinking.thoughts and not thinking.answer.strip():
        raise UnreadableActionError("The reply ended with its thoughts, before any action; think less.")
    return reply.reader(thinking.answer, seen)


def _with_thoughts(notes: StepNotes, thinking: Thinking) -> StepNotes:
    """Adds thoughts in the reply to those that a server sent apart."""
    thoughts = "\n\n".join(filter(None, (notes.thoughts, thinking.thoughts)))
    return notes.model_copy(update={"thoughts": storable_text(thoughts) or None})


def _timed_notes(reply: Reply, seconds: Mapping[str, float], wall_s: float) -> StepNotes:
    parts = dict(sorted({**reply.notes.seconds, **seconds}.items()))
    return reply.notes.model_copy(update={"seconds": parts, "wall_s": wall_s})


def _keep(
    episode: LiveEpisode,
    seen: Observation,
    reply: str,
    action: AnyAction | None,
    performed: Performed,
    notes: StepNotes,
) -> None:
    step = Step(
        screenshot=seen.screenshot.ref(),
        action=action,
        reply=storable_text(reply),
        url=storable_text(seen.url),
        click_point=performed.click_point,
        error=None if performed.error is None else storable_text(performed.error),
    )
    episode.add(step, seen.screenshot, notes)
