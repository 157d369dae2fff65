import asyncio
import threading
import time

import pytest

from clocks import PATIENT_S
from evaluation.minds import make_task
from factories import make_screenshot
from focusmem.agent.decision import Decision
from focusmem.agent.mind import Reply
from focusmem.agent.shared_mind import SharedMind
from focusmem.errors import ConfigError, WorldError
from focusmem.schemas import Observation

SEEN = Observation(make_screenshot(), "https://shop.example/", "Shop", ())


class Echo:
    """Replies with the task's name; `work` may do something first."""

    def __init__(self, work=lambda names: None):
        self.work, self.lots, self.threads = work, [], set()

    def ask(self, decisions):
        names = [decision.task.task_id for decision in decisions]
        self.lots.append(sorted(names))
        self.threads.add(threading.get_ident())
        self.work(names)
        return [Reply(name) for name in names]

    def forget(self, episode_id):
        pass


async def converse(shared, name, num=1, after=None):
    """One episode's questions; it first waits for `after` with a page."""
    replies = []
    with shared.attending():
        if after is not None:
            await after.wait()
        for _ in range(num):
            await asyncio.sleep(0)  # the others come in as well
            reply = await shared.ask(Decision(make_task(name), name, SEEN))
            replies.append(reply.text)
    return replies


async def a_few_turns():
    """Of the event loop: what can go on goes on."""
    for _ in range(5):
        await asyncio.sleep(0)


class Held(Echo):
    """Answers when the test lets it; with `by`, only this question holds it."""

    def __init__(self, by=None):
        super().__init__(lambda names: self._hold() if by is None or by in names else None)
        self.is_asked, self.free = threading.Event(), threading.Event()

    def _hold(self):
        self.is_asked.set()
        assert self.free.wait(PATIENT_S)

    async def begun(self):
        assert await asyncio.to_thread(self.is_asked.wait, PATIENT_S)


def run(mind, work, **settings):
    async def whole():
        shared = SharedMind(mind, **settings)
        try:
            return await work(shared)
        finally:
            await shared.close()

    return asyncio.run(whole())


def together(*episodes):
    async def work(shared):
        return await asyncio.gather(*(converse(shared, **one) for one in episodes))

    return work


def test_questions_that_wait_together_are_answered_together_each_with_its_own():
    mind = Echo()
    replies = run(mind, together(*({"name": name, "num": 2} for name in "abc")), patience_s=PATIENT_S)
    assert replies == [["a", "a"], ["b", "b"], ["c", "c"]]
    assert mind.lots == [["a", "b", "c"]] * 2
    assert len(mind.threads) == 1
    assert threading.get_ident() not in mind.threads


def test_no_more_than_allowed_at_once():
    mind = Echo()
    run(mind, together(*({"name": name} for name in "abcde")), max_together=2, patience_s=PATIENT_S)
    assert [len(lot) for lot in mind.lots] == [2, 2, 1]


def test_one_that_has_left_is_not_waited_for():
    mind = Echo()
    start = time.monotonic()
    run(mind, together({"name": "a", "num": 3}, {"name": "b", "num": 1}), patience_s=PATIENT_S)
    assert mind.lots == [["a", "b"], ["a"], ["a"]]
    assert time.monotonic() - start < PATIENT_S / 2


def test_a_slow_page_holds_nobody_up():
    async def work(shared):
        others_ended = asyncio.Event()
        slow = asyncio.create_task(converse(shared, "slow", after=others_ended))
        await converse(shared, "a", num=3)
        others_ended.set()
        await slow

    mind = Echo()
    run(mind, work, patience_s=0.01)
    assert mind.lots == [["a"], ["a"], ["a"], ["slow"]]


def test_whoever_asks_while_the_mind_is_busy_comes_next():
    mind = Held()

    async def work(shared):
        first = asyncio.create_task(converse(shared, "a"))
        await mind.begun()
        others = [asyncio.create_task(converse(shared, name)) for name in "bc"]
        await a_few_turns()  # both have asked
        mind.free.set()
        await asyncio.gather(first, *others)

    run(mind, work, patience_s=0.0)
    assert mind.lots == [["a"], ["b", "c"]]


def test_browsers_go_on_while_the_mind_thinks():
    mind = Held()

    async def work(shared):
        asking = asyncio.create_task(converse(shared, "a"))
        await mind.begun()
        for _ in range(10):
            await asyncio.sleep(0.001)
        assert not asking.done()
        mind.free.set()
        return await asking

    assert run(mind, work) == ["a"]


@pytest.mark.parametrize("error", [WorldError("The server is gone."), RuntimeError("a bug"), StopIteration()])
def test_what_goes_wrong_reaches_those_who_asked_and_only_them(error):
    def fail(names):
        if "a" in names:
            raise error

    async def work(shared):
        found = await asyncio.gather(converse(shared, "a"), converse(shared, "b"), return_exceptions=True)
        return found, await converse(shared, "c")

    found, later = run(Echo(fail), work)
    expected = RuntimeError if isinstance(error, StopIteration) else type(error)
    assert [type(one) for one in found] == [expected] * 2
    assert later == ["c"]


def test_an_error_in_place_of_a_reply_reaches_only_the_one_that_asked():
    class Partly(Echo):
        def ask(self, decisions):
            replies = super().ask(decisions)
            error = WorldError("The prompt is too long.")
            return [Reply("", error=error) if reply.text == "long" else reply for reply in replies]

    async def work(shared):
        return await asyncio.gather(converse(shared, "a"), converse(shared, "long"), return_exceptions=True)

    mind = Partly()
    first, second = run(mind, work, patience_s=PATIENT_S)
    assert (mind.lots, first) == ([["a", "long"]], ["a"])
    assert isinstance(second, WorldError)


def test_too_few_replies_are_an_error_and_not_a_wait_for_ever():
    class Short(Echo):
        def ask(self, decisions):
            return []

    with pytest.raises(ValueError, match="0 replies to 1"):
        run(Short(), lambda shared: converse(shared, "a"))


def test_a_mind_that_hangs_costs_those_who_asked_and_nobody_else():
    mind = Held(by="stuck")

    async def work(shared):
        stuck = asyncio.create_task(converse(shared, "stuck"))
        await mind.begun()
        stuck.cancel()
        return await converse(shared, "next")

    assert run(mind, work) == ["next"]
    mind.free.set()
    assert len(mind.threads) == 2


def test_one_that_gives_up_while_others_wait_takes_nothing_from_them():
    async def work(shared):
        impatient = asyncio.create_task(converse(shared, "impatient"))
        patient = asyncio.create_task(converse(shared, "patient"))
        await mind.begun()
        impatient.cancel()
        await a_few_turns()  # it has given up
        mind.free.set()
        return await patient

    mind = Held()
    assert run(mind, work) == ["patient"]
    assert mind.lots == [["impatient", "patient"]]


def test_a_number_that_cannot_work():
    with pytest.raises(ConfigError, match="max_together"):
        SharedMind(Echo(), max_together=0)
