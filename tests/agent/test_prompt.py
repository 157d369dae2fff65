from dataclasses import replace

import pytest

from factories import make_screenshot
from focusmem.agent.prompt import PromptBuilder, RecentEvent
from focusmem.errors import StorageError
from focusmem.lab.policy.texts import PROMPTS
from focusmem.schemas import ACTION_NAMES, Instruction, Screenshot


def build(num_recent: int, prompts=None):
    recent = [RecentEvent(number + 1, make_screenshot(number), f"action {number + 1}") for number in range(num_recent)]
    return PromptBuilder(prompts)(
        instruction="Find {{the}} lamp.", recent=recent, screenshot=make_screenshot(99), actions_left=7
    )


def text_of(turn) -> str:
    return "".join(part for part in turn.parts if isinstance(part, str))


def test_the_papers_parts_in_the_papers_order():
    system, history, task, budget, now, reminder = build(2)
    assert system.role == "system"
    assert all(name in text_of(system) for name in ACTION_NAMES)
    assert text_of(history).index("action 1") < text_of(history).index("action 2")
    assert "Find {{the}} lamp." in text_of(task)
    assert "7" in text_of(budget)
    assert now.parts[0] == make_screenshot(99)
    assert "JSON" in text_of(reminder)


def test_the_prompt_says_whether_typing_presses_enter():
    def system(**changes):
        asked = {"instruction": "x", "recent": [], "screenshot": make_screenshot(1), "actions_left": 7}
        return text_of(PromptBuilder()(**asked, **changes)[0])

    fills, sends = system(), system(presses_enter=True)
    assert "Enter is pressed after it" not in fills
    assert sends == fills.replace(
        "the text to type, not empty>", "the text to type, not empty; Enter is pressed after it>"
    )
    assert sends != fills


def test_only_the_last_three_events_are_shown():
    history = build(5)[1]
    assert [part.digest for part in history.parts if isinstance(part, Screenshot)] == [
        make_screenshot(number).digest for number in (2, 3, 4)
    ]
    assert "Step 3: action 3" in text_of(history)
    assert "action 2" not in text_of(history)


def test_a_first_step_has_no_history():
    assert len(build(0)) == 5


def test_other_wordings_keep_parts_and_order():
    ours, theirs = build(1), build(1, PROMPTS / "agent")
    assert [turn.role for turn in ours] == [turn.role for turn in theirs]
    assert sum(map(len, map(text_of, theirs))) < sum(map(len, map(text_of, ours)))


def test_a_folder_without_the_texts_is_refused(tmp_path):
    with pytest.raises(StorageError, match="system"):
        PromptBuilder(tmp_path)


def test_errors_are_left_out_where_they_are_not_to_be_shown():
    """As in the paper's prompt: then a failed action looks like any other."""
    failed = RecentEvent(1, make_screenshot(0), "action 1", "There is no such button.")
    ask = {"instruction": "Find it.", "screenshot": make_screenshot(99), "actions_left": 7}
    shown, hidden = (PromptBuilder(shows_errors=shows) for shows in (True, False))
    assert "no such button" in text_of(shown(recent=[failed], **ask)[1])
    assert hidden(recent=[failed], **ask) == hidden(recent=[replace(failed, error=None)], **ask)
    assert shown.digest != hidden.digest


@pytest.mark.parametrize("prompts", [None, PROMPTS / "agent"])
def test_the_instruction_is_a_part_of_its_own(prompts):
    parts = [part for turn in build(2, prompts) for part in turn.parts if isinstance(part, Instruction)]
    assert parts == ["Find {{the}} lamp."]
