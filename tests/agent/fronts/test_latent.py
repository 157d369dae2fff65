import pytest
import torch

from agent.decisions import make_decision, make_search, rows_equal
from focusmem.agent.fronts.latent import LatentFront, MemoryUse
from focusmem.agent.retrieval import Search
from focusmem.errors import ConfigError
from focusmem.evidence import Serialiser, episodic_items, working_items
from focusmem.model.compressor import ROLES
from focusmem.model.evidence_cache import CacheConfig, EvidenceCache
from focusmem.model.injection import Place
from focusmem.schemas import Instruction, Turn
from toys import make_policy


@pytest.fixture(scope="module")
def policy():
    return make_policy()


def prompt(number):
    return (Turn("user", (Instruction(f"Decide {number}."),)),)


def place(front, decision, search=None, number=0):
    """One decision alone."""
    [fronted] = front.place([prompt(number)], [decision], [search or Search()])
    return fronted


def test_nothing_to_remember_is_the_plain_prompt(policy):
    fronted = place(LatentFront(policy, Serialiser()), make_decision(num_steps=3))
    assert rows_equal(fronted.row, policy.embed([prompt(0)])[0])
    assert (fronted.offered, fronted.num_memory_tokens) == ((), 0)


def test_found_and_expired_stand_in_front_in_order(policy):
    front = LatentFront(policy, Serialiser(), MemoryUse(is_gated=False))
    fronted = place(front, make_decision(num_steps=9), make_search(1, 2, 3, 4))
    assert [(item.role, item.rank, item.num_steps) for item in fronted.offered] == [
        ("episodic", 0, 2), ("episodic", 1, 2), ("episodic", 2, 2), ("working", 0, 4), ("working", 1, 2),
    ]  # fmt: skip
    assert [item.trajectory_id for item in fronted.offered[:3]] == ["trajectory-1", "trajectory-2", "trajectory-3"]
    assert [item.score for item in fronted.offered] == [0.9, 0.8, 0.7, None, None]
    assert all(
        item.is_accepted and item.trust_logit is None and item.threshold_logit is None for item in fronted.offered
    )
    assert (
        fronted.num_memory_tokens
        == 5 * policy.config.compressor.num_tokens
        == fronted.row.length - len(policy.backbone.tokenise(prompt(0)).ids)
    )


def test_rows_are_those_of_the_memory_policy_itself(policy):
    """Each item is read with the screenshots of its own trajectory."""
    serialise, decision, search = Serialiser(), make_decision(num_steps=6), make_search(5, 6)
    items = [
        *episodic_items((one.stored.trajectory, one.hit.score) for one in search.found),
        *working_items(decision.steps, instruction=decision.task.instruction, num_recent=3),
    ]
    shots = [search.found[0].stored.screenshots, search.found[1].stored.screenshots, decision.screenshots]
    records = [serialise(item, own) for item, own in zip(items, shots, strict=True)]
    assert LatentFront(policy, serialise).evidence(decision, search) == list(zip(items, records, strict=True))
    places = [Place(0, ROLES.index(item.role), item.rank) for item in items]
    _, [row], memory = policy.recall([prompt(0)], policy.encode(records), places)
    fronted = place(LatentFront(policy, serialise), decision, search)
    torch.testing.assert_close(fronted.row.embeds_SD, row.embeds_SD, rtol=1e-4, atol=1e-5)
    assert [item.is_accepted for item in fronted.offered] == list(memory.keep)


def test_many_decisions_at_once_equal_each_alone(policy):
    front = LatentFront(policy, Serialiser())
    decisions = [make_decision(0, num_steps=5), make_decision(1), make_decision(2, num_steps=8)]
    searches = [make_search(10), Search(), make_search(10, 11)]
    together = front.place([prompt(number) for number in range(3)], decisions, searches)
    for number, (decision, search) in enumerate(zip(decisions, searches, strict=True)):
        alone = place(front, decision, search, number)
        torch.testing.assert_close(alone.row.embeds_SD, together[number].row.embeds_SD, rtol=1e-4, atol=1e-5)
        assert [item.is_accepted for item in alone.offered] == [item.is_accepted for item in together[number].offered]
        assert together[number].episode_id == decision.episode_id


def test_a_closed_gate_leaves_the_plain_prompt_and_the_record_says_why():
    policy = make_policy()
    with torch.no_grad():
        policy.gate.out.bias.fill_(-20.0)
    fronted = place(LatentFront(policy, Serialiser()), make_decision(num_steps=6), make_search(1, 2))
    assert rows_equal(fronted.row, policy.embed([prompt(0)])[0])
    assert fronted.num_memory_tokens == 0
    assert [item.is_accepted for item in fronted.offered] == [False] * 3
    for item in fronted.offered:
        assert item.trust_logit < -10
        assert item.trust_logit < item.threshold_logit == policy.gate.config.threshold_logit


def test_an_item_is_encoded_once(policy):
    front = LatentFront(policy, Serialiser())
    for number in range(2):
        place(front, make_decision(num_steps=7), make_search(1, 2), number)
        assert front.cache.counts.num_encoded == 3


def test_no_token_is_encoded_twice_in_an_episode(policy):
    """Three events are shown by the prompt; the others expire one by one, in chunks of four."""
    front = LatentFront(policy, Serialiser())
    for num_steps in range(12):
        place(front, make_decision(num_steps=num_steps))
    last = make_decision(num_steps=11)
    full = [prompt for _, prompt in front.evidence(last, Search())]
    closings = [front.serialise.closing(num_events) for num_events in (1, 2, 3)]
    reader = policy.encoder.backbone
    counted = [*full, *[(closing,) for closing in closings] * len(full)]
    assert len(full) == 2
    assert front.cache.counts.num_encoded_tokens == sum(
        len(reader.tokenise(one, is_complete=True).ids) for one in counted
    )


def test_an_episode_with_chunks_that_grew_equals_one_encoded_afresh(policy):
    grown = LatentFront(policy, Serialiser())
    for num_steps in range(3, 9):
        decision = make_decision(num_steps=num_steps)
        fresh = place(LatentFront(policy, Serialiser()), decision, make_search(1))
        fronted = place(grown, decision, make_search(1))
        torch.testing.assert_close(fronted.row.embeds_SD, fresh.row.embeds_SD, rtol=1e-4, atol=1e-5)
    assert grown.cache.counts.num_extended > 0


def test_an_episode_that_ends_frees_its_chunk(policy):
    front, decision = LatentFront(policy, Serialiser()), make_decision(num_steps=5)
    place(front, decision)
    assert front.cache.num_growing_bytes > 0
    front.forget(decision.episode_id)
    assert front.cache.num_growing_bytes == 0


def test_attention_is_recorded_screenshot_by_screenshot(policy):
    front = LatentFront(policy, Serialiser(), MemoryUse(is_gated=False, tells_attention=True))
    decision, search = make_decision(num_steps=5), make_search(1)
    fronted = place(front, decision, search)
    steps = [search.found[0].stored.trajectory.steps, decision.steps[:2]]
    for item, item_steps in zip(fronted.offered, steps, strict=True):
        assert [one.screenshot for one in item.attention] == [step.screenshot for step in item_steps]
        assert 0 < sum(sum(one.weights) for one in item.attention) < 1, "the rest is on words"
    silent = LatentFront(policy, Serialiser(), MemoryUse(is_gated=False))
    assert {item.attention for item in place(silent, decision, search).offered} == {()}
    assert silent.identity == front.identity


def test_whatever_changes_blocks_changes_the_identity(policy):
    fronts = [
        LatentFront(policy, Serialiser()),
        LatentFront(policy, Serialiser(), MemoryUse(is_gated=False)),
        LatentFront(policy, Serialiser(), cache=EvidenceCache(policy, CacheConfig(precision="int8"))),
        LatentFront(make_policy(seed=1), Serialiser()),
    ]
    assert len({front.identity for front in fronts}) == len(fronts)


@pytest.mark.parametrize("values", [{"chunk_events": 0}, {"num_episodic": -1}, {"num_recent": -1}])
def test_config_names_the_field(values):
    with pytest.raises(ConfigError, match=next(iter(values))):
        MemoryUse(**values)
