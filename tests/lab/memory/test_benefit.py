import pytest
import torch

from focusmem.errors import CheckpointError
from focusmem.lab.memory.benefit import BenefitConfig, measure_benefit
from focusmem.lab.memory.decisions import LabDecisions, LabDecisionsConfig, SiteFirst
from focusmem.lab.memory.split_bank import SplitBank
from focusmem.lab.memory.stream import useful_decisions
from focusmem.lab.memory.variants import LAB_MEMORY
from focusmem.lab.policy.corpus import Corpus
from focusmem.lab.world.rollout import screenshot_of
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.gate import logit_of
from focusmem.model.policy import MemoryPolicy
from focusmem.schemas import action_to_json
from toys import shake

FEW = BenefitConfig(num_episodes=4, num_workers=0)


def stored(policy, folder, *, name, stage):
    torch.manual_seed(1)
    memory = MemoryPolicy(policy, LAB_MEMORY)
    shake(memory)
    Checkpoint.save(memory, folder, notes={"stage": stage, "variant": name})
    return folder


def nats_alone(policy, source, number):
    """What the expert's actions of an episode cost the policy alone, one prompt at a time."""
    corpus = Corpus(source.world, policy.chat, split="v", picture=lambda step: screenshot_of(source.world, step))
    rollout = source.rollout(number)
    nats = []
    for at, step in enumerate(rollout.steps):
        prompt = corpus.prompt_at(rollout.task, rollout.steps, at)
        [row] = policy.embed([policy.tokenise(prompt, reply=action_to_json(step.action))])
        with torch.no_grad():
            scores = policy.logits(policy.target_hidden([row])).log_softmax(dim=-1)
        nats.append(-sum(scores[place, token].item() for place, token in enumerate(row.target_ids)))
    return nats


def test_alone_is_what_the_policy_alone_would_do_and_memory_changes_it(world, policy, tmp_path):
    figures = measure_benefit(policy, stored(policy, tmp_path / "a", name="content", stage="stage_a"), "content", FEW)
    bank = SplitBank(world, "v")
    config = LabDecisionsConfig(split="v", num_trajectories=4, negative_share=0.0, seed=1)
    source = LabDecisions(world, policy.chat, bank, SiteFirst(bank), config)
    nats = [nats_alone(policy, source, number) for number in range(4)]
    useful = [useful_decisions(source, number) for number in range(4)]
    for group, wanted in (("useful", True), ("others", False)):
        own = [
            value
            for values, flags in zip(nats, useful, strict=True)
            for value, flag in zip(values, flags, strict=True)
            if flag == wanted
        ]
        assert figures[group]["num_decisions"] == len(own) > 0
        assert figures[group]["alone"]["mean_nats"] == pytest.approx(sum(own) / len(own), rel=1e-3)
        assert figures[group]["with_memory"]["mean_nats"] != pytest.approx(sum(own) / len(own), rel=1e-3)
        low, high = figures[group]["alone"]["likely_interval"]
        assert low <= figures[group]["alone"]["likely_rate"] <= high
    assert "readout" not in figures, "fixed blocks have none"


def test_a_shut_gate_leaves_the_policy_alone(policy, tmp_path):
    """And one variant's figures are not another's. While the gate is open, the readout is measured."""
    folder = stored(policy, tmp_path / "b", name="full", stage="stage_b")
    Checkpoint.open(folder).with_threshold(-1e30)
    readout = measure_benefit(policy, folder, "full", FEW)["readout"]
    assert readout["query_change_rms"] > 0
    assert readout["num_decisions"] > 0
    assert readout["own_nats"] != readout["shuffled_nats"]
    Checkpoint.open(folder).with_threshold(logit_of(1 - 1e-6))
    figures = measure_benefit(policy, folder, "full", FEW)
    assert "readout" not in figures, "no block is in front"
    for group in ("useful", "others"):
        assert figures[group]["with_memory"]["mean_nats"] == pytest.approx(
            figures[group]["alone"]["mean_nats"], rel=1e-5
        )
    with pytest.raises(CheckpointError, match="trained as the memory 'full'"):
        measure_benefit(policy, folder, "content", FEW)


@pytest.mark.slow
def test_a_probed_memory_is_measured_with_its_fixed_blocks(policy, tmp_path):
    """Its readout and its gate are trained, but switched off."""
    figures = [
        measure_benefit(policy, stored(policy, tmp_path / name, name=name, stage="stage_b"), name, FEW)
        for name in ("content", "probe-content")
    ]
    for group in ("useful", "others"):
        assert figures[0][group] == figures[1][group]
