import re
from dataclasses import replace

import pytest

from focusmem.errors import ConfigError
from focusmem.lab.memory.decisions import LabDecisions, LabDecisionsConfig, SiteFirst
from focusmem.lab.memory.drills import Drills
from focusmem.lab.memory.entry_drills import EntryDrills
from focusmem.lab.memory.split_bank import SplitBank
from focusmem.lab.memory.stream import ENTRY_COURSE, LabStream, Phase, StreamConfig, useful_ways
from focusmem.lab.memory.training import train_memory
from focusmem.lab.world.misleading import label_of
from focusmem.lab.world.office_answers import NOTICE
from focusmem.model.checkpoint import Checkpoint
from focusmem.recipes.lab_training import lab_entries, recipe
from focusmem.schemas import Screenshot, parse_action

HOWS = ("told", "seen", "in a chunk", "in a trajectory", "as it is")
NUM_SITES = 12


@pytest.fixture(scope="module")
def bank(world):
    return SplitBank(world, "mo", num_sites=NUM_SITES)


def source(world, policy, bank, **changes) -> LabDecisions:
    values = {"split": "mo", "num_trajectories": 400, "num_sites": NUM_SITES, "negative_share": 0.0} | changes
    return LabDecisions(world, policy.chat, bank, SiteFirst(bank), LabDecisionsConfig(**values))


def words_of(prompt) -> str:
    return "".join(part for turn in prompt for part in turn.parts if isinstance(part, str))


def pictures_of(prompt) -> list[Screenshot]:
    return [part for turn in prompt for part in turn.parts if isinstance(part, Screenshot)]


def values_shown(data, item) -> set[str]:
    """Everything that the item's words and views say."""
    views = [data._views[shot.digest] for shot in pictures_of(item.prompt)]
    drawn = {word.text for view in views for word in data.world.scene(view.path).words()}
    return (
        drawn | set(re.split(r"[;. ]+", words_of(item.prompt))) | set(re.findall(r"\d\d\.\d\d", words_of(item.prompt)))
    )


@pytest.mark.parametrize("how", HOWS)
def test_every_value_asked_for_is_shown_by_the_item(world, policy, bank, how):
    data = source(world, policy, bank)
    drills = EntryDrills(num=6, how=(how,), sizes=(2, 6))
    batch = drills.batch(data, 0, 1)
    assert len(batch.decisions) >= 12
    for decision in batch.decisions:
        items = [batch.items[use.item] for use in decision.uses]
        value = next(value for value in parse_action(decision.reply).arguments.model_dump().values() if value)
        assert any(value in values_shown(data, item) for item in items)
        is_short = "Task: give the" in words_of(decision.prompt)
        assert is_short == (how != "as it is")
        assert bool(pictures_of(decision.prompt)) == (how == "as it is")
        assert all(bool(pictures_of(item.prompt)) == (how != "told") for item in items)
    assert drills.batch(source(world, policy, bank), 0, 1).decisions == batch.decisions
    assert drills.batch(data, 0, 2).decisions != batch.decisions


def test_decisions_ask_one_item_for_different_entries(world, policy, bank):
    batch = EntryDrills(num=8, num_asked=4, how=("told",), sizes=(12,)).batch(source(world, policy, bank), 0, 0)
    asked = [(decision.uses[0].item, words_of(decision.prompt)) for decision in batch.decisions]
    assert len(set(asked)) == len(asked) == 32
    assert len({item for item, _ in asked}) == 8


def test_few_entries_come_before_many(world, policy, bank):
    data = source(world, policy, bank)
    for size in (1, 3):
        batch = EntryDrills(num=5, num_asked=9, how=("told", "seen"), sizes=(size,)).batch(data, 0, 0)
        assert len(batch.decisions) == 5 * size


def test_the_course_goes_from_words_to_views_to_trajectories():
    hows = [set(phase.drills.entries.how) for phase in ENTRY_COURSE]
    assert hows[0] == hows[1] == {"told"}
    assert "seen" in hows[2]
    assert "in a trajectory" in hows[-1]
    assert max(ENTRY_COURSE[0].drills.entries.sizes) < max(ENTRY_COURSE[1].drills.entries.sizes)
    assert max(ENTRY_COURSE[2].drills.entries.sizes) < max(ENTRY_COURSE[3].drills.entries.sizes)


def test_a_recipe_for_offices_has_the_course_in_both_stages():
    for name in ("action-only", "content", "readout", "full"):
        training = recipe("lab-entries", name)
        assert training.stream.course == training.later_course == ENTRY_COURSE
        assert training.decisions.split == "mo"
        assert training.max_minutes is None
        assert sum(phase.num_batches for phase in ENTRY_COURSE) < training.loop_a.num_steps
    with pytest.raises(ConfigError, match="lab or lab-entries"):
        recipe("web", "full")


def test_decisions_that_need_a_value_come_first(world, policy, bank):
    data = source(world, policy, bank)
    stream = LabStream(data, StreamConfig(num_episodes=2, num_decisions=3, num_batches=9))
    ways = set()
    for episode in range(20):
        useful = useful_ways(data, episode)
        _, chosen = stream._chosen(episode)
        assert sum(bool(useful[at]) for at in chosen) == min(3, sum(map(bool, useful))) >= 2
        ways |= set().union(*useful)
    assert NOTICE in ways
    assert len(ways) > 3


def test_near_misses_mislead_beside_other_sites(world, policy, bank):
    data = source(world, policy, bank, negative_share=1.0, near_share=0.5)
    labels = []
    for number in range(30):
        batch = data.decisions(number, (0,))
        [negative] = [batch.items[use.item] for use in batch.decisions[0].uses if use.is_negative]
        labels.append(label_of(negative.item_id))
    assert 5 < labels.count("near") < 25
    assert set(labels) == {"near", None}


@pytest.mark.slow
def test_a_memory_learns_a_course_of_entries_in_both_stages(policy, world, tmp_path):
    """One step of each phase, of whole episodes and of the gate, at toy size."""
    told, found = (Drills(entries=EntryDrills(num=2, how=(how,))) for how in ("told", "as it is"))
    course = (Phase(num_batches=1, drills=told), Phase(num_batches=1, drills=found))
    base = lab_entries("full")
    quick = {"num_workers": 0, "num_steps": 3}
    training = replace(
        base,
        loop_a=replace(base.loop_a, **quick),
        loop_b=replace(base.loop_b, **quick),
        gate=replace(base.gate, num_workers=0, num_steps=1),
        stream=replace(base.stream, num_episodes=1, num_decisions=2, course=course, drills=found),
        later_course=course,
        decisions=replace(base.decisions, num_sites=4),
        device="cpu",
    )
    memory = train_memory(policy, training, tmp_path)
    notes = Checkpoint.open(memory).notes
    assert "stage B begins with a course of short drills too" in notes["departures"]
