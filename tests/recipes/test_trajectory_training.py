"""Memory for a real policy, from trajectories on disk: what is learnt from, with what in front, and how it ends."""

from dataclasses import replace

import pytest
import torch

from banks import WordEmbedder, make_many, make_stored
from focusmem import Memory
from focusmem.agent.memory import AgentMemory, Situation
from focusmem.bank import Bank, Query
from focusmem.bank.embedder import Moment
from focusmem.data.decisions import DecisionsConfig, TrajectoryDecisions
from focusmem.data.preparation import OwnData, load_prepared, prepare
from focusmem.errors import ConfigError, StorageError
from focusmem.evidence import Serialiser
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.policy import MemoryPolicy
from focusmem.recipes.trajectory_training import PAPER, OwnTraining, train_on_trajectories
from focusmem.schemas import Task, action_to_json, make_action, save_trajectory
from focusmem.training.config import LoopConfig
from focusmem.training.lessons import Description
from focusmem.training.metrics import read_metrics
from focusmem.training.questions import DESCRIBE, SUBTYPES, TARGETS
from focusmem.training.trajectory_batches import BatchingConfig
from toys import make_config

NUM_BANK = 8
OWN = range(NUM_BANK, NUM_BANK + 6)


def stored(number: int, **changes):
    return make_stored(number, num_steps=9, site=f"site-{number % 3}", **changes)


def write(folder, item):
    save_trajectory(folder / item.trajectory.trajectory_id, item.trajectory, item.screenshots)
    return folder / item.trajectory.trajectory_id


@pytest.fixture(scope="module")
def policy():
    return Backbone.toy(num_layers=2)


@pytest.fixture
def data(tmp_path):
    embedder = WordEmbedder()
    Bank.create(tmp_path / "bank", embedder).add([stored(number) for number in range(NUM_BANK)], embedder)
    folders = [write(tmp_path / "own", stored(number)) for number in OWN]
    return OwnData(trajectories=folders, bank=tmp_path / "bank")


class Interrupted(WordEmbedder):
    """Stops after some queries, as a person would."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.num_asked = most, 0

    def embed_queries(self, moments):
        self.num_asked += 1
        if self.num_asked > self.most:
            raise KeyboardInterrupt
        return super().embed_queries(moments)


def decisions_of(data, prepared, **changes) -> TrajectoryDecisions:
    config = DecisionsConfig(**{"negative_share": 0.0, **changes})
    return TrajectoryDecisions(prepared.found, Bank.open(data.bank).folder, prepared.sites, data.words, config)


def test_what_is_learnt_from_is_told_with_the_reasons_against_the_rest(policy, data, tmp_path):
    broken, other = tmp_path / "own" / "broken", tmp_path / "other"
    broken.mkdir()
    (broken / "trajectory.json").write_text("{")
    failed, short = stored(20, outcome="failure"), make_stored(21, num_steps=3)
    known, judged = stored(22, task_id=stored(2).trajectory.task_id), stored(23)
    twice = write(other, stored(OWN[0]))
    extra = [write(other / "more", item) for item in (failed, short, known, judged)]
    task = Task(
        task_id="judged", instruction=judged.trajectory.instruction, start_url="", site="",
        annotations=judged.trajectory.annotations,
    )  # fmt: skip
    asked = replace(data, trajectories=[*data.trajectories, broken, twice, *extra], evaluation=[task])
    chosen = prepare(policy, WordEmbedder, asked, tmp_path / "prepared", has_lessons=False).chosen
    assert chosen.trajectory_ids == tuple(f"trajectory-{number}" for number in OWN)
    assert chosen.num_left_out == {"not a success": 1, "fewer than 8 steps": 1}
    assert chosen.unusable.keys() == {str(broken), str(twice)}
    assert chosen.removed_by["task"] == ("trajectory-22",)
    assert chosen.removed_by["instance"] == chosen.removed_by["template"] == ("trajectory-23",)
    assert "same task as the bank or an evaluation task 1" in str(chosen)


def test_nothing_to_learn_from_is_an_error_that_tells_why(policy, data, tmp_path):
    with pytest.raises(ConfigError, match="more than 8 steps 6"):
        prepare(policy, WordEmbedder, replace(data, max_steps=8), tmp_path / "prepared")


def test_decisions_have_what_an_agent_would_have_had(policy, data, tmp_path):
    """Prompts, found trajectories and chunks of history are those of `focusmem.Memory`, step by step."""
    prepared = prepare(policy, WordEmbedder, data, tmp_path / "prepared", has_lessons=False)
    remembering = AgentMemory(MemoryPolicy(policy, make_config()).eval(), Serialiser())
    memory = Memory(remembering, bank=Bank.open(data.bank), embedder=WordEmbedder())
    item = stored(OWN[1])
    record = item.trajectory
    task = Task(
        task_id=record.task_id, instruction=record.instruction, start_url="", site=record.site,
        annotations=record.annotations,
    )  # fmt: skip
    [trajectory] = [number for number, one in enumerate(prepared.found) if one.folder == str(data.trajectories[1])]
    source = decisions_of(data, prepared)
    assert source.num_decisions(trajectory) == len(record.steps)
    batch = source.decisions(trajectory, tuple(range(len(record.steps))))
    episode = memory.begin(task)
    for step, learnt in zip(record.steps, batch.decisions, strict=True):
        now = item.screenshots[step.screenshot.sha256]
        prefix = episode.prefix(now)
        assert learnt.prompt == prefix.prompt
        assert learnt.reply == action_to_json(step.action)
        found = [(memory.bank.load(one.trajectory_id), one.score) for one in prefix.items if one.role == "episodic"]
        situation = Situation(record.instruction, episode.steps, episode.screenshots, found)
        offered = remembering.evidence(situation)
        assert [(batch.items[use.item].role, use.rank) for use in learnt.uses] == [
            (one.role, one.rank) for one in offered
        ]
        shown = [remembering._serialised(one, situation) for one in offered]
        assert [batch.items[use.item].prompt for use in learnt.uses] == shown
        episode.observe(now, step.action)


def test_what_went_wrong_is_shown_but_not_taught(policy, data, tmp_path):
    item = stored(30)
    steps = list(item.trajectory.steps)
    steps[2] = steps[2].model_copy(update={"error": "There is no such button."})
    steps[4] = steps[4].model_copy(update={"action": None, "reply": "Hm.", "error": "No action could be read."})
    mixed = replace(item, trajectory=item.trajectory.model_copy(update={"steps": tuple(steps)}))
    asked = replace(data, trajectories=[write(tmp_path / "mixed", mixed)], validation_share=0.0)
    prepared = prepare(policy, WordEmbedder, asked, tmp_path / "prepared", has_lessons=False)
    assert [one.step for one in prepared.found[0].decisions] == [0, 1, 3, 5, 6, 7, 8]
    after = decisions_of(asked, prepared).decisions(0, (3,)).decisions[0]
    text = " ".join(part for turn in after.prompt for part in turn.parts if isinstance(part, str))
    assert "There is no such button." in text
    assert "No action could be read." in text


def test_what_is_found_is_kept_and_searched_for_once(policy, data, tmp_path):
    first = Interrupted(2)
    with pytest.raises(KeyboardInterrupt):
        prepare(policy, lambda: first, data, tmp_path / "prepared", has_lessons=False)
    with pytest.raises(StorageError, match="not prepared, or not to the end"):
        load_prepared(policy, data, tmp_path / "prepared")
    second = Interrupted(99)
    prepared = prepare(policy, lambda: second, data, tmp_path / "prepared", has_lessons=False)
    assert second.num_asked == len(OWN) - 2
    bank, embedder = Bank.open(data.bank), WordEmbedder()
    for one in (*prepared.found, *prepared.validation):
        number = int(one.folder.rsplit("-", 1)[1])
        record = stored(number).trajectory
        wanted = bank.search(embedder.embed_queries([Moment(instruction=record.instruction)])[0], Query.of(record)).hits
        for decision in one.decisions:
            assert decision.hits == tuple((hit.trajectory_id, hit.score) for hit in wanted)

    def refused():
        raise AssertionError("the embedder is not needed any more")

    again = prepare(policy, refused, data, tmp_path / "prepared", has_lessons=False)
    assert again.found == prepared.found
    with pytest.raises(ConfigError, match="prepared for another policy, bank or data"):
        prepare(policy, refused, replace(data, min_steps=2), tmp_path / "prepared", has_lessons=False)
    bank.add(make_many(1, start=40), embedder)
    with pytest.raises(ConfigError, match="prepared for another policy, bank or data"):
        load_prepared(policy, data, tmp_path / "prepared")


def test_what_misleads_is_of_another_site_and_takes_the_last_place(policy, data, tmp_path):
    prepared = prepare(policy, WordEmbedder, data, tmp_path / "prepared", has_lessons=False)
    plain, misled = (decisions_of(data, prepared, negative_share=share) for share in (0.0, 1.0))
    for trajectory, own in enumerate(prepared.found):
        numbers = tuple(range(plain.num_decisions(trajectory)))
        before, after = (source.decisions(trajectory, numbers) for source in (plain, misled))
        for learnt, other in zip(before.decisions, after.decisions, strict=True):
            [wrong] = [use for use in other.uses if use.is_negative]
            name = after.items[wrong.item].item_id
            assert prepared.sites[name] != own.site
            assert len(other.uses) == len(learnt.uses)
            assert wrong.rank == 2
            kept = [after.items[use.item].item_id for use in other.uses if not use.is_negative]
            assert kept == [
                before.items[use.item].item_id for use in learnt.uses if before.items[use.item].item_id in kept
            ]
    half = decisions_of(data, prepared, negative_share=0.5)
    flags = [
        any(use.is_negative for use in one.uses)
        for trajectory in range(half.num_trajectories)
        for one in half.decisions(trajectory, tuple(range(half.num_decisions(trajectory)))).decisions
    ]
    assert 0.2 < sum(flags) / len(flags) < 0.8


def teach(policy, data, prepared):
    """Lessons by hand: a toy's own answers are no JSON."""
    store, source = prepared.lessons(policy, data.words), decisions_of(data, prepared)
    hidden_MD = torch.randn(3, policy.width, generator=torch.Generator().manual_seed(0))
    for trajectory in range(source.num_trajectories):
        for item in source.to_teach(trajectory).items:
            described = Description(store.questions.ask(DESCRIBE), "abc", (97, 98, 99), hidden_MD)
            targets = {name: good_answer(name) for name in SUBTYPES[item.role]}
            store.write(item.digest, described, targets=targets, discarded={})


def good_answer(subtype: str) -> str:
    action = action_to_json(make_action("wait"))
    fields = {
        name: '"x"' if field.annotation is str else action for name, field in TARGETS[subtype].model_fields.items()
    }
    return "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"


def test_both_stages_and_the_threshold_leave_a_memory_that_acts(policy, data, tmp_path):
    asked = replace(data, validation_share=0.4)
    prepared = prepare(policy, WordEmbedder, asked, tmp_path / "prepared", has_lessons=False)
    assert prepared.found
    assert prepared.validation
    assert {one.folder for one in prepared.found}.isdisjoint(one.folder for one in prepared.validation)
    teach(policy, asked, prepared)
    loop = LoopConfig(learning_rate=1e-3, num_steps=2, log_every_steps=1)
    training = OwnTraining(
        memory=make_config(),
        batching=BatchingConfig(num_decisions=4, max_per_trajectory=2),
        stage_a=loop,
        stage_b=loop,
    )
    memory = train_on_trajectories(policy, "full", asked, prepared, tmp_path / "run", training)
    losses = [read_metrics(tmp_path / "run" / stage / "metrics.jsonl")[0]["loss"] for stage in ("stage-a", "stage-b")]
    assert losses[0].keys() == {"action", "semantic", "functional", "total"}
    assert "action" in losses[1]
    card = Checkpoint.open(memory)
    assert card.notes["variant"] == "full"
    assert card.notes["threshold"]["num_decisions"] > 0
    assert card.config.gate.threshold == card.notes["threshold"]["threshold"]
    files = {path.name: path.read_bytes() for path in memory.iterdir()}
    assert train_on_trajectories(policy, "full", asked, prepared, tmp_path / "run", training) == memory
    assert {path.name: path.read_bytes() for path in memory.iterdir()} == files, "nothing is done twice"

    acting = Memory.load(policy, memory, bank=asked.bank, embedder=WordEmbedder())
    item = stored(31)
    prefix = acting.begin(item.trajectory.instruction).prefix(next(iter(item.screenshots.values())))
    assert len(prefix.items) == 3
    assert all(one.trust is not None for one in prefix.items)


def test_the_same_seed_trains_the_same_memory(policy, data, tmp_path):
    prepared = prepare(policy, WordEmbedder, data, tmp_path / "prepared", has_lessons=False)
    quick = OwnTraining(memory=make_config(), batching=BatchingConfig(num_decisions=4, max_per_trajectory=2))
    shas = []
    for run, seed in (("a", 0), ("b", 0), ("c", 1)):
        training = replace(quick, stage_a=LoopConfig(learning_rate=1e-3, num_steps=1, seed=seed))
        torch.manual_seed(len(shas))
        memory = train_on_trajectories(policy, "action-only", data, prepared, tmp_path / run, training)
        shas.append(Checkpoint.open(memory).weights_sha256)
    assert shas[0] == shas[1]
    assert shas[0] != shas[2]


def test_variants_have_the_papers_values():
    full, actions = PAPER["full"], PAPER["action-only"]
    assert (full.stage_a.content_weight, full.stage_a.semantic_weight, full.stage_a.functional_weight) == (
        0.25,
        0.5,
        0.5,
    )
    assert full.stage_b.gate_weight == 0.05
    assert actions.stage_a.content_weight == 0
    assert actions.stage_b is PAPER["content"].stage_b is None
    assert not PAPER["readout"].stage_b.is_gated
    own = OwnTraining()
    assert (own.stage_a.learning_rate, own.stage_b.learning_rate) == (1e-5, 5e-6)
    assert (own.stage_a.warmup_share, own.stage_a.max_gradient_norm, own.batching.num_decisions) == (0.1, 1.0, 32)
    memory = full.memory
    assert (memory.lora.rank, memory.lora.alpha, memory.lora.dropout) == (64, 16, 0.05)
    assert (memory.compressor.num_tokens, memory.compressor.num_refinements, memory.gate.threshold) == (8, 8, 0.3)
