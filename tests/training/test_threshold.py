import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from focusmem.errors import ConfigError
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.gate import GateConfig, logit_of
from focusmem.model.injection import Place
from focusmem.training.offered_blocks import offered_blocks
from focusmem.training.pathway import EncodedShare, embed, reply_nats
from focusmem.training.prepared import Needs, Preparer
from focusmem.training.stage_b import StageB
from focusmem.training.threshold import (
    PAPER_THRESHOLDS,
    Sweep,
    action_sweeps,
    area_under_curve,
    choose_among,
    choose_by_actions,
    gate_scores,
    write_threshold,
)
from training.samples import make_batch, make_data, make_memory_policy


def drawn(seed: int, *, digits: int) -> tuple[list[float], list[float]]:
    """Scores of two kinds that overlap; few digits make many ties."""
    rng = random.Random(seed)
    right = [round(rng.betavariate(4, 2), digits) for _ in range(rng.randrange(1, 40))]
    return right, [round(rng.betavariate(2, 3), digits) for _ in range(rng.randrange(1, 40))]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("digits", [1, 2, 9])
def test_area_is_the_share_of_pairs_in_the_right_order(seed, digits):
    right, misleading = drawn(seed, digits=digits)
    pairs = [(one > other) + 0.5 * (one == other) for one in right for other in misleading]
    assert area_under_curve(right, misleading) == pytest.approx(sum(pairs) / len(pairs), abs=1e-12)


def test_area_ranks_logits_whose_logits_are_equal():
    assert area_under_curve([20.0, math.inf], [18.0, -math.inf]) == 1.0
    assert area_under_curve([-150.0], [-160.0]) == 1.0


@pytest.mark.parametrize(
    ("right", "misleading", "message"),
    [((), (0.5,), "any right"), ((0.5,), (), "any misleading"), ((math.nan,), (0.5,), "right blocks must all be")],
)
def test_wrong_scores_are_refused(right, misleading, message):
    with pytest.raises(ConfigError, match=message):
        area_under_curve(right, misleading)


@torch.no_grad()
def test_scores_are_the_gates_own_for_every_use():
    policy = make_memory_policy()
    torch.nn.init.normal_(policy.gate.out.weight)
    scores = gate_scores(policy, offered_blocks(policy, make_data(2)))
    assert (len(scores.right), len(scores.misleading)) == (12, 4)
    batch = make_batch(1)
    expected = {False: [], True: []}
    for one in batch.decisions:
        rows = policy.embed([one.prompt])
        for use in one.uses:
            [item] = policy.encode([batch.items[use.item].prompt])
            role = int(batch.items[use.item].role == "working")
            place = Place(0, role, 0)
            trust = policy.remember(rows, [item], [place]).trust
            expected[use.is_negative].append(trust.logits_N.item())
    assert sorted(scores.right[6:]) == pytest.approx(sorted(expected[False]), rel=1e-3)
    assert sorted(scores.misleading[2:]) == pytest.approx(sorted(expected[True]), rel=1e-3)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("digits", [1, 9])
def test_no_threshold_makes_actions_likelier_than_the_chosen_one(seed, digits):
    rng = random.Random(seed)
    sweeps = []
    for _ in range(rng.randrange(1, 12)):
        logits = sorted(float(np.float32(round(rng.uniform(-3, 3), digits))) for _ in range(rng.randrange(1, 5)))
        sweeps.append(Sweep(tuple(logits), tuple(rng.uniform(0, 3) for _ in range(len(logits) + 1))))

    def mean_nats(threshold):
        return sum(one.nats[sum(logit <= threshold for logit in one.logits)] for one in sweeps) / len(sweeps)

    choice = choose_by_actions(sweeps)
    logits = [trust for one in sweeps for trust in one.logits]
    assert choice.mean_nats == pytest.approx(mean_nats(choice.threshold_logit))
    assert choice.mean_nats == pytest.approx(min(mean_nats(value) for value in (-9, *logits)))
    assert choice.nats_with_all == pytest.approx(mean_nats(-9))
    assert choice.nats_with_none == pytest.approx(mean_nats(9))
    assert choice.passage == pytest.approx(sum(logit > choice.threshold_logit for logit in logits) / len(logits))
    assert choice.num_decisions == len(sweeps)


@pytest.mark.parametrize(
    "logits",
    [(18.0, 20.0), (-120.0, -119.0), (1.0, 1.0 + 2**-23), (3.3e38, 3.4e38), (-math.inf, 0.0), (0.0, math.inf),
     (-math.inf, math.inf), (-3.4028234663852886e38, 3.4028234663852886e38)],
)  # fmt: skip
@pytest.mark.parametrize("num_dropped", [0, 1, 2])
def test_the_gate_passes_exactly_the_blocks_that_were_chosen(logits, num_dropped):
    nats = [9.0, 9.0, 9.0]
    nats[num_dropped] = 1.0
    choice = choose_by_actions([Sweep(logits, tuple(nats))])
    threshold = GateConfig(threshold_logit=choice.threshold_logit).threshold_logit
    num_passing = int((torch.tensor(logits) > threshold).sum())
    assert choice.mean_nats == nats[2 - num_passing], "what was promised is what passes"
    if all(-3e38 < logit < math.inf for logit in logits):
        assert num_passing == 2 - num_dropped


def test_a_choice_among_logits_that_are_no_numbers_is_refused():
    with pytest.raises(ConfigError, match="not all numbers"):
        choose_by_actions([Sweep((math.nan,), (1.0, 2.0))])


@pytest.mark.parametrize("seed", range(10))
def test_none_of_the_candidates_makes_actions_likelier_than_the_chosen_one(seed):
    rng = random.Random(seed)
    sweeps = []
    for _ in range(rng.randrange(1, 12)):
        logits = sorted(np.float32(logit_of(rng.choice(PAPER_THRESHOLDS))).item() for _ in range(rng.randrange(1, 5)))
        sweeps.append(Sweep(tuple(logits), tuple(rng.uniform(0, 3) for _ in range(len(logits) + 1))))

    def mean_nats(threshold):
        return sum(one.nats[sum(logit <= threshold for logit in one.logits)] for one in sweeps) / len(sweeps)

    allowed = [np.float32(logit_of(trust)).item() for trust in PAPER_THRESHOLDS]

    choice = choose_among(sweeps, PAPER_THRESHOLDS)
    assert choice.threshold_logit in allowed
    assert choice.mean_nats == pytest.approx(min(map(mean_nats, allowed)))
    assert choice.mean_nats == pytest.approx(mean_nats(choice.threshold_logit))
    assert choice.nats_with_all == pytest.approx(mean_nats(-100))
    assert choice.nats_with_none == pytest.approx(mean_nats(100))


def test_of_equally_good_candidates_the_lowest_is_chosen():
    assert choose_among([Sweep((2.0,), (1.0, 2.0))], (0.5, 0.1, 0.3)).threshold_logit == np.float32(logit_of(0.1))


@pytest.mark.parametrize(("sweeps", "candidates"), [([], (0.3,)), ([Sweep((0.2,), (1.0, 2.0))], ())])
def test_a_choice_among_candidates_needs_blocks_and_candidates(sweeps, candidates):
    with pytest.raises(ConfigError, match="cannot be chosen"):
        choose_among(sweeps, candidates)


def test_a_choice_by_actions_needs_blocks():
    with pytest.raises(ConfigError, match="without any blocks"):
        choose_by_actions([])


@torch.no_grad()
@pytest.mark.parametrize("threshold", [-1.4, 0.0, 1.4])
def test_a_sweep_tells_what_a_gate_of_any_threshold_would_let_actions_be(threshold):
    policy = make_memory_policy()
    torch.nn.init.normal_(policy.gate.out.weight, std=3.0)
    sweeps = action_sweeps(policy, offered_blocks(policy, make_data(1)))
    [share] = Preparer(policy, Needs(negatives=True)).shares(make_batch(0), [0], 1)
    policy.gate.config = replace(policy.gate.config, threshold_logit=threshold)
    rows = embed(policy, share)
    encoded = EncodedShare.of(policy, rows.items, max_tokens=10_000)
    memory, _ = StageB().remember(policy, share, rows, encoded)
    with_memory = [number for number in range(len(rows.decisions)) if any(one.row == number for one in memory.places)]
    nats = reply_nats(policy.backbone, policy.inject(rows.decisions, memory), max_tokens=10_000)
    told = [one.nats[sum(logit <= threshold for logit in one.logits)] for one in sweeps]
    assert sorted(told) == pytest.approx(sorted(nats[number] for number in with_memory), rel=1e-4)
    assert len({one.nats for one in sweeps}) == len(sweeps)


def test_the_choice_goes_into_the_checkpoint(tmp_path):
    Checkpoint.save(make_memory_policy(), tmp_path / "memory", notes={"stage": "stage_b"})
    choice = choose_by_actions([Sweep((0.2, 0.8), (2.0, 1.0, 3.0))])
    write_threshold(tmp_path / "memory", choice)
    stored = Checkpoint.open(tmp_path / "memory")
    assert stored.config.gate.threshold_logit == 0.5
    assert stored.notes["threshold"]["mean_nats"] == 1.0
    assert stored.notes["stage"] == "stage_b"
