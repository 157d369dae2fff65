import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from safetensors.torch import load_file

from focusmem.errors import CheckpointError, ConfigError
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.gate import GateConfig
from focusmem.model.injection import Place
from focusmem.training.batch import ListedBatches, TrainingBatch
from focusmem.training.pathway import EncodedShare, embed
from focusmem.training.prepared import Preparer
from focusmem.training.stage import Passage
from focusmem.training.stage_a import train_stage_a
from focusmem.training.stage_b import StageBConfig, train_stage_b
from focusmem.training.stage_gate import GateStage, GateStageConfig, train_gate
from training.samples import learnt_from, make_batch, make_data, make_loop, make_memory_policy

MAX_TOKENS = 256
"""Few enough that items are encoded in several groups, and so stand in another order than their uses."""


def tasks(*seeds) -> TrainingBatch:
    return TrainingBatch.merged([make_batch(seed) for seed in seeds])


def sharp_policy():
    """A gate that tells blocks apart: a fresh one trusts all alike, whatever they are."""
    policy = make_memory_policy(gate=GateConfig(sees_evidence=True))
    torch.nn.init.normal_(policy.gate.out.weight, generator=torch.Generator().manual_seed(1))
    return policy.train()


def prepared(policy, stage, batch):
    [share] = Preparer(policy, stage.needs).shares(batch, [0], 1)
    return share, embed(policy, share)


def logits_one_by_one(policy, share, rows, *, is_dynamic):
    """Of right blocks and of wrong ones, each read by itself."""
    state_BD = policy.state(rows.decisions)

    def trust(row, item):
        encoded = policy.encode_rows([rows.items[item]])
        block_1KD = policy.read([encoded], [Place(row, share.roles[item], 0)], state_BD if is_dynamic else None)
        return policy.gate.logits(state_BD[[row]], block_1KD, encoded.summary_NE).item()

    uses = list(zip(share.places, share.item_of_use, share.is_negative, strict=True))
    right = [trust(place.row, item) for place, item, negative in uses if not negative]
    misleading = [trust(place.row, item) for place, item, negative in uses if negative]
    return right, misleading + [trust(row, item) for row, item in share.foreign]


@pytest.mark.parametrize("is_dynamic", [True, False])
@torch.no_grad()
def test_whatever_misleads_or_is_of_another_task_is_parted_from_whatever_is_right(is_dynamic):
    policy, stage = sharp_policy(), GateStage(GateStageConfig(is_dynamic=is_dynamic))
    share, rows = prepared(policy, stage, tasks(0, 1))
    assert len(EncodedShare.of(policy, rows.items, max_tokens=MAX_TOKENS).groups) > 1
    losses = stage.losses(policy, share, rows, max_tokens=MAX_TOKENS, generator=torch.Generator().manual_seed(3))
    right, wrong = logits_one_by_one(policy, share, rows, is_dynamic=is_dynamic)
    roles = {place.role for place, negative in zip(share.places, share.is_negative, strict=True) if not negative}
    assert len(roles) == 2
    assert 0 < sum(share.is_negative) < len(wrong)
    expected = sum(sum(math.log1p(math.exp(one - own)) for own in right) / len(right) for one in wrong)
    assert losses.sums.keys() == {"gate"}
    assert losses.sums["gate"].item() == pytest.approx(expected, rel=1e-4)
    assert share.counts["gate"] == len(wrong)
    assert abs(expected / len(wrong) - math.log(2)) > 0.01, "it matters which are right"
    kept = [sum(value > 0 for value in values) for values in (right, wrong)]
    assert losses.passage == Passage(len(right), kept[0], len(wrong), kept[1])


def test_labels_move_the_gate_alone_and_neither_open_nor_close_it():
    policy, stage = sharp_policy(), GateStage()
    share, rows = prepared(policy, stage, tasks(0, 1))
    stage.losses(policy, share, rows, max_tokens=MAX_TOKENS).sums["gate"].backward()
    for name, part in policy.trained_parts().items():
        reached = {one.grad is not None for one in part.parameters()}
        assert reached == {name == "gate"}, name
    assert policy.gate.project_block.weight.grad.abs().sum() > 0
    assert policy.gate.project_evidence.weight.grad.abs().sum() > 0
    assert policy.gate.out.bias.grad.item() == pytest.approx(0, abs=1e-5)


def test_where_nothing_is_right_or_nothing_wrong_there_is_nothing_to_learn():
    policy, stage, batch = sharp_policy(), GateStage(GateStageConfig(num_foreign=0)), make_batch()
    for flags in ({False}, {True}, set()):
        kept = [[use for use in one.uses if use.is_negative in flags] for one in batch.decisions]
        decisions = [replace(one, uses=tuple(uses)) for one, uses in zip(batch.decisions, kept, strict=True)]
        losses, gradients = learnt_from(policy, stage, replace(batch, decisions=tuple(decisions)))
        assert losses == {"gate": 0.0}
        assert not any(gradient.any() for gradient in gradients.values())


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    """The memories that both stages leave."""
    folder, policy = tmp_path_factory.mktemp("stages"), make_memory_policy(is_trained=False)
    stage_a = train_stage_a(policy, make_data(1), folder / "a", loop=make_loop()).memory
    return stage_a, train_stage_b(policy, make_data(2), folder / "b", start=stage_a, loop=make_loop()).memory


def test_all_but_the_gate_stays_bit_for_bit(stages, tmp_path):
    _, start = stages
    policy = make_memory_policy(is_trained=False, seed=5)
    result = train_gate(policy, ListedBatches([tasks(0, 1), tasks(2, 3)]), tmp_path, start=start, loop=make_loop())
    before, after = (load_file(memory / "memory.safetensors") for memory in (start, result.memory))
    assert before.keys() == after.keys() == policy.trained_state().keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in policy.trained_state().items())
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert {name for name in before if name.startswith("gate.") and name.endswith("weight")} <= moved
    assert {name.split(".")[0] for name in moved} == {"gate"}
    stored = Checkpoint.open(result.memory)
    assert stored.notes["stage"] == "gate"
    assert stored.notes["config"]["stage"]["start_sha256"] == Checkpoint.open(start).weights_sha256


def test_blocks_are_parted_better_than_before(stages, tmp_path):
    """Those of all decisions from each other, since one threshold has to serve them all."""
    _, start = stages
    policy, stage, batch = make_memory_policy(is_trained=False), GateStage(), tasks(0, 1)

    @torch.no_grad()
    def parted():
        share, rows = prepared(policy, stage, batch)
        loss = stage.losses(policy, share, rows, max_tokens=MAX_TOKENS).sums["gate"].item() / share.counts["gate"]
        pairs = list(product(*logits_one_by_one(policy, share, rows, is_dynamic=True)))
        return loss, sum(own > one for own, one in pairs) / len(pairs)

    Checkpoint.open(start).load_into(policy)
    loss, num_parted = parted()
    train_gate(policy, ListedBatches([batch] * 30), tmp_path, start=start, loop=make_loop(learning_rate=1e-2))
    later_loss, later_parted = parted()
    assert later_loss < loss / 2
    assert later_parted > max(0.9, num_parted)


def test_begins_with_what_stage_b_or_it_itself_left(stages, tmp_path):
    stage_a, stage_b = stages
    data, policy = ListedBatches([tasks(0, 1)]), make_memory_policy(is_trained=False)
    Checkpoint.save(policy, tmp_path / "unknown")
    for start, left_by in ((stage_a, "stage_a"), (tmp_path / "unknown", "something else")):
        with pytest.raises(CheckpointError, match=f"memory from stage B, but .* was left by '{left_by}'"):
            train_gate(policy, data, tmp_path / "refused", start=start, loop=make_loop())
    assert not (tmp_path / "refused").exists()
    first = train_gate(policy, data, tmp_path / "1", start=stage_b, loop=make_loop())
    more = train_gate(policy, data, tmp_path / "2", start=first.memory, loop=make_loop())
    assert more.is_finished
    began_with = Checkpoint.open(more.memory).notes["config"]["stage"]["start_sha256"]
    assert began_with == Checkpoint.open(first.memory).weights_sha256
    assert train_stage_b(policy, data, tmp_path / "3", start=more.memory, loop=make_loop()).is_finished


def test_a_gate_that_took_no_part_in_stage_b_is_not_taught(stages, tmp_path):
    """Its norms were never calibrated, and so it would learn what all blocks have in common."""
    stage_a, _ = stages
    data, policy, loop = ListedBatches([tasks(0, 1)]), make_memory_policy(is_trained=False), make_loop()
    ungated = StageBConfig(is_gated=False)
    left = train_stage_b(policy, data, tmp_path / "b", start=stage_a, stage=ungated, loop=loop).memory
    with pytest.raises(CheckpointError, match="took no part in stage B"):
        train_gate(policy, data, tmp_path / "refused", start=left, loop=loop)


def test_config_names_the_field():
    with pytest.raises(ConfigError, match=r"GateStageConfig\.num_foreign is -1"):
        GateStageConfig(num_foreign=-1)
