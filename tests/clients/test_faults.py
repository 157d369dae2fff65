"""Endpoints that fail in every way: the right kind of error, no endless wait, and costs that are right."""

import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from chat_server import HANG, HANG_UP, ChatServer, completion, half, huge
from clients.asking import PROMPT, ask, make_client
from focusmem.clients.openai_api import proxy_for
from focusmem.clients.options import Prices
from focusmem.errors import ConfigError, WorldError
from focusmem.schemas import Turn

YES = completion("yes", prompt_tokens=1000, completion_tokens=10)
PRICES = Prices(prompt=2.0, reply=8.0)
COST = 0.002 + 0.00008


@pytest.mark.parametrize(
    "passing",
    [(503, "warming up"), (500, ""), (429, "slow down"), (408, ""), HANG_UP, (200, "<html>"), half(YES)],
    ids=["503", "500", "429", "408", "hangs up", "garbage", "half a reply"],
)
def test_a_passing_fault_is_outlived(passing):
    with ChatServer(passing, passing, YES) as server:
        reply = ask(server, prices=PRICES)
    assert (reply.text, reply.cost_usd) == ("yes", pytest.approx(COST))
    assert len(server.asked) == 3


def test_a_server_is_not_asked_for_ever():
    pauses = []
    with ChatServer((503, "warming up")) as server, pytest.raises(WorldError, match=r"503: 'warming up'.*4 times"):
        ask(server, num_attempts=4, wait_s=2.0, pauses=pauses)
    assert len(server.asked) == 4
    assert [low <= pause <= 3 * low for pause, low in zip(pauses, (1.0, 2.0, 4.0), strict=True)] == [True] * 3


def test_pauses_differ_so_that_requests_do_not_come_back_together():
    pauses = []
    with ChatServer((503, "")) as server:
        for _ in range(6):
            with pytest.raises(WorldError):
                ask(server, num_attempts=2, pauses=pauses)
    assert len(set(pauses)) == 6


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"Retry-After": "7"}, 7, 8),
        ({"Retry-After": "7", "retry-after-ms": "2500"}, 2.5, 3.5),
        ({"Retry-After": format_datetime(datetime.now(UTC) + timedelta(days=2))}, None, None),
        ({"Retry-After": "soon"}, 0.5, 1.5),
        ({"Retry-After": "nan"}, 0.5, 1.5),
        ({"Retry-After": "-3"}, 0.5, 1.5),
    ],
)
def test_the_pause_that_a_server_names_is_kept(headers, low, high):
    pauses = []
    with ChatServer((429, "slow down", headers), YES) as server:
        if low is None:
            with pytest.raises(WorldError, match="longer than max_wait_s, 60 s"):
                ask(server, pauses=pauses)
            assert (pauses, len(server.asked)) == ([], 1)
        else:
            ask(server, pauses=pauses)
            assert low <= pauses[0] <= high


@pytest.mark.parametrize("status", [401, 402, 403, 404])
def test_a_wrong_key_or_address_is_the_users(status):
    with (
        ChatServer((status, '{"error": {"message": "no such model"}}')) as server,
        pytest.raises(ConfigError, match=f"{status}: 'no such model'"),
    ):
        ask(server)
    assert len(server.asked) == 1


def test_an_account_without_credit_stops_the_work():
    answer = (429, '{"error": {"message": "You exceeded your quota.", "code": "insufficient_quota"}}')
    with ChatServer(answer) as server, pytest.raises(ConfigError, match="no credit left"):
        ask(server)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "body",
    [
        "<html>", "{}", "[]", "7", "null", '{"choices": []}', '{"choices": [7]}', '{"error": {"message": "oh"}}',
        "[" * 100_000,
    ],
)  # fmt: skip
def test_anything_but_a_completion_is_shown(body):
    with ChatServer((200, body)) as server, pytest.raises(WorldError, match="not a chat completion") as caught:
        ask(server, num_attempts=2)
    assert repr(body[:300])[:-1] in str(caught.value)
    assert len(server.asked) == 2


def test_a_completion_without_text_is_paid_and_is_an_error():
    body = '{"choices": [{"message": {"content": null}}], "usage": {"prompt_tokens": 1000, "completion_tokens": 10}}'
    with ChatServer((200, body)) as server:
        client = make_client(server, prices=PRICES)
        with pytest.raises(WorldError, match="holds no text"):
            client.ask(PROMPT)
    assert len(server.asked) == 1
    assert client.spending.cost_usd == pytest.approx(COST)


def test_a_reply_of_30_mb_is_cut_off():
    with ChatServer(huge(30 * 2**20)) as server, pytest.raises(WorldError, match="max_reply_bytes, 4194304"):
        ask(server)
    assert len(server.asked) == 1


def test_a_reply_without_a_length_is_cut_off_too():
    with (
        ChatServer((200, "x" * 5000, {"Content-Length": "500000000"})) as server,
        pytest.raises(WorldError, match="1000"),
    ):
        ask(server, max_reply_bytes=1000)


def test_a_compressed_reply_is_refused():
    with ChatServer((200, "x", {"Content-Encoding": "gzip"})) as server, pytest.raises(WorldError, match="compressed"):
        ask(server, num_attempts=1)
    assert server.headers[0]["Accept-Encoding"] == "identity"


def test_a_server_that_hangs_is_given_up_in_time_and_not_asked_again():
    with ChatServer(HANG) as server:
        with pytest.raises(WorldError, match=r"timeout_s, 0\.2 s"):
            ask(server, timeout_s=0.2)
        while not server.asked:  # it may be slow to read as well
            time.sleep(0.01)
    assert len(server.asked) == 1


@pytest.mark.parametrize("trickle_s", [0.05, -0.05], ids=["body", "headers"])
def test_a_server_that_trickles_is_given_up_in_time(trickle_s):
    with ChatServer(YES, trickle_s=trickle_s) as server, pytest.raises(WorldError, match=r"timeout_s, 0\.3 s"):
        ask(server, timeout_s=0.3)


def test_a_server_that_is_not_there_is_named():
    with ChatServer(YES) as server:
        pass
    with pytest.raises(WorldError, match=r"127.0.0.1.* cannot be reached.*refused"):
        ask(server, num_attempts=2)


def test_a_redirection_is_not_followed():
    with (
        ChatServer(YES) as other,
        ChatServer((307, "", {"Location": f"{other.url}/chat/completions"})) as server,
        pytest.raises(WorldError, match=r"status 307.*not followed"),
    ):
        ask(server)
    assert other.asked == []


def test_a_run_of_faults_ends_with_every_reply_and_the_right_cost():
    """Twenty requests of four threads; each fault of a script hits one of them, and none is lost or paid twice."""
    faults = [(429, "", {"Retry-After": "1"}), (500, ""), (200, "garbage"), half(YES), HANG_UP] * 3
    with ChatServer(*faults, YES) as server:
        client = make_client(server, prices=PRICES, num_attempts=len(faults) + 1)
        prompts = [(Turn("user", (f"Question {number}",)),) for number in range(20)]
        replies = [None] * len(prompts)

        def work(first):
            for number in range(first, len(prompts), 4):
                replies[number] = client.ask(prompts[number])

        threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {reply.text for reply in replies} == {"yes"}
    assert len(server.asked) == len(prompts) + len(faults)
    assert client.spending.cost_usd == pytest.approx(20 * COST)
    assert (client.spending.num_replies, client.spending.num_without_cost) == (23, 3), "three times garbage"


# Proxies.


@pytest.mark.parametrize(
    ("environment", "url", "proxy"),
    [
        ({}, "https://api.test/v1", None),
        ({"HTTPS_PROXY": "http://proxy.test:3128"}, "https://api.test/v1", "http://proxy.test:3128"),
        ({"https_proxy": "proxy.test:3128"}, "https://api.test/v1", "http://proxy.test:3128"),
        ({"ALL_PROXY": "http://proxy.test:3128"}, "http://api.test/v1", "http://proxy.test:3128"),
        ({"HTTPS_PROXY": "http://proxy.test:3128"}, "http://api.test/v1", None),
        ({"ALL_PROXY": "http://proxy.test:3128", "NO_PROXY": "api.test"}, "https://api.test/v1", None),
        ({"ALL_PROXY": "http://proxy.test:3128"}, "http://localhost:8000/v1", None),
        ({"ALL_PROXY": "http://proxy.test:3128"}, "http://127.0.0.1:8000/v1", None),
    ],
)
def test_the_proxies_of_the_environment_are_used(monkeypatch, environment, url, proxy):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(url) == proxy


def test_a_request_goes_through_the_proxy_with_its_login(monkeypatch):
    for name in ("http_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with ChatServer(YES) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.replace("http://", "http://me:secret@").removesuffix("/v1"))
        assert ask(proxy, url="http://api.test/v1").text == "yes"
    [headers] = proxy.headers
    assert (headers["Host"], headers["Proxy-Authorization"]) == ("api.test", "Basic bWU6c2VjcmV0")


@pytest.mark.parametrize("proxy", [None, "http://proxy.test:3128", "https://me@proxy.test"])
def test_an_encrypted_endpoint_can_be_reached(monkeypatch, proxy):
    """As far as that goes without one: the connection is prepared, and its name is not found."""
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    if proxy is not None:
        monkeypatch.setenv("HTTPS_PROXY", proxy)
    with ChatServer(YES) as server, pytest.raises(WorldError, match="cannot be reached"):
        ask(server, url="https://api.invalid/v1", num_attempts=1)


def test_a_proxy_of_another_kind_is_refused_without_its_login(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://me:secret@proxy.test:1080")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(ConfigError, match="socks5 proxy") as caught:
        proxy_for("https://api.test/v1")
    assert "secret" not in str(caught.value)
