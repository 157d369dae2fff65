import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from focusmem.errors import CheckpointError, ConfigError, RecordError, StorageError, TrainingError
from focusmem.files import remove_folder
from focusmem.lab.policy.texts import PROMPTS
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.policy import MemoryPolicy
from focusmem.schemas import Screenshot
from focusmem.training.batch import ListedBatches, Pixels, TrainingBatch
from focusmem.training.lessons import LessonStore
from focusmem.training.loop import train
from focusmem.training.metrics import read_metrics
from focusmem.training.stage_a import StageA, StageAConfig, train_stage_a
from focusmem.training.stage_b import StageB, train_stage_b
from focusmem.training.teacher import Teacher, TeacherConfig, lesson_store
from training.samples import (
    disk_that_takes,
    make_batch,
    make_data,
    make_loop,
    make_memory_policy,
    pictures_of,
    weights_of,
)
from training.train_script import train_both

TESTS = Path(__file__).parents[1]


FORKS = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 minds forking beside threads
ACTIONS = StageAConfig(content_weight=0)
"""Enough, and quick, where it does not matter what is learnt."""


def equal(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def stored_weights(memory: Path) -> dict[str, torch.Tensor]:
    return weights_of(Checkpoint.open(memory).build(Backbone.toy(num_layers=2)))


def saves_in(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "states").iterdir())


# What a run does and leaves behind


LOOP = make_loop(learning_rate=1e-2, save_every_steps=7)
STAGE = StageAConfig(content_weight=2.0, reduction="mean")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One batch over and over: sixteen steps are enough to see it learnt."""
    folder = tmp_path_factory.mktemp("run")
    policy = make_memory_policy(is_trained=False)
    backbone = {name: tensor.clone() for name, tensor in policy.backbone.state_dict().items()}
    result = train_stage_a(policy, ListedBatches([make_batch()] * 16), folder, stage=STAGE, loop=LOOP)
    return result, policy, backbone


def test_every_loss_falls(finished):
    lines = read_metrics(finished[0].folder / "metrics.jsonl")
    for name in ("action", "semantic", "functional", "total"):
        assert lines[-1]["loss"][name] < lines[0]["loss"][name], name
    assert lines[-1]["loss"]["action"] < 0.8 * lines[0]["loss"]["action"]


def test_the_frozen_policy_stays_frozen_and_the_memory_is_ready_to_act(finished):
    _, policy, backbone = finished
    assert equal(policy.backbone.state_dict(), backbone)
    assert not policy.training
    assert all(parameter.requires_grad for part in policy.trained_parts().values() for parameter in part.parameters())


def test_leaves_a_memory_that_says_how_it_was_made(finished):
    result, policy, _ = finished
    assert result.is_finished
    assert result.num_steps == 16
    stored = Checkpoint.open(result.memory)
    assert stored.notes["stage"] == "stage_a"
    assert stored.notes["config"]["loop"]["learning_rate"] == 1e-2
    assert equal(stored_weights(result.memory), policy.trained_state())


def test_a_memory_can_be_stored_in_half_the_space(tmp_path):
    policy = make_memory_policy(is_trained=False)
    loop = make_loop(stores_half=True)
    result = train_stage_a(policy, ListedBatches([make_batch()] * 2), tmp_path, stage=ACTIONS, loop=loop)
    rounded = {name: tensor.bfloat16().float() for name, tensor in policy.trained_state().items()}
    assert equal(stored_weights(result.memory), rounded)
    assert not equal(rounded, policy.trained_state())


def test_metrics_tell_of_every_step(finished):
    result, *_ = finished
    lines = read_metrics(result.folder / "metrics.jsonl")
    assert [line["step"] for line in lines] == list(range(1, 17))
    last = lines[-1]
    weights = StageA(STAGE).weights
    assert last["loss"]["total"] == pytest.approx(sum(weights[name] * last["loss"][name] for name in weights))
    assert result.losses == last["loss"]
    assert last["gradient_norm"] > 0
    assert last["learning_rate"] == pytest.approx(1e-2 * 0.5 * (1 + math.cos(math.pi * 13 / 14)))
    assert last["tokens_per_s"] > 0
    assert 0 <= last["waiting_rate"] <= 1
    assert last["gpu_memory_gb"] is None
    assert last["passage"] == {"ordinary": None, "negative": None}


def test_the_folder_can_be_read_without_our_code(finished):
    folder = finished[0].folder
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json", "environment.json", "losses.png", "memory", "metrics.jsonl", "states",
    ]  # fmt: skip
    config = json.loads((folder / "config.json").read_text())
    assert config["loop"]["num_steps"] == 16
    assert config["stage"] == {
        "name": "stage_a",
        "content_weight": 2.0,
        "semantic_weight": 0.5,
        "functional_weight": 0.5,
        "reduction": "mean",
        "start_sha256": None,
    }
    assert json.loads((folder / "environment.json").read_text())["seeds"] == {"training": 0}
    assert saves_in(folder) == ["step-00000014", "step-00000016"], "the last two"
    assert (folder / "losses.png").read_bytes().startswith(b"\x89PNG")


def test_a_finished_run_is_not_done_again(finished):
    result, policy, _ = finished
    other = make_memory_policy(is_trained=False, seed=4)
    again = train_stage_a(other, ListedBatches([make_batch()] * 16), result.folder, stage=STAGE, loop=LOOP)
    assert again.is_finished
    assert again.losses == {}
    assert equal(other.trained_state(), policy.trained_state())


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def run_of_two(folder: Path, **loop):
    return train_stage_a(
        make_memory_policy(is_trained=False), make_data(2), folder, stage=ACTIONS, loop=make_loop(**loop)
    )


@pytest.mark.parametrize("stores_half", [False, True])
def test_a_finished_run_leaves_its_memory_as_it_is(tmp_path, stores_half):
    """A threshold may have been chosen for it, and notes added."""
    memory = run_of_two(tmp_path, stores_half=stores_half).memory
    Checkpoint.open(memory).with_threshold(0.71, notes={"variant": "mine"})
    before = content_of(memory)
    again = run_of_two(tmp_path, stores_half=stores_half, num_workers=0, log_every_steps=5)
    assert again.is_finished
    assert content_of(memory) == before


@pytest.mark.parametrize("damage", ["gone", "weights", "card", "no card", "another"])
def test_a_finished_run_writes_its_memory_again_where_it_is_damaged(tmp_path, damage):
    memory = run_of_two(tmp_path).memory
    before = content_of(memory)
    weights, card = memory / "memory.safetensors", memory / "checkpoint.json"
    if damage == "gone":
        remove_folder(memory)
    elif damage == "weights":
        weights.write_bytes(before[weights.name][:-9])
    elif damage == "card":
        card.write_bytes(before[card.name].replace(b'"rank": 4', b'"rank": "4"'))
    elif damage == "no card":
        card.unlink()
    else:
        Checkpoint.save(make_memory_policy(seed=5), memory, replace=True)
    assert run_of_two(tmp_path).is_finished
    assert content_of(memory) == before


def test_what_a_killed_run_had_begun_to_write_is_cleared_and_nothing_else(tmp_path):
    begun = (".memory.0123456789ab.partial", ".unfinished.0123456789ab.partial", ".unfinished.ba9876543210.old")
    others = (".memory.mine.partial", "memory.0123456789ab.partial", ".notes.0123456789ab.partial")
    for name in (*begun, *others):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "memory.safetensors").write_bytes(b"half")
    run_of_two(tmp_path, max_minutes=1e-9)
    assert not [name for name in begun if (tmp_path / name).exists()]
    assert all((tmp_path / name / "memory.safetensors").read_bytes() == b"half" for name in others)


def test_lines_are_means_over_some_steps(tmp_path):
    data = make_data(4)
    for every in (1, 2):
        train(
            make_memory_policy(),
            data,
            StageB(),
            make_loop(log_every_steps=every, save_every_steps=100),
            tmp_path / str(every),
        )
    single, double = (read_metrics(tmp_path / str(every) / "metrics.jsonl") for every in (1, 2))
    assert [line["step"] for line in double] == [2, 4]
    for first, second, both in zip(single[::2], single[1::2], double, strict=True):
        assert both["loss"]["action"] == pytest.approx((first["loss"]["action"] + second["loss"]["action"]) / 2)
        passage = [line["passage"]["negative"] for line in (first, second)]
        assert both["passage"]["negative"] == pytest.approx(sum(passage) / 2)
    assert (tmp_path / "1" / "gate.png").exists()


# Stopping and going on


def run_script(folder: Path, *words: str) -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])}
    return subprocess.Popen(
        [sys.executable, str(TESTS / "training" / "train_script.py"), str(folder), *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def killed(folder: Path, stage: str, step: int, *words: str) -> bool:
    """Whether the script was killed after this step; an error if it failed by itself."""
    process = run_script(folder, *words)
    while len(read_metrics(folder / stage / "metrics.jsonl")) < step and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    output, _ = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), output.decode()[-2000:]
    return process.returncode != 0


@pytest.fixture
def one_thread():
    """As in the script: sums over threads would differ in their last bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_killed_at_any_step_and_gone_on_equals_never_having_stopped(tmp_path, one_thread):
    """Bit for bit, through both stages, with dropout and a gate that draws; SIGKILL leaves no time to say goodbye."""
    options = {"num_steps": 6, "dropout": 0.1}
    train_both(tmp_path / "whole", **options)
    stage, step = random.choice(("a", "b")), random.randrange(1, 5)
    print(f"killed in stage {stage} after step {step}")
    while not killed(tmp_path / "killed", stage, step, "--num-steps", "6", "--dropout", "0.1"):
        remove_folder(tmp_path / "killed")  # it was faster than this process could look
    assert not (tmp_path / "killed" / "b" / "memory").exists()
    train_both(tmp_path / "killed", **options)
    for name in ("a", "b"):
        whole, resumed = (stored_weights(tmp_path / run / name / "memory") for run in ("whole", "killed"))
        assert equal(whole, resumed), name
        lines = [read_metrics(tmp_path / run / name / "metrics.jsonl") for run in ("whole", "killed")]
        assert [line["loss"] for line in lines[0]] == [line["loss"] for line in lines[1]]
    assert list((tmp_path / "killed").rglob("states/.*")) == [], "nothing half written stays"


def test_a_time_limit_saves_and_the_same_call_goes_on(tmp_path):
    data, config = make_data(4), make_loop(max_minutes=1e-9)
    policy = make_memory_policy(is_trained=False)
    result = train_stage_a(policy, data, tmp_path / "short", stage=ACTIONS, loop=config)
    assert (result.is_finished, result.num_steps, result.memory) == (False, 1, None)
    assert equal(stored_weights(tmp_path / "short" / "unfinished"), policy.trained_state())
    assert Checkpoint.open(tmp_path / "short" / "unfinished").notes["num_steps"] == 1
    for _ in range(3):
        fresh = make_memory_policy(is_trained=False, seed=8)
        result = train_stage_a(fresh, data, tmp_path / "short", stage=ACTIONS, loop=config)
    assert (result.is_finished, result.num_steps) == (True, 4)
    assert not (tmp_path / "short" / "unfinished").exists()
    whole = train_stage_a(
        make_memory_policy(is_trained=False), data, tmp_path / "whole", stage=ACTIONS, loop=make_loop()
    )
    assert equal(stored_weights(result.memory), stored_weights(whole.memory)), "the schedule follows steps, not time"


@FORKS
def test_workers_change_nothing_but_the_waiting(tmp_path):
    memories = []
    for num_workers in (0, 2):
        folder = tmp_path / str(num_workers)
        result = train_stage_a(
            make_memory_policy(), make_data(3), folder, stage=ACTIONS, loop=make_loop(num_workers=num_workers)
        )
        memories.append(stored_weights(result.memory))
        assert 0 <= result.waiting_rate <= 1
    assert equal(*memories)


@pytest.mark.parametrize("part", ["gate", "readout"])
def test_a_part_learns_at_its_own_rate(part, tmp_path):
    before = weights_of(make_memory_policy())
    moved = {}
    for times in (1.0, 10.0):
        policy = make_memory_policy()
        loop = make_loop(num_steps=1, weight_decay=0.0, max_query_change=None, **{f"{part}_rate_times": times})
        train(policy, make_data(1), StageB(), loop, tmp_path / str(times))
        moved[times] = {name: tensor - before[name] for name, tensor in weights_of(policy).items()}
    assert any(name.startswith(f"{part}.") and moved[1.0][name].abs().max() > 0 for name in before)
    for name in before:
        if name.startswith("state."):  # calibrated, not trained
            assert torch.equal(moved[10.0][name], moved[1.0][name])
            continue
        expected = moved[1.0][name] * (10 if name.startswith(f"{part}.") else 1)
        torch.testing.assert_close(moved[10.0][name], expected, rtol=1e-3, atol=1e-6)


def test_other_settings_are_refused_by_name(tmp_path):
    data = make_data(2)
    train_stage_a(make_memory_policy(), data, tmp_path, stage=ACTIONS, loop=make_loop(max_minutes=1e-9))
    for changes, message in (
        ({"loop": make_loop(learning_rate=5e-4)}, r"loop\.learning_rate = 0\.001, but this one asks for 0\.0005"),
        ({"loop": make_loop(seed=1)}, r"loop\.seed"),
        ({"loop": make_loop(num_steps=1)}, r"loop\.num_steps = 2"),
        ({"stage": StageAConfig(), "loop": make_loop()}, r"stage\.content_weight = 0\.0,"),
    ):
        with pytest.raises(CheckpointError, match=message):
            train_stage_a(make_memory_policy(), data, tmp_path, **({"stage": ACTIONS} | changes))
    with pytest.raises(CheckpointError, match=r"memory\.lora\.dropout"):
        train_stage_a(make_memory_policy(dropout=0.2), data, tmp_path, stage=ACTIONS, loop=make_loop())
    with pytest.raises(CheckpointError, match=r"stage\."):
        train(make_memory_policy(), data, StageB(), make_loop(), tmp_path)
    free = make_loop(num_workers=0, save_every_steps=1, log_every_steps=3)
    assert train_stage_a(make_memory_policy(), data, tmp_path, stage=ACTIONS, loop=free).is_finished


def test_another_backbone_is_refused(tmp_path):
    train_stage_a(make_memory_policy(), make_data(2), tmp_path, stage=ACTIONS, loop=make_loop(max_minutes=1e-9))
    policy = make_memory_policy()
    other = MemoryPolicy(Backbone.toy(num_layers=2, seed=3), policy.config)
    with pytest.raises(CheckpointError, match="begun with the policy backbone 'toy-0', and 'toy-3' is another"):
        train_stage_a(other, make_data(2), tmp_path, stage=ACTIONS, loop=make_loop())


@pytest.mark.parametrize("damage", ["changed", "cut", "card", "version"])
def test_a_damaged_save_is_refused_and_the_one_before_it_still_serves(tmp_path, damage):
    data = make_data(3)
    config = make_loop(save_every_steps=1)
    whole = train_stage_a(make_memory_policy(), data, tmp_path, stage=ACTIONS, loop=config)
    newest = tmp_path / "states" / "step-00000003"
    path = newest / ("state.json" if damage in ("card", "version") else "state.pt")
    content = path.read_bytes()
    path.write_bytes(
        {
            "changed": content[:-100] + bytes(100),
            "cut": content[: len(content) // 2],
            "card": content[:10],
            "version": content.replace(b'"schema_version": 3', b'"schema_version": 9'),
        }[damage]
    )
    with pytest.raises(CheckpointError, match=r"damaged|cannot be read|another version"):
        train_stage_a(make_memory_policy(), data, tmp_path, stage=ACTIONS, loop=config)
    for one in newest.iterdir():
        one.unlink()
    newest.rmdir()
    again = train_stage_a(make_memory_policy(), data, tmp_path, stage=ACTIONS, loop=config)
    assert equal(stored_weights(again.memory), stored_weights(whole.memory))


def test_a_full_disk_keeps_the_last_good_save(tmp_path):
    data = make_data(4)
    config = make_loop(save_every_steps=2)
    train_stage_a(make_memory_policy(), data, tmp_path, stage=ACTIONS, loop=replace(config, max_minutes=1e-9))
    before = saves_in(tmp_path)
    with disk_that_takes(200_000), pytest.raises(StorageError, match="Could not write"):
        train_stage_a(make_memory_policy(), data, tmp_path, stage=ACTIONS, loop=config)
    assert saves_in(tmp_path) == before
    resumed = train_stage_a(make_memory_policy(), data, tmp_path, stage=ACTIONS, loop=config)
    whole = train_stage_a(make_memory_policy(), data, tmp_path / "whole", stage=ACTIONS, loop=config)
    assert equal(stored_weights(resumed.memory), stored_weights(whole.memory))


# Numbers that are none


@dataclass(frozen=True)
class SpoiltData:
    """Good batches, until one whose teacher's states hold a number that is none."""

    at: int
    value: float
    num_batches: int = 4

    def batch(self, number: int) -> TrainingBatch:
        batch = make_batch(number)
        if number == self.at:
            batch.items[0].lesson.description.hidden_MD[0, 0] = self.value
        return batch


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_before_the_weights_move(tmp_path, value):
    policy = make_memory_policy()
    with pytest.raises(TrainingError, match=r"At step 3, the semantic loss is nan\. This step changed nothing"):
        train_stage_a(policy, SpoiltData(2, value), tmp_path, loop=make_loop(save_every_steps=2))
    assert saves_in(tmp_path) == ["step-00000000", "step-00000002"], "the last good save is the newest"
    saved = torch.load(tmp_path / "states" / "step-00000002" / "state.pt", weights_only=True)["weights"]
    assert equal(policy.trained_state(), saved)
    assert not policy.training
    assert [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2]


def test_a_gradient_that_is_no_number_is_named(tmp_path):
    policy = make_memory_policy()
    handle = policy.compressor.w_out.weight.register_hook(lambda gradient: gradient * float("inf"))
    before = weights_of(policy)
    with pytest.raises(TrainingError, match=r"At step 1, the gradient norm is (nan|inf) \(first in compressor\.w_out"):
        train_stage_a(policy, make_data(2), tmp_path, loop=make_loop())
    handle.remove()
    assert equal(weights_of(policy), before)


# Wrong input


def test_more_steps_than_data_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="num_steps is 5, but the data has 2 batches"):
        train_stage_a(make_memory_policy(), make_data(2), tmp_path, loop=make_loop(num_steps=5))
    for num_steps in (None, 5):
        with pytest.raises(ConfigError, match="nothing to train on: the data has no batches"):
            train_stage_a(make_memory_policy(), make_data(0), tmp_path, loop=make_loop(num_steps=num_steps))
    assert not list(tmp_path.iterdir())


@dataclass(frozen=True)
class DataWithLessons:
    """Reads what the teacher said when a batch is drawn, as data on disk does."""

    store: LessonStore
    num_batches: int = 2

    def batch(self, number: int) -> TrainingBatch:
        batch = make_batch(number, has_lessons=False)
        items = [replace(item, lesson=self.store.read(item.digest, name=item.item_id)) for item in batch.items]
        return replace(batch, items=tuple(items))


@FORKS
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_missing_lesson_is_said_in_a_sentence(tmp_path, num_workers):
    """From a worker process, too."""
    policy = make_memory_policy()
    data = DataWithLessons(lesson_store(tmp_path / "lessons", policy.backbone))
    with pytest.raises(StorageError) as caught:
        train_stage_a(policy, data, tmp_path / "run", loop=make_loop(num_workers=num_workers))
    assert str(caught.value).startswith("There is no lesson about the item 'episodic-0' in ")
    assert str(caught.value).endswith("Make the lessons first, with Teacher.prepare, the step before stage A.")


def without_answers(batch: TrainingBatch) -> TrainingBatch:
    """As where all that the teacher answered was discarded."""
    items = [replace(item, lesson=item.lesson and replace(item.lesson, functional=())) for item in batch.items]
    return replace(batch, items=tuple(items))


UNTAUGHT = ListedBatches([make_batch(number, has_lessons=False) for number in range(4)])


@pytest.mark.parametrize(
    ("data", "stage", "named"),
    [
        (UNTAUGHT, StageAConfig(), r"the semantic loss and the functional loss.*semantic_weight and functional_weight"),
        (UNTAUGHT, StageAConfig(functional_weight=0), r"the semantic loss had nothing.*semantic_weight to 0"),
        (
            ListedBatches([without_answers(make_batch(number)) for number in range(4)]),
            StageAConfig(semantic_weight=0),
            r"the functional loss had nothing.*discarded.*functional_weight to 0",
        ),
    ],
    ids=["no lessons", "no descriptions", "no answers"],
)
@pytest.mark.parametrize(("every", "at"), [(2, 2), (10, 4)])
def test_a_content_loss_without_anything_to_learn_stops_the_run(tmp_path, data, stage, named, every, at):
    """By the first report, or at the last step."""
    loop = make_loop(log_every_steps=every, save_every_steps=1)
    with pytest.raises(RecordError, match=rf"Up to step {at}, {named}") as caught:
        train_stage_a(make_memory_policy(), data, tmp_path, stage=stage, loop=loop)
    assert "Teacher.prepare" in str(caught.value)
    assert "LessonStore.read" in str(caught.value)
    assert saves_in(tmp_path)[-1] == f"step-{at - 1:08d}"
    assert not (tmp_path / "memory").exists()


def test_a_batch_without_lessons_is_no_reason_to_stop(tmp_path):
    bare = TrainingBatch(decisions=tuple(replace(one, uses=()) for one in make_batch().decisions))
    data = ListedBatches([make_batch(0, has_lessons=False), make_batch(1), bare])
    result = train_stage_a(make_memory_policy(), data, tmp_path, loop=make_loop(log_every_steps=2, save_every_steps=1))
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert [sorted(line["loss"]) for line in lines] == [
        ["action", "total"],
        ["action", "functional", "semantic", "total"],
        ["action", "total"],
    ]
    assert result.is_finished


@pytest.mark.parametrize("taught_at", [0, 2, None])
def test_what_was_learnt_from_before_a_stop_counts_when_going_on(tmp_path, taught_at):
    """A report after four steps, of which each is a call of its own."""
    data = ListedBatches([make_batch(number, has_lessons=number == taught_at) for number in range(6)])
    loop = make_loop(max_minutes=1e-9, log_every_steps=4)
    for _ in range(3):
        train_stage_a(make_memory_policy(), data, tmp_path, loop=loop)
    if taught_at is None:
        with pytest.raises(RecordError, match="Up to step 4"):
            train_stage_a(make_memory_policy(), data, tmp_path, loop=loop)
        return
    for _ in range(3):
        result = train_stage_a(make_memory_policy(), data, tmp_path, loop=loop)
    assert result.is_finished


def test_from_teacher_to_both_stages(tmp_path):
    """The whole way: the frozen policy teaches, then its lessons and the demonstrations are learnt."""
    policy = make_memory_policy(is_trained=False)
    short = PROMPTS / "questions"
    config = TeacherConfig(prompts=short, max_new_tokens=12)
    Teacher(policy.backbone, tmp_path / "lessons", config).prepare(make_data(2, has_lessons=False))
    data = DataWithLessons(lesson_store(tmp_path / "lessons", policy.backbone, config))
    with pytest.raises(RecordError, match="the functional loss had nothing to learn from"):
        train_stage_a(make_memory_policy(is_trained=False), data, tmp_path / "all", loop=make_loop())
    described = StageAConfig(functional_weight=0)  # an untrained policy gives no answers to learn
    result = train_stage_a(policy, data, tmp_path / "a", stage=described, loop=make_loop())
    assert result.losses.keys() == {"action", "semantic", "total"}
    fresh = make_memory_policy(is_trained=False, seed=1)
    after = train_stage_b(fresh, data, tmp_path / "b", start=result.memory, loop=make_loop())
    assert after.is_finished
    assert after.losses.keys() == {"action", "gate", "total"}


@pytest.mark.parametrize("stage", [StageA(), StageB()], ids=["a", "b"])
def test_computing_blocks_again_changes_nothing(tmp_path, stage):
    """With dropout: what is computed again must draw the same."""
    after = []
    for recomputes in (False, True):
        policy = make_memory_policy(dropout=0.2)
        train(policy, make_data(2), stage, make_loop(recomputes_blocks=recomputes), tmp_path / str(recomputes))
        after.append(weights_of(policy))
    for name, tensor in after[0].items():
        torch.testing.assert_close(after[1][name], tensor, rtol=1e-4, atol=1e-5)


def test_a_memory_in_half_precision_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"not in float32.*convert"):
        train_stage_a(make_memory_policy().convert(torch.bfloat16), make_data(1), tmp_path, loop=make_loop())


def test_batches_without_items_train_nothing_and_break_nothing(tmp_path):
    bare = TrainingBatch(decisions=tuple(replace(one, uses=()) for one in make_batch().decisions))
    policy = make_memory_policy()
    before = weights_of(policy)
    stage = StageAConfig(content_weight=0)
    result = train_stage_a(policy, ListedBatches([bare]), tmp_path, stage=stage, loop=make_loop(weight_decay=0.0))
    assert result.losses["action"] > 0
    assert equal(weights_of(policy), before)


@pytest.mark.parametrize(
    "values",
    [
        {"learning_rate": 0.0},
        {"gate_rate_times": 0.0},
        {"readout_rate_times": 0.0},
        {"max_query_change": 0.0},
        {"num_held_out": 0},
        {"warmup_share": 1.0},
        {"max_gradient_norm": -1.0},
        {"num_passes": 0},
        {"save_every_steps": 0},
        {"max_minutes": 0},
        {"num_workers": -1},
    ],
)
def test_config_names_the_field(values):
    with pytest.raises(ConfigError, match=f"LoopConfig.{next(iter(values))}"):
        make_loop(**values)


# Pictures that a batch brings along


def shown_in_stage_a(batch: TrainingBatch) -> dict[str, Screenshot]:
    """All but those of the item that only misleads."""
    return pictures_of(*(one.prompt for one in (*batch.items[:3], batch.items[4], *batch.decisions)))


def test_features_that_a_batch_brings_along_are_used(tmp_path):
    """Training with features from `look` equals training with the backbone's own, and asks only for what is shown."""
    batch, asked = make_batch(), []
    pictures, eyes = shown_in_stage_a(batch), Backbone.toy(num_layers=2)

    def look(pixels: Pixels):
        asked.append(pixels.digests)
        return dict(zip(pixels.digests, eyes.see([pictures[digest] for digest in pixels.digests]), strict=True))

    brought = Pixels((*pictures, "not shown"), torch.zeros(len(pictures) + 1, 4, 4, 3, dtype=torch.uint8))
    policy = make_memory_policy()
    data = ListedBatches([replace(batch, pixels=brought)])
    seen = train_stage_a(policy, data, tmp_path / "look", loop=make_loop(), look=look)
    own = train_stage_a(make_memory_policy(), ListedBatches([batch]), tmp_path / "own", loop=make_loop())
    assert asked == [tuple(pictures)]
    assert len(policy.backbone.pictures) == 0, "the tower was not asked"
    assert equal(stored_weights(seen.memory), stored_weights(own.memory))


def test_the_tower_sees_each_picture_once_even_where_nothing_is_remembered(tmp_path):
    policy, counted = make_memory_policy(), []
    policy.backbone.pictures.limit_bytes = 0
    handle = policy.backbone.model.model.visual.register_forward_pre_hook(
        lambda module, words, named: counted.append(named["grid_thw"].shape[0]), with_kwargs=True
    )
    train_stage_a(policy, ListedBatches([make_batch()]), tmp_path, loop=make_loop())
    handle.remove()
    assert counted == [len(shown_in_stage_a(make_batch()))]


def test_packed_rows_learn_the_same(tmp_path):
    """Both stages, pictures and all: as close as sums in another order are."""
    learnt = {}
    for packs_rows in (True, False):
        policy = make_memory_policy()
        loop = make_loop(learning_rate=1e-3, packs_rows=packs_rows)
        folder = tmp_path / str(packs_rows)
        memory = train_stage_a(policy, make_data(3), folder / "a", loop=loop).memory
        train_stage_b(policy, make_data(3), folder / "b", start=memory, loop=loop)
        assert not policy.backbone.packs_rows, "as it was before"
        losses = [line["loss"] for stage in "ab" for line in read_metrics(folder / stage / "metrics.jsonl")]
        learnt[packs_rows] = weights_of(policy), losses
    for name, tensor in learnt[False][0].items():
        # Adam turns the sign of a vanishing gradient into a whole step, so a few numbers may stray a little.
        torch.testing.assert_close(learnt[True][0][name], tensor, rtol=1e-3, atol=3e-4)
    for one, two in zip(learnt[True][1], learnt[False][1], strict=True):
        assert one == pytest.approx(two, rel=1e-4)


def test_packed_rows_and_recomputed_blocks_exclude_each_other():
    with pytest.raises(ConfigError, match="exclude each other"):
        make_loop(packs_rows=True, recomputes_blocks=True)


def test_what_is_left_to_the_device_is_decided_by_it():
    loop = make_loop(packs_rows=None, recomputes_blocks=False)
    assert (loop.on("cpu").packs_rows, loop.on("cuda").packs_rows) == (False, True)
    assert make_loop(packs_rows=True).on("cpu").packs_rows
    with pytest.raises(ConfigError, match="exclude each other"):
        make_loop(packs_rows=None, recomputes_blocks=None).on("cuda")


def test_other_data_is_not_gone_on_with(tmp_path):
    """Where data has a digest, a run never mixes two kinds of it."""

    class Named(ListedBatches):
        digest = "one"

    policy, loop = make_memory_policy(), make_loop(max_minutes=1e-9)
    batches = make_data(3).batches
    train_stage_a(policy, Named(batches), tmp_path, stage=ACTIONS, loop=loop)
    other = Named(batches)
    object.__setattr__(other, "digest", "two")
    with pytest.raises(CheckpointError, match=r"data\.digest = one, but this one asks for two"):
        train_stage_a(policy, other, tmp_path, stage=ACTIONS, loop=loop)
    assert train_stage_a(policy, Named(batches), tmp_path, stage=ACTIONS, loop=make_loop()).is_finished


def test_packing_is_checked_before_anything_is_written(tmp_path):
    with pytest.raises(ConfigError, match=r"LoraConfig.dropout is 0.1"):
        train_stage_a(make_memory_policy(dropout=0.1), make_data(1), tmp_path / "run", loop=make_loop(packs_rows=True))
    assert not (tmp_path / "run").exists()
