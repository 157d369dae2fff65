import pytest

from evaluation.minds import make_task
from factories import make_screenshot, make_step
from focusmem.agent.live_episode import LiveEpisode
from focusmem.schemas import Closing, Observation, Step, StepNotes, make_action
from focusmem.schemas.record import MAX_TEXT_LENGTH, storable_text

SEEN = Observation(make_screenshot(9), "https://shop.example/", "Shop", ())


def grown(*actions, **values):
    episode = LiveEpisode(make_task("shop/1", max_steps=3), **values)
    for number, action in enumerate(actions):
        step, screenshot = make_step(number, action)
        episode.add(step, screenshot, StepNotes(wall_s=0.75, seconds={"reply": 0.5}))
    return episode


def test_attempts_of_a_task_are_different_episodes_and_so_is_one_that_is_started_again():
    episodes = [
        LiveEpisode(make_task(name), attempt, num_broken)
        for name in ("shop/1", "shop/11")
        for attempt in (1, 2, 11)
        for num_broken in (0, 1)
    ]
    assert len({episode.episode_id for episode in episodes}) == len(episodes)
    assert LiveEpisode(make_task("shop/1"), 2, 1).episode_id == LiveEpisode(make_task("shop/1"), 2, 1).episode_id


def test_a_decision_holds_the_episode_so_far():
    episode = grown(make_action("wait"))
    decision = episode.decision(SEEN)
    assert (decision.task, decision.episode_id, decision.seen) == (episode.task, episode.episode_id, SEEN)
    assert (list(decision.steps), decision.actions_left, decision.is_guarded) == (episode.steps, 2, True)
    assert decision.screenshots[episode.steps[0].screenshot.sha256].digest == episode.steps[0].screenshot.sha256


@pytest.mark.parametrize(
    ("actions", "answer", "is_over"),
    [
        ([], None, False),
        ([make_action("wait")] * 2, None, False),
        ([make_action("wait")] * 3, None, True),
        ([make_action("wait"), make_action("stop", answer="12")], "12", True),
        ([make_action("stop", answer="")], "", True),
    ],
)
def test_it_is_over_with_an_answer_or_at_the_end_of_its_budget(actions, answer, is_over):
    episode = grown(*actions)
    assert (episode.answer, episode.is_over) == (answer, is_over)
    assert episode.seconds == 0.75 * len(actions)


def test_it_is_over_when_the_world_breaks():
    episode = grown()
    episode.error = "The browser has died."
    assert episode.is_over


def test_it_is_over_when_the_page_says_so():
    episode = grown()
    episode.look(Observation(make_screenshot(9), "", "", (), reward=0.0))
    assert (episode.is_over, episode.reward) == (False, 0.0)
    episode.look(Observation(make_screenshot(9), "", "", (), reward=-1.0, is_over=True))
    assert (episode.is_over, episode.reward) == (True, -1.0)


def test_the_closing_is_kept_with_its_screenshot():
    episode = grown(make_action("stop", answer="12"))
    episode.close(Observation(make_screenshot(70), "https://shop.example/\0", "", (), reward=0.5))
    assert episode.reward == 0.5
    assert episode.closing == Closing(screenshot=make_screenshot(70).ref(), url="https://shop.example/\ufffd")
    assert episode.screenshots[make_screenshot(70).digest] == make_screenshot(70)
    record = episode.task.trajectory("run-1", episode.steps, outcome="success", source="test", closing=episode.closing)
    assert record.closing == episode.closing


def test_notes_say_what_could_not_be_read_and_what_was_repeated():
    episode = grown()
    screenshot = make_screenshot(1)
    wait, again = make_action("wait"), make_action("wait", reasoning="It loads.")
    steps = [
        Step(screenshot=screenshot.ref(), action=wait),
        Step(screenshot=screenshot.ref(), action=again),
        Step(screenshot=screenshot.ref(), reply="?", error="This is no action."),
        Step(screenshot=screenshot.ref(), reply="?", error="This is no action."),
        Step(screenshot=make_screenshot(2).ref(), reply="?", error="This is no action."),
    ]
    for step in steps:
        episode.add(step, screenshot, StepNotes(num_prompt_tokens=7))
    assert [notes.is_repeat for notes in episode.notes] == [False, True, False, True, False]
    assert [notes.is_readable for notes in episode.notes] == [True, True, False, False, False]
    assert {notes.num_prompt_tokens for notes in episode.notes} == {7}


@pytest.mark.parametrize("text", ["", "caf\u00e9 \U0001f600", "x" * 10])
def test_text_that_can_be_stored_stays(text):
    assert storable_text(text) == text


def test_text_that_cannot_be_stored_is_mended():
    assert storable_text("a\0b\ud800c") == "a\ufffdb\ufffdc"
    assert len(storable_text("x" * (MAX_TEXT_LENGTH + 5))) == MAX_TEXT_LENGTH
