from dataclasses import replace

import pytest
import torch

from focusmem.agent.prompt import NUM_RECENT
from focusmem.bank.embedder import QwenEmbedder
from focusmem.errors import ConfigError
from focusmem.lab.corpus import placeholder
from focusmem.lab.embedder import READING
from focusmem.lab.policy import new_policy, train_tokenizer
from focusmem.lab.recall import LabBank
from focusmem.lab.world import World
from focusmem.model.checkpoint import Checkpoint
from focusmem.recipes.lab_decisions import LabBatches, LabDecisions, LabDecisionsConfig, SiteFirst
from focusmem.recipes.lab_memory import LAB_MEMORY, TEACHER, VARIANTS, LabTraining, lab_look, train_variant, variant
from focusmem.recipes.lab_recall import prepare_recall
from focusmem.schemas import Screenshot, parse_action
from focusmem.training.config import LoopConfig
from focusmem.training.teacher import Teacher, lesson_store
from focusmem.training.trajectory_batches import BatchingConfig


@pytest.fixture(scope="module")
def world():
    return World(0)


@pytest.fixture(scope="module")
def policy(world):
    torch.manual_seed(0)
    text = {"num_hidden_layers": 1, "intermediate_size": 64}
    vision = {"depth": 3, "intermediate_size": 32, "deepstack_visual_indexes": [0, 1]}
    return new_policy(train_tokenizer(world, num_episodes=30), text_config=text, vision_config=vision)


@pytest.fixture(scope="module")
def bank(world):
    return LabBank(world, "m", num_sites=30, picture=placeholder)


def decisions(world, policy, bank, **changes) -> LabDecisions:
    config = LabDecisionsConfig(**{"num_trajectories": 3} | changes)
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
    source = decisions(world, policy, bank, negative_share=1.0)
    batch = source.decisions(0, (0, 2))
    own = source.rollout(0).task.site_id
    for decision in batch.decisions:
        [negative] = [batch.items[use.item] for use in decision.uses if use.is_negative]
        assert negative.role == "episodic"
        assert not negative.item_id.startswith(f"{own}.")
        assert len([use for use in decision.uses if batch.items[use.item].role == "episodic"]) == 3


def test_retrieval_is_worked_out_for_every_step(world, policy, bank):
    source = decisions(world, policy, bank, num_trajectories=2)
    recall = prepare_recall(QwenEmbedder(policy, READING), source, bank)
    for number in range(2):
        rollout = source.rollout(number)
        for at in range(len(rollout.steps)):
            hits = recall(rollout, at)
            assert len(hits) == 3
            assert [score for _, score in hits] == sorted((score for _, score in hits), reverse=True)
            templates = {bank.rollouts[place].task.task.annotations.template for place, _ in hits}
            assert rollout.task.task.annotations.template not in templates


def test_both_stages_of_the_full_memory_from_lessons_to_checkpoint(world, policy, bank, tmp_path):
    """Everything is real and small: an untrained teacher describes, two steps are taken, the memory loads."""
    source = decisions(world, policy, bank, num_trajectories=1, negative_share=1.0)
    data = batches(source)
    teacher = replace(TEACHER, max_new_tokens=8)
    Teacher(policy, tmp_path / "lessons", teacher, look=lab_look(policy)).prepare(data)
    source.lessons = lesson_store(tmp_path / "lessons", policy, teacher)
    loop = LoopConfig(learning_rate=1e-3, num_steps=2, log_every_steps=1)
    training = LabTraining(stage_a=loop, stage_b=loop)
    memory = train_variant("full", policy, data, data, tmp_path / "full", training)
    stored = Checkpoint.open(memory)
    assert stored.config == LAB_MEMORY
    assert stored.notes["stage"] == "stage_b"
    assert (tmp_path / "full" / "stage-b" / "losses.png").exists()


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
