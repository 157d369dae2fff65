from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from banks import WordEmbedder, make_many
from focusmem.agent.fronts.latent import LatentFront
from focusmem.bank import NumpyBank, open_bank
from focusmem.bank.numpy_bank import write_numpy_bank
from focusmem.evidence import Serialiser
from focusmem.lab.suite import LabSuite
from focusmem.model.evidence_cache import CacheConfig, EvidenceCache
from focusmem.recipes.encode_bank import encode_bank
from focusmem.recipes.preparation import prepare
from focusmem.recipes.run import run
from focusmem.recipes.run_parts import Parts
from focusmem.recipes.run_settings import RunSettings, lab
from focusmem.schemas import Preparation, RunFolder
from focusmem.settings import resolved
from toys import make_policy


def small(weights: Path, **values) -> RunSettings:
    given = {
        "suite.lab.num_tasks": 1,
        "suite.lab.sites": ("e-0",),
        "policy.name": str(weights / "policy"),
        "policy.generation.max_new_tokens": 2,
        "memory.name": "full",
        "memory.checkpoint": str(weights / "memory" / "full"),
        "memory.embedder": str(weights / "embedder"),
        "memory.bank": str(weights / "bank"),
    }
    return resolved(lab(), values=given | {name.replace("__", "."): value for name, value in values.items()})


def make_parts(settings: RunSettings) -> Parts:
    return Parts(settings, LabSuite(settings.suite.lab))


def test_no_step_encodes_a_trajectory_of_the_bank(toy_weights):
    parts = make_parts(small(toy_weights))
    done = prepare(parts, has_line=False)
    assert isinstance(parts.front, LatentFront)
    counts = replace(parts.front.cache.counts)
    assert (done.num_items, done.num_encoded, done.num_left_out) == (len(parts.bank.entries()),) * 2 + (0,)
    encode_bank(parts.bank, parts.front)
    assert parts.front.cache.counts.num_encoded == counts.num_encoded
    assert parts.front.cache.num_growing_bytes == 0, "the warm-up leaves no chunk behind"


def test_only_what_may_be_found_is_encoded(toy_weights):
    parts = make_parts(small(toy_weights, memory__outcomes=("failure",)))
    assert prepare(parts, has_line=False).num_items == 0
    parts = make_parts(small(toy_weights, memory__only_trusted=True))
    parts.bank.trusted_sources = ("nobody",)
    assert prepare(parts, has_line=False).num_items == 0
    parts = make_parts(small(toy_weights, memory__encodes_bank=False))
    assert prepare(parts, has_line=False).num_items == 0


@pytest.mark.slow  # a run with a bank on disk, and its preparation again
def test_a_run_records_what_it_did_before_its_first_episode(toy_weights, tmp_path):
    cache = tmp_path / "cache"
    results = run(small(toy_weights, memory__cache__folder=str(cache)), tmp_path / "one")
    done = RunFolder(tmp_path / "one").preparation()
    assert results["num_encoded_beforehand"] == done.num_encoded == done.num_items > 0
    assert results["preparation_s"] == done.encode_s + done.warm_up_s > 0
    assert results["cache"]["num_before"] == [done.num_ready]
    run(small(toy_weights, memory__cache__folder=str(cache)), tmp_path / "one")
    assert RunFolder(tmp_path / "one").preparation() == done, "nothing was left to do"
    again = prepare(make_parts(small(toy_weights, memory__cache__folder=str(cache))), has_line=False)
    assert (again.num_encoded, again.num_cached) == (0, done.num_items)


def test_a_resumed_run_adds_up_what_it_did():
    first = Preparation(num_items=5, num_encoded=3, num_left_out=2, encode_s=4.0, warm_up_s=1.0)
    both = Preparation(num_items=5, num_encoded=2, num_cached=3, encode_s=2.0, warm_up_s=1.0).after(first)
    assert (both.num_encoded, both.num_left_out, both.encode_s, both.warm_up_s) == (5, 0, 6.0, 2.0)


@pytest.fixture
def bank(tmp_path) -> NumpyBank:
    write_numpy_bank(tmp_path / "bank", make_many(40), WordEmbedder())
    return open_bank(tmp_path / "bank")


def test_a_bank_that_does_not_fit_in_memory_is_encoded_as_far_as_it_fits(bank, tmp_path):
    policy = make_policy()

    def encode(**config):
        front = LatentFront(policy, Serialiser(), cache=EvidenceCache(policy, CacheConfig(**config)))
        return encode_bank(bank, front), front.cache

    whole, roomy = encode()
    assert (whole.num_encoded, whole.num_left_out) == (40, 0)
    some, tight = encode(memory_limit_bytes=roomy.num_bytes - 1)
    assert 0 < some.num_left_out < 40
    assert (some.num_encoded + some.num_left_out, some.num_items) == (40, 40)
    assert tight.counts.num_evicted == 0
    on_disk, _ = encode(memory_limit_bytes=roomy.num_bytes - 1, folder=tmp_path / "cache")
    assert (on_disk.num_encoded, on_disk.num_left_out) == (40, 0)


def test_a_bank_is_encoded_only_as_long_as_the_disk_has_room(bank, tmp_path, monkeypatch):
    policy, free = make_policy(), [10]
    front = LatentFront(policy, Serialiser(), cache=EvidenceCache(policy, CacheConfig(folder=tmp_path / "cache")))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(total=1000, free=free[0]))
    nearly_full = encode_bank(bank, front)
    assert (nearly_full.num_encoded, nearly_full.num_left_out) == (0, 40)
    free[0] = 2**40
    assert encode_bank(bank, front).num_left_out == 0
