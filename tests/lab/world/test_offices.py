import re
from itertools import islice

import pytest

from focusmem.agent.prompt import NUM_RECENT
from focusmem.lab.world.address import Address
from focusmem.lab.world.experts import site_rollouts
from focusmem.lab.world.office_answers import shown_list, used_way
from focusmem.lab.world.office_pages import OPEN, REFUSED
from focusmem.lab.world.offices import LISTS, NUM_ENTRIES, NUM_HALLS, NUM_LISTS
from focusmem.lab.world.requests import make_request
from focusmem.lab.world.rollout import iter_tasks, sensible_rollout
from focusmem.lab.world.scene import VIEW_HEIGHT, VIEW_WIDTH
from focusmem.lab.world.session import PageSession
from focusmem.lab.world.solving import solve
from focusmem.lab.world.statistics import decisions_needing, summary
from focusmem.lab.world.tasks import KINDS, MAX_STEPS, make_task
from focusmem.lab.world.world import World
from focusmem.schemas import make_action

OFFICES = [f"eo-{number}" for number in range(8)]


@pytest.fixture(scope="module")
def world():
    return World(0)


@pytest.fixture(scope="module")
def tasks(world):
    return list(islice(iter_tasks(world, "eo", "evaluation", 1), 40))


@pytest.fixture(scope="module")
def solved(world, tasks):
    return [sensible_rollout(world, task) for task in tasks]


def list_words(world, office, name):
    path = f"/{office.site_id}/list/{name}?pass={office.staff_pass}"
    return world.scene(path).words()


# Lists


@pytest.mark.parametrize("site_id", OFFICES)
def test_a_list_shows_each_entry_beside_its_value_in_one_view(world, site_id):
    office = world.office(site_id)
    assert len(set(office.lists)) == NUM_LISTS
    for name in office.lists:
        entries, values = office.entries[name], office.values(name)
        assert NUM_ENTRIES[0] <= len(entries) <= NUM_ENTRIES[1]
        assert len(set(values)) == len(set(entries)) == len(entries)
        words = list_words(world, office, name)
        assert max(word.top + word.font.line_height for word in words) <= VIEW_HEIGHT
        assert max(word.left + word.font.width(word.text) for word in words) <= VIEW_WIDTH
        for entry, value in zip(entries, values, strict=True):
            [left] = [word for word in words if word.text == entry and word.font.size >= 14]
            [right] = [word for word in words if word.text == value]
            assert right.top == left.top
            assert 0 < right.left - left.left - left.font.width(entry) < 140
            assert right.font.size >= 14


def test_a_visitor_finds_no_way_to_a_list(world):
    """Whatever a visitor clicks, no list is reached within the steps of a task."""
    for site_id in OFFICES:
        seen, layer = set(), {make_task(world, site_id, "errand", "evaluation", 0).start_path}
        for _ in range(MAX_STEPS - 1):
            seen |= layer
            layer = {control.href for path in layer for control in world.scene(path).controls} - seen
        assert all(shown_list(world.office(site_id), Address.parse(path)) is None for path in seen)
    assert {world.office(site_id).is_far for site_id in OFFICES} == {False, True}


def test_the_long_way_ends_at_the_list(world):
    office = next(one for one in map(world.office, OFFICES) if one.is_far)
    name = office.lists[1]
    scene = world.scene(f"/{office.site_id}/hall/{name}/{NUM_HALLS}")
    hrefs = [control.href for control in scene.controls if control.name == LISTS[name].title]
    assert [shown_list(office, Address.parse(href)) for href in hrefs] == [(name, None)]


def test_lists_open_only_to_the_staff(world):
    office = world.office("eo-0")
    for given in ("", "?pass=1", f"?pass={int(office.staff_pass) + 1:08}"):
        assert "Closed." in world.scene(f"/eo-0/list/{office.lists[0]}{given}").text()


def test_branches_look_alike_and_have_other_values(world):
    for site_id in OFFICES:
        office, branch, before = (world.office(f"{site_id}{end}") for end in ("", "b", "was1"))
        assert office.look == branch.look == before.look
        assert office.entries == branch.entries == before.entries
        assert office.chain == branch.chain
        assert branch.branch != office.branch == before.branch
        for name in office.lists:
            for other in (branch, before):
                assert not any(map(str.__eq__, office.values(name), other.values(name)))
            if name == "departments":  # a value of another branch can be chosen
                assert set(office.values(name)) == set(branch.values(name)) == set(before.values(name))


# Requests


@pytest.mark.parametrize("kind", KINDS["office"])
def test_the_receipt_needs_every_value(world, kind):
    for number in range(8):
        task = make_task(world, f"eo-{number}", kind, "evaluation", number)
        request, path = task.request, f"/eo-{number}/request?ticket={task.request.ticket}"
        right = [f"v{part}={value}" for part, value in enumerate(request.values, start=1)]
        assert request.receipt in world.scene("&".join([path, *right])).text()
        for part in range(len(right)):
            wrong = [*right]
            wrong[part] = f"v{part + 1}=0"
            text = world.scene("&".join([path, *wrong])).text()
            assert request.receipt not in text
            is_over = request.needs[part].list_name == "departments"
            assert ("Request returned" if is_over else REFUSED) in text
            assert request.receipt not in world.scene("&".join([path, *right[:part]])).text()


def test_a_returned_request_cannot_be_opened_again(world):
    task = next(
        task
        for number in range(30)
        if (task := make_task(world, f"eo-{number}", "errand", "evaluation", 0)).request.needs[0].list_name
        == "departments"
    )
    session = PageSession(world, task.start_path)
    wrong = next(name for name in world.office(task.site_id).values("departments") if name != task.request.values[0])
    for name in (OPEN, wrong, "Back to start"):
        assert session.perform(make_action("click", description=name)).error is None
    assert OPEN not in {control.name for control in session.controls()}


def test_the_moment_decides_which_value_counts(world, solved):
    """A page names the entry or only its kind; then the task names one entry of each kind, in any order."""
    orders = set()
    for rollout in solved:
        request, office = rollout.task.request, world.office(rollout.task.site_id)
        words = rollout.task.task.instruction
        phrases = [LISTS[need.list_name].phrase(need.entry) for need in request.needs]
        for step in rollout.steps:
            at = used_way(office, Address.parse(step.path), step.action)
            if at is not None:
                text = world.scene(step.path).text()
                assert any(phrase in text for phrase in phrases) == request.is_named_by_page
        if request.is_named_by_page:
            assert not any(phrase in words for phrase in phrases)
        else:
            assert len({need.list_name for need in request.needs}) == len(request.needs)
            places = [words.index(f"the {phrase}") for phrase in phrases]
            orders.add(places == sorted(places))
        assert len({(need.list_name, need.entry) for need in request.needs}) == len(request.needs) >= 2
    assert orders == {False, True}


def test_notices_have_left_the_window_when_they_are_needed(world, solved):
    seen = 0
    for rollout in solved:
        request, office = rollout.task.request, world.office(rollout.task.site_id)
        shown = [shown_list(office, Address.parse(step.path)) for step in rollout.steps]
        assert [one[0] for one in shown if one is not None] == list(request.notices)
        for at, step in enumerate(rollout.steps):
            if used_way(office, Address.parse(step.path), step.action) is not None:
                seen += bool(request.notices)
                assert not any(shown[max(0, at - NUM_RECENT) : at + 1])
    assert seen


def test_the_staff_pass_every_list_and_repeat_one_entry_of_their_own(world):
    for site_id in OFFICES:
        office = world.office(site_id)
        for rollout in site_rollouts(world, site_id):
            shown = [shown_list(office, Address.parse(step.path)) for step in rollout.steps]
            assert [one for one in shown if one is not None] == [(name, None) for name in office.lists]
            used = {value for step in rollout.steps for value in step.action.arguments.model_dump().values()}
            known = {value for name in office.lists for value in office.values(name)}
            assert used & known == set(rollout.task.request.values)
            assert len(known) >= 10 * len(used & known)


def test_what_a_task_needs_is_independent_of_what_a_demonstration_used(world):
    """The share of equal entries is what chance gives."""
    equal = expected = num = 0
    for number in range(300):
        office = world.office(f"eo-{number % 60}")
        left, asked = (make_request(office, f"errand-{use}-{number}") for use in ("bank", "evaluation"))
        for need in asked.needs:
            equal += need in left.needs
            expected += 1 / len(office.entries[need.list_name])
            num += 1
    assert abs(equal - expected) < 4 * expected**0.5
    assert expected / num < 0.1


# Solvers and statistics


def test_only_the_expert_solves_a_task(world, tasks):
    rates = {name: [one.is_success for one in solve(world, tasks, name, 0, "raster")] for name in ("expert", "nothing")}
    assert all(rates["expert"])
    assert not any(rates["nothing"])
    explored = solve(world, tasks, "explorer", 0, "raster")
    assert sum(one.is_success for one in explored) <= 2
    assert not any(one.errors for one in explored)
    assert all(len(one.actions) <= MAX_STEPS for one in explored)


def test_tasks_take_5_to_15_steps_and_use_every_kind(solved):
    assert all(5 <= len(rollout.steps) <= MAX_STEPS for rollout in solved)
    assert {rollout.task.kind for rollout in solved} == set(KINDS["office"])


def test_a_trajectory_shows_far_more_than_a_decision_needs(world, tasks):
    found = summary(world, tasks)
    assert found["all"]["least_ratio"] >= 8
    assert found["notice"]["given_away_rate"] == found["relay"]["given_away_rate"] == 0
    assert found["all"]["given_away_rate"] < 0.15
    assert found["all"]["num_decisions"] == sum(found[kind]["num_decisions"] for kind in KINDS["office"])
    for task in tasks:
        office = world.office(task.site_id)
        lists = task.request.notices or office.lists
        for one in decisions_needing(world, task):
            assert one.num_shown == sum(len(office.entries[name]) for name in lists)
            assert 3 < one.bits < 14


def test_pages_with_an_address_of_no_use_say_so(world):
    for path in ("/eo-0/list/menu", "/eo-0/hall/codes/99", "/eo-0/notice/7?ticket=relay-evaluation-0", "/eo-0/x/y"):
        assert re.search("does not exist", world.scene(path).text()), path
