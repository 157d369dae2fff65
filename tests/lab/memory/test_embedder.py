import json
import random
import shutil
from itertools import islice

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from focusmem.bank import Query
from focusmem.bank.embedder import QwenEmbedder
from focusmem.errors import CheckpointError, TrainingError, UserError
from focusmem.files import sha256_hex
from focusmem.lab.memory.embedder import (
    READING,
    DrawnRows,
    EmbedderTrainingConfig,
    Pairs,
    _last_states,
    load_embedder,
    moment_of,
    pair_loss,
    train_embedder,
)
from focusmem.lab.memory.recall import LabBank, recall_rate, searchable
from focusmem.lab.policy.drawing import placeholder
from focusmem.lab.world.experts import site_rollouts
from focusmem.lab.world.rollout import iter_tasks, roll_out, screenshot_of
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.ways import needed_way, shown_ways
from focusmem.lab.world.world import World
from focusmem.model.backbone import Backbone
from focusmem.model.lora import LoraConfig
from focusmem.schemas import LeftOut


@pytest.fixture(scope="module")
def world():
    return World(0)


def small(**changes) -> EmbedderTrainingConfig:
    return EmbedderTrainingConfig(**{"num_steps": 2, "num_pairs": 3, "rank": 2, "num_workers": 0} | changes)


@pytest.fixture(scope="module")
def toy():
    return Backbone.toy()


@pytest.fixture(scope="module")
def trained(toy, tmp_path_factory):
    return train_embedder(toy, small(num_steps=1, learning_rate=0.05), tmp_path_factory.mktemp("trained") / "embedder")


@pytest.fixture
def folder(trained, tmp_path):
    """A copy to be damaged."""
    return shutil.copytree(trained, tmp_path / "embedder")


def test_an_expert_shows_what_its_own_task_needs(world):
    for task in islice(iter_tasks(world, "v", "memory", 0), 80):
        rollout = roll_out(world, task, Solver.expert(world, task))
        assert needed_way(world, task) in shown_ways(world, rollout.steps), task.task.instruction


def test_sites_have_been_visited_often_or_never(world):
    numbers = [len(site_rollouts(world, f"v-{number}")) for number in range(40)]
    assert min(numbers) == 0
    assert max(numbers) > 3
    assert all(rollout.is_success for rollout in site_rollouts(world, "v-1"))


def test_at_offices_another_branch_is_the_wrong_one(world, toy):
    config = small(office_share=1.0, num_pairs=4)
    pairs = Pairs(world, QwenEmbedder(toy, READING), config)
    assert pairs[0].is_other == (True,) * 4
    visit, right, wrong = pairs._at_office(random.Random(0), "po-3")
    assert visit.task.site_id == right.task.site_id == "po-3"
    assert wrong.task.site_id in ("po-3b", "po-3c", "po-3d")
    assert needed_way(world, visit.task) in shown_ways(world, right.steps)


def test_a_step_of_training_moves_the_update_and_nothing_else(world, tmp_path):
    policy = Backbone.toy()
    before = policy.identity()
    folder = train_embedder(policy, small(), tmp_path / "embedder")
    assert policy.identity() == before
    embedder = load_embedder(policy, folder)
    assert embedder.identity != QwenEmbedder(policy, READING).identity
    task = next(iter_tasks(world, "v", "memory", 0))
    rollout = roll_out(world, task, Solver.expert(world, task))
    moments = [moment_of(rollout, at, lambda step: screenshot_of(world, step)) for at in (0, 3)]
    vectors = embedder.embed_queries(moments)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-5)


def test_the_update_added_to_the_weights_equals_the_update_beside_them(world, trained):
    policy = Backbone.toy()
    batch = Pairs(world, QwenEmbedder(policy, READING), small())[0]
    merged = load_embedder(policy, trained).backbone
    plain = pair_loss(policy, batch, 0.05).item()
    attached = policy.add_lora(LoraConfig(rank=2, alpha=4.0, dropout=0.0))
    attached.updates.load_state_dict(load_file(trained / "embedder.safetensors"))
    with attached.switch.turned(True):
        beside = pair_loss(policy, batch, 0.05).item()
    assert beside != pytest.approx(plain, rel=0.01)
    assert pair_loss(merged, batch, 0.05).item() == pytest.approx(beside, rel=1e-3)


def test_the_embedder_sees_with_the_policys_eyes(world, trained):
    """The embedder does not look again at screenshots that the policy has seen."""
    policy = Backbone.toy()
    embedder = load_embedder(policy, trained)
    task = next(iter_tasks(world, "v", "memory", 0))
    rollout = roll_out(world, task, Solver.expert(world, task))
    moment = moment_of(rollout, 3, lambda step: screenshot_of(world, step))
    policy.see([*(event.screenshot for event in moment.recent), moment.screenshot])
    policy.model.model.visual.register_forward_pre_hook(lambda *_: pytest.fail("looked again"))
    embedder.embed_queries([moment])


def test_another_policys_embedder_is_refused(trained):
    with pytest.raises(CheckpointError, match="another policy"):
        load_embedder(Backbone.toy(seed=1), trained)


def test_a_loss_that_is_no_number_stops_before_anything_moves(folder, monkeypatch):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda *_: pytest.fail("the optimizer moved"))
    spoilt = "focusmem.lab.memory.embedder.pair_loss"
    monkeypatch.setattr(spoilt, lambda *words: pair_loss(*words) * float("nan"))
    policy = Backbone.toy()
    with pytest.raises(TrainingError, match=r"step 1.*loss is nan"):
        train_embedder(policy, small(), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert policy.identity() == Backbone.toy().identity()


@pytest.mark.parametrize("card", ["{}", "[]", "7", '{"policy": null}', '{"policy": {"weights": 5}}', "{"])
def test_a_card_that_says_nothing_is_refused(toy, folder, card):
    (folder / "card.json").write_text(card)
    with pytest.raises(UserError, match=r"embedder in .*(card|another policy|Could not read)"):
        load_embedder(toy, folder)


def test_foreign_tensors_are_refused(toy, trained, tmp_path):
    state = load_file(trained / "embedder.safetensors")
    first = next(iter(state))
    cases = {
        "name": {**state, "foreign": torch.ones(3)},
        "layer": {name.replace("/0/", "/99/"): tensor for name, tensor in state.items()},
        "half": {name: tensor for name, tensor in state.items() if name != first},
        "shape": {**state, first: state[first][:, :1].repeat(1, 3).contiguous()},
        "number": {**state, first: torch.full_like(state[first], torch.nan)},
    }
    for case, tensors in cases.items():
        folder = shutil.copytree(trained, tmp_path / case)
        save_file(tensors, folder / "embedder.safetensors")
        card = json.loads((folder / "card.json").read_text())
        card["weights_sha256"] = sha256_hex((folder / "embedder.safetensors").read_bytes())
        (folder / "card.json").write_text(json.dumps(card))
        with pytest.raises(CheckpointError, match="does not fit"):
            load_embedder(toy, folder)


def test_a_flipped_bit_is_noticed(toy, folder):
    data = bytearray((folder / "embedder.safetensors").read_bytes())
    data[-5] ^= 1
    (folder / "embedder.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"embedder\.safetensors is damaged.*Copy it again"):
        load_embedder(toy, folder)


def test_a_batch_brings_every_picture_it_shows(world):
    batch = Pairs(world, QwenEmbedder(Backbone.toy(), READING), small(num_pairs=4))[1]
    assert batch.drawn.rows.num_rows == 3 * len(batch.is_other) == 12
    shown = {picture.digest for own in batch.drawn.rows.pictures for picture in own}
    assert shown == set(batch.drawn.digests)
    assert len(batch.drawn.pixels_NHWC) == len(shown)


def test_drawn_rows_embed_as_their_prompts_do(world):
    embedder = QwenEmbedder(Backbone.toy(), READING)
    task = next(iter_tasks(world, "v", "memory", 0))
    rollout = roll_out(world, task, Solver.expert(world, task))
    prompts = [embedder.query_prompt(moment_of(rollout, at)) for at in range(4)]
    views = {placeholder(step).digest: step for step in rollout.steps}
    drawn = _last_states(embedder.backbone, DrawnRows.of(embedder.backbone.chat, prompts, views, world))
    moments = [moment_of(rollout, at, lambda step: screenshot_of(world, step)) for at in range(4)]
    np.testing.assert_allclose(drawn, embedder.embed_queries(moments), rtol=1e-3, atol=1e-4)


class ByName:
    """An embedder that reads the site off the record: what a perfect one would do about sites."""

    width, identity = 64, "by name"

    def __init__(self, sites):
        self.sites = sorted(sites)

    def _vectors(self, names):
        vectors = np.full((len(names), self.width), 1e-3, dtype=np.float32)
        for row, name in enumerate(names):
            vectors[row, self.sites.index(name)] = 1.0
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def embed_trajectories(self, items):
        return self._vectors([item.trajectory.site for item in items])

    def embed_queries(self, moments):
        return self._vectors([self.current] * len(moments))

    def left_out_of_trajectory(self, item):
        return LeftOut()


def test_recall_counts_only_tasks_that_the_bank_can_help(world):
    bank = LabBank(world, "v", num_sites=12, picture=placeholder)
    embedder = ByName({f"v-{number}" for number in range(60)})
    recall = searchable(bank, embedder)
    tasks = [task for task in islice(iter_tasks(world, "v", "memory", 0), 60) if int(task.site_id[2:]) < 12]
    rates = []
    for task in tasks:
        embedder.current = task.site_id
        rates.append(recall_rate(bank, recall, embedder, [task], top=10))
    held = [rate for rate in rates if rate["num_tasks_with_one"]]
    assert held
    assert len(held) < len(rates), "some tasks have nothing to be found"
    assert all(rate["right_way_rate"] == 1.0 for rate in held)
    assert all(rate["num_moments"] == 0 for rate in rates if rate not in held)


def test_the_guard_removes_what_shares_the_wording(world):
    bank = LabBank(world, "v", num_sites=12, picture=placeholder)
    embedder = ByName({f"v-{number}" for number in range(60)})
    task = bank.rollouts[0].task
    embedder.current = task.site_id
    [vector] = embedder.embed_queries([moment_of(bank.rollouts[0], 0)])
    hits = searchable(bank, embedder).search(vector, Query.of(task.task), len(bank.rollouts))
    assert task.name not in {hit.trajectory_id for hit in hits.hits}
    assert hits.removed.num_by_key["task"] == 1
    assert hits.removed.num_by_key["template"] >= 1


def test_a_training_that_is_stopped_goes_on_as_if_it_was_not(tmp_path):
    config, save = small(num_steps=3), tmp_path / "state.pt"
    kept = []
    for name in ("stopped", "whole"):
        torch.manual_seed(0)
        policy, folder = Backbone.toy(), tmp_path / name
        if name == "stopped":
            assert train_embedder(policy, config, folder, save=save, is_late=lambda: True) is None
            assert train_embedder(policy, config, folder, save=save, is_late=lambda: True) is None
            torch.manual_seed(1)  # a later process has drawn other numbers
        assert train_embedder(policy, config, folder, save=save if name == "stopped" else None) == folder
        kept.append((folder / "embedder.safetensors").read_bytes())
    assert kept[0] == kept[1]
