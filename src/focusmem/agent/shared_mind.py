"""One mind for many episodes: questions that wait at the same time are answered together, while browsers go on."""

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from focusmem.agent.live_episode import LiveEpisode
from focusmem.agent.mind import Mind, Reply, Seen
from focusmem.errors import ConfigError
from focusmem.schemas import Observation

CLOSE_S = 5.0


@dataclass(frozen=True, eq=False)
class _Question:
    seen: Seen
    reply: asyncio.Future[Reply]
    since: float
    """When it was asked, by the event loop's clock."""


class SharedMind:
    """Belongs to one event loop. Episodes ask inside `attending`, so that it is known how many may yet ask.

    The mind answers when every episode that attends is waiting, when as many wait as are answered together, or when the
    first has waited `patience_s`: a slow page does not hold up the others. It answers one lot at a time, in a thread of
    its own. A lot that everybody has given up on is left to itself, with its thread, and the next gets a new one.
    """

    def __init__(self, mind: Mind, *, max_together: int = 16, patience_s: float = 1.0) -> None:
        if max_together < 1:
            raise ConfigError(f"max_together is {max_together}; it must be at least 1.")
        self.mind, self.max_together, self.patience_s = mind, max_together, patience_s
        self._num_attending = 0
        self._waiting: list[_Question] = []
        self._asked: list[_Question] = []
        """What the mind is answering now."""
        self._alarm: asyncio.TimerHandle | None = None
        self._thread: _Thread | None = None

    @contextmanager
    def attending(self) -> Iterator[None]:
        self._num_attending += 1
        try:
            yield
        finally:
            self._num_attending -= 1
            self._consider()

    async def ask(self, episode: LiveEpisode, seen: Observation) -> Reply:
        loop = asyncio.get_running_loop()
        question = _Question((episode, seen), loop.create_future(), loop.time())
        self._waiting.append(question)
        self._consider()
        try:
            return await question.reply
        except asyncio.CancelledError:
            self._give_up(question)
            raise

    async def close(self) -> None:
        """A mind that is still answering gets a moment to finish, and is then left to itself."""
        if self._thread is not None:
            await self._thread.close(CLOSE_S)
            self._thread = None

    def _consider(self) -> None:
        """Put questions to the mind, if it is free and the time has come."""
        if self._asked or not self._waiting:
            return
        loop = asyncio.get_running_loop()
        patience_left_s = self._waiting[0].since + self.patience_s - loop.time()
        if len(self._waiting) < min(self.max_together, self._num_attending) and patience_left_s > 0:
            if self._alarm is None:
                self._alarm = loop.call_later(patience_left_s, self._on_alarm)
            return
        self._asked, self._waiting = self._waiting[: self.max_together], self._waiting[self.max_together :]
        self._thread = self._thread or _Thread()
        self._thread.do(partial(self._answer, self._asked, loop))

    def _on_alarm(self) -> None:
        self._alarm = None
        self._consider()

    def _answer(self, asked: Sequence[_Question], loop: asyncio.AbstractEventLoop) -> None:
        """In the mind's thread. Whatever goes wrong, those who asked must hear of it."""
        replies: Sequence[Reply] = ()
        problem: BaseException | None = None
        try:
            replies = self.mind.ask([question.seen for question in asked])
            if len(replies) != len(asked):
                raise ValueError(f"The mind gave {len(replies)} replies to {len(asked)} questions.")  # noqa: TRY301
        except StopIteration:  # a future cannot carry this one
            problem = RuntimeError("The mind raised StopIteration.")
        except BaseException as error:
            problem = error
        with suppress(RuntimeError):  # the run has ended meanwhile, and nobody waits any more
            loop.call_soon_threadsafe(self._tell, asked, replies, problem)

    def _tell(self, asked: Sequence[_Question], replies: Sequence[Reply], problem: BaseException | None) -> None:
        for place, question in enumerate(asked):
            if question.reply.done():
                continue  # given up on
            if problem is not None:
                question.reply.set_exception(problem)
            else:
                question.reply.set_result(replies[place])
        if asked is self._asked:
            self._asked = []
            self._consider()

    def _give_up(self, question: _Question) -> None:
        if question in self._waiting:
            self._waiting.remove(question)
        elif question in self._asked and all(one.reply.done() for one in self._asked):
            self._asked, self._thread = [], None
        self._consider()


class _Thread:
    """Does one thing after the other; always the same thread, since models keep much per thread.

    A daemon, so that a mind that hangs does not keep the process from ending.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="mind", daemon=True)
        self._thread.start()

    def do(self, work: Callable[[], None]) -> None:
        self._work.put(work)

    async def close(self, seconds: float) -> None:
        self._work.put(None)
        await asyncio.to_thread(self._thread.join, seconds)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
