import pytest

from agent.decisions import make_decision, make_search
from focusmem.agent.fronts.base import Fronted
from focusmem.agent.fronts.turns import TurnsFront, show_raw, show_words
from focusmem.agent.retrieval import Search
from focusmem.evidence import Serialiser, episodic_items
from focusmem.schemas import Screenshot, Turn, action_to_json

PROMPT = (Turn("user", ("What next?",)),)


def count_parts(turns):
    return sum(len(turn.parts) for turn in turns)


def place(front, search, decision=None):
    [fronted] = front.place([PROMPT], [decision or make_decision()], [search])
    return fronted


def test_raw_trajectories_are_what_the_encoder_reads_the_best_first():
    search, serialise = make_search(4, 7), Serialiser()
    fronted = place(TurnsFront("raw", show_raw(serialise), count_parts), search)
    records = [
        serialise(item, one.stored.screenshots)
        for one in search.found
        for item in episodic_items([(one.stored.trajectory, 0.0)])
    ]
    assert fronted.prompt == PROMPT
    assert fronted.turns == (*records[0], *records[1])
    assert fronted.num_memory_tokens == count_parts(fronted.turns)
    assert [(item.trajectory_id, item.rank, item.num_steps, item.num_tokens) for item in fronted.offered] == [
        ("trajectory-4", 0, 2, count_parts(records[0])),
        ("trajectory-7", 1, 2, count_parts(records[1])),
    ]
    assert all(item.is_accepted and item.trust_logit is None for item in fronted.offered)
    assert [item.source for item in fronted.offered] == ["factory"] * 2


@pytest.mark.parametrize(
    ("outcome", "opening"), [("success", "How a similar task was solved"), ("failure", "What was tried on")]
)
def test_words_are_the_task_and_its_actions(outcome, opening):
    [found] = make_search(4, num_steps=3).found
    trajectory = found.stored.trajectory.model_copy(update={"outcome": outcome})
    [turn] = show_words()(type(found)(found.hit, type(found.stored)(trajectory, {})))
    [text] = turn.parts
    first, *lines = text.splitlines()
    assert first.startswith(opening)
    assert first.endswith(": How much is mug number 4?")
    assert lines == [f"{number}. {action_to_json(step.action)}" for number, step in enumerate(trajectory.steps, 1)]
    assert not any(isinstance(part, Screenshot) for part in turn.parts)


def test_nothing_found_is_the_prompt_alone():
    fronted = place(TurnsFront("raw", show_raw(Serialiser()), count_parts), Search())
    assert fronted == Fronted(PROMPT, "task-0 1 0")


def test_equal_trajectories_are_shown_once_for_an_episode_and_scores_follow_the_search():
    shown = []

    def show(found):
        shown.append(found.hit.trajectory_id)
        return show_words()(found)

    front = TurnsFront("words", show, count_parts)
    first = place(front, make_search(1, 2, scores=(0.9, 0.8)))
    again = place(front, make_search(1, 2, scores=(0.7, 0.5)))
    assert shown == ["trajectory-1", "trajectory-2"]
    assert again.turns is first.turns
    assert [item.score for item in first.offered] == [0.9, 0.8]
    assert [item.score for item in again.offered] == [0.7, 0.5]
    other = place(front, make_search(2, 1))
    assert [item.trajectory_id for item in other.offered] == ["trajectory-2", "trajectory-1"]
    assert shown == ["trajectory-1", "trajectory-2", "trajectory-2", "trajectory-1"]


def test_episodes_are_kept_apart_until_they_are_forgotten():
    shown = []

    def show(found):
        shown.append(found.hit.trajectory_id)
        return show_words()(found)

    front = TurnsFront("words", show, count_parts)
    one, other = make_decision(0), make_decision(1)
    place(front, make_search(1), one)
    place(front, make_search(2), other)
    place(front, make_search(1), one)
    assert shown == ["trajectory-1", "trajectory-2"]
    front.forget(one.episode_id)
    front.forget("never begun")
    place(front, make_search(2), other)
    place(front, make_search(1), one)
    assert shown == ["trajectory-1", "trajectory-2", "trajectory-1"]


def test_tokens_that_nobody_can_count_are_absent():
    fronted = place(TurnsFront("words", show_words(), lambda turns: None), make_search(1))
    assert fronted.num_memory_tokens is None
    assert fronted.offered[0].num_tokens is None
