"""One mind for many episodes. Decisions that wait at the same time are answered together, while browsers continue to
work.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from focusmem.agent.decision import Decision
from focusmem.agent.mind import Mind, Reply
from focusmem.errors import ConfigError

CLOSE_S = 5.0


@dataclass(frozen=True, eq=False)
class _Question:
    decision: Decision
    reply: asyncio.Future[Reply]
    since: float
    """The time of the question, by the event loop's clock."""


class SharedMind:
    """Belongs to one event loop. Episodes ask inside `attending`, so that the number of possible askers is known.

    A batch of questions goes to the mind when every attending episode waits, when `max_together` questions wait, or
    when the first question has waited `patience_s`, so that a slow page does not hold up the others. The mind answers
    one batch at a time, in its own thread. When all askers of a batch have given up, its thread is abandoned and the
    next batch gets a new thread.
    """

    def __init__(self, mind: Mind, *, max_together: int = 16, patience_s: float = 1.0) -> None:
        if max_together < 1:
            raise ConfigError(f"max_together is {max_together}; it must be at least 1.")
        self.mind, self.max_together, self.patience_s = mind, max_together, patience_s
        self._num_attending = 0
        self._waiting: list[_Question] = []
        self._asked: list[_Question] = []
        """The questions that the mind is answering."""
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

    async def ask(self, decision: Decision) -> Reply:
        loop = asyncio.get_running_loop()
        question = _Question(decision, loop.create_future(), loop.time())
        self._waiting.append(question)
        self._consider()
        try:
            return await question.reply
        except asyncio.CancelledError:
            self._give_up(question)
            raise

    async def close(self) -> None:
        """Waits a short time for a mind that is still answering, then abandons its thread."""
        if self._thread is not None:
            await self._thread.close(CLOSE_S)
            self._thread = None

    def _consider(self) -> None:
        """Send waiting questions to the mind if it is free and a batch is due."""
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
        """Runs in the mind's thread. Every error is passed on to the episodes that asked."""
        replies: Sequence[Reply] = ()
        problem: BaseException | None = None
        try:
            replies = self.mind.ask([question.decision for question in asked])
            if len(replies) != len(asked):
                raise ValueError(f"The mind gave {len(replies)} replies to {len(asked)} questions.")  # noqa: TRY301
        except StopIteration:  # a future cannot carry StopIteration
            problem = RuntimeError("The mind raised StopIteration.")
        except BaseException as error:
            problem = error
        with suppress(RuntimeError):  # the event loop has ended and nothing waits for the replies
            loop.call_soon_threadsafe(self._deliver, asked, replies, problem)

    def _deliver(self, asked: Sequence[_Question], replies: Sequence[Reply], problem: BaseException | None) -> None:
        for place, question in enumerate(asked):
            if question.reply.done():
                continue  # its episode has given up
            error = replies[place].error if problem is None else problem
            if error is not None:
                question.reply.set_exception(error)
            else:
                question.reply.set_result(replies[place])
        if asked is self._asked:
            self._asked = []
            self._consider()

    def _give_up(self, question: _Question) -> None:
        if question in self._waiting:
            self._waiting.remove(question)
        elif question in self._asked and all(other.reply.done() for other in self._asked):
            self._asked, self._thread = [], None
        self._consider()


class _Thread:
    """Runs calls one after the other in one thread, because models keep state per thread.

    A daemon thread: a mind that hangs does not keep the process alive.
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
