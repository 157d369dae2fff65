from dataclasses import replace

import pytest
import torch

from focusmem.agent.prompt import NUM_RECENT
from focusmem.bank.embedder import QwenEmbedder
from focusmem.errors import CheckpointError, ConfigError, StorageError
from focusmem.lab.memory.decisions import LabBatches, LabDecisions, LabDecisionsConfig, SiteFirst
from focusmem.lab.memory.embedder import READING
from focusmem.lab.memory.experiment import ExperimentConfig, prepare, train
from focusmem.lab.memory.gate import measure_gate
from focusmem.lab.memory.need import Surprise, surprise_of
from focusmem.lab.memory.pictures import see_beforehand
from focusmem.lab.memory.recall import LabBank
from focusmem.lab.memory.stored_recall import StoredRecall, prepare_recall
from focusmem.lab.memory.variants import LAB_MEMORY, TEACHER, VARIANTS, LabTraining, agent_memory, load_memory, variant
from focusmem.lab.policy.corpus import Corpus
from focusmem.lab.policy.drawing import placeholder
from focusmem.lab.world.rollout import screenshot_of
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.compressor import CompressorConfig
from focusmem.model.config import MemoryConfig
from focusmem.model.lora import LoraConfig
from focusmem.model.policy import MemoryPolicy
from focusmem.schemas import Screenshot, action_to_json, parse_action
from focusmem.training.config import LoopConfig
from focusmem.training.metrics import read_metrics
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


def test_everything_that_batches_show_can_be_seen_beforehand(world, policy, bank):
    source = decisions(world, policy, bank, negative_share=1.0)
    shown = {digest for number in range(9) for digest in batches(source).batch(number).pixels.digests}
    views = source.views()
    assert shown < views.keys()
    some = {digest: views[digest] for digest in sorted(shown)[:5]}
    seen = see_beforehand(policy, world, some)
    real = policy.see([screenshot_of(world, view) for view in some.values()])
    for digest, features in zip(some, real, strict=True):
        torch.testing.assert_close(seen[digest].main_VD, features.main_VD, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(seen[digest].deep_LVD, features.deep_LVD, rtol=1e-4, atol=1e-4)


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
        assert [use.is_negative for use in found] == [False, False, True]
        assert batch.items[found[0].item].item_id.startswith(own)
        assert not batch.items[found[2].item].item_id.startswith(own)


def test_retrieval_is_worked_out_for_every_step(world, policy, bank, tmp_path):
    source = decisions(world, policy, bank, num_trajectories=2, use="bank")
    kinds = {source.rollout(number).task.task.annotations.template for number in range(2)}
    known = {rollout.task.task.annotations.template for rollout in bank.rollouts}
    assert kinds & known, "there is something for the guard to remove"
    recall = prepare_recall(QwenEmbedder(policy, READING), source, bank)
    recall.save(tmp_path / "recall.json")
    assert StoredRecall.load(tmp_path / "recall.json") == recall
    for number in range(2):
        rollout = source.rollout(number)
        for at in range(len(rollout.steps)):
            hits = recall(rollout, at)
            assert len(hits) == 3
            assert [score for _, score in hits] == sorted((score for _, score in hits), reverse=True)
            templates = {bank.rollouts[place].task.task.annotations.template for place, _ in hits}
            assert rollout.task.task.annotations.template not in templates


@pytest.fixture(scope="module")
def quick():
    """A teacher that says little: its answers are long otherwise, and mean nothing untrained."""
    patch = pytest.MonkeyPatch()
    patch.setattr("focusmem.lab.memory.experiment.TEACHER", replace(TEACHER, max_new_tokens=4))
    yield
    patch.undo()


def experiment(**changes) -> ExperimentConfig:
    own = LabDecisionsConfig(**{"num_trajectories": 1, "num_sites": 12, "negative_share": 1.0} | changes)
    # An untrained policy is surprised by everything; each decision once is enough here.
    return ExperimentConfig(decisions=own, batching=BatchingConfig(num_decisions=2), hard_times=1)


def test_what_was_prepared_is_all_that_training_asks_for(policy, quick, tmp_path, monkeypatch):
    """Through the same door as the command line: every lesson that stage A reads was taught."""
    content = replace(VARIANTS["full"].stage_a, functional_weight=0.0)  # an untrained teacher's answers are no JSON
    monkeypatch.setitem(VARIANTS, "full", replace(VARIANTS["full"], stage_a=content))
    loop = LoopConfig(learning_rate=1e-3, log_every_steps=1)
    training = LabTraining(stage_a=loop, stage_b=replace(loop, num_steps=1))
    with pytest.raises(StorageError, match="lab prepare"):
        train(policy, "full", experiment(), tmp_path / "prepared", tmp_path / "full", training)
    prepare(policy, None, experiment(), tmp_path / "prepared", has_lessons=False)
    with pytest.raises(StorageError, match="not to the end"):
        train(policy, "full", experiment(), tmp_path / "prepared", tmp_path / "full", training)
    taught = [tmp_path / "prepared" / name for name in ("lessons", "done.txt")]
    assert not any(path.exists() for path in taught)
    prepare(policy, None, experiment(), tmp_path / "prepared")
    assert all(path.exists() for path in taught)
    memory = train(policy, "full", experiment(), tmp_path / "prepared", tmp_path / "full", training)
    assert Checkpoint.open(memory).notes["stage"] == "stage_b"
    assert Checkpoint.open(memory).notes["variant"] == "full"
    assert "variant" not in Checkpoint.open(tmp_path / "full" / "stage-a" / "memory").notes, "any variant's beginning"
    assert Checkpoint.open(memory).config == LAB_MEMORY
    assert (tmp_path / "full" / "stage-b" / "losses.png").exists()
    prepare(policy, None, experiment(), tmp_path / "prepared")  # nothing is left to do
    with pytest.raises(ConfigError, match="something else"):
        prepare(policy, None, experiment(seed=5), tmp_path / "prepared")
    with pytest.raises(ConfigError, match="other decisions"):
        train(policy, "full", experiment(seed=5), tmp_path / "prepared", tmp_path / "other", training)
    with pytest.raises(CheckpointError, match="trained as the memory 'full'"):
        train(policy, "content", experiment(), tmp_path / "prepared", tmp_path / "c", training, start=memory)

    for path in taught:
        path.rename(tmp_path / path.name)
    start = tmp_path / "full" / "stage-a" / "memory"
    train(
        policy, "full", experiment(), tmp_path / "prepared", tmp_path / "b", training,
        start=start, sees_beforehand=True,
    )  # fmt: skip
    first = [read_metrics(tmp_path / run / "stage-b" / "metrics.jsonl")[0]["loss"] for run in ("full", "b")]
    assert first[1] == pytest.approx(first[0], rel=1e-4), "it reads no lesson, and pictures are the same beforehand"


@pytest.mark.parametrize(
    ("notes", "name", "message"),
    [
        ({"stage": "stage_a", "variant": "action-only"}, "full", "left by 'stage_a'"),
        ({"stage": "stage_b", "variant": "full"}, "content", "left by 'stage_b'"),
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
        agent_memory(policy, tmp_path / "memory", name)
    with pytest.raises(CheckpointError, match=message):
        measure_gate(policy, tmp_path / "memory", name)


@pytest.mark.slow
def test_a_gate_is_measured_on_sites_it_has_not_seen(policy, tmp_path):
    memory = MemoryPolicy(policy, SMALL)
    Checkpoint.save(memory, tmp_path / "memory", notes={"stage": "stage_b", "variant": "full"})
    few = {"num_trajectories": 8, "num_learnt": 8, "num_probe_steps": 3}
    found = measure_gate(policy, tmp_path / "memory", "full", layers=(1,), sets_threshold=True, **few)
    assert found["num_misleading"] > 0
    assert found["num_right"] > 0
    for value in (found["probe_auc"], found["gate_auc"], found["probe_auc_by_layer"]["1"]):
        assert 0 <= value <= 1
    threshold = found["chosen_on_validation"]["threshold"]
    assert Checkpoint.open(tmp_path / "memory").build(policy).config.gate.threshold == pytest.approx(threshold)


def test_a_memory_from_before_variants_were_noted_acts(policy, tmp_path):
    Checkpoint.save(MemoryPolicy(policy, SMALL), tmp_path / "memory", notes={"stage": "stage_b"})
    assert agent_memory(policy, tmp_path / "memory", "full").use.is_gated


def test_a_memory_whose_gate_was_taught_alone_acts(policy, tmp_path):
    Checkpoint.save(MemoryPolicy(policy, SMALL), tmp_path / "memory", notes={"stage": "gate", "variant": "full"})
    assert load_memory(policy, tmp_path / "memory", "full").config == SMALL
    assert agent_memory(policy, tmp_path / "memory", "full").use.is_gated


def test_the_papers_ablation_is_there():
    for name in ("action-only", "semantic", "functional", "content", "readout", "full"):
        assert name in VARIANTS
    assert not variant("content").is_dynamic
    assert variant("readout").is_dynamic
    assert not variant("readout").is_gated
    assert variant("full").is_gated
    assert variant("fixed-16").memory.compressor.num_tokens == 16
    with pytest.raises(ConfigError, match="no memory variant 'best'"):
        variant("best")


def test_surprise_is_what_the_policy_alone_would_not_have_done(world, policy, bank):
    """Pictures drawn ahead, many at a time, against one prompt at a time with real screenshots."""
    source = decisions(world, policy, bank, num_trajectories=2)
    found = surprise_of(policy, source)
    assert [len(own) for own in found.nats] == [source.num_decisions(number) for number in range(2)]
    real = Corpus(world, policy.chat, split="m", picture=lambda step: screenshot_of(world, step))
    for trajectory, at in ((0, 0), (1, 4)):
        rollout = source.rollout(trajectory)
        prompt = real.prompt_at(rollout.task, rollout.steps, at)
        [row] = policy.embed([policy.tokenise(prompt, reply=action_to_json(rollout.steps[at].action))])
        with torch.no_grad():
            scores = policy.logits(policy.target_hidden([row])).log_softmax(dim=-1)
        expected = -sum(scores[place, token].item() for place, token in enumerate(row.target_ids))
        assert found.nats[trajectory][at] == pytest.approx(expected, rel=1e-3)


def test_decisions_that_need_memory_come_more_often(tmp_path):
    surprise = Surprise([[0.1, 2.0], [0.69, 0.71, 0.0]])
    surprise.save(tmp_path / "surprise.json")
    loaded = Surprise.load(tmp_path / "surprise.json")
    assert loaded.repeats(4, above=0.7) == {(0, 1): 4, (1, 1): 4}
    (tmp_path / "surprise.json").write_text("[1, 2]")
    with pytest.raises(StorageError, match="which decisions need memory"):
        Surprise.load(tmp_path / "surprise.json")
