"""The chat client against a real HTTP server on this machine: requests, replies, and what endpoints refuse."""

import base64

import pytest

from chat_server import ChatServer, completion, refusal
from clients.asking import PICTURE, PROMPT, ask, make_client
from focusmem.clients.base import ChatReply
from focusmem.clients.openai_chat import ChatConfig, OpenAIChat
from focusmem.clients.options import EndpointOptions
from focusmem.errors import ConfigError, WorldError
from focusmem.schemas import Instruction, Turn


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
        "max_completion_tokens": 7,
    }


def test_a_seed_is_sent_only_if_replies_are_sampled():
    with ChatServer(completion("x")) as server:
        ask(server, seed=5)
        ask(server, seed=5, temperature=0.7, top_p=0.9)
    greedy, sampled = server.asked
    assert not {"seed", "top_p"} & set(greedy)
    assert (sampled["seed"], sampled["top_p"], sampled["temperature"]) == (5, 0.9, 0.7)


def test_json_output_and_further_fields_are_sent():
    with ChatServer(completion("{}")) as server:
        ask(server, as_json=True, extra={"reasoning_effort": "low"})
    assert server.asked[0]["response_format"] == {"type": "json_object"}
    assert server.asked[0]["reasoning_effort"] == "low"


def test_a_reply_tells_whether_it_was_cut_off_and_what_the_server_counted():
    with ChatServer(completion("A mu", "length"), completion(None, "length")) as server:
        assert ask(server) == ChatReply("A mu", True, None, None)
        assert ask(server) == ChatReply("", True, None, None)


def test_thoughts_that_come_apart_are_kept_apart():
    body = '{"choices": [{"message": {"content": "Yes", "reasoning_content": "Is it? It is."}}]}'
    with ChatServer((200, body)) as server:
        reply = ask(server)
    assert (reply.text, reply.reasoning) == ("Yes", "Is it? It is.")


# What endpoints refuse.

OPENAI_LIMIT = refusal(
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    param="max_tokens",
    code="unsupported_parameter",
)
OPENAI_TEMPERATURE = refusal(
    "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.",
    param="temperature",
    code="unsupported_value",
)
OLD_LIMIT = refusal("Unrecognized request argument supplied: max_completion_tokens")
STRICT_LIMIT = (422, '{"detail": [{"type": "extra_forbidden", "loc": ["body", "max_completion_tokens"]}]}')


def takes(*names, refusing):
    """A server that refuses the first of the given fields that a request holds."""

    def answer(asked):
        for name in names:
            if name in asked:
                return refusing[name]
        return completion("yes")

    return answer


@pytest.mark.parametrize("refused", [OLD_LIMIT, STRICT_LIMIT])
def test_an_old_server_gets_the_old_name_of_the_limit_and_is_asked_once(refused):
    with ChatServer(takes("max_completion_tokens", refusing={"max_completion_tokens": refused})) as server:
        client = make_client(server, max_tokens=7)
        assert [client.ask(PROMPT).departures, client.ask(PROMPT).departures] == [(), ()]
    first, second, third = server.asked
    assert "max_completion_tokens" in first
    assert [asked["max_tokens"] for asked in (second, third)] == [7, 7]


def test_a_server_that_refuses_the_old_name_is_asked_by_the_new_one():
    with ChatServer(takes("max_tokens", refusing={"max_tokens": OPENAI_LIMIT})) as server:
        assert ask(server).text == "yes"
    assert len(server.asked) == 1


def test_a_server_that_takes_neither_name_gets_no_limit_and_the_reply_says_so():
    refused = {"max_completion_tokens": OLD_LIMIT, "max_tokens": OPENAI_LIMIT}
    with ChatServer(takes(*refused, refusing=refused)) as server:
        assert ask(server, max_tokens=7).departures == ("a limit of 7 tokens was refused",)
    assert not {"max_tokens", "max_completion_tokens"} & set(server.asked[-1])


def test_what_an_endpoint_refuses_is_left_out_and_named_on_every_reply():
    refused = {"temperature": OPENAI_TEMPERATURE, "response_format": refusal("response_format is not supported")}
    with ChatServer(takes(*refused, refusing=refused)) as server:
        client = make_client(server)
        replies = [client.ask(PROMPT, as_json=True) for _ in range(2)]
        assert client.ask(PROMPT).departures == ("temperature 0 was refused",)
    assert {reply.departures for reply in replies} == {("temperature 0 was refused", "JSON output was refused")}
    assert len(server.asked) == 5, "both refusals are learned once"


@pytest.mark.parametrize(
    "answer",
    [
        refusal("'max_tokens' or 'max_completion_tokens' is too large: 4096. The context has 2048 tokens."),
        refusal("The temperature outside is not what this is about."),
        refusal("This image is not supported."),
        (400, "too many pixels" + 1000 * "!"),
    ],
)
def test_another_refusal_is_not_repeated(answer):
    with ChatServer(answer) as server, pytest.raises(WorldError, match="status 400") as caught:
        ask(server)
    assert len(str(caught.value)) < 500
    assert len(server.asked) == 1


# Settings.


@pytest.mark.parametrize(
    "change",
    [
        {"url": "localhost:8000"}, {"url": "file:///etc"}, {"url": "http://me:secret@host/v1"},
        {"url": "http://host/v1?key=secret"}, {"url": "http://host/v1#model"}, {"model": " "}, {"timeout_s": 0},
        {"num_attempts": 0}, {"temperature": -1.0}, {"top_p": 0.0}, {"wait_s": -1}, {"replay_only": True},
        {"extra": {"messages": []}},
    ],
)  # fmt: skip
def test_config_names_the_field(change):
    with pytest.raises(ConfigError, match=next(iter(change))) as caught:
        ChatConfig(**{"url": "http://localhost/v1", "model": "eyes"} | change)
    assert "secret" not in str(caught.value)


def test_a_key_is_sent_only_if_its_variable_is_set(monkeypatch):
    for key, header in ((None, None), ("a-long-secret", "Bearer a-long-secret")):
        monkeypatch.delenv("EYES_KEY", raising=False)
        if key is not None:
            monkeypatch.setenv("EYES_KEY", key)
        with ChatServer(completion("yes")) as server:
            OpenAIChat(ChatConfig.of(server.url, "eyes", EndpointOptions(), key_variable="EYES_KEY")).ask(PROMPT)
        assert server.headers[0].get("Authorization") == header


def test_nothing_of_the_environment_goes_to_an_endpoint(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "not-for-this-host")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Other: not-for-this-host")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere.test/v1")
    with ChatServer(completion("yes")) as server:
        ask(server)
    assert not any("not-for-this-host" in value for value in server.headers[0].values())
    assert "Authorization" not in server.headers[0]


def test_an_identity_names_model_and_server():
    assert OpenAIChat(ChatConfig(url="http://localhost:8000/v1", model="Qwen/Qwen3-VL")).identity == (
        "Qwen/Qwen3-VL at http://localhost:8000/v1"
    )


def test_neighbouring_texts_are_sent_as_one():
    """Some servers put a line break between them, and the mark of the instruction must not change what is asked."""
    asked = (
        Turn("user", ("Task: ", Instruction("find it"), ".")),
        Turn("user", ("Here:", " look ", PICTURE, "What", " is it?")),
    )
    with ChatServer(completion("x")) as server:
        make_client(server).ask(asked)
    task, look = (message["content"] for message in server.asked[0]["messages"])
    assert task == "Task: find it."
    assert [part.get("text") for part in look] == ["Here: look ", None, "What is it?"]
