from collections import Counter
from dataclasses import replace

import pytest
import torch

from focusmem.errors import CheckpointError, ConfigError
from focusmem.training.batch import Decision, ItemUse, Pixels, TrainingBatch, TrainingItem
from focusmem.training.prepared import Needs, Preparer, foreign_items
from focusmem.training.stage_a import StageA, StageAConfig, train_stage_a
from focusmem.training.stage_b import StageB, StageBConfig
from focusmem.training.trajectory_batches import BatchingConfig, TrajectoryBatches
from toys import decision, evidence
from training.samples import learnt_from, make_batch, make_item, make_loop, make_memory_policy, open_gate


def every_use_apart(batch: TrainingBatch) -> TrainingBatch:
    """Each use with an item of its own. A lesson stays with the first copy, so that it counts once."""
    items = list(batch.items)
    seen: set[int] = set()
    decisions = []
    for one in batch.decisions:
        uses = []
        for use in one.uses:
            if use.item in seen:
                items.append(replace(batch.items[use.item], lesson=None))
                use = replace(use, item=len(items) - 1)
            seen.add(use.item)
            uses.append(use)
        decisions.append(replace(one, uses=tuple(uses)))
    return TrainingBatch(items=tuple(items), decisions=tuple(decisions))


STAGES = {
    "fixed": StageA(),
    "dynamic and gated": StageB(),
    "dynamic": StageB(StageBConfig(is_gated=False)),
    "fixed and gated": StageB(StageBConfig(is_dynamic=False)),
    "fixed in stage B": StageB(StageBConfig(is_dynamic=False, is_gated=False)),
}


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES.keys())
@pytest.mark.parametrize("max_group_tokens", [65_536, 500])
def test_sharing_items_equals_encoding_every_use_separately(stage, max_group_tokens):
    policy = open_gate(make_memory_policy())
    batch = make_batch()
    losses, gradients = learnt_from(policy, stage, batch, max_group_tokens=max_group_tokens)
    apart_losses, apart_gradients = learnt_from(policy, stage, every_use_apart(batch))
    assert losses == pytest.approx(apart_losses, rel=1e-5)
    torch.testing.assert_close(gradients, apart_gradients, rtol=1e-3, atol=1e-6)
    assert all(gradient.abs().sum() > 0 for name, gradient in gradients.items() if "gate" not in name)


@pytest.mark.parametrize("stage", list(STAGES.values())[:3], ids=list(STAGES)[:3])
@pytest.mark.parametrize("num_shares", [2, 3, 6])
def test_shares_add_up_to_the_whole(stage, num_shares):
    """More shares than decisions included: some are empty then."""
    policy = open_gate(make_memory_policy())
    losses, gradients = learnt_from(policy, stage, make_batch())
    in_shares, of_shares = learnt_from(policy, stage, make_batch(), num_shares=num_shares)
    assert in_shares == pytest.approx(losses, rel=1e-5)
    torch.testing.assert_close(of_shares, gradients, rtol=1e-3, atol=1e-6)


def test_a_share_holds_what_it_needs_and_each_lesson_once():
    batch = make_batch()
    shares = [batch.share(number, 2) for number in range(2)]
    assert [len(share.decisions) for share in shares] == [2, 2]
    assert [[item.item_id for item in share.items] for share in shares] == [
        ["episodic-0", "working-1", "working-4"],
        ["episodic-0", "working-1", "episodic-2", "episodic-3"],
    ]
    taught = [item.item_id for share in shares for item in share.items if item.lesson is not None]
    assert sorted(taught) == sorted(item.item_id for item in batch.items if item.lesson is not None)
    for share in shares:
        for one in share.decisions:
            whole = batch.decisions[batch.decisions.index(next(d for d in batch.decisions if d.prompt == one.prompt))]
            mine = [(share.items[use.item].item_id, use.rank, use.is_negative) for use in one.uses]
            assert mine == [(batch.items[use.item].item_id, use.rank, use.is_negative) for use in whole.uses]


def test_merging_joins_items_with_the_same_content():
    one, two = make_batch(0), make_batch(0)
    plain = replace(two, items=tuple(replace(item, item_id="again", lesson=None) for item in two.items))
    merged = TrainingBatch.merged([plain, one, make_batch(1)])
    assert len(merged.items) == 10
    assert len(merged.decisions) == 12
    assert merged.items[0].lesson is not None, "the copy that was taught is kept"
    assert merged.decisions[0].uses == merged.decisions[4].uses
    assert merged.items[merged.decisions[8].uses[0].item].digest == make_batch(1).items[0].digest


def test_the_digest_follows_role_and_content_alone():
    item = make_item(0)
    assert replace(item, item_id="other", lesson=None).digest == item.digest
    assert make_item(0, role="working").digest != item.digest
    assert make_item(1).digest != item.digest


def test_wrong_input_is_refused_with_a_sentence():
    with pytest.raises(ConfigError, match="item 'x' is empty"):
        TrainingItem(item_id="x", role="episodic", prompt=())
    with pytest.raises(ConfigError, match="role is 'semantic'"):
        TrainingItem(item_id="x", role="semantic", prompt=evidence(0))
    with pytest.raises(ConfigError, match="Decision 0 of a TrainingBatch uses item 3; there are 1 items"):
        TrainingBatch(items=(make_item(0),), decisions=(Decision(prompt=decision(0), reply="", uses=(ItemUse(3, 0),)),))


@pytest.mark.parametrize("num_shares", [1, 3])
def test_a_batch_without_lessons_teaches_its_actions_alone(num_shares):
    actions = StageA(StageAConfig(content_weight=0))
    batch = make_batch(has_lessons=False)
    losses, gradients = learnt_from(make_memory_policy(), StageA(), batch, num_shares=num_shares)
    alone, wanted = learnt_from(make_memory_policy(), actions, batch)
    assert losses == pytest.approx(alone | {"semantic": 0.0, "functional": 0.0}, rel=1e-5)
    torch.testing.assert_close(gradients, wanted, rtol=1e-3, atol=1e-6)


def test_only_what_a_stage_needs_is_prepared():
    policy, batch = make_memory_policy(), make_batch()
    [bare] = Preparer(policy, Needs()).shares(batch, [0], 1)
    assert bare.questions.num_rows == 0
    assert bare.counts["gate"] == 0
    assert len(bare.item_of_use) == 6
    [full] = Preparer(policy, Needs(negatives=True, semantic=True, functional=True)).shares(batch, [0], 1)
    assert full.num_descriptions == 4
    assert full.counts["gate"] == 2
    assert (
        full.counts["semantic"]
        == full.teacher_MD.shape[0]
        == sum(len(item.lesson.description.ids) for item in batch.items if item.lesson)
    )
    num_pairs = sum(len(item.lesson.functional) for item in batch.items if item.lesson)
    assert full.questions.num_rows == full.num_descriptions + num_pairs


def test_foreign_items_are_episodic_ones_of_decisions_that_share_nothing():
    batch = TrainingBatch.merged([make_batch(0), make_batch(1), make_batch(2)])
    own = [{use.item for use in one.uses} for one in batch.decisions]
    tasks = [set().union(*own[first : first + 4]) for first in (0, 4, 8)]  # all that share items within each sample
    found = foreign_items(batch, 3)
    assert found == foreign_items(batch, 3)
    assert foreign_items(batch, 0) == foreign_items(make_batch(0), 3) == ()
    for row, one in enumerate(batch.decisions):
        items = [item for at, item in found if at == row]
        assert len(items) == len(set(items)) == (3 if one.uses else 0)
        assert not set(items) & tasks[row // 4]
        assert all(batch.items[item].role == "episodic" for item in items)
    assert len({item for _, item in found}) > 6, "not always the same"
    linked = replace(batch.decisions[0], uses=(ItemUse(0, 0), ItemUse(batch.decisions[4].uses[0].item, 1)))
    joined = replace(batch, decisions=(*batch.decisions, linked))
    for row, item in foreign_items(joined, 20):
        assert item not in (tasks[0] | tasks[1] if row < 8 or row == 12 else tasks[2]), "one decision links two tasks"


def test_foreign_items_are_of_the_groups_that_a_decision_has_items_of():
    batch = TrainingBatch.merged([make_batch(number) for number in range(4)])
    grouped = [replace(item, group=f"{number // 5 % 2}") for number, item in enumerate(batch.items)]
    apart = replace(batch, items=tuple(grouped))
    found = foreign_items(apart, 20)
    assert found
    for row, item in found:
        assert grouped[item].group == f"{row // 4 % 2}"
    of_history = replace(batch.decisions[0], uses=(ItemUse(1, 0),))
    assert batch.items[1].role == "working"
    more = replace(batch, decisions=(*batch.decisions, of_history))
    assert max(row for row, _ in foreign_items(more, 3)) < len(batch.decisions), "history is compared with nothing"


def test_pixels_travel_with_the_share_that_shows_them():
    policy, batch = make_memory_policy(), make_batch()
    shown = batch.decisions[0].prompt[-1].parts[0].digest
    pixels = Pixels(("unknown", shown), torch.zeros(2, 64, 128, 3, dtype=torch.uint8))
    first, second = Preparer(policy, Needs()).shares(replace(batch, pixels=pixels), [0, 1], 2)
    assert first.pixels.digests == (shown,)
    assert first.pixels.pixels_NHWC.shape == (1, 64, 128, 3)
    assert second.pixels.digests == ()


class Source:
    """Trajectories of 5, 6, 7 ... decisions, of which each uses the trajectory's one item."""

    num_trajectories = 6

    def num_decisions(self, trajectory):
        return 5 + trajectory

    def decisions(self, trajectory, numbers):
        made = [
            Decision(prompt=decision(100 * trajectory + number), reply="", uses=(ItemUse(0, 0),)) for number in numbers
        ]
        return TrainingBatch(items=(make_item(trajectory, has_lesson=False),), decisions=tuple(made))


def test_batches_by_trajectory_hold_each_decision_once_per_epoch():
    data = TrajectoryBatches(Source(), BatchingConfig(num_decisions=9, max_per_trajectory=4, num_epochs=2, seed=3))
    total = 2 * sum(5 + trajectory for trajectory in range(6))
    assert data.num_batches == total // 9
    batches = [data.batch(number) for number in range(data.num_batches)]
    prompts = [one.prompt for batch in batches for one in batch.decisions]
    assert all(len(batch.decisions) == 9 for batch in batches)
    assert max(prompts.count(prompt) for prompt in prompts) == 2
    assert all(len(batch.items) <= 4 for batch in batches), "few trajectories, and so few items, per batch"


def test_batches_by_trajectory_come_again_by_number():
    one, two = (TrajectoryBatches(Source(), BatchingConfig(num_decisions=9, seed=3)) for _ in range(2))
    other = TrajectoryBatches(Source(), BatchingConfig(num_decisions=9, seed=4))
    assert one.batch(2) == two.batch(2)
    assert one.batch(2) != other.batch(2)


class TurnedSource(Source):
    """As many decisions, in other trajectories."""

    def num_decisions(self, trajectory):
        return 10 - trajectory


class NamedSource(Source):
    def __init__(self, digest):
        self.digest = digest


@pytest.mark.parametrize("others", [(Source(), TurnedSource()), (NamedSource("a" * 64), NamedSource("b" * 64))])
def test_a_stopped_run_goes_on_with_the_same_trajectories_only(tmp_path, others):
    """A source is told from others by its digest, or by how many decisions each trajectory has."""
    batching, actions = BatchingConfig(num_decisions=9), StageAConfig(content_weight=0)
    first, second = (TrajectoryBatches(source, batching) for source in others)
    assert first.num_batches == second.num_batches
    again = TrajectoryBatches(others[0], batching)
    loop = make_loop(num_steps=2, max_minutes=1e-9)
    train_stage_a(make_memory_policy(), first, tmp_path, stage=actions, loop=loop)
    with pytest.raises(CheckpointError, match=r"data\.digest"):
        train_stage_a(make_memory_policy(), second, tmp_path, stage=actions, loop=loop)
    assert train_stage_a(make_memory_policy(), again, tmp_path, stage=actions, loop=loop).is_finished


def test_too_few_decisions_for_a_batch_are_counted(tmp_path):
    few = TrajectoryBatches(Source(), BatchingConfig(num_decisions=100, num_epochs=2))
    for num_steps in (None, 3):
        with pytest.raises(ConfigError, match=r"a batch takes 100 decisions.*and there are 90.*num_epochs") as caught:
            train_stage_a(make_memory_policy(), few, tmp_path, loop=make_loop(num_steps=num_steps))
        assert "BatchingConfig.num_decisions" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_batching_config_names_the_field():
    with pytest.raises(ConfigError, match=r"BatchingConfig.num_decisions is 0"):
        BatchingConfig(num_decisions=0)


def test_every_decision_comes_once_per_epoch():
    config = BatchingConfig(num_decisions=1, max_per_trajectory=4, num_epochs=2, seed=3)
    data = TrajectoryBatches(Source(), config)
    numbers = range(Source().num_trajectories)
    expected = {(number, step): 2 for number in numbers for step in range(Source().num_decisions(number))}
    assert Counter(data._order) == expected
    assert data.num_batches == sum(expected.values())
