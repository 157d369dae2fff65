"""A hosted policy against a real HTTP server on this machine."""

import base64
import json
from itertools import groupby

import pytest

from agent.decisions import FixedRetriever, make_decision, make_search
from chat_server import ChatServer, completion, refusal
from focusmem.agent.chat_policy import ChatPolicy
from focusmem.agent.fronts.base import Fronted
from focusmem.agent.fronts.empty import EmptyFront
from focusmem.agent.fronts.latent import LatentFront
from focusmem.agent.fronts.turns import TurnsFront, show_raw
from focusmem.agent.policy import Completion
from focusmem.agent.policy_mind import PolicyMind
from focusmem.clients.openai_chat import ChatConfig, OpenAIChat
from focusmem.clients.options import EndpointOptions, Prices
from focusmem.errors import ConfigError, WorldError
from focusmem.evidence import Serialiser
from focusmem.model.generation import GenerationConfig
from focusmem.schemas import Screenshot, Turn
from toys import make_policy


def connect(server, **settings):
    return ChatPolicy(OpenAIChat(ChatConfig(**{"url": server.url, "model": "agent"} | settings)))


def asked_as(text, **values):
    return Fronted((Turn("user", (text,)),), text, **values)


def echo(asked):
    """What the last message said."""
    return completion(asked["messages"][-1]["content"], prompt_tokens=10 + len(asked["messages"]))


def messages_of(prompt):
    """The texts and pictures of turns, as a server gets them: neighbouring texts of a turn are one."""
    shown = []
    for turn in prompt:
        for is_picture, found in groupby(turn.parts, key=lambda part: isinstance(part, Screenshot)):
            parts = list(found)
            texts = [base64.b64encode(part.png).decode() for part in parts] if is_picture else ["".join(parts)]
            shown += [(turn.role, text) for text in texts]
    return shown


def received(asked):
    shown = []
    for message in asked["messages"]:
        content = message["content"]
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            text = part["text"] if part["type"] == "text" else part["image_url"]["url"].partition(",")[2]
            shown.append((message["role"], text))
    return shown


def test_each_prompt_gets_its_own_reply():
    texts = [f"prompt {number}" for number in range(9)]
    with ChatServer(echo) as server:
        policy = connect(server)
        replies = policy.reply([asked_as(text) for text in texts])
        assert replies == [Completion(text, 11) for text in texts]
        assert policy.reply([]) == []
    assert len(server.asked) == 9


def test_prompts_of_a_batch_are_asked_at_the_same_time():
    arrived = []

    def when_all_are_here(asked):
        arrived.append(asked)
        for _ in range(500):
            if len(arrived) == 3:
                return echo(asked)
            server._closing.wait(0.01)
        return 400, "the others were not asked meanwhile"

    with ChatServer(when_all_are_here) as server:
        replies = connect(server).reply([asked_as(text) for text in "abc"])
    assert [reply.text for reply in replies] == ["a", "b", "c"]


def test_memory_stands_before_the_prompt_and_screenshots_are_sent():
    decision, search = make_decision(num_steps=2), make_search(1, 2)
    with ChatServer(completion("go", prompt_tokens=900)) as server:
        policy = connect(server)
        front = TurnsFront("raw", show_raw(Serialiser()), policy.num_tokens)
        mind = PolicyMind(policy, front, retriever=FixedRetriever(search))
        [reply] = mind.ask([decision])
        [alone] = PolicyMind(policy, EmptyFront()).ask([decision])
    [fronted] = mind.prepare([decision]).fronted
    assert received(server.asked[0]) == messages_of((*fronted.turns, *fronted.prompt))
    assert received(server.asked[1]) == messages_of(fronted.prompt)
    assert (reply.text, reply.notes.num_prompt_tokens, reply.notes.num_memory_tokens) == ("go", None, None)
    assert (alone.notes.num_prompt_tokens, alone.notes.num_memory_tokens) == (900, 0)
    assert [item.trajectory_id for item in reply.notes.offered] == ["trajectory-1", "trajectory-2"]


def test_one_that_fails_does_not_fail_the_others():
    def answer(asked):
        text = asked["messages"][-1]["content"]
        return (400, "The prompt is too long.") if text == "long" else echo(asked)

    with ChatServer(answer) as server:
        first, second, third = connect(server).reply([asked_as(text) for text in ("a", "long", "c")])
    assert (first.text, third.text) == ("a", "c")
    assert isinstance(second.error, WorldError)
    assert "too long" in str(second.error)


def test_a_wrong_model_stops_the_run():
    with ChatServer((404, "no such model")) as server, pytest.raises(ConfigError, match="no such model"):
        connect(server).reply([asked_as("a"), asked_as("b")])


def test_a_reply_that_was_cut_off_is_read_as_far_as_it_goes():
    with ChatServer(completion('{"name": "cl', "length")) as server:
        assert connect(server).reply([asked_as("a")]) == [Completion('{"name": "cl')]


def test_equal_seeds_are_sent_for_equal_prompts():
    with ChatServer(echo) as server:
        connect(server, temperature=0.5).reply([asked_as("a"), asked_as("b")], seeds=[3, 4])
        connect(server).reply([asked_as("a")], seeds=[3])
    seeds = {json.dumps(asked["messages"][-1]["content"]): asked.get("seed") for asked in server.asked[:2]}
    assert seeds == {'"a"': 3, '"b"': 4}
    assert "seed" not in server.asked[2]


def test_latent_memory_is_refused_in_a_sentence():
    memory = make_policy()
    with ChatServer(echo) as server:
        mind = PolicyMind(connect(server), LatentFront(memory, Serialiser()))
        with pytest.raises(ConfigError, match="latent memory is made of embeddings"):
            mind.ask([make_decision()])
    assert server.asked == []


def test_it_connects_with_the_settings_of_generation_and_of_the_endpoint(monkeypatch, tmp_path):
    monkeypatch.setenv("FOCUSMEM_POLICY_KEY", "a-long-secret")
    with ChatServer(echo) as server:
        generation = GenerationConfig(max_new_tokens=17, temperature=0.5, top_p=0.8)
        options = EndpointOptions(store=tmp_path, prices=Prices(prompt=1.0, reply=1.0))
        policy = ChatPolicy.connect(server.url, "Qwen/Qwen3-VL", generation, options)
        policy.reply([asked_as("a")], seeds=[5])
    [asked] = server.asked
    names = ("model", "max_completion_tokens", "temperature", "top_p", "seed")
    assert [asked[name] for name in names] == ["Qwen/Qwen3-VL", 17, 0.5, 0.8, 5]
    assert server.headers[0]["Authorization"] == "Bearer a-long-secret"
    assert policy.identity == f"Qwen/Qwen3-VL at {server.url}"
    assert (policy.spending.num_replies, (tmp_path / "spending.jsonl").is_file()) == (1, True)


def test_an_endpoint_without_a_model_is_the_users():
    with pytest.raises(ConfigError, match="--model"):
        ChatPolicy.connect("http://localhost:8000/v1", None, GenerationConfig())


def test_tokens_costs_thoughts_and_refusals_come_with_a_completion():
    body = {
        "choices": [{"message": {"content": "go", "reasoning_content": "Where?"}}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 100},
    }

    def answer(asked):
        return refusal("temperature is not supported") if "temperature" in asked else (200, json.dumps(body))

    with ChatServer(answer) as server:
        [reply] = connect(server, prices=Prices(prompt=1.0, reply=10.0)).reply([asked_as("a")])
    assert reply == Completion(
        "go", 1000, thoughts="Where?", num_reply_tokens=100, cost_usd=0.002, departures=("temperature 0 was refused",)
    )
