import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from factories import make_trajectory
from focusmem.bank.leakage import LEAKAGE_KEYS, KeyColumns, LeakageGuard, Query, Removal, allowed
from focusmem.schemas import Annotations, Task

FAST = settings(max_examples=60)


def trajectory(number=0, **changes):
    return make_trajectory(1, number)[0].model_copy(update=changes)


def task(number=0, **changes):
    values = {
        "task_id": f"task-{number}",
        "instruction": f"A wording of its own, kind {chr(97 + number)}",
        "start_url": "",
        "site": "",
    }
    return Task(**(values | changes))


def removed_by(candidate, other, guard=None) -> set[str]:
    """The keys by which one is removed when the other is asked about; both uses of the guard must agree."""
    guard = guard or LeakageGuard()
    removal = guard.screen([candidate], [other]).removed
    at_retrieval = KeyColumns.of([guard.keys(Query.of(candidate))]).matches(guard.keys(Query.of(other)))
    found = {key for key in LEAKAGE_KEYS if removal.num_by_key[key]}
    assert found == {key for key in LEAKAGE_KEYS if at_retrieval[key].any()}
    return found


def test_task_identifiers_must_be_equal():
    assert removed_by(task(1), trajectory(task_id="task-1")) == {"task"}
    for near in ("task-11", "task", "Task-1", "task-1.0"):
        assert removed_by(task(1), trajectory(task_id=near)) == set()


def test_instances_must_be_equal_words():
    def about(instance, number):
        return task(number, annotations=Annotations(instance=instance))

    assert removed_by(about("Blue Mug", 1), about("blue  mug!", 2)) == {"instance"}
    for near in ("blue mug large", "mug", "bluemug two", "", "  "):
        assert removed_by(about("Blue Mug", 1), about(near, 2)) == set(), "one inside another is another"
    assert removed_by(about("", 1), about("", 2)) == set(), "an empty instance is none"


def test_templates_are_made_from_instructions():
    one = task(1, instruction="How much is the Zebra Lamp at $5?")
    assert removed_by(one, task(2, instruction="how much is the Quiet Mug at $7")) == {"template"}
    assert removed_by(one, task(2, instruction="How much was the Quiet Mug at $7?")) == set()


def test_an_annotated_template_is_used():
    def with_template(number, instruction, template):
        return task(number, instruction=instruction, annotations=Annotations(template=template))

    asked = "How much is the lamp?"
    one = with_template(1, asked, "price: How much is the {entry}?")
    assert removed_by(one, with_template(2, "What for the mug?", "Price: how much is the {{thing}}")) == {"template"}
    assert removed_by(one, with_template(2, asked, "cost: How much is the {entry}?")) == set(), "annotations decide"
    assert removed_by(one, task(2, instruction=asked)) == {"template"}, "without both annotations, wordings do"
    assert removed_by(task(2, instruction=asked), one) == {"template"}
    assert removed_by(one, task(2, instruction="Buy the lamp.")) == set()


def test_a_catalogue_widens_the_template():
    one, other = (task(n, instruction=f"how much is the {what}?") for n, what in ((1, "blue mug"), (2, "red lamp")))
    assert removed_by(one, other) == set()
    guard = LeakageGuard(["Blue mug", "Red lamp"])
    assert removed_by(one, other, guard) == {"template"}
    assert guard.version != LeakageGuard().version == LeakageGuard([]).version


def test_what_is_not_known_removes_nothing():
    guard = LeakageGuard()
    columns = KeyColumns.of([guard.keys(Query.of(trajectory(number))) for number in range(3)])
    assert not any(flags.any() for flags in columns.matches(guard.keys(Query())).values())


def test_the_report_says_who_was_removed_by_which_key():
    guard = LeakageGuard()
    candidates = [
        trajectory(0, task_id="eval-1"),
        trajectory(1, instruction="Where is the Eiffel Tower?"),
        trajectory(2, task_id="eval-1", instruction="Where is the Colosseum?"),
        trajectory(3, instruction="Count the towers."),
    ]
    screened = guard.screen(candidates, [task(task_id="eval-1", instruction="Where is the Louvre?")])
    assert [one.trajectory_id for one in screened.kept] == ["trajectory-3"]
    removal = screened.removed
    assert (removal.num_candidates, removal.num_removed) == (4, 3)
    assert removal.num_by_key == {"task": 2, "instance": 0, "template": 2}
    assert removal.ids("task") == ("trajectory-0", "trajectory-2")
    assert removal.ids("template") == ("trajectory-1", "trajectory-2")
    assert str(removal) == "3 of 4 removed (by task 2, template 2)"


def test_nothing_against_nothing():
    guard = LeakageGuard()
    assert guard.screen([], [task(1)]).kept == ()
    assert len(guard.screen([task(1)], []).kept) == 1
    nothing = dict.fromkeys(LEAKAGE_KEYS, np.zeros(2, dtype=bool))
    assert str(Removal(["a", "b"], nothing)) == "none of 2 removed"
    assert allowed(nothing).all()


@st.composite
def small_tasks(draw):
    """Few different values, so that keys meet often."""
    few = st.sampled_from
    return task(
        task_id=draw(few(["a", "b", "c", "d", "e", "f"])),
        instruction=draw(few([f"Do thing {word}" for word in ("alpha", "beta", "gamma", "delta", "epsilon")])),
        annotations=Annotations(
            instance=draw(few([None, None, "x", "y", "z"])), template=draw(few([None, None, "{x} p", "{x} q"]))
        ),
    )


@FAST
@given(st.lists(small_tasks(), max_size=6), st.lists(small_tasks(), max_size=4))
def test_screening_many_equals_asking_one_by_one(candidates, others):
    guard = LeakageGuard()
    screened = guard.screen(candidates, others)
    columns = KeyColumns.of([guard.keys(Query.of(one)) for one in candidates])
    is_kept = np.ones(len(candidates), dtype=bool)
    for other in others:
        is_kept &= allowed(columns.matches(guard.keys(Query.of(other))))
    assert list(screened.kept) == [one for one, kept in zip(candidates, is_kept, strict=True) if kept]
    assert screened.removed.num_removed == int((~is_kept).sum())


@FAST
@given(small_tasks(), small_tasks())
def test_the_guard_is_symmetric(one, other):
    assert removed_by(one, other) == removed_by(other, one)
