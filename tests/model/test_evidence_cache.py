import errno
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from factories import make_screenshot
from focusmem.errors import ConfigError, StorageError
from focusmem.model.evidence_cache import CacheConfig, EvidenceCache, dequantise, prompt_digest, quantise
from focusmem.model.injection import Place
from focusmem.schemas import Turn
from toys import decision, evidence, evidence_turns, make_policy

PLACES = [Place(0, 0, 0), Place(0, 0, 1), Place(0, 1, 0)]
RECORDS = [evidence(number, num_events=number + 1) for number in range(3)]


def blocks_of(policy, items) -> torch.Tensor:
    with torch.no_grad():
        rows = policy.embed([decision(0)])
        return policy.remember(rows, items, PLACES).blocks_NKD


def count_encodings(policy) -> list[int]:
    calls = []
    policy.encoder.register_forward_pre_hook(lambda module, inputs: calls.append(len(inputs[0].lengths)))
    return calls


@pytest.mark.parametrize("form", ["keys_values", "features"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cached_equals_uncached_bit_for_bit(form, dtype):
    policy = make_policy(dtype=dtype).convert(dtype)
    with torch.no_grad():
        fresh = [policy.encode([record], form=form)[0] for record in RECORDS]
    cache = EvidenceCache(policy, CacheConfig(form=form, max_batch_tokens=1))
    for _ in range(2):
        assert torch.equal(blocks_of(policy, cache.fetch(RECORDS)), blocks_of(policy, fresh))
    assert (cache.counts.num_encoded, cache.counts.num_memory_hits) == (3, 3)


def test_batched_encoding_of_misses_gives_the_same_items():
    policy = make_policy()
    together = EvidenceCache(policy).fetch(RECORDS)
    alone = EvidenceCache(policy, CacheConfig(max_batch_tokens=1)).fetch(RECORDS)
    torch.testing.assert_close(blocks_of(policy, together), blocks_of(policy, alone), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", ["keys_values", "features"])
def test_absorbed_equals_keys_and_values(form):
    policy = make_policy()
    items = EvidenceCache(policy, CacheConfig(form=form)).fetch(RECORDS)
    reference = EvidenceCache(policy).fetch(RECORDS)
    torch.testing.assert_close(blocks_of(policy, items), blocks_of(policy, reference), rtol=1e-4, atol=1e-5)
    for one, other in zip(items, reference, strict=True):
        assert torch.equal(one.looks_NE, other.looks_NE)


@pytest.mark.parametrize("form", ["keys_values", "features"])
def test_eight_bits_keep_the_direction_of_every_block(form):
    policy = make_policy(dtype=torch.bfloat16).convert(torch.bfloat16)
    exact = EvidenceCache(policy, CacheConfig(form=form, precision="bfloat16"))
    small = EvidenceCache(policy, CacheConfig(form=form, precision="int8"))
    one, two = (blocks_of(policy, cache.fetch(RECORDS)).float() for cache in (exact, small))
    assert torch.nn.functional.cosine_similarity(one.flatten(1), two.flatten(1)).min() > 0.999
    assert small.num_bytes < 0.8 * exact.num_bytes  # at head width 16 a scale costs a quarter; at 256, 1.6 %


def test_quantising_errs_by_at_most_half_a_step():
    tensor = torch.randn(3, 4, 50, 16) * torch.logspace(-3, 3, 50)[:, None]
    numbers, scale = quantise(tensor)
    assert numbers.dtype == torch.int8
    assert ((dequantise(numbers, scale, torch.float32) - tensor).abs() <= scale * 0.5001).all()


def test_an_item_is_encoded_once_however_often_it_is_asked_for():
    policy = make_policy()
    calls, cache = count_encodings(policy), EvidenceCache(policy)
    items = cache.fetch([RECORDS[0], RECORDS[1], RECORDS[0]])
    assert torch.equal(items[0].summary_NE, items[2].summary_NE)
    cache.fetch(RECORDS)
    assert sum(calls) == 3


def test_the_least_recently_used_leaves_first():
    policy = make_policy()
    cache = EvidenceCache(policy)
    cache.fetch(RECORDS)
    limit = cache.num_bytes - 1
    small = EvidenceCache(policy, CacheConfig(memory_limit_bytes=limit))
    small.fetch(RECORDS[:2])
    small.fetch(RECORDS[:1])
    small.fetch(RECORDS[2:])
    assert small.counts.num_evicted == 1
    assert small.num_bytes <= limit
    small.fetch(RECORDS[:1])
    assert small.counts.num_encoded == 3, "the item used in between must have stayed"
    small.fetch(RECORDS[1:2])
    assert small.counts.num_encoded == 4


def test_nothing_is_kept_without_memory_but_everything_is_handed_out():
    policy = make_policy()
    cache = EvidenceCache(policy, CacheConfig(memory_limit_bytes=0))
    assert blocks_of(policy, cache.fetch(RECORDS)).isfinite().all()
    assert cache.num_bytes == 0


@pytest.mark.parametrize("precision", ["exact", "bfloat16", "int8"])
def test_disk_serves_the_next_process(tmp_path, precision):
    policy = make_policy()
    config = CacheConfig(folder=tmp_path, precision=precision)
    expected = blocks_of(policy, EvidenceCache(policy, config).fetch(RECORDS))
    again, cache = make_policy(), None
    calls = count_encodings(again)
    cache = EvidenceCache(again, config)
    assert torch.equal(blocks_of(again, cache.fetch(RECORDS)), expected)
    assert calls == []
    assert cache.counts.num_disk_hits == 3


def test_everything_the_encoder_reads_is_part_of_the_name():
    opening, event = evidence_turns(0, num_events=1)
    picture, text = event.parts
    other_picture = Turn("user", (make_screenshot(77, width=96, height=64), text))
    variants = [
        (opening, event),
        (opening, other_picture),
        (opening, Turn("system", event.parts)),
        (opening, Turn("user", (picture, text + "!"))),
        (opening, Turn("user", (text, picture))),
        (event, opening),
    ]
    assert len({prompt_digest(one) for one in variants}) == len(variants)


def test_training_mode_is_refused(tmp_path):
    cache = EvidenceCache(make_policy().train(), CacheConfig(folder=tmp_path))
    with pytest.raises(RuntimeError, match=r"policy\.eval"):
        cache.fetch(RECORDS)


def test_autocast_does_not_reach_what_is_kept():
    policy = make_policy()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        [kept] = EvidenceCache(policy).fetch(RECORDS[:1])
    [plain] = EvidenceCache(make_policy()).fetch(RECORDS[:1])
    assert torch.equal(kept.evidence.keys_NATX, plain.evidence.keys_NATX)


def test_an_entry_owns_no_more_than_its_own_bytes():
    cache = EvidenceCache(make_policy())
    cache.fetch(RECORDS)
    for entry in cache._entries.values():
        assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in entry.values())


def test_threads_may_share_a_cache():
    policy = make_policy()
    cache = EvidenceCache(policy)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: cache.fetch(RECORDS), range(8)))
    assert cache.counts.num_encoded == 3
    assert cache.num_bytes == bytes_of_a_full_cache(policy)


def test_another_checkpoint_never_reads_stale_entries(tmp_path):
    policy = make_policy()
    config = CacheConfig(folder=tmp_path)
    cache = EvidenceCache(policy, config)
    cache.fetch(RECORDS)
    with torch.no_grad():
        policy.compressor.w_value.weight.mul_(1.01)
    with torch.no_grad():
        fresh = [policy.encode([record])[0] for record in RECORDS]
    served = cache.fetch(RECORDS)
    torch.testing.assert_close(blocks_of(policy, served), blocks_of(policy, fresh), rtol=1e-4, atol=1e-5)
    assert cache.counts.num_encoded == 6, "also in memory, also in the same process"
    other = EvidenceCache(make_policy(seed=1), config)
    other.fetch(RECORDS)
    assert other.counts.num_disk_hits == 0


def test_forms_and_precisions_do_not_mix(tmp_path):
    policy = make_policy()
    for form in ("keys_values", "features"):
        for precision in ("exact", "bfloat16", "int8"):
            cache = EvidenceCache(policy, CacheConfig(folder=tmp_path, form=form, precision=precision))
            cache.fetch(RECORDS[:1])
            assert cache.counts.num_disk_hits == 0


@pytest.mark.parametrize("where", [0, 9, 60, -1, -200])
def test_a_damaged_entry_is_encoded_again_not_trusted(tmp_path, where, caplog):
    policy = make_policy()
    config = CacheConfig(folder=tmp_path)
    expected = blocks_of(policy, EvidenceCache(policy, config).fetch(RECORDS))
    for path in tmp_path.rglob("*.safetensors"):
        data = bytearray(path.read_bytes())
        data[where] ^= 0x41
        path.write_bytes(data)
    cache = EvidenceCache(policy, config)
    assert torch.equal(blocks_of(policy, cache.fetch(RECORDS)), expected)
    assert (cache.counts.num_corrupt, cache.counts.num_encoded) == (3, 3)
    assert "damaged" in caplog.text
    healed = EvidenceCache(policy, config)
    healed.fetch(RECORDS)
    assert healed.counts.num_disk_hits == 3


@pytest.mark.parametrize("size", [0, 5, 100, 2000])
def test_a_cut_entry_is_encoded_again(tmp_path, size):
    policy = make_policy()
    config = CacheConfig(folder=tmp_path)
    EvidenceCache(policy, config).fetch(RECORDS[:1])
    [path] = tmp_path.rglob("*.safetensors")
    path.write_bytes(path.read_bytes()[:size])
    cache = EvidenceCache(policy, config)
    cache.fetch(RECORDS[:1])
    assert cache.counts.num_corrupt == 1


def test_a_full_disk_is_a_clear_error_and_nothing_is_lost(tmp_path, monkeypatch):
    policy = make_policy()
    config = CacheConfig(folder=tmp_path)
    cache = EvidenceCache(policy, config)
    cache.fetch(RECORDS[:1])

    def no_space(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        with pytest.raises(StorageError, match="No space left on device"):
            cache.fetch(RECORDS[1:2])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.suffix for path in files] == [".safetensors"], "the first entry; nothing half-written"
    cache.fetch(RECORDS[:2])
    assert cache.counts.num_encoded == 2, "the item encoded when the disk was full is still in memory"
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2, "and is written once there is space"
    assert EvidenceCache(policy, config).fetch(RECORDS[:1])


def test_the_size_of_an_entry_is_known_without_reading_it(tmp_path):
    policy = make_policy()
    in_memory, on_disk = EvidenceCache(policy), EvidenceCache(policy, CacheConfig(folder=tmp_path))
    for cache in (in_memory, on_disk):
        assert [cache.size_of(record) for record in RECORDS] == [None, None, None]
        cache.fetch(RECORDS[:2])
        assert cache.size_of(RECORDS[2]) is None
    assert sum(in_memory.size_of(record) for record in RECORDS[:2]) == in_memory.num_bytes
    fresh = EvidenceCache(policy, CacheConfig(folder=tmp_path))
    sizes = sorted(path.stat().st_size for path in tmp_path.rglob("*.safetensors"))
    assert sorted(fresh.size_of(record) for record in RECORDS[:2]) == sizes
    assert fresh.counts.num_disk_hits == 0


def test_forget_removes_an_item_everywhere(tmp_path):
    policy = make_policy()
    cache = EvidenceCache(policy, CacheConfig(folder=tmp_path))
    EvidenceCache(policy, CacheConfig(folder=tmp_path, precision="int8")).fetch(RECORDS[:1])
    cache.fetch(RECORDS)
    cache.forget(RECORDS[0])
    assert not list(tmp_path.rglob(f"{prompt_digest(RECORDS[0])}*"))
    assert len(list(tmp_path.rglob("*.safetensors"))) == 2
    cache.fetch(RECORDS)
    assert cache.counts.num_encoded == 4
    assert cache.num_bytes == bytes_of_a_full_cache(policy)


def bytes_of_a_full_cache(policy) -> int:
    cache = EvidenceCache(policy)
    cache.fetch(RECORDS)
    return cache.num_bytes


def test_config_names_the_field():
    with pytest.raises(ConfigError, match=r"CacheConfig\.precision is 'int4'"):
        CacheConfig(precision="int4")
    for values in ({"memory_limit_bytes": -1}, {"form": "kv"}, {"folder": "text"}, {"max_batch_tokens": 0}):
        with pytest.raises(ConfigError, match=next(iter(values))):
            CacheConfig(**values)
