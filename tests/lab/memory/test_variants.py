import pytest

from focusmem.agent.prompt import NUM_RECENT
from focusmem.errors import CheckpointError, ConfigError
from focusmem.lab.memory.decisions import LabBatches, LabDecisions, LabDecisionsConfig, SiteFirst
from focusmem.lab.memory.gate import GateMeasurement, measure_gate
from focusmem.lab.memory.recall import LabBank
from focusmem.lab.memory.variants import VARIANTS, latent_front, load_memory, variant
from focusmem.lab.policy.drawing import placeholder
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.compressor import CompressorConfig
from focusmem.model.config import MemoryConfig
from focusmem.model.lora import LoraConfig
from focusmem.model.policy import MemoryPolicy
from focusmem.schemas import Screenshot, parse_action
from focusmem.training.trajectory_batches import BatchingConfig

SMALL = MemoryConfig(lora=LoraConfig(rank=2), compressor=CompressorConfig(num_tokens=4, num_heads=2, num_refinements=1))


@pytest.fixture(scope="module")
def bank(world):
    return LabBank(world, "m", num_sites=30, picture=placeholder)


def decisions(world, policy, bank, **changes) -> LabDecisions:
    config = LabDecisionsConfig(**{"num_trajectories": 3, "num_sites": 30} | changes)
    return LabDecisions(world, policy.chat, bank, SiteFirst(bank), config)


def batches(source, num=2) -> LabBatches:
    return LabBatches(source, BatchingConfig(num_decisions=num, max_per_trajectory=num))


def pictures(prompt):
    return [part.digest for turn in prompt for part in turn.parts if isinstance(part, Screenshot)]


def test_a_batch_carries_the_pixels_of_everything_it_shows(world, policy, bank):
    data = batches(decisions(world, policy, bank))
    for number in range(3):
        batch = data.batch(number)
        shown = {digest for one in (*batch.items, *batch.decisions) for digest in pictures(one.prompt)}
        assert set(batch.pixels.digests) == shown
        assert len(batch.pixels.pixels_NHWC) == len(shown)


def test_other_decisions_have_another_digest(world, policy, bank):
    """By which a run that goes on knows that it learns from the same."""
    one, same, other = (batches(decisions(world, policy, bank, seed=seed)) for seed in (0, 0, 1))
    assert one.digest == same.digest
    assert one.digest != other.digest


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 minds forking beside threads
def test_worker_processes_roll_out_the_same_episodes(world, policy):
    banks = [LabBank(world, "m", num_sites=5, picture=placeholder, num_workers=num) for num in (0, 2)]
    assert banks[0].rollouts == banks[1].rollouts
    one, other = (decisions(world, policy, bank, num_trajectories=5) for bank in banks)
    other.roll_out_all(2)
    assert [one.rollout(number) for number in range(5)] == [other.rollout(number) for number in range(5)]


def test_a_decision_holds_what_a_memory_would(world, policy, bank):
    source = decisions(world, policy, bank, negative_share=0.0)
    for trajectory in range(3):
        num = source.num_decisions(trajectory)
        batch = source.decisions(trajectory, tuple(range(num)))
        for at, decision in enumerate(batch.decisions):
            assert parse_action(decision.reply)
            roles = [batch.items[use.item].role for use in decision.uses]
            assert roles.count("episodic") == 3
            assert roles.count("working") == -(-max(0, at - NUM_RECENT) // 4)
            assert not any(use.is_negative for use in decision.uses)


def test_misleading_items_come_from_elsewhere(world, policy, bank):
    source = decisions(world, policy, bank, negative_share=1.0, num_trajectories=60)
    sites = {rollout.task.site_id for rollout in bank.rollouts}
    chosen = next(number for number in range(60) if source.rollout(number).task.site_id in sites)
    batch = source.decisions(chosen, (0, 2))
    own = f"{source.rollout(chosen).task.site_id}."
    for decision in batch.decisions:
        found = [use for use in decision.uses if batch.items[use.item].role == "episodic"]
        assert [use.is_negative for use in found] == [False, False, False, True]
        assert [use.rank for use in found] == [0, 1, 2, 3]
        assert batch.items[found[0].item].item_id.startswith(own)
        assert not batch.items[found[3].item].item_id.startswith(own)


def test_no_hit_is_lost_to_a_misleading_item(world, policy, bank):
    plain, misled = (decisions(world, policy, bank, negative_share=share) for share in (0.0, 1.0))
    for trajectory in range(3):
        before, after = (source.decisions(trajectory, (0, 2)) for source in (plain, misled))
        for one, other in zip(before.decisions, after.decisions, strict=True):
            kept = [(after.items[use.item].digest, use.rank) for use in other.uses if not use.is_negative]
            assert kept == [(before.items[use.item].digest, use.rank) for use in one.uses]


@pytest.mark.parametrize(
    ("notes", "name", "message"),
    [
        ({"stage": "stage_a", "variant": "action-only"}, "full", "trained as the memory 'action-only'"),
        ({"stage": "stage_a", "variant": "full"}, "full", "left by 'stage_a'"),
        ({"stage": "stage_a"}, "content", "left by 'stage_a'"),
        ({"stage": "stage_b", "variant": "full"}, "content", "trained as the memory 'full'"),
        ({"stage": "stage_b", "variant": "full"}, "probe-content", "trained as the memory 'full'"),
        ({}, "full", "left by 'something else'"),
        ({"stage": "stage_b", "variant": "readout"}, "full", "trained as the memory 'readout'"),
        ({"stage": "stage_a", "variant": "action-only"}, "content", "trained as the memory 'action-only'"),
        ({"stage": "gate", "variant": "readout"}, "readout", "left by 'gate'"),
        ({"stage": "gate", "variant": "full"}, "full-told", "trained as the memory 'full'"),
    ],
)
def test_another_variants_memory_does_not_act(policy, tmp_path, notes, name, message):
    Checkpoint.save(MemoryPolicy(policy, SMALL), tmp_path / "memory", notes=notes)
    with pytest.raises(CheckpointError, match=message):
        latent_front(policy, tmp_path / "memory", name)
    with pytest.raises(CheckpointError, match=message):
        measure_gate(policy, tmp_path / "memory", name)


@pytest.mark.slow
def test_a_gate_is_measured_on_sites_it_has_not_seen(policy, tmp_path):
    memory = MemoryPolicy(policy, SMALL)
    Checkpoint.save(memory, tmp_path / "memory", notes={"stage": "stage_b", "variant": "full"})
    few = GateMeasurement(num_trajectories=8, num_learnt=8, num_probe_steps=3, layers=(1,), num_workers=0)
    found = measure_gate(policy, tmp_path / "memory", "full", few, sets_threshold=True)
    assert found["num_misleading"] > 0
    assert found["num_right"] > 0
    for value in (found["probe_auc"], found["gate_auc"], found["probe_auc_by_layer"]["1"]):
        assert 0 <= value <= 1
    threshold = found["chosen_on_validation"]["threshold_logit"]
    assert Checkpoint.open(tmp_path / "memory").build(policy).config.gate.threshold_logit == pytest.approx(threshold)


def test_a_memory_that_ended_with_stage_a_acts_with_fixed_blocks(policy, tmp_path):
    """As the action-only memory that ships."""
    Checkpoint.save(MemoryPolicy(policy, SMALL), tmp_path / "memory", notes={"stage": "stage_a", "variant": "content"})
    use = latent_front(policy, tmp_path / "memory", "content").use
    assert (use.is_dynamic, use.is_gated) == (False, False)


def test_a_probed_memory_acts_with_fixed_blocks(policy, tmp_path):
    notes = {"stage": "stage_b", "variant": "probe-semantic"}
    Checkpoint.save(MemoryPolicy(policy, SMALL), tmp_path / "memory", notes=notes)
    use = latent_front(policy, tmp_path / "memory", "probe-semantic").use
    assert (use.is_dynamic, use.is_gated) == (False, False)


def test_a_memory_that_names_no_variant_acts(policy, tmp_path):
    Checkpoint.save(MemoryPolicy(policy, SMALL), tmp_path / "memory", notes={"stage": "stage_b"})
    assert latent_front(policy, tmp_path / "memory", "full").use.is_gated


def test_a_memory_whose_gate_was_taught_alone_acts(policy, tmp_path):
    Checkpoint.save(MemoryPolicy(policy, SMALL), tmp_path / "memory", notes={"stage": "gate", "variant": "full"})
    assert load_memory(policy, tmp_path / "memory", "full").config == SMALL
    assert latent_front(policy, tmp_path / "memory", "full").use.is_gated


def test_the_papers_ablation_is_there():
    for name in ("action-only", "content", "readout", "full", "probe-semantic", "probe-functional"):
        assert name in VARIANTS
    assert not variant("content").is_dynamic
    assert variant("readout").is_dynamic
    assert not variant("readout").is_gated
    assert variant("full").is_gated
    assert variant("fixed-16").memory.compressor.num_tokens == 16
    with pytest.raises(ConfigError, match="no memory variant 'best'"):
        variant("best")
