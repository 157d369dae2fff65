import itertools
import json
import random
import re
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from focusmem.agent.prompt import NUM_RECENT
from focusmem.bank.leakage import LeakageGuard
from focusmem.errors import CheckpointError, ConfigError
from focusmem.evidence import CHUNK_EVENTS
from focusmem.lab.memory.decisions import LabDecisions, LabDecisionsConfig, SiteFirst
from focusmem.lab.memory.drills import IN_WORDS, Drills, from_history, value_view, way_drills
from focusmem.lab.memory.gate import teach_gate
from focusmem.lab.memory.recall import LabBank
from focusmem.lab.memory.split_bank import SplitBank
from focusmem.lab.memory.stream import COURSE, LabStream, Phase, StreamConfig, useful_decisions, useful_ways
from focusmem.lab.memory.training import LAB_QUESTIONS, LabTraining, train_memory
from focusmem.lab.memory.variants import variant
from focusmem.lab.policy.drawing import placeholder
from focusmem.lab.world.address import Address
from focusmem.lab.world.answers import facts_seen
from focusmem.lab.world.pages import FACT_NAMES
from focusmem.lab.world.tasks import COMPARISONS, KINDS, make_task
from focusmem.lab.world.ways import followed_ways, shown_ways
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.policy import MemoryPolicy
from focusmem.recipes.lab_training import lab
from focusmem.schemas import Run, Screenshot, parse_action, parse_record
from focusmem.seeds import derive_seed
from focusmem.settings import resolved
from focusmem.training.batch import TrainingBatch
from focusmem.training.config import LoopConfig
from focusmem.training.metrics import read_metrics
from focusmem.training.questions import DESCRIBE, SUBTYPES, Questions, read_answer
from focusmem.training.stage import LOSS_NAMES
from focusmem.training.trajectory_batches import BatchingConfig

NUM_SITES = 30


@pytest.fixture(scope="module")
def bank(world):
    return SplitBank(world, "m", num_sites=NUM_SITES)


def source(world, policy, bank, **changes) -> LabDecisions:
    told = changes.pop("told", None)
    config = LabDecisionsConfig(**{"num_trajectories": 1000, "num_sites": NUM_SITES, "negative_share": 0.0} | changes)
    return LabDecisions(world, policy.chat, bank, SiteFirst(bank), config, told=told)


def test_a_bank_made_as_it_is_needed_holds_what_one_made_beforehand_holds(world, bank):
    whole = LabBank(world, "m", num_sites=NUM_SITES, picture=placeholder)
    for number in range(NUM_SITES):
        own, expected = (one.places_of(f"m-{number}") for one in (bank, whole))
        assert [bank.rollout(place) for place in own] == [whole.rollout(place) for place in expected]
        assert [bank.trajectory(place) for place in own] == [whole.trajectory(place) for place in expected]
    rng = random.Random(0)
    drawn = {bank.any_place(rng) for _ in range(300)}
    assert drawn <= {place for number in range(NUM_SITES) for place in bank.places_of(f"m-{number}")}
    assert len({bank.rollout(place).task.site_id for place in drawn}) > 20
    assert not bank.places_of(f"m-{NUM_SITES}")
    assert not bank.places_of("e-0")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 minds forking beside threads
@pytest.mark.parametrize("num_workers", [0, 2])
def test_sites_rolled_out_beforehand_are_the_same(world, bank, num_workers):
    beforehand, handed_on = (SplitBank(world, "m", num_sites=NUM_SITES) for _ in range(2))
    handed_on.take(beforehand.roll_out_all(num_workers))
    for own, number in itertools.product((beforehand, handed_on), range(NUM_SITES)):
        places = bank.places_of(f"m-{number}")
        assert own.places_of(f"m-{number}") == places
        assert [own.rollout(place) for place in places] == [bank.rollout(place) for place in places]
        assert [own.trajectory(place) for place in places] == [bank.trajectory(place) for place in places]
    with pytest.raises(ConfigError, match=f"bank of {NUM_SITES} sites was given the trajectories of 1"):
        handed_on.take([[]])


def test_what_is_found_by_site_does_not_give_the_task_away(world, policy, bank):
    """With tasks worded like the bank's there is something to leave out."""
    data, guard = source(world, policy, bank, use="bank"), LeakageGuard()
    num_left_out = 0
    for number in range(60):
        rollout = data.rollout(number)
        found = [bank.trajectory(place) for place, _ in data.recall(rollout, 0)]
        assert guard.screen(found, [rollout.task.task]).removed.num_removed == 0
        own = [bank.trajectory(place) for place in bank.places_of(rollout.task.site_id)]
        num_left_out += guard.screen(own, [rollout.task.task]).removed.num_removed
    assert num_left_out


def test_batches_come_by_number_and_never_again(world, policy, bank):
    stream = StreamConfig(num_episodes=3, num_decisions=4, num_batches=20)
    one, other = (LabStream(source(world, policy, bank), stream) for _ in range(2))
    assert one.digest == other.digest
    assert one.digest != LabStream(source(world, policy, bank, seed=1), stream).digest
    batches = [one.batch(number) for number in range(3)]
    again = other.batch(2)
    assert again.items == batches[2].items
    assert again.decisions == batches[2].decisions
    assert torch.equal(again.pixels.pixels_NHWC, batches[2].pixels.pixels_NHWC)
    asked = [{decision.prompt for decision in batch.decisions} for batch in batches]
    assert not asked[0] & asked[1]
    assert all(len(batch.decisions) <= 12 for batch in batches)
    with pytest.raises(ConfigError, match="needs a source of as many"):
        LabStream(source(world, policy, bank, num_trajectories=179), stream)


def test_decisions_that_memory_can_help_with_come_first(world, policy, bank):
    data = source(world, policy, bank)
    num_useful, num_helpless = 0, 0
    for number in range(40):
        rollout, useful = data.rollout(number), useful_decisions(data, number)
        steps = rollout.steps
        own = [bank.rollout(place) for place, _ in data.recall(rollout, 0)]
        shown = set().union(*(shown_ways(world, one.steps) for one in own if one.task.site_id == rollout.task.site_id))
        for at, step in enumerate(steps):
            is_answer = step.action.name == "stop" and rollout.task.kind in COMPARISONS
            followed = followed_ways(world, steps, at)
            assert useful[at] == (is_answer or bool(followed & shown))
            num_helpless += bool(followed) and not useful[at]
        num_useful += sum(useful)
        _, chosen = LabStream(data, StreamConfig(num_decisions=3, num_batches=10))._chosen(number)
        assert sum(useful[at] for at in chosen) == min(3, sum(useful))
        is_hard = [bool(ways - {"query", "edition"}) for ways in useful_ways(data, number)]
        assert sum(is_hard[at] for at in chosen) == min(3, sum(is_hard))
        assert list(chosen) == sorted(set(chosen))
    assert num_useful > 60
    assert num_helpless, "some ways were never shown"


def test_episodes_that_memory_can_help_with_are_preferred(world, policy):
    data = source(world, policy, SplitBank(world, "m", num_sites=200), num_sites=200)
    stream = LabStream(data, StreamConfig(num_episodes=4, num_tries=3, num_batches=12))
    chosen = [stream.episodes(number) for number in range(12)]
    helped = [[any(useful_decisions(data, episode)) for episode in own] for own in chosen]
    places = [range(12 * number + 3 * place, 12 * number + 3 * place + 3) for number in range(12) for place in range(4)]
    for place, episode in zip(places, (episode for own in chosen for episode in own), strict=True):
        assert episode in place
    firsts, last = [flag for own in helped for flag in own[:3]], [own[3] for own in helped]
    assert sum(firsts) / len(firsts) > sum(last) / len(last), "the last place takes what comes"
    assert [own[3] for own in chosen] == [12 * number + 9 for number in range(12)]


def test_the_world_answers_for_the_teacher(world, policy, bank):
    data = source(world, policy, bank, told=Questions(LAB_QUESTIONS))
    batch = LabStream(data, StreamConfig(num_episodes=4, num_decisions=8, num_batches=1)).batch(0)
    taught = [item for item in batch.items if item.lesson]
    assert {item.role for item in taught} == {"episodic", "working"}
    for item in taught:
        description = item.lesson.description
        assert description.hidden_MD is None
        assert policy.text_of(description.ids) == description.text
        assert description.question == Questions(LAB_QUESTIONS).ask(DESCRIBE)
        for name, pair in zip(SUBTYPES[item.role], item.lesson.functional, strict=True):
            assert read_answer(name, pair.target) == pair.target


def test_a_growing_chunk_is_taught_at_every_size(world, policy, bank):
    data = source(world, policy, bank, told=Questions(LAB_QUESTIONS))
    chosen = next(number for number in range(1000) if data.num_decisions(number) > NUM_RECENT + CHUNK_EVENTS)
    batch = data.decisions(chosen, tuple(range(data.num_decisions(chosen))))
    chunks = [item for item in batch.items if item.role == "working"]
    sizes = {sum(isinstance(part, Screenshot) for turn in item.prompt for part in turn.parts) for item in chunks}
    assert sizes == set(range(1, CHUNK_EVENTS + 1)), "all of them act"
    for item in chunks:
        assert item.lesson is not None
        assert len(item.lesson.functional) == len(SUBTYPES["working"])


def test_drills_bring_no_lessons(world, policy, bank):
    config = StreamConfig(num_episodes=1, num_decisions=2, num_batches=1)
    told, silent = (source(world, policy, bank, told=one) for one in (Questions(LAB_QUESTIONS), None))
    alone, drilled, plain = (
        LabStream(own, replace(config, drills=Drills(num_numbers=num, num_ways=num))).batch(0)
        for own, num in ((told, 0), (told, 12), (silent, 12))
    )
    assert {item.item_id for item in drilled.items if item.lesson} == {
        item.item_id for item in alone.items if item.lesson
    }
    assert len(drilled.items) > len(alone.items)
    assert drilled.decisions == plain.decisions, "what is decided does not depend on who learns content"


def training(name, loop, *, more=None, **changes) -> LabTraining:
    """A variant on few sites; `more` is how stage B steps."""
    few = {"stream": StreamConfig(num_episodes=1, num_decisions=2), "decisions": LabDecisionsConfig(num_sites=12)}
    return LabTraining(**{"variant": variant(name), "loop_a": loop, "loop_b": more or loop, **few, **changes})


def only_stage_a(name, loop, **changes) -> LabTraining:
    return training(name, loop, **{"variant": replace(variant(name), stage_b=None), **changes})


def test_both_stages_learn_from_a_stream(policy, tmp_path):
    loop = LoopConfig(learning_rate=1e-3, log_every_steps=1, num_steps=2)
    full = training("full", loop, more=replace(loop, num_steps=1))
    memory = train_memory(policy, full, tmp_path / "full")
    assert Checkpoint.open(memory).notes["variant"] == "full"
    losses = [line["loss"] for line in read_metrics(tmp_path / "full" / "stage-a" / "metrics.jsonl")]
    assert len(losses) == 2
    assert losses[0].keys() == {"action", "semantic", "functional", "total"}
    assert losses[0].keys() - {"total"} <= set(LOSS_NAMES)
    from_stage_a = replace(full, start=tmp_path / "full" / "stage-a" / "memory")
    again = train_memory(policy, from_stage_a, tmp_path / "b")
    assert again is not None
    first = [read_metrics(tmp_path / run / "stage-b" / "metrics.jsonl")[0]["loss"] for run in ("full", "b")]
    assert first[1] == pytest.approx(first[0], rel=1e-4)
    assert Checkpoint.open(again).notes["config"]["stage"]["keeping"] == "measured"
    hidden = ("memory.state_source=hidden", "memory.state_layer=1", "memory.gate.shares_projection=false")
    changes = [f"variant.{one}" for one in (*hidden, "stage_b.gate_weight=0.7")]
    elsewhere = train_memory(policy, resolved(from_stage_a, assignments=changes), tmp_path / "c")
    assert Checkpoint.open(elsewhere).build(policy).config.state_layer == 1
    assert Checkpoint.open(elsewhere).notes["config"]["stage"]["gate_weight"] == 0.7


def test_a_training_is_repeated_from_its_record(policy, tmp_path):
    """The run.json that a training leaves gives the same settings, and the same weights bit for bit."""
    loop = LoopConfig(learning_rate=1e-3, num_steps=1)
    original = training("fixed-4", loop, gate=None, device="cpu")
    memory = train_memory(policy, original, tmp_path / "one", command=("focusmem", "lab", "train"))
    run = parse_record(Run, (tmp_path / "one" / "run.json").read_bytes(), "run.json")
    assert (run.status, run.command) == ("finished", ("focusmem", "lab", "train"))
    assert json.loads((tmp_path / "one" / "environment.json").read_text())["seeds"] == {"training": 0}
    repeated = resolved(lab("fixed-4"), file=tmp_path / "one" / "run.json")
    assert repeated == original
    again = train_memory(policy, repeated, tmp_path / "two")
    weights = [load_file(one / "memory.safetensors") for one in (memory, again)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    with pytest.raises(ConfigError, match=r"has decisions\.seed = 0, but this one asks for 1"):
        train_memory(policy, replace(original, decisions=LabDecisionsConfig(seed=1, num_sites=12)), tmp_path / "one")


def test_a_memory_learns_on_with_fewer_tokens_through_both_stages_and_its_gate(policy, tmp_path):
    loop = LoopConfig(learning_rate=1e-3, log_every_steps=1, num_steps=1)

    def narrow(name, **changes):
        return training(name, loop, variant=variant(name).with_tokens(1), gate=loop, **changes)

    first = train_memory(policy, only_stage_a("action-only", loop), tmp_path / "wide")
    alone = replace(variant("content").with_tokens(1), stage_b=None)
    content = train_memory(policy, training("content", loop, variant=alone, start=first), tmp_path / "content")
    full = train_memory(policy, narrow("full", start=content), tmp_path / "full")
    assert full.parent.name == "gate"
    for memory in (content, full):
        assert Checkpoint.open(memory).build(policy).config.compressor.num_tokens == 1
    with pytest.raises(CheckpointError, match=r"num_tokens = 1, but this memory was built with 8"):
        train_memory(policy, training("full", loop, start=content), tmp_path / "again")


def test_a_memory_learns_on_with_other_episodes(policy, tmp_path):
    loop = LoopConfig(learning_rate=1e-3, log_every_steps=1, num_steps=2)

    def learnt(name, run, start=None, seed=0):
        decisions = LabDecisionsConfig(num_sites=12, seed=seed)
        build = training if name in ("full", "readout") else only_stage_a
        chosen = build(name, loop, more=replace(loop, num_steps=1), decisions=decisions, start=start)
        memory = train_memory(policy, chosen, tmp_path / run)
        return memory, Checkpoint.open(memory).notes["config"]["stage"]["start_sha256"]

    first, from_nothing = learnt("action-only", "1")
    assert from_nothing is None
    more, began_with = learnt("action-only", "2", start=first, seed=1)
    assert began_with == Checkpoint.open(first).weights_sha256
    begun = torch.load(tmp_path / "2" / "stage-a" / "states" / "step-00000000" / "state.pt")["weights"]
    stored = load_file(first / "memory.safetensors")
    assert begun.keys() == stored.keys()
    assert all(torch.equal(begun[name], stored[name]) for name in stored)
    with pytest.raises(CheckpointError, match="was trained as the memory 'action-only', so 'full' cannot"):
        learnt("full", "3", start=more)
    content, began_with = learnt("content", "4", start=more)
    assert began_with == Checkpoint.open(more).weights_sha256, "content may be learnt on from actions"
    with pytest.raises(CheckpointError, match="trained as the memory 'content', so 'action-only' cannot"):
        learnt("action-only", "8", start=content)
    full, _ = learnt("full", "5", start=content)
    assert not (tmp_path / "5" / "stage-a").exists()
    _, began_with = learnt("full", "6", start=full, seed=1)
    assert began_with == Checkpoint.open(full).weights_sha256
    with pytest.raises(CheckpointError, match="trained as the memory 'full', so 'readout' cannot"):
        learnt("readout", "7", start=full)


def test_the_time_limit_is_for_all_stages_together(policy, tmp_path):
    late = only_stage_a("action-only", LoopConfig(learning_rate=1e-3, num_steps=50), max_minutes=1e-9)
    assert train_memory(policy, late, tmp_path) is None
    assert Checkpoint.open(tmp_path / "stage-a" / "unfinished").notes["stage"] == "stage_a"
    assert parse_record(Run, (tmp_path / "run.json").read_bytes(), "run.json").status == "running"


def test_a_gate_is_taught_alone_after_stage_b_and_goes_on_in_the_middle(world, policy, tmp_path, monkeypatch):
    monkeypatch.setattr("focusmem.lab.memory.gate.TAUGHT", BatchingConfig(num_decisions=4, max_per_trajectory=1))
    start, stage_b, taught = tmp_path / "start", tmp_path / "full" / "stage-b" / "memory", tmp_path / "full" / "gate"
    full = variant("full")
    Checkpoint.save(MemoryPolicy(policy, full.memory), start, notes={"stage": "stage_a"})
    once = LoopConfig(learning_rate=1e-3, log_every_steps=1, num_steps=1)
    twice = replace(once, num_steps=2)
    bank = SplitBank(world, "m", num_sites=3)
    stream = StreamConfig(num_episodes=1, num_decisions=1)
    late = training("full", once, stream=stream, start=start, gate=twice, max_minutes=1e-9)
    assert train_memory(policy, late, tmp_path / "full", bank=bank) is None
    assert Checkpoint.open(taught / "unfinished").notes["num_steps"] == 1
    memory = train_memory(policy, late, tmp_path / "full", bank=bank)
    assert memory == taught / "memory"
    notes = Checkpoint.open(memory).notes
    assert (notes["stage"], notes["variant"], notes["num_steps"]) == ("gate", "full", 2)
    assert notes["config"]["stage"]["start_sha256"] == Checkpoint.open(stage_b).weights_sha256
    before, after = (load_file(one / "memory.safetensors") for one in (stage_b, memory))
    assert {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])} == {"gate"}
    seed = derive_seed(LabDecisionsConfig().seed, "gate")
    whole = teach_gate(policy, full, tmp_path / "whole", twice, start=stage_b, bank=bank, seed=seed)
    never_stopped = load_file(whole / "memory.safetensors")
    assert all(torch.equal(never_stopped[name], after[name]) for name in after)
    with pytest.raises(ConfigError, match="'readout' has no gate"):
        teach_gate(policy, variant("readout"), tmp_path / "none", once, start=stage_b, bank=bank)
    with pytest.raises(ConfigError, match="num_steps is None"):
        teach_gate(policy, full, tmp_path / "none", replace(once, num_steps=None), start=stage_b, bank=bank)


def test_only_a_gate_that_is_there_is_taught_and_only_after_all_else(policy, bank, tmp_path, monkeypatch):
    left, taught = {}, []

    def noted(backbone, variant, folder, loop, *, start, seed, **_):
        taught.append((variant.name, folder, loop.num_steps, start, seed))
        return folder / "memory"

    monkeypatch.setattr("focusmem.lab.memory.training.train_stages", lambda own, *_, **__: left.get(own.variant.name))
    monkeypatch.setattr("focusmem.lab.memory.training.teach_gate", noted)

    loop = LoopConfig(learning_rate=1e-3, num_steps=7)

    def train(name, run, *, seed=0, gate=loop):
        own = training(name, loop, gate=gate, decisions=LabDecisionsConfig(seed=seed))
        return train_memory(policy, own, tmp_path / run, bank=bank)

    assert train("full", "a") is None, "stage B was stopped"
    left |= {name: tmp_path / name for name in ("full", "readout", "content")}
    for name in ("readout", "content"):
        assert train(name, name) == left[name]
    assert train("full", "b", gate=None) == left["full"]
    assert not taught
    for seed in (0, 1):
        assert train("full", str(seed), seed=seed) == tmp_path / str(seed) / "gate" / "memory"
    assert taught[0][:-1] == ("full", tmp_path / "0" / "gate", 7, left["full"])
    assert taught[1][-1] != taught[0][-1], "other episodes for another seed"


def test_the_second_stage_sees_new_episodes(policy, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "focusmem.lab.memory.training.train_stages", lambda own, backbone, *data, **_: seen.extend(data[:2])
    )
    stream = StreamConfig(num_episodes=2, course=COURSE)
    for name in ("full", "readout"):
        train_memory(policy, training(name, LoopConfig(learning_rate=1e-4), stream=stream), tmp_path / name)
    first, second, _, without_gate = (data.source for data in seen)
    assert not {first.rollout(number).task for number in range(6)} & {
        second.rollout(number).task for number in range(6)
    }
    shares = [data.config.negative_share for data in (first, second, without_gate)]
    assert shares == [0.0, 0.5, 0.0], "only a gate has a use for what misleads"
    assert first.told is not None
    assert second.told is None
    assert [data.config for data in seen] == [stream, replace(stream, course=())] * 2


def shown(batch):
    """All pictures of a batch's items."""
    parts = (part for item in batch.items for turn in item.prompt for part in turn.parts)
    return [part for part in parts if isinstance(part, Screenshot)]


def test_a_value_is_seen_where_it_stands(world):
    num_seen = 0
    for number in range(60):
        site_id = f"m-{number}"
        kind = next(kind for kind in KINDS[world.site(site_id).family] if kind in COMPARISONS)
        task = make_task(world, site_id, kind, "memory", number)
        view = value_view(world, task)
        if view is None:
            continue
        num_seen += 1
        assert facts_seen(world, view)[FACT_NAMES[task.fact].lower()] == task.task.answer.split(", ")[0]
    assert num_seen > 30


def test_drills_ask_for_what_was_told_or_seen_and_come_besides(world, policy, bank):
    data = source(world, policy, bank)
    drills = [Drills(num_numbers=num, num_ways=num) for num in (0, 48, 48)]
    configs = [StreamConfig(num_episodes=1, drills=own, num_batches=9) for own in drills]
    plain, drilled, again = (LabStream(data, config) for config in configs)
    assert plain.digest != drilled.digest
    [one, batch] = [stream.batch(3) for stream in (plain, drilled)]
    assert batch.decisions[: len(one.decisions)] == one.decisions
    assert batch.items[: len(one.items)] == one.items
    numbers = batch.decisions[len(one.decisions) : -48]
    assert 48 < len(numbers) < 96, "those asked for as the agent is are also asked about the chunk"
    assert again.batch(3).decisions == batch.decisions
    assert drilled.batch(4).decisions[-48:] != batch.decisions[-48:]
    kinds = set()
    for drill in numbers:
        items = [batch.items[use.item] for use in drill.uses]
        parts = [part for item in items for turn in item.prompt for part in turn.parts]
        told, pictures = " ".join(part for part in parts if isinstance(part, str)), set(parts) & set(shown(batch))
        asked = [part for turn in drill.prompt for part in turn.parts]
        words = " ".join(part for part in asked if isinstance(part, str))
        is_agents = any(isinstance(part, Screenshot) for part in asked)
        first, second, name = parse_action(drill.reply).arguments.answer.rsplit(", ", 2)
        assert (first in told) != bool(pictures)
        assert first not in words
        assert is_agents or second in told + words
        assert name in words
        assert all(item.role == "working" for item in items)
        kinds.add((len(items) if len(pictures) < 2 else "history", min(len(pictures), 2), second in told, is_agents))
    told_kinds = {(1, 0, True, False), (2, 0, True, False), (1, 0, False, False)}
    assert kinds == told_kinds | {(1, 1, False, False), ("history", 2, False, False), ("history", 2, False, True)}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"num_numbers": -1}, "num_numbers is -1"),
        ({"num_ways": -1}, "num_ways is -1"),
        ({"how": ()}, "how is ()"),
        ({"how": ("heard",)}, "choose one of"),
        ({"raw_share": 1.1}, "raw_share is 1.1"),
    ],
)
def test_drills_that_cannot_be_are_refused(wrong, told):
    with pytest.raises(ConfigError, match=re.escape(told)):
        Drills(**wrong)


def test_a_course_comes_first_and_then_what_comes_without_it(world, policy, bank):
    data = source(world, policy, bank)
    words = Drills(num_numbers=4, num_ways=3, how=("the first",), raw_share=0.0)
    views = Drills(num_numbers=2, num_ways=1, how=("seen",), raw_share=1.0)
    course = (Phase(num_batches=2, drills=words), Phase(num_batches=1, drills=views))
    plain = StreamConfig(num_episodes=2, drills=Drills(num_ways=2), num_batches=9)
    whole = LabStream(data, replace(plain, course=course))
    assert whole.digest != LabStream(data, plain).digest
    for number in (0, 1):
        batch = whole.batch(number)
        drilled = {use.item for drill in batch.decisions[-7:] for use in drill.uses}
        assert not shown(TrainingBatch(items=tuple(batch.items[item] for item in drilled)))
        assert len(whole.episodes(number)) == 1
    assert batch.decisions != whole.batch(0).decisions
    batch = whole.batch(2)
    assert len(batch.decisions) > 3
    assert all(shown(TrainingBatch(items=(item,))) for item in batch.items if item.role == "episodic")
    for number in (3, 4):
        assert whole.batch(number).decisions == LabStream(data, plain).batch(number).decisions
    with pytest.raises(ConfigError, match="3 episodes each does not fit a stream of 2"):
        replace(plain, course=(Phase(num_batches=1, drills=words, num_episodes=3),))


def test_the_shipped_course_goes_from_words_to_views():
    hows = [set(phase.drills.how) for phase in COURSE]
    assert hows[0] == set(IN_WORDS)
    assert "as it is" not in set.union(*hows)
    shares = [phase.drills.raw_share for phase in COURSE]
    assert shares == sorted(shares)


def test_a_chunk_of_history_shows_the_value_that_is_asked_for(world, policy, bank):
    data, num = source(world, policy, bank), 0
    for number in range(20):
        site_id = f"m-{number}"
        kind = next(kind for kind in KINDS[world.site(site_id).family] if kind in COMPARISONS)
        task = make_task(world, site_id, kind, "memory", number)
        values = task.task.answer.split(", ")[:2]
        drill = from_history(data, task, is_whole=False)
        if drill is None:
            continue
        num += 1
        [item] = drill.items
        views = [
            data._views[part.digest] for turn in item.prompt for part in turn.parts if isinstance(part, Screenshot)
        ]
        assert 1 <= len(views) <= CHUNK_EVENTS
        assert any(facts_seen(world, view).get(FACT_NAMES[task.fact].lower()) == values[0] for view in views)
        whole = from_history(data, task, is_whole=True)
        as_agent, again = whole.decisions
        assert [use.item for use in as_agent.uses] == list(range(len(whole.items)))
        assert again.prompt == drill.decisions[0].prompt
        assert [whole.items[use.item] for use in again.uses] == [item]
    assert num > 5


def test_drills_about_ways_show_or_tell_what_the_decision_goes_by(world, policy, bank):
    data = source(world, policy, bank)
    batch = way_drills(data, 0, 3, 24)
    assert batch == way_drills(source(world, policy, bank), 0, 3, 24)
    assert batch != way_drills(data, 0, 4, 24)
    assert len(batch.decisions) == 24
    kinds = set()
    for drill in batch.decisions:
        [use] = drill.uses
        item = batch.items[use.item]
        assert item.role == "episodic"
        parts = [part for turn in item.prompt for part in turn.parts]
        is_told = isinstance(parts[0], str) and parts[0].startswith("Notes on ")
        [view] = [part for turn in drill.prompt for part in turn.parts if isinstance(part, Screenshot)]
        site_id = Address.parse(data._views[view.digest].path).site_id
        if is_told:
            assert f"Notes on {world.site(site_id).name}:" in parts[0]
            assert parse_action(drill.reply).arguments.description in parts[0]
        else:
            views = [data._views[part.digest] for part in parts if isinstance(part, Screenshot)]
            assert {Address.parse(one.path).site_id for one in views} == {site_id}
        kinds.add(is_told)
    assert kinds == {True, False}


def test_too_few_ways_to_drill_are_told(world, policy, bank, monkeypatch):
    monkeypatch.setattr("focusmem.lab.memory.drills._MOST_DRAWN", 1)
    with pytest.raises(ConfigError, match="show too few ways to drill"):
        way_drills(source(world, policy, bank), 0, 0, 24)
