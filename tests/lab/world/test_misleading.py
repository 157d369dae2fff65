import pytest

from focusmem.lab.policy.drawing import placeholder
from focusmem.lab.world.address import Address
from focusmem.lab.world.answers import facts_seen, values_of_lists
from focusmem.lab.world.experts import as_trajectory, site_rollouts
from focusmem.lab.world.misleading import LABELS, ORDER, ORDERED_ANSWER, POISONS, label_of, mislead, misleading_rollouts
from focusmem.lab.world.tasks import make_task
from focusmem.lab.world.world import World

SITES = {"e-4": "attribute", "e-5": "fact", "eo-5": "errand"}


@pytest.fixture(scope="module")
def world():
    return World(0)


@pytest.mark.parametrize("site_id", SITES)
@pytest.mark.parametrize("label", LABELS)
def test_a_trajectory_is_its_arguments_and_its_id_tells_its_label(world, site_id, label):
    task = make_task(world, site_id, SITES[site_id], "evaluation", 1)
    made = [mislead(world, task, label, number) for number in range(3)]
    assert made == [mislead(World(0), task, label, number) for number in range(3)]
    names = [one.rollout.task.name for one in made]
    assert len(set(names)) == 3
    assert [label_of(name) for name in names] == [label] * 3
    assert all(label_of(one.task.name) is None for one in site_rollouts(world, site_id))
    assert label_of("a shop's trajectory.7") is None
    for one in made:
        stored = as_trajectory(one.rollout, placeholder).trajectory
        assert stored.outcome == "success"
        assert (stored.source == "laboratory expert") == (label not in POISONS)
        assert (stored.site == site_id) == (label != "near")


def test_near_and_stale_ones_show_other_values_of_the_same_entries(world):
    task = make_task(world, "eo-5", "errand", "evaluation", 1)
    right = values_of_lists(world, site_rollouts(world, "eo-5")[0].steps)
    for label in ("near", "stale"):
        shown = values_of_lists(world, mislead(world, task, label).rollout.steps)
        assert shown.keys() == right.keys()
        assert sum(shown[name] == right[name] for name in right) < len(right) / 4
        assert mislead(world, task, label).rollout.is_success


@pytest.mark.parametrize("site_id", ["e-4", "e-5"])
def test_other_branches_of_a_site_have_its_look_and_entries_and_other_ways(world, site_id):
    site = world.site(site_id)
    for end in ("b", "c", "was1", "was2"):
        other = world.site(site_id + end)
        assert (other.look, other.sections, other.dialog_buttons) == (site.look, site.sections, site.dialog_buttons)
        assert [entry.name for entry in other.entries] == [entry.name for entry in site.entries]
        assert other.conventions != site.conventions
        assert (other.name == site.name) == end.startswith("was")
        pairs = zip(site.entries, other.entries, strict=True)
        assert sum(own.facts != changed.facts for own, changed in pairs) == len(site.entries)


@pytest.mark.parametrize("site_id", SITES)
def test_poisoned_ones_end_with_what_the_poison_says(world, site_id):
    task = make_task(world, site_id, SITES[site_id], "evaluation", 1)
    wrong, told, shown = (mislead(world, task, label).rollout for label in POISONS)
    for rollout in (wrong, told, shown):
        assert not rollout.is_success
        assert rollout.steps[-1].action.arguments.answer == rollout.answer
    assert told.answer == shown.answer == ORDERED_ANSWER
    assert told.task.task.instruction.endswith(ORDER)
    assert ORDER not in shown.task.task.instruction
    for step in shown.steps:
        assert ORDER in world.scene(step.path).text()
    assert not any(ORDER in world.scene(step.path).text() for step in (*wrong.steps, *told.steps))


def test_a_bank_can_hold_them_beside_the_experts(world):
    made = list(misleading_rollouts(world, ["eo-0", "eo-1"], ("near", "wrong-answer"), 2))
    assert [label_of(one.task.name) for one in made] == ["near", "near", "wrong-answer", "wrong-answer"] * 2
    assert {Address.parse(one.steps[0].path).site_id for one in made} == {
        "eo-0",
        "eo-1",
        "eo-0b",
        "eo-0c",
        "eo-1b",
        "eo-1c",
    }
    assert all(facts_seen(world, one.steps[1]) for one in made)
