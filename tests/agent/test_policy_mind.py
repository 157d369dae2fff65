import time
from dataclasses import replace

import pytest
import torch

from agent.decisions import FixedRetriever, make_decision, make_search, rows_equal
from focusmem import Memory
from focusmem.agent.fronts.empty import EmptyFront
from focusmem.agent.fronts.latent import LatentFront, MemoryUse
from focusmem.agent.fronts.turns import TurnsFront, show_raw
from focusmem.agent.local_policy import LocalPolicy
from focusmem.agent.policy import Completion
from focusmem.agent.policy_mind import PolicyMind, as_text
from focusmem.agent.prompt import PromptBuilder, recent_events
from focusmem.errors import ConfigError, WorldError
from focusmem.evidence import Serialiser, working_items
from focusmem.lab.policy.texts import PROMPTS
from focusmem.model.generation import GenerationConfig
from focusmem.schemas import Instruction, LeftOut, StepNotes, Turn
from toys import make_policy

SHORT = GenerationConfig(max_new_tokens=6)
LAB = PromptBuilder(PROMPTS / "agent")
"""Short prompts keep toy policies fast."""


@pytest.fixture(scope="module")
def memory():
    return make_policy()


@pytest.fixture(scope="module")
def policy(memory):
    return LocalPolicy(memory.backbone, SHORT)


class FakePolicy:
    """Notes what it was asked; `answer` makes a completion of a prompt with its seed."""

    identity = "fake"

    def __init__(self, answer=lambda asked, seed: Completion("x", 100)):
        self.answer = answer
        self.asked, self.seeds, self.forgotten = [], [], []

    def reply(self, asked, *, seeds=None):
        self.asked += asked
        self.seeds += seeds
        return [self.answer(*one) for one in zip(asked, seeds, strict=True)]

    def num_tokens(self, turns):
        return len(turns)

    def forget(self, episode_id):
        self.forgotten.append(episode_id)


def own_prompt(decision, builder=None):
    return (builder or PromptBuilder())(
        instruction=decision.task.instruction,
        recent=recent_events(decision.steps, decision.screenshots),
        screenshot=decision.seen.screenshot,
        actions_left=decision.task.max_steps - len(decision.steps),
    )


# What it asks.


def test_the_prompt_is_the_agents_own(memory):
    decision = make_decision(num_steps=5)
    mind = PolicyMind(FakePolicy(), EmptyFront())
    assert mind.prompt_of(decision) == own_prompt(decision)
    assert PolicyMind(FakePolicy(), EmptyFront(), prompt=LAB).prompt_of(decision) == own_prompt(decision, LAB)


def test_history_shows_expired_events_raw_before_the_prompt():
    serialise = Serialiser()
    mind = PolicyMind(FakePolicy(), EmptyFront(), history=serialise)
    for num_steps in (0, 3):
        decision = make_decision(num_steps=num_steps)
        assert mind.prompt_of(decision) == own_prompt(decision)
    decision = make_decision(num_steps=8)
    items = working_items(decision.steps, instruction=decision.task.instruction, num_recent=3)
    assert [len(item.steps) for item in items] == [4, 1]
    raw = [turn for item in items for turn in serialise(item, decision.screenshots)]
    assert mind.prompt_of(decision) == (*raw, *own_prompt(decision))


def test_every_event_is_either_shown_or_remembered(memory, policy):
    decision = make_decision(num_steps=5)
    for num_recent in range(4):
        front = LatentFront(memory, Serialiser(), MemoryUse(num_recent=num_recent, num_episodic=0))
        prepared = PolicyMind(policy, front).prepare([decision])
        [fronted] = prepared.fronted
        assert sum(item.num_steps for item in fronted.offered) == 5 - num_recent
        assert str(fronted.prompt).count("Step ") == num_recent
    mind = PolicyMind(policy, LatentFront(memory, Serialiser(), MemoryUse(num_recent=4)))
    with pytest.raises(ConfigError, match="num_recent is 4"):
        mind.prompt_of(decision)


def test_prompts_may_be_replaced(memory, policy):
    other = (Turn("user", (Instruction("What would you do?"),)),)
    mind = PolicyMind(policy, LatentFront(memory, Serialiser(), MemoryUse(num_recent=4)))
    [fronted] = mind.prepare([make_decision(num_steps=6)], [other]).fronted
    assert fronted.prompt == other
    assert sum(item.num_steps for item in fronted.offered) == 2


# What it answers.


def test_nothing_to_remember_is_the_plain_policy_bit_for_bit(memory, policy):
    decisions = [make_decision(number, num_steps=number) for number in range(4)]
    empty = FixedRetriever(make_search())
    latent = PolicyMind(policy, LatentFront(memory, Serialiser()), retriever=empty, prompt=LAB)
    turns = PolicyMind(
        policy, TurnsFront("raw", show_raw(Serialiser()), policy.num_tokens), retriever=empty, prompt=LAB
    )
    rows = policy.backbone.embed([policy.backbone.tokenise(own_prompt(one, LAB)) for one in decisions])
    assert all(map(rows_equal, [one.row for one in latent.prepare(decisions).fronted], rows))
    plain = PolicyMind(policy, EmptyFront(), prompt=LAB).ask(decisions)
    for mind in (latent, turns):
        replies = mind.ask(decisions)
        assert [reply.text for reply in replies] == [reply.text for reply in plain]
        assert [reply.notes.num_memory_tokens for reply in replies] == [0] * 4


@pytest.mark.parametrize("kind", ["latent", "turns"])
def test_a_batch_of_decisions_is_answered_as_one_by_one(memory, policy, kind):
    fronts = {
        "latent": LatentFront(memory, Serialiser()),
        "turns": TurnsFront("raw", show_raw(Serialiser()), policy.num_tokens),
    }
    decisions = [make_decision(number, num_steps=3 * number) for number in range(3)]
    mind = PolicyMind(policy, fronts[kind], retriever=FixedRetriever(make_search(1, 2)), prompt=LAB)
    together = mind.ask(decisions)
    for decision, reply in zip(decisions, together, strict=True):
        [alone] = mind.ask([decision])
        assert alone.text == reply.text
        assert (alone.notes.prompt, alone.notes.num_prompt_tokens) == (
            reply.notes.prompt,
            reply.notes.num_prompt_tokens,
        )
        assert [item.is_accepted for item in alone.notes.offered] == [item.is_accepted for item in reply.notes.offered]
    assert mind.ask([]) == []


def test_other_peoples_agents_get_the_same_from_the_same_parts(memory):
    front = LatentFront(memory, Serialiser())
    decision = make_decision(num_steps=6)
    [own] = PolicyMind(LocalPolicy(memory.backbone), front).prepare([decision]).fronted
    episode = Memory(front).begin(decision.task)
    for step in decision.steps:
        episode.observe(decision.screenshots[step.screenshot.sha256], step.action)
    prefix = episode.prefix(decision.seen.screenshot)
    assert prefix.prompt == own.prompt
    assert rows_equal(prefix.row, own.row)
    assert torch.equal(prefix.embeddings_PD, own.row.embeds_SD[: own.num_memory_tokens])
    assert prefix.items == own.offered != ()


# What it notes.


def test_the_notes_of_a_step_are_complete(memory, policy):
    decision, left_out = make_decision(num_steps=5), LeftOut(num_frames=1)
    search = replace(make_search(1, 2), left_out=left_out)
    front = LatentFront(memory, Serialiser(), MemoryUse(is_gated=False))
    mind = PolicyMind(policy, front, retriever=FixedRetriever(search))
    [reply] = mind.ask([decision])
    assert reply.notes.left_out == left_out
    notes, prompt = reply.notes, own_prompt(decision)
    assert notes.prompt == as_text(prompt)
    assert notes.prompt[0].startswith("system: ")
    assert f"[{decision.seen.screenshot.digest}]" in "".join(notes.prompt)
    assert notes.num_prompt_tokens == len(policy.backbone.tokenise(prompt).ids)
    assert notes.num_memory_tokens == 3 * memory.config.compressor.num_tokens
    assert notes.offered == mind.prepare([decision]).fronted[0].offered
    assert set(notes.seconds) == {"retrieve", "remember", "reply"}
    assert all(seconds >= 0 for seconds in notes.seconds.values())
    shown = PolicyMind(policy, TurnsFront("raw", show_raw(Serialiser()), policy.num_tokens), retriever=mind.retriever)
    [reply] = shown.ask([decision])
    assert reply.notes.num_prompt_tokens == notes.num_prompt_tokens
    assert reply.notes.num_memory_tokens == policy.num_tokens(shown.prepare([decision]).fronted[0].turns)


def test_a_part_lasts_as_long_for_each_decision_as_for_the_whole_batch():
    spent = []

    def reply(asked, seed):
        started = time.perf_counter()
        time.sleep(0.01)
        spent.append(time.perf_counter() - started)
        return Completion("x")

    decisions = [make_decision(number) for number in range(3)]
    replies = PolicyMind(FakePolicy(reply), EmptyFront()).ask(decisions)
    assert all(one.notes.seconds["reply"] >= sum(spent) for one in replies), "all three waited for all three"
    assert [one.notes.num_together for one in replies] == [3, 3, 3]


def test_notes_tell_how_many_items_were_encoded_for_a_batch(memory, policy):
    mind = PolicyMind(policy, LatentFront(memory, Serialiser()), retriever=FixedRetriever(make_search(1, 2)))
    counts = [mind.ask([make_decision()])[0].notes.num_encoded for _ in range(2)]
    assert counts == [2, 0]
    assert PolicyMind(policy, EmptyFront()).ask([make_decision()])[0].notes.num_encoded is None


def test_tokens_that_a_policy_does_not_tell_are_absent():
    silent = FakePolicy(lambda asked, seed: Completion("x"))
    [reply] = PolicyMind(silent, EmptyFront()).ask([make_decision()])
    assert (reply.notes.num_prompt_tokens, reply.notes.num_memory_tokens) == (None, 0)
    front = TurnsFront("raw", show_raw(Serialiser()), lambda turns: None)
    [reply] = PolicyMind(FakePolicy(), front, retriever=FixedRetriever(make_search(1))).ask([make_decision()])
    assert (reply.notes.num_prompt_tokens, reply.notes.num_memory_tokens) == (None, None)
    assert StepNotes.model_validate_json(reply.notes.model_dump_json()) == reply.notes


def test_an_error_belongs_to_the_decision_it_was_made_for():
    error = WorldError("The prompt is too long.")
    fake = FakePolicy(lambda asked, seed: Completion(error=error) if "task-1" in asked.episode_id else Completion("x"))
    replies = PolicyMind(fake, EmptyFront()).ask([make_decision(number) for number in range(3)])
    assert [(reply.text, reply.error) for reply in replies] == [("x", None), ("", error), ("x", None)]


# Retrieval, seeds, forgetting.


def test_a_retriever_is_asked_once_for_all_and_only_if_trajectories_are_needed(memory, policy):
    retriever = FixedRetriever(make_search(1, 2, 3, 4))
    decisions = [make_decision(0), make_decision(1)]
    front = LatentFront(memory, Serialiser(), MemoryUse(num_episodic=2))
    PolicyMind(policy, front, retriever=retriever).prepare(decisions)
    assert retriever.asked == [(["task-0 1 0", "task-1 1 0"], 2)]
    PolicyMind(policy, EmptyFront(), retriever=retriever).prepare(decisions)
    PolicyMind(policy, LatentFront(memory, Serialiser(), MemoryUse(num_episodic=0)), retriever=retriever).prepare(
        decisions
    )
    assert len(retriever.asked) == 1


def test_seeds_differ_by_episode_and_step_and_come_again():
    decisions = [
        make_decision(0),
        make_decision(0, num_steps=1),
        make_decision(0, episode_id="task-0 2 0"),
        make_decision(1),
    ]
    fakes = [FakePolicy(), FakePolicy(), FakePolicy()]
    for fake, seed in zip(fakes, (0, 0, 1), strict=True):
        PolicyMind(fake, EmptyFront(), seed=seed).ask(decisions)
    assert fakes[0].seeds == fakes[1].seeds
    assert len({*fakes[0].seeds, *fakes[2].seeds}) == 8


def test_runs_that_share_a_policy_are_told_apart():
    fake, decision = FakePolicy(), make_decision()
    minds = [PolicyMind(fake, EmptyFront()), PolicyMind(fake, EmptyFront())]
    for mind in minds:
        mind.ask([decision])
    names = [fronted.episode_id for fronted in fake.asked]
    assert len(set(names)) == 2
    minds[1].forget(decision.episode_id)
    assert fake.forgotten == [names[1]]


def test_what_is_kept_for_an_episode_is_freed_with_it(policy):
    front = TurnsFront("raw", show_raw(Serialiser()), policy.num_tokens)
    own = LocalPolicy(policy.backbone, SHORT)
    mind = PolicyMind(own, front, retriever=FixedRetriever(make_search(1)), prompt=LAB)
    for number in range(3):
        mind.ask([make_decision(number)])
        mind.forget(f"task-{number} 1 0")
        mind.forget(f"task-{number} 1 0")
    assert (own._read, front._kept, mind._under_way) == ({}, {}, set())


def test_what_is_kept_for_an_episode_that_gave_up_meanwhile_is_freed_as_well():
    def give_up(asked, seed):
        if "task-0" in asked.episode_id:
            mind.forget("task-0 1 0")
            fake.forgotten.clear()
        return Completion("x")

    fake = FakePolicy(give_up)
    mind = PolicyMind(fake, EmptyFront())
    mind.ask([make_decision(0), make_decision(1)])
    assert fake.forgotten == [fake.asked[0].episode_id]
