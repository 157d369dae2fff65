"""Memory for a real policy, trained on stored trajectories: from the settings to a memory that acts."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from banks import WordEmbedder
from focusmem import Memory
from focusmem.data.preparation import prepare
from focusmem.errors import ConfigError
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import ActingParts, Checkpoint
from focusmem.model.gate import logit_of
from focusmem.recipes.training import paper, train_on_trajectories
from focusmem.schemas import Run, action_to_json, make_action, parse_record
from focusmem.settings import resolved
from focusmem.training.config import LoopConfig
from focusmem.training.lessons import Description
from focusmem.training.metrics import read_metrics
from focusmem.training.questions import DESCRIBE, SUBTYPES, TARGETS
from focusmem.training.stage_a import StageA
from focusmem.training.threshold import PAPER_THRESHOLDS
from focusmem.training.trajectory_batches import BatchingConfig
from stored_training import decisions_of, make_data, stored
from toys import make_config


@pytest.fixture(scope="module")
def policy():
    return Backbone.toy(num_layers=2)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def prepared(policy, data, tmp_path_factory):
    return prepare(policy, WordEmbedder, data, tmp_path_factory.mktemp("prepared"), has_lessons=False)


def small(name, data, loop, **changes):
    """A variant's paper settings at toy size."""
    base = paper(name)
    variant = replace(base.variant, memory=make_config(), **changes)
    batching = BatchingConfig(num_decisions=4, max_per_trajectory=2)
    return replace(base, variant=variant, loop_a=loop, loop_b=loop, data=data, batching=batching)


def teach(policy, data, prepared):
    """Lessons by hand: a toy's own answers are no JSON."""
    store, source = prepared.lessons(policy, data), decisions_of(data, prepared)
    hidden_MD = torch.randn(3, policy.width, generator=torch.Generator().manual_seed(0))
    for trajectory in range(source.num_trajectories):
        for item in source.to_teach(trajectory).items:
            described = Description(store.questions.ask(DESCRIBE), "abc", (97, 98, 99), hidden_MD)
            targets = {name: good_answer(name) for name in SUBTYPES[item.role]}
            store.write(item.digest, described, targets=targets, discarded={})


def good_answer(subtype: str) -> str:
    action = action_to_json(make_action("wait"))
    fields = {
        name: '"x"' if field.annotation is str else action for name, field in TARGETS[subtype].model_fields.items()
    }
    return "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"


def test_both_stages_and_the_threshold_leave_a_memory_that_acts(policy, data, tmp_path):
    asked = replace(data, validation_share=0.4)
    prepared = prepare(policy, WordEmbedder, asked, tmp_path / "prepared", has_lessons=False)
    assert prepared.found
    assert prepared.validation
    assert {one.folder for one in prepared.found}.isdisjoint(one.folder for one in prepared.validation)
    teach(policy, asked, prepared)
    loop = LoopConfig(learning_rate=1e-3, num_steps=2, log_every_steps=1)
    training = small("full", asked, loop)
    memory = train_on_trajectories(policy, training, prepared, tmp_path / "run")
    losses = [read_metrics(tmp_path / "run" / stage / "metrics.jsonl")[0]["loss"] for stage in ("stage-a", "stage-b")]
    assert losses[0].keys() == {"action", "semantic", "functional", "total"}
    assert "action" in losses[1]
    card = Checkpoint.open(memory)
    assert card.notes["variant"] == "full"
    assert card.notes["threshold"]["num_decisions"] > 0
    assert card.config.gate.threshold_logit == card.notes["threshold"]["threshold_logit"]
    assert card.notes["threshold"]["candidates"] == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert card.config.gate.threshold_logit in [float(np.float32(logit_of(one))) for one in PAPER_THRESHOLDS]
    assert card.notes["acting"] == {"is_dynamic": True, "is_gated": True}
    assert card.notes["recipe"] == "paper"
    told = "\n".join(card.notes["departures"])
    assert "batching.num_decisions is 4 (paper: 32)" in told
    assert "loop_a.learning_rate is 0.001 (paper: 1e-05)" in told
    assert any(line.startswith("loop_a.num_steps is 2") for line in card.notes["scale"])
    assert card.notes["shows_errors"] is False
    files = {path.name: path.read_bytes() for path in memory.iterdir()}
    assert train_on_trajectories(policy, training, prepared, tmp_path / "run") == memory
    assert {path.name: path.read_bytes() for path in memory.iterdir()} == files, "nothing is done twice"

    acting = Memory.load(policy, memory, bank=asked.bank, embedder=WordEmbedder())
    item = stored(31)
    prefix = acting.begin(item.trajectory.instruction).prefix(next(iter(item.screenshots.values())))
    assert len(prefix.items) == 3
    assert all(one.trust_logit is not None for one in prefix.items)


def test_the_same_seed_trains_the_same_memory(policy, data, prepared, tmp_path):
    shas = []
    for run, seed in (("a", 0), ("b", 0), ("c", 1)):
        training = small("action-only", data, LoopConfig(learning_rate=1e-3, num_steps=1, seed=seed), stage_b=None)
        torch.manual_seed(len(shas))
        memory = train_on_trajectories(policy, training, prepared, tmp_path / run)
        shas.append(Checkpoint.open(memory).weights_sha256)
    assert shas[0] == shas[1]
    assert shas[0] != shas[2]


def test_a_training_is_repeated_from_its_run_file_alone(policy, data, prepared, tmp_path):
    training = small("action-only", data, LoopConfig(learning_rate=1e-3, num_steps=1), stage_b=None)
    first = train_on_trajectories(policy, training, prepared, tmp_path / "a")
    path = tmp_path / "a" / "run.json"
    assert parse_record(Run, path.read_bytes(), "run.json").status == "finished"
    again = resolved(paper("action-only"), file=path)
    assert again == training
    second = train_on_trajectories(policy, again, prepared, tmp_path / "b")
    assert Checkpoint.open(first).weights_sha256 == Checkpoint.open(second).weights_sha256


def test_variants_have_the_papers_values():
    full, actions = paper("full").variant, paper("action-only").variant
    stage_a = full.stage_a
    assert (stage_a.content_weight, stage_a.semantic_weight, stage_a.functional_weight) == (0.25, 0.5, 0.5)
    assert full.stage_b.gate_weight == 0.05
    assert actions.stage_a.content_weight == 0
    assert not paper("readout").variant.stage_b.is_gated
    for num in (4, 8, 16):
        fixed, dynamic = paper(f"fixed-{num}").variant, paper(f"dynamic-{num}").variant
        assert fixed.memory.compressor.num_tokens == dynamic.memory.compressor.num_tokens == num
        assert (fixed.is_dynamic, dynamic.is_dynamic) == (False, True)
    training = paper("full")
    assert (training.loop_a.learning_rate, training.loop_b.learning_rate) == (1e-5, 5e-6)
    assert (training.loop_a.warmup_share, training.loop_a.max_gradient_norm) == (0.1, 1.0)
    assert training.batching.num_decisions == 32
    memory = full.memory
    assert (memory.lora.rank, memory.lora.alpha, memory.lora.dropout) == (64, 16, 0.05)
    assert (memory.compressor.num_tokens, memory.compressor.num_refinements) == (8, 8)
    assert memory.gate.threshold_logit == logit_of(0.3)
    with pytest.raises(ConfigError, match="no memory variant 'fullest'"):
        paper("fullest")


@pytest.mark.parametrize("name", ["action-only", "action-only-shared", "content", "fixed-4", "fixed-8", "fixed-16"])
def test_fixed_blocks_are_trained_for_two_stages_as_all_others_are(name):
    chosen = paper(name).variant
    assert (chosen.stage_b.is_dynamic, chosen.stage_b.is_gated) == (False, False)
    assert chosen.last_stage == "stage_b"
    assert chosen.acting == ActingParts(False, False)


def test_the_checkpoints_of_table_3_take_the_stage_b_of_full_and_act_without_it():
    full, seen = paper("full").variant, set()
    for name, semantic, functional in (
        ("action-only", 0.0, 0.0), ("semantic", 0.125, 0.0), ("functional", 0.0, 0.125), ("content", 0.125, 0.125),
    ):  # fmt: skip
        chosen = paper(f"probe-{name}").variant
        weights = StageA(chosen.stage_a).weights
        assert (weights.get("semantic", 0.0), weights.get("functional", 0.0)) == (semantic, functional)
        assert chosen.stage_b == full.stage_b
        assert chosen.trains_gate
        assert chosen.acting == ActingParts(False, False)
        seen.add(chosen.stage_a)
    assert len(seen) == 4
    assert paper("probe-content").variant.stage_a == full.stage_a


def test_action_only_may_share_its_queries_between_roles():
    own, shared = (paper(name).variant for name in ("action-only", "action-only-shared"))
    assert shared.memory.compressor == replace(own.memory.compressor, shares_queries=True)
    assert replace(shared, name=own.name, memory=own.memory) == own
