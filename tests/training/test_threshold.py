import random
from dataclasses import replace

import pytest
import torch

from focusmem.errors import ConfigError
from focusmem.model.checkpoint import Checkpoint
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


@pytest.mark.parametrize(
    ("right", "misleading", "message"),
    [((), (0.5,), "any right"), ((0.5,), (), "any misleading"), ((1.5,), (0.5,), "between 0 and 1")],
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
            expected[use.is_negative].append(trust.logits_N.sigmoid().item())
    assert sorted(scores.right[6:]) == pytest.approx(sorted(expected[False]), rel=1e-3)
    assert sorted(scores.misleading[2:]) == pytest.approx(sorted(expected[True]), rel=1e-3)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("digits", [1, 9])
def test_no_threshold_makes_actions_likelier_than_the_chosen_one(seed, digits):
    rng = random.Random(seed)
    sweeps = []
    for _ in range(rng.randrange(1, 12)):
        trusts = sorted(round(rng.uniform(0.05, 0.95), digits) for _ in range(rng.randrange(1, 5)))
        sweeps.append(Sweep(tuple(trusts), tuple(rng.uniform(0, 3) for _ in range(len(trusts) + 1))))

    def mean_nats(threshold):
        return sum(one.nats[sum(trust <= threshold for trust in one.trusts)] for one in sweeps) / len(sweeps)

    choice = choose_by_actions(sweeps)
    trusts = [trust for one in sweeps for trust in one.trusts]
    assert 0 < choice.threshold < 1
    assert choice.mean_nats == pytest.approx(mean_nats(choice.threshold))
    assert choice.mean_nats == pytest.approx(min(mean_nats(value) for value in (0, *trusts)))
    assert choice.nats_with_all == pytest.approx(mean_nats(0))
    assert choice.nats_with_none == pytest.approx(mean_nats(1))
    assert choice.passage == pytest.approx(sum(trust > choice.threshold for trust in trusts) / len(trusts))
    assert choice.num_decisions == len(sweeps)


@pytest.mark.parametrize("seed", range(10))
def test_none_of_the_candidates_makes_actions_likelier_than_the_chosen_one(seed):
    rng = random.Random(seed)
    sweeps = []
    for _ in range(rng.randrange(1, 12)):
        trusts = sorted(round(rng.uniform(0.05, 0.95), 1) for _ in range(rng.randrange(1, 5)))
        sweeps.append(Sweep(tuple(trusts), tuple(rng.uniform(0, 3) for _ in range(len(trusts) + 1))))

    def mean_nats(threshold):
        return sum(one.nats[sum(trust <= threshold for trust in one.trusts)] for one in sweeps) / len(sweeps)

    choice = choose_among(sweeps, PAPER_THRESHOLDS)
    assert choice.threshold in PAPER_THRESHOLDS
    assert choice.mean_nats == pytest.approx(min(map(mean_nats, PAPER_THRESHOLDS)))
    assert choice.mean_nats == pytest.approx(mean_nats(choice.threshold))
    assert choice.nats_with_all == pytest.approx(mean_nats(0))
    assert choice.nats_with_none == pytest.approx(mean_nats(1))


def test_of_equally_good_candidates_the_lowest_is_chosen():
    assert choose_among([Sweep((0.9,), (1.0, 2.0))], (0.5, 0.1, 0.3)).threshold == 0.1


@pytest.mark.parametrize(("sweeps", "candidates"), [([], (0.3,)), ([Sweep((0.2,), (1.0, 2.0))], ())])
def test_a_choice_among_candidates_needs_blocks_and_candidates(sweeps, candidates):
    with pytest.raises(ConfigError, match="cannot be chosen"):
        choose_among(sweeps, candidates)


def test_a_choice_by_actions_needs_blocks():
    with pytest.raises(ConfigError, match="without any blocks"):
        choose_by_actions([])


@torch.no_grad()
@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.8])
def test_a_sweep_tells_what_a_gate_of_any_threshold_would_let_actions_be(threshold):
    policy = make_memory_policy()
    torch.nn.init.normal_(policy.gate.out.weight, std=3.0)
    sweeps = action_sweeps(policy, offered_blocks(policy, make_data(1)))
    [share] = Preparer(policy, Needs(negatives=True)).shares(make_batch(0), [0], 1)
    policy.gate.config = replace(policy.gate.config, threshold=threshold)
    rows = embed(policy, share)
    encoded = EncodedShare.of(policy, rows.items, max_tokens=10_000)
    memory, _ = StageB().remember(policy, share, rows, encoded)
    with_memory = [number for number in range(len(rows.decisions)) if any(one.row == number for one in memory.places)]
    nats = reply_nats(policy.backbone, policy.inject(rows.decisions, memory), max_tokens=10_000)
    told = [one.nats[sum(trust <= threshold for trust in one.trusts)] for one in sweeps]
    assert sorted(told) == pytest.approx(sorted(nats[number] for number in with_memory), rel=1e-4)
    assert len({one.nats for one in sweeps}) == len(sweeps)


def test_the_choice_goes_into_the_checkpoint(tmp_path):
    Checkpoint.save(make_memory_policy(), tmp_path / "memory", notes={"stage": "stage_b"})
    choice = choose_by_actions([Sweep((0.2, 0.8), (2.0, 1.0, 3.0))])
    write_threshold(tmp_path / "memory", choice)
    stored = Checkpoint.open(tmp_path / "memory")
    assert stored.config.gate.threshold == 0.5
    assert stored.notes["threshold"]["mean_nats"] == 1.0
    assert stored.notes["stage"] == "stage_b"
