"""The chat client against a real HTTP server on this machine."""

import base64
import time

import pytest

from chat_server import ChatServer, completion
from clocks import PATIENT_S
from factories import make_screenshot
from focusmem.clients.base import ChatReply
from focusmem.clients.openai_chat import ChatConfig, OpenAIChat
from focusmem.errors import ConfigError, WorldError
from focusmem.schemas import Instruction, Turn

PICTURE = make_screenshot(1)
PROMPT = (Turn("system", ("Be brief.",)), Turn("user", ("Here:", PICTURE, "What is it?")))


def ask(server, *, seed=None, **settings):
    patient = {"url": server.url, "model": "eyes", "wait_s": 0.01, "timeout_s": PATIENT_S}
    config = ChatConfig(**patient | settings)
    return OpenAIChat(config).ask(PROMPT, seed=seed)


def test_turns_are_messages_with_text_and_pictures_in_order():
    with ChatServer(completion("A mug.", prompt_tokens=40, completion_tokens=3)) as server:
        assert ask(server, max_tokens=7) == ChatReply("A mug.", False, 40, 3)
    [asked] = server.asked
    picture = base64.b64encode(PICTURE.png).decode()
    assert asked == {
        "model": "eyes",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Here:"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}},
                    {"type": "text", "text": "What is it?"},
                ],
            },
        ],
        "temperature": 0,
        "max_tokens": 7,
    }


def test_a_seed_is_sent_only_if_replies_are_sampled():
    with ChatServer(completion("x")) as server:
        ask(server, seed=5)
        ask(server, seed=5, temperature=0.7, top_p=0.9)
    greedy, sampled = server.asked
    assert not {"seed", "top_p"} & set(greedy)
    assert (sampled["seed"], sampled["top_p"], sampled["temperature"]) == (5, 0.9, 0.7)


def test_a_reply_tells_whether_it_was_cut_off_and_what_the_server_counted():
    with ChatServer(completion("A mu", "length"), completion(None, "length")) as server:
        assert ask(server) == ChatReply("A mu", True, None, None)
        assert ask(server) == ChatReply("", True, None, None)


@pytest.mark.parametrize(
    "body",
    [
        "<html>", "{}", "[]", "7", '{"choices": []}', '{"choices": [{"message": {"content": null}}]}',
        '{"choices": [7]}', '{"choices": [{"message": {"content": "x"}}], "usage": 3}', "[" * 100_000,
    ],
)  # fmt: skip
def test_anything_but_a_completion_is_shown(body):
    with ChatServer((200, body)) as server, pytest.raises(WorldError) as caught:
        ask(server)
    assert repr(body[:300])[:-1] in str(caught.value)


@pytest.mark.parametrize("passing", [(503, "warming up"), (500, ""), (429, "slow down"), (None, "")])
def test_a_busy_server_is_asked_again(passing):
    with ChatServer(passing, passing, completion("yes")) as server:
        assert ask(server).text == "yes"
    assert len(server.asked) == 3


def test_a_server_is_not_asked_for_ever():
    with ChatServer((503, "warming up")) as server, pytest.raises(WorldError, match=r"503: 'warming up'.*3 times"):
        ask(server)
    assert len(server.asked) == 3


def test_a_refused_request_is_not_repeated():
    with ChatServer((400, "too many pixels" + 1000 * "!")) as server, pytest.raises(WorldError) as caught:
        ask(server)
    assert "400: 'too many pixels!!" in str(caught.value)
    assert len(str(caught.value)) < 500
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_address_is_the_users(status):
    with (
        ChatServer((status, "no such model")) as server,
        pytest.raises(ConfigError, match=f"{status}: 'no such model'"),
    ):
        ask(server)
    assert len(server.asked) == 1


def test_a_redirection_is_not_followed():
    with ChatServer((307, "")) as server, pytest.raises(WorldError, match="status 307"):
        ask(server)


def test_a_server_that_is_not_there_is_named():
    with ChatServer(completion("yes")) as server:
        pass
    with pytest.raises(WorldError, match=r"127.0.0.1.* cannot be reached: .*refused"):
        ask(server, num_attempts=2)


def test_a_server_that_trickles_is_given_up_in_time():
    slow = ChatServer(completion("yes"), trickle_s=0.05)
    with slow as server, pytest.raises(WorldError, match=r"timeout_s, 0\.3 s"):
        ask(server, timeout_s=0.3)


def test_a_slow_server_is_given_up_in_time():
    with ChatServer(completion("yes"), delay_s=PATIENT_S) as server:
        with pytest.raises(WorldError, match=r"timeout_s, 0\.2 s"):
            ask(server, timeout_s=0.2)
        while not server.asked:  # it may be slow to read as well
            time.sleep(0.01)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"url": "localhost:8000"}, {"url": "file:///etc"}, {"model": " "}, {"timeout_s": 0}, {"num_attempts": 0},
        {"temperature": -1.0}, {"top_p": 0.0}, {"wait_s": -1},
    ],
)  # fmt: skip
def test_config_names_the_field(change):
    with pytest.raises(ConfigError, match=next(iter(change))):
        ChatConfig(**{"url": "http://localhost/v1", "model": "eyes"} | change)


def test_a_key_that_is_not_set_is_named(monkeypatch):
    monkeypatch.delenv("EYES_KEY", raising=False)
    with pytest.raises(ConfigError, match="EYES_KEY"):
        OpenAIChat(ChatConfig(url="http://localhost/v1", model="eyes", key_variable="EYES_KEY"))


def test_an_address_names_server_and_model(monkeypatch):
    monkeypatch.delenv("EYES_KEY", raising=False)
    config = ChatConfig.of("http://localhost:8000/v1#Qwen/Qwen3-VL", key_variable="EYES_KEY", max_tokens=9)
    assert config == ChatConfig(url="http://localhost:8000/v1", model="Qwen/Qwen3-VL", max_tokens=9)
    assert OpenAIChat(config).identity == "Qwen/Qwen3-VL at http://localhost:8000/v1"
    monkeypatch.setenv("EYES_KEY", "secret")
    with ChatServer(completion("yes")) as server:
        OpenAIChat(ChatConfig.of(f"{server.url}#eyes", key_variable="EYES_KEY")).ask(PROMPT)
    assert server.headers[0]["Authorization"] == "Bearer secret"
    with pytest.raises(ConfigError, match="names no model"):
        ChatConfig.of("http://localhost:8000/v1", key_variable="EYES_KEY")


def test_neighbouring_texts_are_sent_as_one():
    """Some servers put a line break between them, and the mark of the instruction must not change what is asked."""
    asked = (
        Turn("user", ("Task: ", Instruction("find it"), ".")),
        Turn("user", ("Here:", " look ", PICTURE, "What", " is it?")),
    )
    with ChatServer(completion("x")) as server:
        OpenAIChat(ChatConfig(url=server.url, model="eyes", timeout_s=PATIENT_S)).ask(asked)
    task, look = (message["content"] for message in server.asked[0]["messages"])
    assert task == "Task: find it."
    assert [part.get("text") for part in look] == ["Here: look ", None, "What is it?"]
