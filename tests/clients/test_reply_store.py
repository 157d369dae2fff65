"""Replies on disk: nothing is paid twice, not after a restart and not by several threads, and replays send nothing."""

import json
import threading
from dataclasses import replace

import pytest

from chat_server import ChatServer, completion, refusal
from clients.asking import PICTURE, PROMPT, make_client
from factories import make_screenshot
from focusmem.clients.options import Prices
from focusmem.clients.spending import Spending
from focusmem.errors import ConfigError, StorageError, WorldError
from focusmem.schemas import Turn

PRICES = Prices(prompt=2.0, reply=8.0)
YES = completion("yes", prompt_tokens=1000, completion_tokens=10)
COST = 0.00208


def prompt_of(number):
    return (Turn("user", (f"Question {number}",)),)


def test_an_interrupted_work_goes_on_without_paying_twice(tmp_path):
    with ChatServer(YES) as server:
        first = make_client(server, store=tmp_path, prices=PRICES)
        for number in range(3):
            assert first.ask(prompt_of(number)).cost_usd == pytest.approx(COST)
        second = make_client(server, store=tmp_path, prices=PRICES)
        replies = [second.ask(prompt_of(number)) for number in range(5)]
    assert len(server.asked) == 5
    assert [reply.is_stored for reply in replies] == [True, True, True, False, False]
    assert [reply.cost_usd for reply in replies[:3]] == [0, 0, 0]
    assert {reply.text for reply in replies} == {"yes"}
    expected = Spending(5, 5000, 50, pytest.approx(5 * COST), 0, 3)
    assert second.spending == expected
    assert make_client(server, store=tmp_path).spending == replace(expected, num_stored=0)


def test_a_stored_reply_is_the_reply(tmp_path):
    def answer(asked):
        return refusal("temperature is not supported") if "temperature" in asked else completion("ye", "length")

    with ChatServer(answer) as server:
        [fresh, stored] = [make_client(server, store=tmp_path).ask(PROMPT) for _ in range(2)]
    assert stored == replace(fresh, is_stored=True, cost_usd=0.0)
    assert (stored.is_cut_off, stored.departures) == (True, ("temperature 0 was refused",))


def test_threads_that_ask_the_same_pay_once(tmp_path):
    with ChatServer(YES, delay_s=0.05) as server:
        client = make_client(server, store=tmp_path)
        threads = [threading.Thread(target=client.ask, args=(PROMPT,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(server.asked) == 1
    assert client.spending.num_stored == 5


CHANGES = [
    {"model": "other"}, {"max_tokens": 9}, {"temperature": 0.5}, {"temperature": 0.5, "top_p": 0.5},
    {"extra": {"reasoning_effort": "low"}}, {"as_json": True}, {"seed": 1},
    {"prompt": (Turn("user", ("What is it?",)),)},
    {"prompt": (Turn("system", ("Be brief.",)), Turn("user", ("Here:", make_screenshot(2), "What is it?")))},
    {"prompt": (Turn("user", ("Be brief.",)), Turn("user", ("Here:", PICTURE, "What is it?")))},
    {"prompt": (Turn("system", ("Be brief.",)), Turn("user", ("Here:", "What is it?", PICTURE)))},
    {"prompt": (Turn("system", ("Be brief.",)), Turn("user", ("Here:What is it?", PICTURE)))},
]  # fmt: skip


def test_everything_that_decides_a_reply_decides_where_it_is_kept(tmp_path):
    with ChatServer(YES) as server:
        for change in ({}, *CHANGES):
            asked = {name: change.get(name) for name in ("seed", "as_json") if name in change}
            settings = {name: value for name, value in change.items() if name not in ("seed", "as_json", "prompt")}
            reply = make_client(server, store=tmp_path, **settings).ask(change.get("prompt", PROMPT), **asked)
            assert not reply.is_stored, change
    assert len(list(tmp_path.glob("*/*.json"))) == 1 + len(CHANGES)


@pytest.mark.parametrize(
    "change",
    [{"timeout_s": 5.0}, {"num_attempts": 1}, {"requests_per_minute": 600}, {"prices": PRICES}, {"max_wait_s": 1.0}],
)
def test_what_does_not_decide_a_reply_does_not_ask_again(tmp_path, change):
    with ChatServer(YES) as server:
        make_client(server, store=tmp_path).ask(PROMPT)
        assert make_client(server, store=tmp_path, **change).ask(PROMPT).is_stored


def test_a_replay_sends_nothing_and_needs_no_key(tmp_path, monkeypatch):
    monkeypatch.setenv("EYES_KEY", "a-long-secret")
    with ChatServer(YES) as server:
        make_client(server, store=tmp_path, key_variable="EYES_KEY").ask(PROMPT)
        monkeypatch.delenv("EYES_KEY")
        replay = make_client(server, store=tmp_path, key_variable="EYES_KEY", replay_only=True)
        assert (replay.ask(PROMPT).text, replay.spending.num_stored) == ("yes", 1)
        with pytest.raises(ConfigError, match=f"{tmp_path} holds no reply of eyes at .*Leave out replay_only"):
            replay.ask(prompt_of(1))
    assert len(server.asked) == 1


def test_errors_are_not_kept(tmp_path):
    with ChatServer((400, "no"), YES) as server:
        client = make_client(server, store=tmp_path)
        with pytest.raises(WorldError):
            client.ask(PROMPT)
        assert client.ask(PROMPT).text == "yes"


def test_the_record_names_pictures_by_their_digest(tmp_path):
    with ChatServer(YES) as server:
        make_client(server, store=tmp_path).ask(PROMPT)
    [path] = tmp_path.glob("*/*.json")
    assert json.loads(path.read_text())["request"]["messages"] == [
        {"role": "system", "content": ["Be brief."]},
        {"role": "user", "content": ["Here:", [PICTURE.digest], "What is it?"]},
    ]


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"reply": {"unknown": 1, "departures": []}}'])
def test_a_damaged_reply_is_named_and_not_paid_again(tmp_path, content):
    with ChatServer(YES) as server:
        client = make_client(server, store=tmp_path)
        client.ask(PROMPT)
        [path] = tmp_path.glob("*/*.json")
        path.write_text(content)
        with pytest.raises(StorageError, match=f"{path.name} is no stored reply"):
            client.ask(PROMPT)
    assert len(server.asked) == 1


def test_a_damaged_ledger_is_named(tmp_path):
    with ChatServer(YES) as server:
        client = make_client(server, store=tmp_path)
        client.ask(PROMPT)
    with (tmp_path / "spending.jsonl").open("a") as file:
        file.write('{"model": "eyes"}\n')
    with pytest.raises(StorageError, match="line 2"):
        _ = client.spending
