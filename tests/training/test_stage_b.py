import itertools
import math
from dataclasses import replace
from typing import get_args

import pytest
import torch

from focusmem.errors import CheckpointError, ConfigError
from focusmem.model.backbone import Backbone
from focusmem.model.calibration import are_calibrated, calibrate, moments_of
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.gate import GateConfig
from focusmem.model.injection import Place
from focusmem.model.policy import MemoryPolicy
from focusmem.model.readout import ReadoutConfig
from focusmem.training.batch import ListedBatches, TrainingBatch
from focusmem.training.pathway import EncodedShare, embed, row_sums, target_hidden
from focusmem.training.prepared import Preparer
from focusmem.training.stage_a import StageA, StageAConfig, train_stage_a
from focusmem.training.stage_b import Keeping, StageB, StageBConfig, keeping_term, train_stage_b
from toys import make_config
from training.samples import learnt_from, make_batch, make_data, make_loop, make_memory_policy, open_gate, weights_of

KEEPING = get_args(Keeping)


def losses_of(policy, stage, *, seed=0):
    [share] = Preparer(policy, stage.needs).shares(make_batch(), [0], 1)
    generator = torch.Generator().manual_seed(seed)
    return stage.losses(policy, share, embed(policy, share), max_tokens=65_536, generator=generator)


def test_gate_loss_moves_the_gate_alone():
    """Of all the weights it could reach, through blocks and state, only the gate's own get a gradient."""
    policy = make_memory_policy().train()
    losses_of(policy, StageB()).sums["gate"].backward()
    assert all(parameter.grad is not None for parameter in policy.gate.parameters())
    assert policy.gate.out.bias.grad.abs() > 0
    for name in ("encoder", "compressor", "readout"):
        assert all(parameter.grad is None for parameter in policy.trained_parts()[name].parameters()), name


def test_items_of_other_tasks_are_dropped_as_each_decision_would_read_them():
    """Against reading every pair by itself. Nothing of it reaches the blocks, and nothing else changes."""
    policy = make_memory_policy().train()
    batch = TrainingBatch.merged([make_batch(0), make_batch(1)])
    few, many = (StageB(StageBConfig(num_foreign=num)) for num in (0, 2))
    shares = [Preparer(policy, stage.needs).shares(batch, [0], 1)[0] for stage in (few, many)]
    rows = embed(policy, shares[1])
    generators = [torch.Generator().manual_seed(3) for _ in shares]
    without, own = (
        stage.losses(policy, share, rows, max_tokens=65_536, generator=generator)
        for stage, share, generator in zip((few, many), shares, generators, strict=True)
    )
    assert len(shares[1].foreign) == 12
    assert shares[1].counts["gate"] == shares[0].counts["gate"] + 12
    expected = without.sums["gate"].detach().clone()
    with torch.no_grad():
        state_BD = policy.state(rows.decisions)
        for row, item in shares[1].foreign:
            encoded = policy.encode_rows([rows.items[item]])
            block_1KD = policy.read([encoded], [Place(row, shares[1].roles[item], 0)], state_BD)
            logits_1 = policy.gate.logits(state_BD[[row]], block_1KD, encoded.summary_NE)
            expected += torch.nn.functional.softplus(logits_1).sum()
    torch.testing.assert_close(own.sums["gate"].detach(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(own.sums["action"], without.sums["action"])
    assert own.passage == without.passage
    own.sums["gate"].backward()
    assert policy.gate.out.bias.grad.abs() > 0
    for name in ("encoder", "compressor", "readout"):
        assert all(parameter.grad is None for parameter in policy.trained_parts()[name].parameters()), name


@pytest.mark.parametrize(
    "config",
    [StageBConfig(), StageBConfig(is_gated=False), StageBConfig(is_dynamic=False)],
    ids=["full", "readout", "gate"],
)
def test_what_begins_to_learn_is_calibrated_by_the_first_batch_and_once(config, tmp_path):
    """However the batch is shared out; and what has learnt is left as it is."""
    policy, stage = make_memory_policy(is_trained=False, gate=GateConfig(sees_evidence=True)), StageB(config)

    def surveyed(batch, num_shares=1):
        shares = Preparer(policy, stage.needs).shares(batch, range(num_shares), num_shares)
        norms, rows = stage.fresh_norms(policy), [embed(policy, share) for share in shares]
        inputs = [stage.norm_inputs(policy, *one, max_tokens=65_536) for one in zip(shares, rows, strict=True)]
        return [moments_of(norms, one) for one in inputs]

    no_uses = tuple(replace(one, uses=()) for one in make_batch().decisions)
    [nothing] = surveyed(replace(make_batch(), decisions=no_uses))
    calibrate(stage.fresh_norms(policy), nothing)
    assert stage.fresh_norms(policy), "nothing was seen"
    while norms := stage.fresh_norms(policy):  # of the state, then of what sees it
        [whole] = surveyed(make_batch())
        torch.testing.assert_close(sum(surveyed(make_batch(), 2)), whole, rtol=1e-4, atol=1e-4)
        assert calibrate(norms, whole)
    assert are_calibrated(policy.pool.norms)
    assert are_calibrated(policy.readout.norms) == config.is_dynamic
    assert are_calibrated(policy.gate.norms) == config.is_gated
    assert not stage.fresh_norms(policy)
    fresh = make_memory_policy(is_trained=False)
    start = train_stage_a(fresh, make_data(1), tmp_path / "a", loop=make_loop()).memory
    assert stage.fresh_norms(fresh)
    train_stage_b(fresh, make_data(1), tmp_path / "b", start=start, stage=config, loop=make_loop())
    assert not stage.fresh_norms(fresh)


def without_items(batch):
    return replace(batch, decisions=tuple(replace(one, uses=()) for one in batch.decisions))


def begin_stage_b(folder, batches, **loop):
    """Stage B on the same fresh memory each time."""
    policy = make_memory_policy(is_trained=False)
    start = folder / "start"
    if not start.exists():
        Checkpoint.save(policy, start, notes={"stage": "stage_a"})
    result = train_stage_b(policy, ListedBatches(batches), folder / "b", start=start, loop=make_loop(**loop))
    return policy, result


def test_norms_are_calibrated_by_the_first_batch_that_has_items(tmp_path):
    empty, batch = without_items(make_batch(0)), make_batch(1)
    late, _ = begin_stage_b(tmp_path / "late", [empty, batch], learning_rate=1e-12)
    at_once, _ = begin_stage_b(tmp_path / "at-once", [batch], learning_rate=1e-12)
    assert are_calibrated(late.readout.norms)
    assert are_calibrated(late.gate.norms)
    for one, other in zip(
        late.readout.norms + late.gate.norms, at_once.readout.norms + at_once.gate.norms, strict=True
    ):
        torch.testing.assert_close(one.weight, other.weight, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(one.bias, other.bias, rtol=1e-5, atol=1e-5)


def test_a_run_stopped_before_its_norms_were_calibrated_goes_on_as_if_never_stopped(tmp_path):
    batches = [without_items(make_batch(0)), make_batch(1), make_batch(2)]
    whole, _ = begin_stage_b(tmp_path / "whole", batches, save_every_steps=1)
    for _ in batches:  # each call is out of time after one step
        resumed, result = begin_stage_b(tmp_path / "parts", batches, save_every_steps=1, max_minutes=1e-9)
    assert result.is_finished
    assert weights_of(resumed).keys() == weights_of(whole).keys()
    assert all(torch.equal(tensor, weights_of(whole)[name]) for name, tensor in weights_of(resumed).items())


def test_calibration_happens_once(tmp_path):
    """The norms of a memory whose readout learns are not calibrated again by later batches."""
    policy, _ = begin_stage_b(tmp_path / "one", [make_batch(1), make_batch(2)], learning_rate=1e-12)
    first, _ = begin_stage_b(tmp_path / "two", [make_batch(1)], learning_rate=1e-12)
    for one, other in zip(policy.readout.norms, first.readout.norms, strict=True):
        torch.testing.assert_close(one.weight, other.weight, rtol=1e-5, atol=1e-5)


def test_labels_reach_blocks_where_they_may():
    """Those of blocks in front, and those of other tasks' items alone."""
    policy = make_memory_policy().train()
    batch = TrainingBatch.merged([make_batch(0), make_batch(1)])
    stage = StageB(StageBConfig(num_foreign=2, labels_reach_blocks=True))
    for used in (batch, batch.without_negatives()):
        [share] = Preparer(policy, stage.needs).shares(used, [0], 1)
        policy.zero_grad(set_to_none=True)
        losses = stage.losses(policy, share, embed(policy, share), max_tokens=65_536)
        losses.sums["gate"].backward()
        for name, part in policy.trained_parts().items():
            assert any(one.grad is not None and one.grad.abs().sum() > 0 for one in part.parameters()), name


@pytest.mark.parametrize("reaches", [False, True])
def test_order_is_learnt_without_opening_or_closing_the_gate(reaches):
    """Against every pair by itself: misleading blocks in front, and other tasks' items, each with the trajectories that
    retrieval found for the decision."""
    policy = make_memory_policy(gate=GateConfig(sees_evidence=True)).train()
    config = StageBConfig(gate_weight=0.0, num_foreign=2, order_weight=0.5, labels_reach_blocks=reaches)
    stage = StageB(config)
    batch = TrainingBatch.merged([make_batch(0), make_batch(1)])
    [share] = Preparer(policy, stage.needs).shares(batch, [0], 1)
    rows = embed(policy, share)
    found = stage.losses(policy, share, rows, max_tokens=65_536, generator=torch.Generator().manual_seed(3)).sums
    with torch.no_grad():
        state_BD = policy.state(rows.decisions)

        def trust(row, item):
            encoded = policy.encode_rows([rows.items[item]])
            block_1KD = policy.read([encoded], [Place(row, share.roles[item], 0)], state_BD)
            return policy.gate.logits(state_BD[[row]], block_1KD, encoded.summary_NE).item()

        uses = list(zip(share.places, share.item_of_use, share.is_negative, strict=True))
        wrong = [(place.row, item) for place, item, negative in uses if negative] + list(share.foreign)
        expected, num = 0.0, 0
        for row, item in wrong:
            right = [own for place, own, negative in uses if place.row == row and not negative and place.role == 0]
            gaps = [trust(row, item) - trust(row, own) for own in right]
            expected += sum(math.log1p(math.exp(gap)) for gap in gaps) / max(1, len(gaps))
            num += bool(gaps)
    assert num == share.counts["order"] > 0
    assert found["order"].item() == pytest.approx(expected, rel=1e-3)
    found["order"].backward()
    assert policy.gate.out.bias.grad.item() == pytest.approx(0, abs=1e-5)
    assert policy.gate.project_block.weight.grad.abs().sum() > 0
    touched = any(one.grad is not None for one in policy.compressor.parameters())
    assert touched == reaches


def test_gate_loss_is_that_of_the_misleading_blocks():
    policy = open_gate(make_memory_policy()).train()
    assert losses_of(policy, StageB()).sums["gate"].item() == pytest.approx(2 * 30, rel=0.05)
    torch.nn.init.constant_(policy.gate.out.bias, -30.0)
    assert losses_of(policy, StageB()).sums["gate"].item() == pytest.approx(0, abs=1e-3)


def test_action_loss_reaches_the_gate_through_kept_blocks():
    policy = make_memory_policy().train()
    torch.nn.init.constant_(policy.gate.out.bias, 0.5)
    losses_of(policy, StageB(), seed=2).sums["action"].backward()
    for name, part in policy.trained_parts().items():
        assert any(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in part.parameters()), (
            name
        )


class Chooses:
    """Stands for chance: always the block with this number."""

    def __init__(self, number):
        self.number = number

    def choice(self, blocks):
        return blocks[self.number % len(blocks)]


def test_what_keeping_costs_is_measured_without_bias():
    """Over all draws of the gate and all blocks that may be tried: the gradient of the actions' expected loss."""
    policy = make_memory_policy().train()
    stage = StageB(StageBConfig(keeping="measured"))
    [share] = Preparer(policy, stage.needs).shares(make_batch(), [0], 1)
    rows = embed(policy, share)
    encoded = EncodedShare.of(policy, rows.items, max_tokens=65_536)
    memory, _ = stage.remember(policy, share, rows, encoded)
    of_row: dict[int, list[int]] = {}
    for block, place in enumerate(memory.places):
        of_row.setdefault(place.row, []).append(block)
    most = max(map(len, of_row.values()))
    assert most > 1

    def loss_of(keep):
        injected = policy.injection(rows.decisions, memory.blocks_NKD, memory.places, keep)
        with torch.no_grad():
            return row_sums(policy.backbone, injected, target_hidden(policy.backbone, injected, max_tokens=65_536))

    trust_N = policy.gate.logits(memory.gate_state_NU, memory.blocks_NKD, memory.evidence_NE).sigmoid()
    expected, found = 0.0, 0.0
    for pattern in itertools.product([False, True], repeat=most):
        keep = [False] * len(memory.places)
        for blocks in of_row.values():
            for block, is_kept in zip(blocks, pattern, strict=False):
                keep[block] = is_kept
        own_B = loss_of(keep)
        for row, blocks in of_row.items():
            chance = torch.stack([trust_N[one] if keep[one] else 1 - trust_N[one] for one in blocks]).prod()
            times = 2 ** (most - len(blocks))  # a row with fewer blocks comes so many times
            expected = expected + chance * own_B[row] / times
            for number in range(len(blocks)):
                own = replace(memory, keep=tuple(keep), valid=tuple(place.row == row for place in memory.places))
                term = keeping_term(policy, rows.decisions, own, own_B, rng=Chooses(number), max_tokens=65_536)
                assert term.item() == 0
                found = found + chance.detach() * term / len(blocks) / times
    named = {
        f"{part}.{name}": one for part, own in policy.trained_parts().items() for name, one in own.named_parameters()
    }
    weights = list(named.values())
    gradients = (torch.autograd.grad(one, weights, retain_graph=True, allow_unused=True) for one in (found, expected))
    moved = set()
    for name, one, other in zip(named, *gradients, strict=True):
        assert (one is None) == (other is None), name
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
            moved |= {name.split(".")[0]} if one.abs().sum() > 0 else set()
    assert moved == set(policy.trained_parts()), "what the gate goes by learns as well"


def test_measured_keeping_moves_the_gate_and_changes_no_figure():
    policy = make_memory_policy().train()
    torch.nn.init.constant_(policy.gate.out.bias, 0.5)
    straight, measured = (losses_of(policy, StageB(StageBConfig(keeping=one)), seed=2) for one in KEEPING)
    torch.testing.assert_close(straight.sums["action"], measured.sums["action"], rtol=1e-5, atol=1e-5)
    assert straight.passage == measured.passage
    measured.sums["action"].backward()
    for name, part in policy.trained_parts().items():
        assert any(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in part.parameters()), (
            name
        )


@torch.no_grad()
def test_without_residual_and_gate_it_is_stage_a():
    """A fresh adapter answers zero, so stage B begins where stage A ended."""
    policy = make_memory_policy(is_trained=False).train()
    dynamic = losses_of(policy, StageB(StageBConfig(is_gated=False))).sums["action"]
    fixed = losses_of(policy, StageA(StageAConfig(content_weight=0))).sums["action"]
    torch.testing.assert_close(dynamic, fixed, rtol=1e-5, atol=1e-5)


def test_fixed_blocks_alone_learn_as_in_stage_a():
    """Without content losses; the same loss, and the same gradient of every weight."""
    alone = StageB(StageBConfig(is_dynamic=False, is_gated=False))
    found = learnt_from(make_memory_policy(), alone, make_batch())
    expected = learnt_from(make_memory_policy(), StageA(StageAConfig(content_weight=0)), make_batch())
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_passage_tells_ordinary_from_misleading():
    policy = open_gate(make_memory_policy()).train()
    passage = losses_of(policy, StageB()).passage
    assert (passage.num_ordinary, passage.num_ordinary_kept) == (6, 6)
    assert (passage.num_negative, passage.num_negative_kept) == (2, 2)
    torch.nn.init.constant_(policy.gate.out.bias, -30.0)
    passage = losses_of(policy, StageB()).passage
    assert (passage.num_ordinary_kept, passage.num_negative_kept) == (0, 0)


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        (StageBConfig(), {"encoder", "compressor", "readout", "gate"}),
        (StageBConfig(is_gated=False), {"encoder", "compressor", "readout"}),
        (StageBConfig(is_dynamic=False), {"encoder", "compressor", "gate"}),
        (StageBConfig(is_dynamic=False, is_gated=False), {"encoder", "compressor"}),
    ],
)
def test_trains_all_parts_that_take_part(config, parts):
    _, gradients = learnt_from(make_memory_policy(), StageB(config), make_batch())
    assert {name.split(".")[1] for name in gradients} == parts


@torch.no_grad()
def test_misleading_items_are_left_out_where_nothing_could_reject_them():
    policy = make_memory_policy().train()
    stage = StageB(StageBConfig(is_gated=False))
    [share] = Preparer(policy, stage.needs).shares(make_batch(), [0], 1)
    assert not any(share.is_negative)
    assert share.items.num_rows == 3, "neither the misleading item is read nor the one that is only to be described"


@pytest.fixture(scope="module")
def stage_a(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a")
    policy = make_memory_policy(is_trained=False)
    result = train_stage_a(policy, make_data(2), folder, loop=make_loop())
    return result.memory, weights_of(policy)


def test_begins_with_stage_a_and_trains_everything(stage_a, tmp_path):
    start, weights = stage_a
    policy = make_memory_policy(is_trained=False, seed=5)
    result = train_stage_b(policy, make_data(2), tmp_path, start=start, loop=make_loop())
    after = policy.trained_state()
    assert result.is_finished
    for part in policy.trained_parts():
        names = [name for name in after if name.startswith(part)]
        moved = [name for name in names if not torch.equal(after[name], weights[name])]
        assert moved, part
        by_the_first_batch = ("gate.norm", "readout.norm")
        kept = [name for name in names if not name.startswith(by_the_first_batch)]
        assert all((after[name] - weights[name]).abs().max() < 0.01 for name in kept), "it began there"
    stored = Checkpoint.open(result.memory)
    assert stored.notes["stage"] == "stage_b"
    assert stored.notes["config"]["stage"]["start_sha256"] == Checkpoint.open(start).weights_sha256


def test_begins_with_nothing_else(stage_a, tmp_path):
    policy = make_memory_policy()
    Checkpoint.save(policy, tmp_path / "other", notes={"stage": "stage_c"})
    with pytest.raises(CheckpointError, match=r"from stage B, but .* was left by 'stage_c'"):
        train_stage_b(policy, make_data(1), tmp_path / "run", start=tmp_path / "other")
    other = MemoryPolicy(Backbone.toy(num_layers=2, seed=9), make_memory_policy().config)
    with pytest.raises(CheckpointError, match="same architecture but other weights"):
        train_stage_b(other, make_data(1), tmp_path / "run", start=stage_a[0])
    wrong = MemoryPolicy(Backbone.toy(num_layers=2), make_config())
    with pytest.raises(CheckpointError, match=r"compressor\.num_refinements"):
        train_stage_b(wrong, make_data(1), tmp_path / "run", start=stage_a[0])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gate_weight": -0.1}, "gate_weight"),
        ({"num_foreign": -1}, "num_foreign"),
        ({"order_weight": -0.1}, "order_weight"),
        ({"keeping": "guessed"}, "keeping"),
    ],
)
def test_config_names_the_field(values, message):
    with pytest.raises(ConfigError, match=message):
        StageBConfig(**values)


def test_another_source_of_the_state_begins_with_the_same_memory(stage_a, tmp_path):
    """Stage A reads no state and asks no gate; what is read and seen from now on is for stage B to say. Other settings
    must agree."""
    policy = make_memory_policy(state_source="hidden", state_layer=1, gate=GateConfig(sees_evidence=True))
    result = train_stage_b(policy, make_data(1), tmp_path / "run", start=stage_a[0], loop=make_loop())
    trained = Checkpoint.open(result.memory)
    assert (trained.config.state_source, trained.config.state_layer) == ("hidden", 1)
    assert trained.config.gate.sees_evidence


@pytest.mark.parametrize("source", ["joined", "summed"])
def test_a_readout_may_begin_on_a_stage_a_of_the_papers_state(source, tmp_path):
    """State, readout and gate are then fresh; what stage A has trained is taken over."""
    before = make_memory_policy(state_source="embeddings", seed=3)
    Checkpoint.save(before, tmp_path / "start", notes={"stage": "stage_a"})
    policy = make_memory_policy(state_source=source, is_trained=False, readout=ReadoutConfig(hidden_width=32))
    loop = make_loop(learning_rate=1e-30, num_steps=1)
    result = train_stage_b(policy, make_data(1), tmp_path / "run", start=tmp_path / "start", loop=loop)
    theirs, own = before.trained_state(), policy.trained_state()
    for name in own:
        if name.startswith(("encoder.", "compressor.")):
            assert torch.equal(own[name], theirs[name]), name
    assert own["readout.out.weight"].abs().max() < 1e-20
    assert are_calibrated(policy.pool.norms)
    assert Checkpoint.open(result.memory).config.state_source == source


def test_a_readout_may_begin_on_fixed_blocks_of_stage_b_but_a_trained_one_keeps_its_state(tmp_path):
    for name, is_dynamic in (("fixed", False), ("dynamic", True)):
        notes = {"stage": "stage_b", "config": {"stage": {"is_dynamic": is_dynamic, "is_gated": False}}}
        Checkpoint.save(make_memory_policy(state_source="embeddings"), tmp_path / name, notes=notes)
    stage = StageBConfig(is_gated=False)
    result = train_stage_b(
        make_memory_policy(), make_data(1), tmp_path / "a", start=tmp_path / "fixed", stage=stage, loop=make_loop()
    )
    assert result.is_finished
    with pytest.raises(CheckpointError, match="state_source = embeddings"):
        train_stage_b(
            make_memory_policy(),
            make_data(1),
            tmp_path / "b",
            start=tmp_path / "dynamic",
            stage=stage,
            loop=make_loop(),
        )


def test_state_then_readout_and_gate_are_calibrated_with_the_first_batch():
    """In this order, because the latter see the state."""
    policy, stage = make_memory_policy(is_trained=False), StageB()
    [share] = Preparer(policy, stage.needs).shares(make_batch(), [0], 1)
    rows = embed(policy, share)
    order = []
    while norms := stage.fresh_norms(policy):
        order.append(norms)
        assert calibrate(norms, moments_of(norms, stage.norm_inputs(policy, share, rows, max_tokens=65_536)))
    assert order == [policy.pool.norms, [*policy.readout.norms, *policy.gate.norms]]
    reads = [row for place, row in enumerate(rows.decisions) if place in {one.row for one in share.places}]
    assert policy.state(reads).isfinite().all()
