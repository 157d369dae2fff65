import pytest
import torch

from factories import make_steps, make_trajectory
from focusmem.agent.memory import AgentMemory, MemoryUse, Situation
from focusmem.errors import ConfigError
from focusmem.evidence import Serialiser
from focusmem.schemas import StoredTrajectory, Turn
from toys import make_policy


@pytest.fixture(scope="module")
def policy():
    return make_policy().eval()


def prompt(number):
    return (Turn("user", (f"Decide {number}.",)),)


def situation(num_steps=0, num_found=0):
    steps, screenshots = make_steps(num_steps)
    found = [(StoredTrajectory(*make_trajectory(2, seed=10 + seed)), 0.9 - 0.1 * seed) for seed in range(num_found)]
    return Situation("a task", steps, screenshots, found)


def rows_equal(one, other):
    return torch.equal(one.embeds_SD, other.embeds_SD) and torch.equal(one.positions_3S, other.positions_3S)


def test_nothing_to_remember_is_the_plain_prompt(policy):
    memory = AgentMemory(policy, Serialiser())
    remembered = memory.remember([prompt(0)], [situation(num_steps=3)])
    [plain] = policy.embed([prompt(0)])
    assert rows_equal(remembered.rows[0], plain)
    assert remembered.items == [[]]
    assert remembered.num_memory_tokens == [0]


def test_found_and_expired_stand_in_front_in_order(policy):
    memory = AgentMemory(policy, Serialiser(), MemoryUse(is_gated=False))
    remembered = memory.remember([prompt(0)], [situation(num_steps=9, num_found=4)])
    [own] = remembered.items
    assert [(one.item.role, one.item.rank) for one in own] == [
        ("episodic", 0), ("episodic", 1), ("episodic", 2), ("working", 0), ("working", 1),
    ]  # fmt: skip
    assert all(one.is_accepted and one.trust_logit is None and one.threshold is None for one in own)
    num_tokens = policy.config.compressor.num_tokens
    assert remembered.num_memory_tokens == [5 * num_tokens]


def test_many_decisions_at_once_equal_each_alone(policy):
    memory = AgentMemory(policy, Serialiser())
    situations = [situation(num_steps=5, num_found=1), situation(), situation(num_steps=8, num_found=2)]
    prompts = [prompt(number) for number in range(3)]
    together = memory.remember(prompts, situations)
    for number in range(3):
        alone = memory.remember([prompts[number]], [situations[number]])
        torch.testing.assert_close(alone.rows[0].embeds_SD, together.rows[number].embeds_SD, rtol=1e-4, atol=1e-5)
        assert [one.is_accepted for one in alone.items[0]] == [one.is_accepted for one in together.items[number]]


def test_a_closed_gate_is_the_plain_prompt_and_tells_why(policy):
    bias = policy.gate.out.bias
    before = bias.detach().clone()
    try:
        with torch.no_grad():
            bias.fill_(-20.0)
        remembered = AgentMemory(policy, Serialiser()).remember([prompt(0)], [situation(num_steps=6, num_found=2)])
        assert rows_equal(remembered.rows[0], policy.embed([prompt(0)])[0])
        assert [one.is_accepted for one in remembered.items[0]] == [False] * 3
        for one in remembered.items[0]:
            assert one.trust_logit < -10
            assert one.trust < one.threshold == one.offered(8).threshold == policy.gate.config.threshold
    finally:
        with torch.no_grad():
            bias.copy_(before)


def test_what_was_encoded_once_is_not_encoded_again(policy):
    memory = AgentMemory(policy, Serialiser())
    memory.remember([prompt(0)], [situation(num_steps=7, num_found=2)])
    before = memory.cache.counts.num_encoded
    memory.remember([prompt(1)], [situation(num_steps=7, num_found=2)])
    assert memory.cache.counts.num_encoded == before == 3


def test_config_names_the_field():
    with pytest.raises(ConfigError, match="chunk_events"):
        MemoryUse(chunk_events=0)


def test_where_a_block_looked_is_told_screenshot_by_screenshot(policy):
    use = MemoryUse(is_gated=False, tells_attention=True)
    memory = AgentMemory(policy, Serialiser(), use)
    given = situation(num_steps=5, num_found=1)
    [own] = memory.remember([prompt(0)], [given]).items
    for one in own:
        assert [looked.screenshot for looked in one.attention] == [step.screenshot for step in one.item.steps]
        total = sum(sum(looked.weights) for looked in one.attention)
        assert 0 < total < 1, "the rest is on words"
    assert AgentMemory(policy, Serialiser()).remember([prompt(0)], [given]).items[0][0].attention == ()
