"""Limits per minute, on a clock that moves only when somebody waits."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_server import ChatServer, completion
from clients.asking import PROMPT, make_client
from focusmem.clients.rate_limit import RateLimit


class Clock:
    def __init__(self):
        self.now, self._lock = 0.0, threading.Lock()

    def sleep(self, seconds):
        with self._lock:
            self.now += seconds


def starts(limits, tokens, gaps=()):
    """When requests of so many tokens begin; between them, time passes by itself."""
    clock = Clock()
    limit = RateLimit(*limits, now=lambda: clock.now, sleep=clock.sleep)
    begun = []
    for number, num_tokens in enumerate(tokens):
        clock.now += gaps[number] if number < len(gaps) else 0.0
        begun.append((limit.begin(num_tokens).at_s, num_tokens))
    return begun


@given(
    st.integers(1, 5),
    st.integers(100, 1000),
    st.lists(st.integers(0, 400), max_size=30),
    st.lists(st.floats(0, 40), max_size=30),
)
def test_no_minute_holds_more_than_allowed(num_requests, num_tokens, tokens, gaps):
    begun = starts((num_requests, num_tokens), tokens, gaps)
    for at_s, _ in begun:
        together = [amount for other_s, amount in begun if at_s - 60 < other_s <= at_s]
        assert len(together) <= num_requests
        assert sum(together) <= num_tokens or len(together) == 1 or sum(together[:-1]) == 0


def test_requests_wait_only_as_long_as_they_must():
    assert [at_s for at_s, _ in starts((2, None), [1] * 5)] == [0, 0, 60, 60, 120]
    assert [at_s for at_s, _ in starts((None, 100), [60, 60, 40, 200, 10])] == [0, 60, 60, 120, 180]
    assert [at_s for at_s, _ in starts((None, None), [10**9] * 3)] == [0, 0, 0]


def test_the_tokens_of_a_reply_replace_the_estimate():
    clock = Clock()
    limit = RateLimit(None, 100, now=lambda: clock.now, sleep=clock.sleep)
    limit.begin(100).num_tokens = 10
    assert limit.begin(90).at_s == 0
    assert limit.begin(1).at_s == 60


def test_threads_share_the_limit():
    clock = Clock()
    limit = RateLimit(3, None, now=lambda: clock.now, sleep=clock.sleep)
    begun = []
    threads = [threading.Thread(target=lambda: begun.append(limit.begin(1).at_s)) for _ in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for at_s in begun:
        assert sum(at_s - 60 < other_s <= at_s for other_s in begun) <= 3


@pytest.mark.parametrize("limit", [{"requests_per_minute": 2}, {"tokens_per_minute": 2030}])
def test_a_client_keeps_to_its_limits(limit, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(
        "focusmem.clients.openai_chat.RateLimit",
        lambda *of, sleep: RateLimit(*of, now=lambda: clock.now, sleep=clock.sleep),
    )
    with ChatServer(completion("yes", prompt_tokens=1000, completion_tokens=10)) as server:
        client = make_client(server, max_tokens=10, **limit)
        for _ in range(5):
            client.ask(PROMPT)
    assert len(server.asked) == 5
    assert clock.now >= 119
