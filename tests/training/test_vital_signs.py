from dataclasses import replace

import pytest
import torch

from focusmem.model.checkpoint import Checkpoint
from focusmem.training.batch import Decision, ItemUse, ListedBatches, TrainingBatch
from focusmem.training.metrics import StepReport, note, read_metrics
from focusmem.training.pathway import embed, reply_nats
from focusmem.training.prepared import Preparer
from focusmem.training.readout_activity import INERT_NATS, NUM_SUMS, ReadoutActivity, activity_of_share, neighbours
from focusmem.training.stage import Passage
from focusmem.training.stage_a import StageAConfig, train_stage_a
from focusmem.training.stage_b import StageB, StageBConfig, train_stage_b
from toys import decision
from training.samples import make_batch, make_data, make_item, make_loop, make_memory_policy, weights_of

MAX_TOKENS = 65_536


def share_of(policy, batch):
    [share] = Preparer(policy, StageB().needs).shares(batch, [0], 1)
    return share, embed(policy, share)


def sums_of(policy, batch, *, is_gated=False):
    share, rows = share_of(policy, batch)
    return activity_of_share(policy, share, rows, is_gated=is_gated, max_tokens=MAX_TOKENS)


def two_moments() -> TrainingBatch:
    """Two decisions about one item, and one about another."""
    decisions = [
        Decision(prompt=decision(number), reply=f'{{"n":{number}}}', uses=(ItemUse(item, 0),))
        for number, item in enumerate((0, 1, 0))
    ]
    return TrainingBatch(items=(make_item(1), make_item(2)), decisions=tuple(decisions))


def test_a_neighbour_shares_an_item_where_one_does():
    share, rows = share_of(make_memory_policy(), two_moments())
    assert neighbours(share, len(rows.decisions)) == [2, 2, 0], "the decision about the other item takes the next one"


def test_states_are_those_of_the_neighbour_and_everything_else_stays():
    """Against rows whose states were exchanged one by one."""
    policy, batch = make_memory_policy(), two_moments()
    activity = ReadoutActivity.of(sums_of(policy, batch))
    share, rows = share_of(policy, batch)
    state_BD = policy.state(rows.decisions)
    items = [policy.encode([item.prompt])[0] for item in batch.items]

    def nats(other_of):
        found = []
        for row, (item, other) in enumerate(zip((0, 1, 0), other_of, strict=True)):
            memory = policy.remember(
                [rows.decisions[row]], [items[item]], [replace(share.places[row], row=0)], is_gated=False
            )
            blocks = policy.read([items[item]], [replace(share.places[row], row=0)], state_BD[[other]])
            injected = policy.inject([rows.decisions[row]], replace(memory, blocks_NKD=blocks))
            found += reply_nats(policy.backbone, injected, max_tokens=MAX_TOKENS)
        return sum(found) / 3

    with torch.no_grad():
        assert activity.own_nats == pytest.approx(nats((0, 1, 2)), rel=1e-4)
        assert activity.shuffled_nats == pytest.approx(nats((2, 2, 0)), rel=1e-4)
    assert activity.own_nats != pytest.approx(activity.shuffled_nats, rel=1e-4)
    assert activity.num_decisions == 3


def test_a_readout_that_adds_nothing_is_inert():
    policy = make_memory_policy(is_trained=False)  # it starts at the fixed readout
    activity = ReadoutActivity.of(sums_of(policy, make_batch()))
    assert activity.query_change_rms == 0.0
    base = policy.compressor.base_queries_RKH
    assert activity.base_query_rms == pytest.approx(base.square().mean().sqrt().item(), rel=0.1)
    assert activity.own_nats == activity.shuffled_nats
    assert activity.is_inert


def test_sums_of_shares_may_be_added():
    policy = make_memory_policy()
    one, other = sums_of(policy, make_batch(0)), sums_of(policy, make_batch(1))
    both = ReadoutActivity.of(one + other)
    parts = [ReadoutActivity.of(one), ReadoutActivity.of(other)]
    mean = sum(part.own_nats * part.num_decisions for part in parts) / sum(part.num_decisions for part in parts)
    assert both.own_nats == pytest.approx(mean)


def test_with_one_decision_alone_shuffled_states_are_absent():
    batch = two_moments()
    activity = ReadoutActivity.of(sums_of(make_memory_policy(), replace(batch, decisions=batch.decisions[:1])))
    assert (activity.shuffled_nats, activity.is_inert, activity.num_decisions) == (None, None, 1)


def test_without_items_there_is_no_activity():
    batch = replace(make_batch(), decisions=tuple(replace(one, uses=()) for one in make_batch().decisions))
    sums = sums_of(make_memory_policy(), batch)
    assert sums.tolist() == [0.0] * NUM_SUMS
    assert ReadoutActivity.of(sums) is None


@pytest.mark.parametrize(("difference", "is_inert"), [(0.0, True), (-0.5, True), (2 * INERT_NATS, False)])
def test_inert_is_a_matter_of_nats(difference, is_inert):
    activity = ReadoutActivity(0.02, 1.0, 0.4, 0.4 + difference, 60)
    assert activity.is_inert == is_inert


@pytest.mark.parametrize("is_dynamic", [True, False])
def test_training_reports_it_for_a_readout_alone_and_learns_the_same(is_dynamic, tmp_path):
    start = make_memory_policy(is_trained=False)
    Checkpoint.save(start, tmp_path / "start", notes={"stage": "stage_a"})
    weights = []
    for name, log_every_steps in (("often", 1), ("seldom", 3)):
        policy = make_memory_policy(is_trained=False)
        loop = make_loop(log_every_steps=log_every_steps)
        stage = StageBConfig(is_dynamic=is_dynamic)
        train_stage_b(policy, make_data(3), tmp_path / name, start=tmp_path / "start", stage=stage, loop=loop)
        weights.append(weights_of(policy))
    lines = read_metrics(tmp_path / "often" / "metrics.jsonl")
    assert [("readout" in line) for line in lines] == [is_dynamic] * 3
    assert len(read_metrics(tmp_path / "seldom" / "metrics.jsonl")) == 1
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
    if is_dynamic:
        names = {"query_change_rms", "base_query_rms", "own_nats", "shuffled_nats", "num_decisions", "is_inert"}
        assert set(lines[0]["readout"]) == names


def test_a_stage_with_fixed_blocks_reports_nothing(tmp_path):
    policy = make_memory_policy(is_trained=False)
    train_stage_a(
        policy, ListedBatches([make_batch()]), tmp_path, stage=StageAConfig(content_weight=0), loop=make_loop()
    )
    assert all("readout" not in line for line in read_metrics(tmp_path / "metrics.jsonl"))


def test_the_progress_line_tells_of_an_inert_readout():
    report = StepReport(10, {"action": 0.4}, 1.0, 1e-3, Passage(), 100, 0.0, ReadoutActivity(0.02, 1.0, 0.39, 0.39, 60))
    words = "action 0.4  queries 1 +0.02, nats 0.390 own, 0.390 shuffled, readout inert"
    assert note(report, torch.device("cpu")) == words
