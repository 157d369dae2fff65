import json

import pytest
from typer.testing import CliRunner

from agent.decisions import make_decision
from banks import WordEmbedder, ids_of, make_many
from focusmem.agent.fronts.latent import LatentFront
from focusmem.agent.retrieval import FoundTrajectory, Search
from focusmem.bank import NumpyBank, open_bank
from focusmem.bank.numpy_bank import write_numpy_bank
from focusmem.cli.main import app
from focusmem.errors import ConfigError, FocusmemError
from focusmem.evidence import Serialiser
from focusmem.model.evidence_cache import CacheConfig, EvidenceCache
from focusmem.progress import Progress
from focusmem.recipes.encode_bank import encode_bank, encode_stored_bank
from focusmem.recipes.run_settings import RunSettings
from focusmem.schemas import Hit, Instruction, Turn
from focusmem.settings import resolved
from toys import make_policy

IDS = ids_of(make_many(5))


@pytest.fixture
def bank(tmp_path) -> NumpyBank:
    write_numpy_bank(tmp_path / "bank", make_many(5), WordEmbedder())
    return open_bank(tmp_path / "bank")


@pytest.fixture(scope="module")
def policy():
    return make_policy()


def front(policy, folder=None) -> LatentFront:
    return LatentFront(policy, Serialiser(), cache=EvidenceCache(policy, CacheConfig(folder=folder)))


def act(front, bank, ids):
    """A decision for which these trajectories were found."""
    found = [
        FoundTrajectory(Hit(trajectory_id=name, score=0.9 - rank / 10, rank=rank), bank.load(name))
        for rank, name in enumerate(ids)
    ]
    front.place([(Turn("user", (Instruction("Decide."),)),)], [make_decision()], [Search(tuple(found))])


@pytest.mark.parametrize("is_on_disk", [True, False])
def test_a_step_encodes_nothing_that_was_encoded_beforehand(bank, policy, tmp_path, is_on_disk):
    folder = tmp_path / "cache" if is_on_disk else None
    before = front(policy, folder)
    assert encode_bank(bank, before).num_encoded == 5
    acting = front(policy, folder) if is_on_disk else before
    num_encoded = acting.cache.counts.num_encoded
    for ids in (IDS[:3], IDS[:1:-1]):
        act(acting, bank, ids)
    assert acting.cache.counts.num_encoded == num_encoded
    assert acting.cache.counts.num_disk_hits == (5 if is_on_disk else 0)


def test_what_is_cached_is_not_encoded_again(bank, policy, tmp_path):
    first = encode_bank(bank, front(policy, tmp_path / "cache"), IDS[:2])
    assert (first.num_items, first.num_encoded, first.num_cached) == (2, 2, 0)
    with Progress("encode", total=5) as line:
        whole = encode_bank(bank, front(policy, tmp_path / "cache"), line=line)
    assert (whole.num_items, whole.num_encoded, whole.num_cached) == (5, 3, 2)
    assert (line.num_done, line.num_failed) == (5, 0)
    files = list((tmp_path / "cache").rglob("*.safetensors"))
    assert (len(files), whole.num_bytes) == (5, sum(path.stat().st_size for path in files))


def test_a_trajectory_that_cannot_be_read_is_named(bank, policy, tmp_path):
    place = tmp_path / "bank" / "trajectories" / IDS[2]
    next((place / "screenshots").iterdir()).write_bytes(b"no picture")
    done = encode_bank(bank, front(policy))
    assert (done.num_items, done.num_encoded) == (5, 4)
    assert [failure.name for failure in done.failures] == [IDS[2]]


@pytest.fixture
def toy_memory(toy_weights) -> dict[str, str]:
    return {
        "policy.name": str(toy_weights / "policy"),
        "memory.name": "full",
        "memory.checkpoint": str(toy_weights / "memory" / "full"),
    }


def test_the_command_resumes_and_processes_share_the_work(toy_weights, toy_memory, bank, tmp_path):
    words = [
        *("bank", "encode", str(tmp_path / "bank"), "--policy", toy_memory["policy.name"], "--memory", "full"),
        *("--checkpoint", toy_memory["memory.checkpoint"], "--precision", "bfloat16", "--json"),
    ]

    def answer(*more, exit_code=0):
        result = CliRunner().invoke(app, [*words, *map(str, more)])
        assert result.exit_code == exit_code, (result.output, result.exception)
        return json.loads(result.stdout)

    def files(name):
        return {path.name: path.stat().st_size for path in (tmp_path / name).rglob("*.safetensors")}

    first = answer("--cache", tmp_path / "one")
    assert (first["num_items"], first["num_encoded"], first["num_cached"], first["num_failed"]) == (5, 5, 0, 0)
    assert first["num_bytes"] == sum(files("one").values())
    assert first["seconds"] > 0
    again = answer("--cache", tmp_path / "one")
    assert (again["num_encoded"], again["num_cached"], again["num_bytes"]) == (0, 5, first["num_bytes"])
    (tmp_path / "bank" / "trajectories" / IDS[2] / "trajectory.json").write_text("{")
    shared = answer("--cache", tmp_path / "two", "--processes", "2", exit_code=1)
    assert (shared["num_items"], shared["num_encoded"], shared["num_failed"]) == (5, 4, 1)
    assert shared["failures"][0]["name"] == IDS[2]
    assert files("two").items() < files("one").items()


@pytest.mark.slow
def test_processes_that_stop_early_are_an_error(toy_memory, bank, tmp_path, capfd):
    (tmp_path / "cache").write_text("in the way")
    settings = resolved(RunSettings(), values={**toy_memory, "memory.cache.folder": str(tmp_path / "cache")})
    with pytest.raises(FocusmemError, match="2 of 2 processes stopped early"):
        encode_stored_bank(settings, tmp_path / "bank", num_processes=2)
    assert "Could not" in capfd.readouterr().err


def test_settings_that_encode_nothing_are_refused(toy_memory, bank, tmp_path):
    for values, message in (
        (toy_memory, "memory.cache.folder is missing"),
        ({"memory.name": "words", "memory.cache.folder": "cache"}, "The memory 'words' encodes nothing"),
    ):
        with pytest.raises(ConfigError, match=message):
            encode_stored_bank(resolved(RunSettings(), values=values), tmp_path / "bank")
