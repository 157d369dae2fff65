import pytest
import torch

from focusmem.model.evidence_cache import CacheConfig, EvidenceCache
from focusmem.model.growing_chunk import Chunk, Growth, grow
from focusmem.model.injection import Place
from focusmem.schemas import Prompt
from toys import WORKING, evidence, make_policy

NUM_EVENTS = 4


def partial(seed: int = 0, num_events: int = 1) -> Prompt:
    return evidence(seed, num_events=num_events)


def chunk_of(episode: int, num_events: int) -> Chunk:
    return Chunk(f"episode {episode}", is_full=num_events == NUM_EVENTS)


def fetch(cache: EvidenceCache, num_events: int, *, episodes=(0,)):
    """The current chunk of each episode."""
    prompts = [partial(episode, num_events) for episode in episodes]
    return cache.fetch(prompts, chunks=[chunk_of(episode, num_events) for episode in episodes])


def assert_alike(policy, items, others) -> None:
    for item, other in zip(items, others, strict=True):
        assert item.evidence.num_tokens == other.evidence.num_tokens
        torch.testing.assert_close(item.summary_NE, other.summary_NE, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(item.looks_NE, other.looks_NE, rtol=1e-4, atol=1e-5)
        place = [Place(0, WORKING, 0)]
        torch.testing.assert_close(
            policy.read([item], place, None), policy.read([other], place, None), rtol=1e-4, atol=1e-5
        )


def num_tokens(policy, prompt: Prompt) -> int:
    return len(policy.encoder.backbone.tokenise(prompt, is_complete=True).ids)


@torch.no_grad()
@pytest.mark.parametrize("form", ["keys_values", "features"])
def test_a_chunk_that_grew_equals_the_chunk_encoded_at_once(form):
    policy = make_policy()
    cache = EvidenceCache(policy, CacheConfig(form=form))
    for num_events in range(1, NUM_EVENTS + 1):
        assert_alike(policy, fetch(cache, num_events), policy.encode([partial(0, num_events)], form=form))
    assert (cache.counts.num_encoded, cache.counts.num_extended) == (1, NUM_EVENTS - 1)


@torch.no_grad()
@pytest.mark.parametrize("form", ["keys_values", "features"])
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_chunk_that_grew_is_kept_in_the_same_precision(form, precision):
    policy = make_policy()
    cache = EvidenceCache(policy, CacheConfig(form=form, precision=precision))
    for num_events in range(1, NUM_EVENTS + 1):
        [grown] = fetch(cache, num_events)
    [whole] = EvidenceCache(policy, CacheConfig(form=form, precision=precision)).fetch([partial(0, NUM_EVENTS)])
    for part in ("features_NTH",) if form == "features" else ("keys_NATX", "values_NATX"):
        one, other = getattr(grown.evidence, part), getattr(whole.evidence, part)
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-2 * other.abs().max().item())
        assert (one != other).float().mean() < 0.01, "only a number at the border of two steps may differ"


@torch.no_grad()
def test_no_token_of_an_episode_is_encoded_twice():
    """Besides the closing, which says how many steps the chunk has."""
    policy = make_policy()
    cache = EvidenceCache(policy)
    closings = 0
    for num_events in range(1, NUM_EVENTS + 1):
        fetch(cache, num_events)
        closings += num_tokens(policy, partial(0, num_events)[-1:])
        assert cache.counts.num_encoded_tokens == num_tokens(policy, partial(0, num_events)[:-1]) + closings


@torch.no_grad()
def test_chunks_of_several_episodes_grow_in_one_pass():
    policy = make_policy()
    cache, passes = EvidenceCache(policy), []
    policy.encoder.register_forward_pre_hook(lambda module, inputs: passes.append(len(inputs[0].lengths)))
    fetch(cache, 1, episodes=(0, 1))
    fetch(cache, 2, episodes=(1,))
    prompts = [partial(0, 2), partial(1, 3), partial(2, 1)]  # one event more, one more, and a new episode
    chunks = [chunk_of(episode, 2) for episode in range(3)]
    del passes[:]
    items = cache.fetch(prompts, chunks=chunks)
    assert passes == [3]
    assert_alike(policy, items, EvidenceCache(policy).fetch(prompts))


@torch.no_grad()
def test_what_does_not_continue_the_chunk_is_encoded_whole():
    policy = make_policy()
    cache = EvidenceCache(policy)
    fetch(cache, 2)
    other = partial(7, 3)
    [item] = cache.fetch([other], chunks=[chunk_of(0, 3)])
    assert_alike(policy, [item], policy.encode([other]))
    [back] = cache.fetch([partial(0, 1)], chunks=[chunk_of(0, 1)])  # the episode went back
    assert_alike(policy, [back], policy.encode([partial(0, 1)]))
    assert (cache.counts.num_encoded, cache.counts.num_extended) == (3, 0)


@torch.no_grad()
def test_other_weights_never_continue_a_chunk():
    policy = make_policy()
    cache = EvidenceCache(policy)
    fetch(cache, 1)
    policy.compressor.w_in.bias.add_(1.0)
    assert_alike(policy, fetch(cache, 2), policy.encode([partial(0, 2)]))
    assert cache.counts.num_extended == 0


def test_the_same_chunk_again_is_not_read_again():
    cache = EvidenceCache(make_policy())
    fetch(cache, 2)
    before = cache.counts.num_encoded_tokens
    fetch(cache, 2)
    assert (cache.counts.num_encoded_tokens, cache.counts.num_memory_hits) == (before, 1)


def test_episodes_with_equal_chunks_share_them():
    cache, events = EvidenceCache(make_policy()), range(1, NUM_EVENTS)
    for num_events in events:
        cache.fetch([partial(0, num_events)] * 2, chunks=[chunk_of(number, num_events) for number in range(2)])
    assert cache.counts.num_encoded + cache.counts.num_extended == len(events)
    two = cache.num_growing_bytes
    cache.forget_episode("episode 1")
    assert cache.num_growing_bytes == two


def test_only_full_chunks_reach_the_disk(tmp_path):
    cache = EvidenceCache(make_policy(), CacheConfig(folder=tmp_path))
    for num_events in range(1, NUM_EVENTS):
        fetch(cache, num_events)
    assert not list(tmp_path.rglob("*.safetensors"))
    fetch(cache, NUM_EVENTS)
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1
    other = EvidenceCache(make_policy(), CacheConfig(folder=tmp_path))
    fetch(other, NUM_EVENTS)
    assert (other.counts.num_disk_hits, other.counts.num_encoded_tokens) == (1, 0)


def test_a_chunk_is_freed_when_it_is_full_and_when_its_episode_ends():
    cache = EvidenceCache(make_policy())
    fetch(cache, NUM_EVENTS - 1, episodes=(0, 1))
    fetch(cache, NUM_EVENTS, episodes=(0,))
    assert cache.num_growing_bytes > 0
    cache.forget_episode("episode 1")
    assert cache.num_growing_bytes == 0


@torch.no_grad()
def test_above_the_limit_the_least_recently_used_chunk_leaves():
    policy = make_policy()
    cache = EvidenceCache(policy)
    fetch(cache, 1, episodes=(0, 1))
    limit = cache.num_growing_bytes + 1
    cache = EvidenceCache(policy, CacheConfig(growing_limit_bytes=limit))
    fetch(cache, 1, episodes=(0,))
    fetch(cache, 1, episodes=(1,))
    fetch(cache, 1, episodes=(0,))
    fetch(cache, 1, episodes=(2,))
    assert cache.num_growing_bytes <= limit
    fetch(cache, 2, episodes=(1,))
    assert (cache.counts.num_encoded, cache.counts.num_extended) == (4, 0), "the chunk of episode 1 has left"


@torch.no_grad()
def test_a_failed_read_leaves_the_chunk_as_it_was(monkeypatch):
    policy = make_policy()
    cache = EvidenceCache(policy)
    fetch(cache, 1)
    block = policy.encoder.backbone.language_model.layers[2]

    def out_of_memory(*args, **kwargs):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(block.mlp, "forward", out_of_memory)
        with pytest.raises(MemoryError):
            fetch(cache, 2)
    assert_alike(policy, fetch(cache, 2), policy.encode([partial(0, 2)]))
    assert cache.counts.num_extended == 1


@torch.no_grad()
def test_only_the_new_event_and_the_closing_are_read():
    policy = make_policy()
    [(_, read)] = grow(policy, [Growth.of(policy, partial(0, 1))], form="features")
    growth = Growth.of(policy, partial(0, 2), read)
    [(item, _)] = grow(policy, [growth], form="features")
    assert item.evidence.num_tokens == num_tokens(policy, partial(0, 2)[2:])
