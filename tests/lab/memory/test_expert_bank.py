import shutil
from itertools import islice

import numpy as np
import pytest
import torch
from PIL import Image

from focusmem.bank import Query, open_bank
from focusmem.bank.embedder import QwenEmbedder
from focusmem.bank.forms import LABORATORY
from focusmem.bank.reports import Entry
from focusmem.errors import StorageError
from focusmem.lab.memory.embedder import load_embedder, moment_of
from focusmem.lab.memory.expert_bank import write_expert_bank
from focusmem.lab.memory.recall import LabBank, searchable, with_vectors
from focusmem.lab.policy.drawing import placeholder
from focusmem.lab.policy.policy import load_policy
from focusmem.lab.shipped import Weights
from focusmem.lab.world.rollout import iter_tasks, roll_out, screenshot_of
from focusmem.lab.world.small_png import small_png
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.world import World
from focusmem.model.backbone import Backbone
from focusmem.schemas import LeftOut, Screenshot, check_screenshots


@pytest.fixture(scope="module")
def policy(toy_weights):
    return load_policy(toy_weights / "policy")


@pytest.fixture(scope="module")
def embedder(policy, toy_weights):
    return load_embedder(policy, toy_weights / "embedder")


@pytest.fixture(scope="module")
def experts():
    return LabBank(World(0), "e", num_sites=2)


@pytest.fixture(scope="module")
def in_memory(experts, embedder):
    return searchable(experts, embedder)


@pytest.fixture(scope="module")
def on_disk(toy_weights):
    return open_bank(toy_weights / "bank")


def find(bank, embedder, asked, top=3):
    """The hits for moments of tasks."""
    vectors = embedder.embed_queries([moment for moment, _ in asked])
    return [bank.search(vector, Query.of(task), top).hits for vector, (_, task) in zip(vectors, asked, strict=True)]


def moments(num_tasks):
    """Every step of the expert's, on sites of the bank and on others."""
    world = World(0)
    for sites in (["e-0", "e-1"], None):
        for task in islice(iter_tasks(world, "e", "evaluation", 5, sites=sites), num_tasks):
            rollout = roll_out(world, task, Solver.expert(world, task))
            for at in range(len(rollout.steps)):
                yield moment_of(rollout, at, lambda step: screenshot_of(world, step)), task.task


def test_a_bank_on_disk_finds_what_the_one_in_memory_finds(in_memory, on_disk, embedder):
    asked = list(moments(2))
    for ours, theirs in zip(find(on_disk, embedder, asked), find(in_memory, embedder, asked), strict=True):
        assert [hit.trajectory_id for hit in ours] == [hit.trajectory_id for hit in theirs]
        assert [hit.score for hit in ours] == pytest.approx([hit.score for hit in theirs], abs=1e-5)


def test_both_know_the_same_of_their_trajectories(in_memory, on_disk, experts):
    assert in_memory.entries() == on_disk.entries()
    for entry in in_memory.entries():
        loaded = in_memory.load(entry.trajectory_id)
        assert loaded is experts.stored(experts.place_of[entry.trajectory_id])
        assert loaded.trajectory.trajectory_id == entry.trajectory_id
    with pytest.raises(StorageError, match="left no trajectory 'nobody'"):
        in_memory.load("nobody")


def test_the_leakage_guard_is_on(experts, in_memory, on_disk, embedder):
    """A task that the bank holds itself: all that shares its wording or its instance is left out, in both alike."""
    own = experts.rollouts[0]
    asked = [(moment_of(own, 0, lambda step: screenshot_of(World(0), step)), own.task.task)]
    everything = len(experts.trajectories)
    [ours], [theirs] = (find(one, embedder, asked, top=everything) for one in (on_disk, in_memory))
    assert len(ours) < everything
    assert own.task.name not in [hit.trajectory_id for hit in ours]
    assert [hit.trajectory_id for hit in ours] == [hit.trajectory_id for hit in theirs]


def test_vectors_that_are_known_are_not_made_again(experts, in_memory, embedder):
    handed_over = LabBank(World(0), "e", rollouts=experts.rollouts)
    known = with_vectors(handed_over, in_memory.vectors_ND, embedder)
    asked = list(moments(1))
    assert find(known, embedder, asked) == find(in_memory, embedder, asked)


def test_vectors_are_made_once_and_again_where_they_are_damaged(experts, in_memory, embedder, tmp_path, monkeypatch):
    made = []
    embed = type(embedder).embed_trajectories
    monkeypatch.setattr(
        type(embedder), "embed_trajectories", lambda self, items: (made.extend(items), embed(self, items))[1]
    )

    def build(num_sites=2):
        return searchable(LabBank(World(0), "e", num_sites=num_sites), embedder, kept=tmp_path)

    num = len(experts.rollouts)
    for damage in (None, b"", b"no vectors"):
        for path in tmp_path.iterdir():
            path.write_bytes(damage)
        vectors = [build().vectors_ND for _ in range(2)]
        assert len(made) == num
        assert all(np.array_equal(one, in_memory.vectors_ND) for one in vectors)
        made.clear()
    build(num_sites=3)
    assert len(made) > num, "another bank, other vectors"


def test_vectors_that_cannot_be_kept_are_still_used(in_memory, embedder, tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    built = searchable(LabBank(World(0), "e", num_sites=2), embedder, kept=tmp_path / "file")
    assert np.array_equal(built.vectors_ND, in_memory.vectors_ND)
    assert "not kept for next time" in capsys.readouterr().err


def test_a_bank_draws_what_it_is_asked_for_and_nothing_else():
    drawn = []

    def picture(step):
        drawn.append(step)
        return screenshot_of(World(0), step)

    bank = LabBank(World(0), "e", num_sites=2, picture=picture)
    assert not drawn
    for _ in range(2):
        assert bank.stored(1).trajectory.trajectory_id == bank.rollouts[1].task.name
    assert drawn == list(bank.rollouts[1].steps)


def test_what_was_found_is_the_same_trajectory_with_the_same_pixels(experts, on_disk):
    for ours in experts.trajectories[:3]:
        theirs = on_disk.load(ours.trajectory.trajectory_id)
        check_screenshots(theirs)
        assert [step.action for step in theirs.trajectory.steps] == [step.action for step in ours.trajectory.steps]
        for one, other in zip(ours.trajectory.steps, theirs.trajectory.steps, strict=True):
            ours_png = ours.screenshots[one.screenshot.sha256]
            theirs_png = theirs.screenshots[other.screenshot.sha256]
            assert np.array_equal(np.asarray(ours_png.image()), np.asarray(theirs_png.image()))
            assert len(theirs_png.png) < len(ours_png.png)


def test_a_small_png_holds_any_picture(tmp_path):
    for size in ((1, 1), (3, 2), (97, 31)):
        pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        screenshot = Screenshot.from_png(small_png(Image.fromarray(pixels)))
        assert np.array_equal(np.asarray(screenshot.image()), pixels)


def test_only_sites_with_a_trajectory_are_covered(on_disk, in_memory):
    assert on_disk.sites() == in_memory.sites() == ["e-0", "e-1"]


def test_a_bank_that_was_copied_file_by_file_is_whole(on_disk, embedder, toy_weights, tmp_path):
    """As git and wheels do it, which leave empty folders out."""
    for path in (toy_weights / "bank").rglob("*"):
        if path.is_file():
            place = tmp_path / path.relative_to(toy_weights / "bank")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    asked = list(moments(1))
    assert find(open_bank(tmp_path), embedder, asked) == find(on_disk, embedder, asked)


def test_a_folder_that_exists_is_left_alone(embedder, tmp_path):
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(StorageError, match="exists already"):
        write_expert_bank(tmp_path, World(0), embedder, num_sites=1)
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


def test_an_embedder_is_the_same_in_every_precision(embedder, toy_weights):
    """The bank it made on one machine must not be refused on another, where sums of weights come out differently."""
    other = load_embedder(Backbone.load(toy_weights / "policy", dtype=torch.bfloat16), toy_weights / "embedder")
    assert other.identity == embedder.identity


def test_another_embedder_is_refused(policy, on_disk, in_memory):
    for bank in (on_disk, in_memory):
        with pytest.raises(StorageError, match="another embedder"):
            bank.check_embedder(QwenEmbedder(policy).identity)


def test_made_again_it_holds_the_same(embedder, tmp_path):
    files = []
    for name in ("one", "two"):
        write_expert_bank(tmp_path / name, World(0), embedder, num_sites=1)
        paths = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        files.append([(path.relative_to(tmp_path / name), path.read_bytes()) for path in paths])
    assert files[0] == files[1]


def test_the_bank_that_ships_holds_what_experts_did():
    """Its records are those of today's world; vectors and pictures are compared when it is made again."""
    bank = open_bank(Weights().bank)
    experts = LabBank(World(0), "e", num_sites=8, picture=placeholder)
    num_read = LABORATORY.max_key_frames
    wanted = [
        Entry.of(trajectory, LeftOut(num_frames=len(trajectory.steps) - num_read))
        for trajectory in (stored.trajectory for stored in experts.trajectories)
    ]
    assert bank.entries() == sorted(wanted, key=lambda entry: entry.trajectory_id)
    for entry in bank.entries():
        ours, theirs = bank.load(entry.trajectory_id).trajectory, experts.stored(experts.place_of[entry.trajectory_id])
        assert [step.action for step in ours.steps] == [step.action for step in theirs.trajectory.steps]
