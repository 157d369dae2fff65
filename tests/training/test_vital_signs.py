import json
from dataclasses import replace

import pytest
import torch

from focusmem.errors import CheckpointError, TrainingError
from focusmem.model.checkpoint import Checkpoint
from focusmem.training.batch import Decision, ItemUse, ListedBatches, TrainingBatch
from focusmem.training.metrics import StepReport, note, read_metrics
from focusmem.training.pathway import embed, reply_nats
from focusmem.training.prepared import Preparer
from focusmem.training.stage import Passage
from focusmem.training.stage_a import StageAConfig, train_stage_a
from focusmem.training.stage_b import StageB, StageBConfig, train_stage_b
from focusmem.training.vital_signs import INERT_NATS, HeldOut, Sums, VitalSigns, neighbours, sums_of_share
from toys import decision
from training.samples import make_batch, make_data, make_item, make_loop, make_memory_policy, open_gate, weights_of

MAX_TOKENS = 65_536


def share_of(policy, batch):
    [share] = Preparer(policy, StageB().needs).shares(batch, [0], 1)
    return share, embed(policy, share)


def sums_of(policy, batch, *, is_gated=False, is_dynamic=True):
    parts = {"is_gated": is_gated, "is_dynamic": is_dynamic}
    sums = sums_of_share(policy, *share_of(policy, batch), **parts, max_tokens=MAX_TOKENS)
    return sums.tensor(policy.backbone.device)


def signs_of(policy, batch, **parts) -> VitalSigns:
    return VitalSigns.of(sums_of(policy, batch, **parts))


def two_moments() -> TrainingBatch:
    """Two decisions about one item, and one about another."""
    decisions = [
        Decision(prompt=decision(number), reply=f'{{"n":{number}}}', uses=(ItemUse(item, 0),))
        for number, item in enumerate((0, 1, 0))
    ]
    return TrainingBatch(items=(make_item(1), make_item(2)), decisions=tuple(decisions))


def starting_point(folder, **changes):
    policy = make_memory_policy(is_trained=False, **changes)
    Checkpoint.save(policy, folder, notes={"stage": "stage_a"})
    return folder


def test_a_neighbour_shares_an_item_where_one_does():
    share, rows = share_of(make_memory_policy(), two_moments())
    assert neighbours(share, len(rows.decisions)) == [2, 2, 0], "the decision about the other item takes the next one"


@torch.no_grad()
def test_nats_are_those_of_blocks_read_one_by_one():
    """With the decision's own state, with its neighbour's, and with none."""
    policy, batch = make_memory_policy(), two_moments()
    signs = signs_of(policy, batch)
    share, rows = share_of(policy, batch)
    state_BU = policy.state(rows.decisions)
    items = [policy.encode([item.prompt])[0] for item in batch.items]

    def nats(state_of):
        found = []
        for row, (item, other) in enumerate(zip((0, 1, 0), state_of, strict=True)):
            place = replace(share.places[row], row=0)
            memory = policy.remember([rows.decisions[row]], [items[item]], [place], is_gated=False)
            blocks = policy.read([items[item]], [place], None if other is None else state_BU[[other]])
            injected = policy.inject([rows.decisions[row]], replace(memory, blocks_NKD=blocks))
            found += reply_nats(policy.backbone, injected, max_tokens=MAX_TOKENS)
        return sum(found) / 3

    assert signs.own_nats == pytest.approx(nats((0, 1, 2)), rel=1e-4)
    assert signs.shuffled_nats == pytest.approx(nats((2, 2, 0)), rel=1e-4)
    assert signs.fixed_nats == pytest.approx(nats((None, None, None)), rel=1e-4)
    assert len({round(one, 3) for one in (signs.own_nats, signs.shuffled_nats, signs.fixed_nats)}) == 3
    assert signs.num_decisions == 3


def test_a_readout_that_adds_nothing_is_inert():
    policy = make_memory_policy(is_trained=False)  # it starts at the fixed readout
    signs = signs_of(policy, make_batch())
    assert signs.query_change == signs.query_change_rms == 0.0
    base = policy.compressor.base_queries_RKH
    assert signs.base_query_rms == pytest.approx(base.square().mean().sqrt().item(), rel=0.1)
    assert signs.own_nats == signs.shuffled_nats == signs.fixed_nats
    assert signs.is_inert


def test_fixed_blocks_have_nats_and_no_readout():
    policy = make_memory_policy()
    signs, dynamic = signs_of(policy, make_batch(), is_dynamic=False), signs_of(policy, make_batch())
    assert signs == VitalSigns(signs.num_decisions, signs.fixed_nats)
    assert signs.fixed_nats == pytest.approx(dynamic.fixed_nats, rel=1e-4)
    assert signs.is_inert is signs.query_change is None


def test_the_gate_is_told_apart_from_the_readout():
    """What it lets in is counted; nats are with all ordinary blocks, so that they stay comparable."""
    policy, batch = make_memory_policy(), make_batch()
    shut = replace(policy.gate.config, threshold_logit=1e30)
    ungated = signs_of(policy, batch)
    assert ungated.ordinary_passage is ungated.negative_passage is None
    opened = signs_of(open_gate(policy), batch, is_gated=True)
    policy.gate.config = shut
    closed = signs_of(policy, batch, is_gated=True)
    assert (opened.ordinary_passage, opened.negative_passage) == (1.0, 1.0)
    assert (closed.ordinary_passage, closed.negative_passage) == (0.0, 0.0)
    assert ungated.own_nats == opened.own_nats == closed.own_nats


def test_sums_of_shares_may_be_added():
    policy = make_memory_policy()
    one, other = sums_of(policy, make_batch(0)), sums_of(policy, make_batch(1))
    both = VitalSigns.of(one + other)
    parts = [VitalSigns.of(one), VitalSigns.of(other)]
    mean = sum(part.own_nats * part.num_decisions for part in parts) / sum(part.num_decisions for part in parts)
    assert both.own_nats == pytest.approx(mean)


def test_with_one_decision_alone_shuffled_states_are_absent():
    batch = two_moments()
    signs = signs_of(make_memory_policy(), replace(batch, decisions=batch.decisions[:1]))
    assert (signs.shuffled_nats, signs.is_inert, signs.num_decisions) == (None, None, 1)
    assert signs.own_nats != signs.fixed_nats


def test_without_items_there_are_no_signs():
    batch = replace(make_batch(), decisions=tuple(replace(one, uses=()) for one in make_batch().decisions))
    sums = sums_of(make_memory_policy(), batch)
    assert torch.equal(sums, Sums().tensor(sums.device))
    assert VitalSigns.of(sums) is None


@pytest.mark.parametrize(("difference", "is_inert"), [(0.0, True), (-0.5, True), (2 * INERT_NATS, False)])
def test_inert_is_a_matter_of_nats(difference, is_inert):
    assert VitalSigns(60, 0.5, 0.4, 0.4 + difference, 1.0, 0.02).is_inert == is_inert


# Held-out decisions


def test_data_may_hold_out_a_batch_else_the_last_one_is_taken():
    data, own = make_data(3), make_batch(9)
    assert (
        HeldOut.of(replace(data, held_out=own), num_steps=3, num_decisions=4).batch.digest == own.with_memory(4).digest
    )
    for num_steps, is_learnt_from in ((2, False), (3, True)):
        held_out = HeldOut.of(data, num_steps=num_steps, num_decisions=4)
        assert held_out.batch.digest == data.batch(2).with_memory(4).digest
        assert held_out.is_learnt_from == is_learnt_from


def test_only_decisions_with_memory_are_held_out_and_only_their_items():
    batch = make_batch()
    kept = batch.with_memory(2)
    assert [one.prompt for one in kept.decisions] == [batch.decisions[0].prompt, batch.decisions[2].prompt]
    assert [item.digest for item in kept.items] == [batch.items[number].digest for number in (0, 1, 2, 3)]
    assert all(item.lesson is None for item in kept.items)
    for own, whole in zip(kept.decisions, (batch.decisions[0], batch.decisions[2]), strict=True):
        pairs = zip(own.uses, whole.uses, strict=True)
        assert all(kept.items[one.item].digest == batch.items[other.item].digest for one, other in pairs)


# In training


@pytest.mark.parametrize("is_dynamic", [True, False])
def test_measuring_changes_nothing_that_is_learnt(is_dynamic, tmp_path):
    start, weights = starting_point(tmp_path / "start"), []
    for name, log_every_steps in (("often", 1), ("seldom", 3)):
        policy = make_memory_policy(is_trained=False)
        loop = make_loop(log_every_steps=log_every_steps)
        stage = StageBConfig(is_dynamic=is_dynamic)
        train_stage_b(policy, make_data(3), tmp_path / name, start=start, stage=stage, loop=loop)
        weights.append(weights_of(policy))
    lines = read_metrics(tmp_path / "often" / "metrics.jsonl")
    assert len(lines) == 3
    for line in lines:
        assert (line["vital_signs"]["own_nats"] is None) != is_dynamic
        assert line["vital_signs"]["ordinary_passage"] is not None
    assert len(read_metrics(tmp_path / "seldom" / "metrics.jsonl")) == 1
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
    assert (tmp_path / "often" / "vital.png").exists()


def test_signs_are_of_the_weights_after_the_step_and_stand_on_the_card(tmp_path):
    data = replace(make_data(2), held_out=two_moments())
    policy, stage = make_memory_policy(is_trained=False), StageBConfig(is_gated=False)
    result = train_stage_b(
        policy, data, tmp_path / "run", start=starting_point(tmp_path / "start"), stage=stage, loop=make_loop()
    )
    wanted = signs_of(policy, two_moments()).as_plain()
    assert read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]["vital_signs"] == pytest.approx(wanted)
    assert Checkpoint.open(result.memory).notes["vital_signs"] == pytest.approx(wanted | {"is_learnt_from": False})


def test_a_resumed_run_measures_the_same_as_one_that_never_stopped(tmp_path):
    start, data, lines = starting_point(tmp_path / "start"), make_data(4), {}
    for name, limits in (("whole", [None]), ("parts", [1e-9, 1e-9, None])):
        for max_minutes in limits:
            loop = make_loop(max_minutes=max_minutes)
            train_stage_b(make_memory_policy(is_trained=False), data, tmp_path / name, start=start, loop=loop)
        lines[name] = [line["vital_signs"] for line in read_metrics(tmp_path / name / "metrics.jsonl")]
    assert len(lines["whole"]) == 4
    assert lines["parts"] == lines["whole"]
    notes = [Checkpoint.open(tmp_path / name / "memory").notes["vital_signs"] for name in lines]
    assert notes[0] == notes[1]


def test_a_run_does_not_go_on_with_other_held_out_decisions(tmp_path):
    start, data = starting_point(tmp_path / "start"), make_data(3)
    loop = make_loop(max_minutes=1e-9)
    train_stage_b(make_memory_policy(is_trained=False), data, tmp_path / "run", start=start, loop=loop)
    other = replace(data, held_out=two_moments())
    with pytest.raises(CheckpointError, match="other held-out decisions"):
        train_stage_b(make_memory_policy(is_trained=False), other, tmp_path / "run", start=start, loop=loop)


def wild(limit):
    """A rate at which the readout runs away at once."""
    return make_loop(learning_rate=1e-3, readout_rate_times=1e5, warmup_share=0.0, max_query_change=limit)


def test_a_readout_that_runs_away_stops_the_run_and_names_the_remedy(tmp_path):
    start, stage = starting_point(tmp_path / "start"), StageBConfig(is_gated=False)
    with pytest.raises(
        TrainingError, match=r"At step 1 of 3, the readout changes.*lower LoopConfig.readout_rate_times"
    ):
        train_stage_b(
            make_memory_policy(is_trained=False), make_data(3), tmp_path / "a", start=start, stage=stage, loop=wild(4.0)
        )
    [line] = read_metrics(tmp_path / "a" / "metrics.jsonl")
    assert line["vital_signs"]["query_change"] > 4.0
    free = train_stage_b(
        make_memory_policy(is_trained=False), make_data(3), tmp_path / "b", start=start, stage=stage, loop=wild(None)
    )
    assert free.is_finished


def test_a_readout_may_grow_later(tmp_path):
    """Only the first tenth of the steps is watched, or the steps up to the first line of metrics."""
    start = starting_point(tmp_path / "start")

    def changes(name, limit):
        loop = make_loop(warmup_share=0.9, max_query_change=limit)
        train_stage_b(make_memory_policy(is_trained=False), make_data(3), tmp_path / name, start=start, loop=loop)
        lines = read_metrics(tmp_path / name / "metrics.jsonl")
        return [line["vital_signs"]["query_change"] for line in lines]

    free = changes("free", None)
    assert free[0] < free[-1]
    assert changes("watched", (free[0] + free[-1]) / 2) == free


def test_a_stage_with_fixed_blocks_alone_reports_nothing(tmp_path):
    policy = make_memory_policy(is_trained=False)
    result = train_stage_a(
        policy, ListedBatches([make_batch()]), tmp_path, stage=StageAConfig(content_weight=0), loop=make_loop()
    )
    assert all("vital_signs" not in line for line in read_metrics(tmp_path / "metrics.jsonl"))
    assert "vital_signs" not in Checkpoint.open(result.memory).notes


def test_the_progress_line_tells_of_an_inert_readout():
    signs = VitalSigns(60, 0.41, 0.39, 0.39, 1.0, 0.02)
    report = StepReport(10, {"action": 0.4}, 1.0, 1e-3, Passage(), 100, 0.0, signs)
    words = "action 0.4  query change 0.02, nats 0.390 own, 0.390 shuffled, 0.410 fixed, readout inert"
    assert note(report, torch.device("cpu")) == words


def test_signs_can_be_stored_as_json():
    assert json.loads(json.dumps(VitalSigns(1, 2.0).as_plain()))["is_inert"] is None
