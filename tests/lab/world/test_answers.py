import json
import random
from itertools import islice

import pytest

from factories import FIELDS
from focusmem.lab.world.address import Address
from focusmem.lab.world.answers import QUESTIONS, answer_to, experience, facts_seen, notes, state_of
from focusmem.lab.world.pages import FACT_NAMES
from focusmem.lab.world.rollout import iter_tasks, roll_out
from focusmem.lab.world.scene import VIEW_HEIGHT, Word
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.world import World
from focusmem.schemas import action_to_json


@pytest.fixture(scope="module")
def world():
    return World(0)


@pytest.fixture(scope="module")
def records(world):
    """Whole episodes and pieces of them, by the expert and by the explorer."""
    found = []
    for index, task in enumerate(islice(iter_tasks(world, "e", "evaluation", 3), 60)):
        solvers = Solver.expert(world, task), Solver.explorer(world, task, random.Random(index))
        for solver in solvers:
            rollout = roll_out(world, task, solver)
            start = index % len(rollout.steps)
            found += [(rollout, rollout.steps), (rollout, rollout.steps[start : start + 3])]
    return found


def lines_in_view(world, step):
    """What can be read in the step's view: whole letters, if not always the tails below them."""
    lines = {}
    for item in world.scene(step.path).drawn:
        if isinstance(item, Word) and step.scroll <= item.top <= step.scroll + VIEW_HEIGHT - item.font.baseline:
            lines.setdefault(item.top, []).append(item.text)
    return [" ".join(words) for words in lines.values()]


def visible_facts(world, steps):
    """Facts of entries that stand in view, by the words on the pages alone."""
    labels = {f"{label}:": label.lower() for label in FACT_NAMES.values()}
    found = set()
    for step in steps:
        parts = Address.parse(step.path).parts
        if parts[:1] == ("entry",):
            name = world.scene(step.path).title
            for line in lines_in_view(world, step):
                for label, plain in labels.items():
                    if line.startswith(f"{label} "):
                        found.add(f"{plain} of {name} {line.removeprefix(label).strip()}")
    return found


def answers(world, question, records):
    for rollout, steps in records:
        yield steps, json.loads(answer_to(world, question, rollout, steps))


@pytest.mark.parametrize("question", FIELDS)
def test_answers_hold_exactly_the_papers_fields(world, records, question):
    for _, answer in answers(world, question, records):
        assert list(answer) == FIELDS[question]
        assert all(answer.values()), "nothing is left empty"


def test_every_role_has_its_questions():
    asked = {question for questions in QUESTIONS.values() for question in questions}
    assert asked == {"describe", *FIELDS}


def test_only_facts_in_view_are_told(world, records):
    told = 0
    for steps, answer in answers(world, "working_state", records):
        facts = answer["important_state_facts"]
        if facts != "none":
            assert set(facts.split("; ")) <= visible_facts(world, steps)
            told += 1
    assert told > 40


def test_the_basis_of_a_decision_is_in_its_own_view(world, records):
    for steps, answer in answers(world, "episodic_anchor", records):
        seen = visible_facts(world, steps[-1:])
        name = world.scene(steps[-1].path).title
        facts = facts_seen(world, steps[-1])
        assert {f"{fact} of {name} {value}" for fact, value in facts.items()} <= seen
        basis = "; ".join(f"{fact} {value}" for fact, value in facts.items())
        assert answer["decision_basis"] == (basis or answer["anchor_state"])


def test_the_facts_of_a_section_are_all_told(world, records):
    for _, steps in records:
        for step in steps:
            if Address.parse(step.path).parts[2:3] == ("part",):
                assert len(facts_seen(world, step)) == len(visible_facts(world, [step]))


def test_states_are_borne_out_by_the_page(world, records):
    """Every name, section and query in a state stands on the page it is the state of."""
    known = set("dialog home list of kind menu empty short entry dead end picture sign up page".split())
    known |= set("nothing found for results".split())
    for _, steps in records:
        for step in steps:
            state, scene = state_of(world, step), world.scene(step.path)
            assert state != "unknown page"
            assert set(state.split()) <= known | set(scene.text().split()), step.path


def test_actions_are_those_of_the_record(world, records):
    for question, field in (("episodic_anchor", "anchor_action"), ("working_state", "last_recorded_action")):
        for steps, answer in answers(world, question, records):
            assert answer[field] == json.loads(action_to_json(steps[-1].action))
    for steps, answer in answers(world, "episodic_summary", records):
        assert answer["anchor_decision"] == action_to_json(steps[-1].action)


def test_a_change_begins_and_ends_where_the_steps_do(world, records):
    for steps, answer in answers(world, "working_change", records):
        assert answer["initial_state"] == state_of(world, steps[0])
        assert answer["latest_observed_state"] == state_of(world, steps[-1])
        assert (answer["observed_change"] == "none") == (len({state_of(world, step) for step in steps}) == 1)


def test_a_description_names_the_site_the_facts_and_no_answer_before_it_is_given(world, records):
    for rollout, steps in records:
        text = answer_to(world, "describe", rollout, steps)
        assert text.startswith(f"{world.site(rollout.task.site_id).name}, a")
        assert text.endswith(".")
        has_stopped = steps[-1].action.name == "stop"
        assert (f". answer {rollout.answer}." in text) == has_stopped
        facts = json.loads(answer_to(world, "working_state", rollout, steps))["important_state_facts"]
        assert facts == "none" or facts in text


def ways(site):
    """Everything that may truly be said of the site's conventions, but for where facts are."""
    own = site.conventions
    wanted = {"full": "the full name", "last": "the last word", "first": "the first word"}
    return {
        f"dialog closes with {own.dialog}",
        f"whole entry by {own.edition}",
        f"lists are set in {own.menu}",
        f"picture is under {own.picture}",
        f"search wants {wanted[own.query]}",
    }


def test_experience_is_true(world, records):
    for rollout, steps in records:
        site = world.site(rollout.task.site_id)
        for way in experience(world, steps):
            facts, _, section = way.rpartition(" in ")
            if section in site.sections:
                plain = {FACT_NAMES[fact].lower() for fact in site.facts_in(section)}
                assert set(facts.split(" and ")) <= plain
            else:
                assert way in ways(site)
        assert notes(world, steps).startswith(f"Notes on {site.name}: ")


def test_words_that_find_nothing_do_not_tell_what_search_wants(world, records):
    checked = 0
    for rollout, steps in records:
        typed = [step.action.arguments.text for step in steps if step.action.name == "type"]
        has_found = any(world.site(rollout.task.site_id).found_by(text) for text in typed)
        told = [way for way in experience(world, steps) if way.startswith("search wants")]
        assert len(told) == has_found
        checked += bool(typed) and not has_found
    assert checked > 0
