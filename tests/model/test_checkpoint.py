import json
import math

import pytest
import torch

from focusmem.errors import CheckpointError, ConfigError, StorageError
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.compressor import CompressorConfig
from focusmem.model.config import MemoryConfig
from focusmem.model.gate import GateConfig
from focusmem.model.policy import MemoryPolicy
from focusmem.settings import from_plain, to_plain
from toys import make_config, make_policy, three_decisions


def output_of(policy: MemoryPolicy) -> torch.Tensor:
    prompts, records, places = three_decisions()
    with torch.no_grad():
        logits, _, memory = policy(policy.embed(prompts, ["a", "b", "c"]), policy.encode(records), places)
    return torch.cat([logits.flatten(), memory.trust.logits_N])


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints") / "memory"
    policy = make_policy(state_source="hidden", state_layer=2)
    Checkpoint.save(policy, folder, notes={"stage": "B", "step": 12})
    return folder, policy


def test_saved_and_loaded_memory_gives_the_same_output(stored):
    folder, policy = stored
    checkpoint = Checkpoint.open(folder)
    loaded = checkpoint.build(Backbone.toy())
    assert torch.equal(output_of(loaded), output_of(policy))
    assert loaded.config == policy.config
    assert loaded.fingerprint() == policy.fingerprint()
    assert checkpoint.notes == {"stage": "B", "step": 12}


def test_a_memory_acts_in_the_precision_it_was_saved_in(tmp_path):
    policy = make_policy(dtype=torch.bfloat16).convert(torch.bfloat16)
    Checkpoint.save(policy, tmp_path / "half")
    loaded = Checkpoint.open(tmp_path / "half").build(Backbone.toy(dtype=torch.bfloat16))
    assert loaded.compressor.w_in.weight.dtype == torch.bfloat16
    assert torch.equal(output_of(loaded), output_of(policy))


def test_stored_in_half_a_memory_acts_in_its_own_precision_from_rounded_weights(stored, tmp_path):
    folder, policy = stored
    Checkpoint.save(policy, tmp_path / "half", is_half=True)
    loaded = Checkpoint.open(tmp_path / "half").build(Backbone.toy())
    for name, tensor in policy.trained_state().items():
        assert torch.equal(loaded.trained_state()[name], tensor.bfloat16().to(tensor.dtype))
    whole, half = (path / "memory.safetensors" for path in (folder, tmp_path / "half"))
    assert half.stat().st_size < 0.55 * whole.stat().st_size


def test_no_width_is_the_policys_width(tmp_path):
    Checkpoint.save(make_policy(), tmp_path / "one")
    same = make_policy(compressor=CompressorConfig(num_heads=4, width=64), is_trained=False)
    Checkpoint.open(tmp_path / "one").load_into(same)


def test_only_trained_weights_are_stored(stored):
    folder, policy = stored
    trained = sum(p.nbytes for part in policy.trained_parts().values() for p in part.parameters())
    size = (folder / "memory.safetensors").stat().st_size
    assert trained < size < trained + 20_000
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint.json", "memory.safetensors"]


def test_another_backbone_is_refused_with_the_reason(stored):
    checkpoint = Checkpoint.open(stored[0])
    with pytest.raises(CheckpointError, match=r"trained with the policy backbone 'toy-0'.*other weights"):
        checkpoint.build(Backbone.toy(seed=1))
    with pytest.raises(CheckpointError, match=r"'toy-0', but 'toy-0' has another architecture"):
        checkpoint.build(Backbone.toy(width=128))
    with pytest.raises(CheckpointError, match="encoder backbone"):
        checkpoint.build(Backbone.toy(), encoder_backbone=Backbone.toy(seed=1))


def test_another_budget_is_refused_with_the_reason(stored):
    changes = {"state_source": "hidden", "state_layer": 2}
    policy = make_policy(compressor=CompressorConfig(num_tokens=16, num_heads=4), **changes)
    before = policy.trained_state()["compressor.w_in.weight"].clone()
    with pytest.raises(CheckpointError, match=r"compressor.num_tokens = 8, but this memory was built with 16"):
        Checkpoint.open(stored[0]).load_into(policy)
    assert torch.equal(policy.trained_state()["compressor.w_in.weight"], before)


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_with_fewer_tokens_a_memory_begins_with_the_first_of_each_block(stored, is_dynamic):
    changes = {"state_source": "hidden", "state_layer": 2, "is_trained": False}
    fewer = make_policy(compressor=CompressorConfig(num_tokens=2, num_heads=4), **changes)
    Checkpoint.open(stored[0]).load_into(fewer, may_differ=("compressor.num_tokens",))
    prompts, records, places = three_decisions()
    with torch.no_grad():
        short, whole = (
            policy.remember(policy.embed(prompts), policy.encode(records), places, is_dynamic=is_dynamic).blocks_NKD
            for policy in (fewer, stored[1])
        )
    assert short.shape[1:] == (2, whole.shape[2])
    torch.testing.assert_close(short, whole[:, :2])


def test_with_more_tokens_it_cannot_begin(stored):
    changes = {"state_source": "hidden", "state_layer": 2}
    policy = make_policy(compressor=CompressorConfig(num_tokens=16, num_heads=4), **changes)
    with pytest.raises(CheckpointError, match="has blocks of 8 tokens, which cannot become 16"):
        Checkpoint.open(stored[0]).load_into(policy, may_differ=("compressor.num_tokens",))


def test_another_state_source_is_refused(stored):
    with pytest.raises(CheckpointError, match="state_source = hidden"):
        Checkpoint.open(stored[0]).load_into(make_policy())


def test_another_threshold_is_fine(stored):
    policy = make_policy(state_source="hidden", state_layer=2, gate=GateConfig(threshold_logit=0.5), is_trained=False)
    Checkpoint.open(stored[0]).load_into(policy)
    assert policy.config.gate.threshold_logit == 0.5
    assert torch.equal(output_of(policy), output_of(stored[1]))


@pytest.mark.parametrize("changes", [{"sees_evidence": True}, {"hidden_width": 32}])
def test_another_gate_stays_as_it_is_or_is_refused(stored, changes):
    """Everything besides the gate is taken over, where it may differ."""
    policy = make_policy(state_source="hidden", state_layer=2, gate=GateConfig(**changes))
    [name] = changes
    with pytest.raises(CheckpointError, match=rf"gate\.{name}"):
        Checkpoint.open(stored[0]).load_into(policy)
    before = {name: tensor.clone() for name, tensor in policy.trained_state().items()}
    Checkpoint.open(stored[0]).load_into(policy, may_differ=(f"gate.{name}",))
    wanted = stored[1].trained_state()
    for name, tensor in policy.trained_state().items():
        assert torch.equal(tensor, before[name] if name.startswith("gate.") else wanted[name]), name


def test_damaged_weights_are_refused(stored, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in stored[0].iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    data = bytearray((copy / "memory.safetensors").read_bytes())
    data[-5] ^= 1
    (copy / "memory.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError, match="damaged"):
        Checkpoint.open(copy).build(Backbone.toy())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 9}, "schema version 9"),
        ({"config": {"surprise": 1}}, "There is no setting 'surprise'"),
        ({"config": {"compressor": 3}}, "compressor is 3: input should be an object"),
        ({"policy_backbone": {}}, "incomplete"),
        ({"dtype": "nonsense"}, "dtype is 'nonsense'"),
        ({"notes": None}, "notes are no dictionary"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(stored, tmp_path, change, message):
    card = json.loads((stored[0] / "checkpoint.json").read_text()) | change
    (tmp_path / "checkpoint.json").write_text(json.dumps(card))
    with pytest.raises(CheckpointError, match=message):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("compressor.num_heads", "4", r"compressor\.num_heads is '4': input should be a valid integer"),
        ("compressor.num_heads", 4.0, r"compressor\.num_heads is 4\.0"),
        ("compressor.num_heads", True, r"compressor\.num_heads is True"),
        ("compressor.num_heads", None, r"compressor\.num_heads is None"),
        ("compressor.num_heads", 0, r"num_heads is 0; it must be above 0"),
        ("compressor.width", "64", r"compressor\.width is '64': input should be a valid integer"),
        ("gate.threshold_logit", "0.3", r"gate\.threshold_logit is '0\.3': input should be a valid number"),
        ("gate.stretch", [0, 1, 2], r"gate\.stretch is \[0, 1, 2\]; it must have at most 2 entries"),
        ("gate.stretch", ["a", "b"], r"gate\.stretch"),
        ("gate.sees_evidence", "no", r"gate\.sees_evidence is 'no': input should be a valid boolean"),
        ("gate.evidence_source", {}, r"evidence_source is '\{\}'|gate\.evidence_source is \{\}"),
        ("state_source", 3, r"state_source is 3; choose one of 'joined', 'summed', 'embeddings' or 'hidden'"),
        ("lora", None, r"lora is None: input should be an object"),
    ],
)
def test_a_card_with_a_value_of_the_wrong_kind_names_the_field(stored, tmp_path, name, value, message):
    card = json.loads((stored[0] / "checkpoint.json").read_text())
    *way, last = name.split(".")
    place = card["config"]
    for one in way:
        place = place[one]
    place[last] = value
    (tmp_path / "checkpoint.json").write_text(json.dumps(card))
    with pytest.raises(CheckpointError, match=message):
        Checkpoint.open(tmp_path)


def test_a_whole_number_is_a_number_too(stored, tmp_path):
    card = json.loads((stored[0] / "checkpoint.json").read_text())
    card["config"]["lora"]["alpha"] = 16
    (tmp_path / "checkpoint.json").write_text(json.dumps(card))
    assert Checkpoint.open(tmp_path).config.lora.alpha == 16


def test_a_memory_is_known_again_whatever_its_threshold_and_notes(tmp_path):
    policy = make_policy()
    for is_half in (False, True):
        stored = Checkpoint.save(policy, tmp_path / str(is_half), is_half=is_half)
        stored = stored.with_threshold(0.62, notes={"more": 1})
        assert stored.holds(policy, is_half=is_half)
        assert not stored.holds(policy, is_half=not is_half)
        assert not stored.holds(make_policy(gate=GateConfig(temperature=0.5)), is_half=is_half)
        with torch.no_grad():
            policy.gate.out.bias += 1.0
        assert not stored.holds(policy, is_half=is_half)
        (stored.folder / "memory.safetensors").unlink()
        assert not stored.holds(policy, is_half=is_half)


def test_weights_of_another_shape_than_the_card_says_are_refused(stored, tmp_path):
    for path in stored[0].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    card = json.loads((tmp_path / "checkpoint.json").read_text())
    card["config"]["compressor"]["num_tokens"] *= 2
    (tmp_path / "checkpoint.json").write_text(json.dumps(card))
    with pytest.raises(CheckpointError, match="does not fit its own card"):
        Checkpoint.open(tmp_path).build(Backbone.toy())


def test_a_folder_without_a_checkpoint_is_a_clear_error(tmp_path):
    with pytest.raises(StorageError, match="holds no checkpoint"):
        Checkpoint.open(tmp_path)


def test_saving_over_a_checkpoint_needs_to_be_asked_for(tmp_path):
    policy = make_policy()
    Checkpoint.save(policy, tmp_path / "one")
    with pytest.raises(StorageError, match="exists already"):
        Checkpoint.save(policy, tmp_path / "one")
    Checkpoint.save(policy, tmp_path / "one", notes={"again": True}, replace=True)
    assert Checkpoint.open(tmp_path / "one").notes == {"again": True}
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


@pytest.mark.parametrize("config", [MemoryConfig(), make_config(state_source="hidden", state_layer=1)])
def test_config_survives_json(config):
    assert from_plain(MemoryConfig, json.loads(json.dumps(to_plain(config)))) == config


def test_a_threshold_is_written_into_the_card_alone(tmp_path):
    policy = make_policy()
    stored = Checkpoint.save(policy, tmp_path / "one", notes={"stage": "b"})
    changed = stored.with_threshold(0.62, notes={"auc": 0.9})
    opened = Checkpoint.open(tmp_path / "one")
    assert opened.config.gate.threshold_logit == changed.config.gate.threshold_logit == 0.62
    assert opened.notes == {"stage": "b", "auc": 0.9}
    assert opened.weights_sha256 == stored.weights_sha256
    assert opened.build(Backbone.toy()).gate.config.threshold_logit == 0.62
    with pytest.raises(ConfigError, match=r"GateConfig.threshold_logit is inf"):
        stored.with_threshold(math.inf)
    assert Checkpoint.open(tmp_path / "one").config.gate.threshold_logit == 0.62


def test_notes_are_added_to_the_card_alone(tmp_path):
    stored = Checkpoint.save(make_policy(), tmp_path / "one", notes={"stage": "b"})
    changed = stored.with_notes({"variant": "full"})
    assert Checkpoint.open(tmp_path / "one") == changed
    assert changed.notes == {"stage": "b", "variant": "full"}
    assert changed.weights_sha256 == stored.weights_sha256
