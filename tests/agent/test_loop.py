import asyncio
import time
from dataclasses import replace

import pytest

from evaluation.browsers import FakeBrowser
from evaluation.minds import make_task, say
from factories import make_screenshot
from focusmem.agent.formats.base import Choice
from focusmem.agent.live_episode import LiveEpisode
from focusmem.agent.loop import run_episode
from focusmem.agent.mind import Reply
from focusmem.browser.base import Performed
from focusmem.errors import BlockedError, WorldError
from focusmem.schemas import Closing, StepNotes, make_action
from focusmem.schemas.record import storable_text


def run(replies, browser=None, **changes):
    episode = LiveEpisode(make_task("one", **changes))
    left = iter(replies)

    async def ask(decision):
        assert (decision.episode_id, decision.steps) == (episode.episode_id, episode.steps)
        return Reply(next(left), StepNotes(num_prompt_tokens=7, seconds={"reply": 0.5}))

    asyncio.run(run_episode(episode, browser or FakeBrowser(), ask))
    return episode


def test_everything_about_a_step_is_kept():
    click, stop = say("click", description="the logo"), say("stop", answer="yes")
    episode = run([f"I click.\n{click}", stop])
    [first, last] = episode.steps
    assert first.reply == f"I click.\n{click}"
    assert (first.action.name, first.click_point, first.url) == ("click", (3, 4), "https://shop.example/")
    assert first.screenshot.sha256 in episode.screenshots
    assert (last.action.name, episode.answer, episode.error, episode.is_over) == ("stop", "yes", None, True)
    assert [set(notes.seconds) for notes in episode.notes] == [{"observe", "wait", "reply", "act"}] * 2
    assert [notes.num_prompt_tokens for notes in episode.notes] == [7, 7]
    assert episode.seconds == pytest.approx(sum(notes.wall_s for notes in episode.notes))


def test_a_step_takes_as_long_as_the_clock_says_and_waiting_is_a_part_of_it():
    waited = []

    async def ask(decision):
        started = time.perf_counter()
        await asyncio.sleep(0.02)  # decisions of other episodes
        waited.append(time.perf_counter() - started)
        return Reply(say("wait"), StepNotes(seconds={"reply": 0.0, "retrieve": 0.0}))

    episode = LiveEpisode(make_task("one", max_steps=2))
    asyncio.run(run_episode(episode, FakeBrowser(), ask))
    for notes, waited_s in zip(episode.notes, waited, strict=True):
        assert notes.seconds["wait"] >= waited_s
        assert notes.wall_s >= sum(notes.seconds.values())
    assert episode.seconds >= sum(waited)


def test_the_closing_shows_what_the_last_action_led_to():
    browser = FakeBrowser()
    for replies, changes in (([say("wait"), say("stop", answer="yes")], {}), ([say("wait")] * 3, {"max_steps": 3})):
        browser.num_looks = 0
        episode = run(replies, browser, **changes)
        shown = make_screenshot((len(episode.steps) + 1) // 2)
        assert browser.num_looks == len(episode.steps) + 1
        assert episode.closing == Closing(screenshot=shown.ref(), url="https://shop.example/")
        assert episode.screenshots[shown.digest] == shown


class GameBrowser(FakeBrowser):
    """A page that ends its task after `num_actions` actions, with a reward."""

    def __init__(self, num_actions, *, fails_at=None):
        super().__init__()
        self.num_actions, self.fails_at = num_actions, fails_at

    async def observe(self):
        if self.num_looks == self.fails_at:
            raise WorldError("The page has died.")
        is_over = len(self.performed) >= self.num_actions
        return replace(await super().observe(), reward=1.0 if is_over else 0.0, is_over=is_over)


def test_a_page_that_ends_the_task_ends_the_episode_and_its_reward_is_kept():
    episode = run([say("wait")] * 5, browser := GameBrowser(2))
    assert (len(episode.steps), episode.reward, episode.answer, episode.error) == (2, 1.0, None, None)
    assert browser.num_looks == 3, "the look that shows the end is the closing one"
    assert episode.closing is not None


def test_the_reward_is_that_of_the_closing_look():
    stopped = run([say("wait"), say("stop", answer="")], GameBrowser(2))
    assert (len(stopped.steps), stopped.reward, stopped.answer) == (2, 1.0, "")
    unsolved = run([say("wait")] * 2, GameBrowser(5), max_steps=2)
    assert (unsolved.reward, unsolved.error) == (0.0, None)


def test_without_the_closing_look_the_reward_is_not_known_and_the_episode_is_an_error():
    episode = run([say("wait"), say("stop", answer="")], GameBrowser(9, fails_at=2))
    assert episode.error == "The page has died."


def test_a_world_that_breaks_at_the_closing_does_not_undo_the_episode(caplog):
    class Closed(FakeBrowser):
        async def observe(self):
            if self.performed:
                raise WorldError("The browser has died.")
            return await super().observe()

    episode = run([say("stop", answer="yes")], Closed())
    assert (episode.answer, episode.error, episode.closing) == ("yes", None, None)
    assert "The closing observation of one failed: The browser has died." in caplog.text


def test_a_broken_episode_has_no_closing():
    assert run([say("wait")], FakeBrowser(dies_at=0)).closing is None


def test_a_reply_that_never_came_is_no_step():
    async def ask(decision):
        raise WorldError("The model's server is gone.")

    episode = LiveEpisode(make_task("one"))
    asyncio.run(run_episode(episode, FakeBrowser(), ask))
    assert (episode.error, episode.steps, episode.closing) == ("The model's server is gone.", [], None)


def test_it_ends_when_no_steps_are_left():
    browser = FakeBrowser()
    episode = run([say("wait")] * 3, browser, max_steps=3)
    assert (len(episode.steps), episode.answer, episode.error) == (3, None, None)
    assert len(browser.performed) == 3


@pytest.mark.parametrize("garbage", ["", "click it!", '{"name": "click"', "\0", "\ud800", "[" * 100_000, "x" * 300_000])
def test_garbage_is_a_step_and_never_an_action(garbage):
    browser = FakeBrowser()
    episode = run([garbage] * 2, browser, max_steps=2)
    assert browser.performed == []
    assert [notes.is_readable for notes in episode.notes] == [False, False]
    assert all(step.action is None and step.error for step in episode.steps)
    assert episode.error is None


def test_the_same_on_the_same_page_is_a_repeat():
    # The fake shows each page twice, but for the first.
    episode = run([say("wait"), say("wait"), say("wait"), "?", "?"], max_steps=5)
    assert [notes.is_repeat for notes in episode.notes] == [False, False, True, False, True]


def test_other_reasons_for_the_same_action_are_a_repeat_too():
    replies = [say("wait"), say("wait", reasoning="It loads."), say("wait", reasoning="Patience."), "?"]
    assert [notes.is_repeat for notes in run(replies, max_steps=4).notes] == [False, False, True, False]


def test_a_world_that_breaks_ends_it_and_what_was_wanted_is_kept():
    episode = run([say("wait"), say("click", description="the end")], FakeBrowser(dies_at=1))
    assert episode.error == "The browser has died."
    assert not episode.is_blocked
    assert [step.error for step in episode.steps] == [None, "The browser has died."]
    assert episode.steps[-1].action.name == "click"


@pytest.mark.parametrize(("error", "is_blocked"), [(BlockedError("No robots."), True), (WorldError("Gone."), False)])
def test_a_site_that_refuses_is_told_from_one_that_is_broken(error, is_blocked):
    class Closed(FakeBrowser):
        async def open(self, url):
            raise error

    episode = run([], Closed())
    assert (episode.error, episode.is_blocked, episode.steps) == (str(error), is_blocked, [])


def test_a_bug_is_not_taken_for_the_worlds_fault():
    class Wrong(FakeBrowser):
        async def observe(self):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run([], Wrong())


def test_whatever_the_world_says_can_be_kept():
    class Odd(FakeBrowser):
        async def perform(self, action, point=None):
            return Performed(error="not\0found \ud800")

    class Broken(FakeBrowser):
        async def perform(self, action, point=None):
            raise WorldError("gone\0")

    assert run([say("wait")], Odd(), max_steps=1).steps[0].error == storable_text("not\0found \ud800")
    assert run([say("wait")], Broken(), max_steps=1).error == storable_text("gone\0")


def test_thoughts_are_set_aside_and_kept():
    thought, stop = say("click", description="the logo"), say("stop", answer="yes")
    episode = run([f"<think>Perhaps {thought}?</think><answer>{stop}</answer>"])
    assert episode.answer == "yes"
    assert episode.notes[0].thoughts == f"Perhaps {thought}?"
    assert episode.steps[0].reply.startswith("<think>"), "the reply itself stays whole"


def test_thoughts_of_the_server_come_before_those_in_the_text():
    async def ask(decision):
        return Reply(f"<think>Second.</think>{say('stop', answer='')}", StepNotes(thoughts="First."))

    episode = LiveEpisode(make_task("one"))
    asyncio.run(run_episode(episode, FakeBrowser(), ask))
    assert episode.notes[0].thoughts == "First.\n\nSecond."


def test_a_reply_of_thoughts_alone_is_unreadable():
    episode = run([f"<think>{say('stop', answer='no')}", say("stop", answer="yes")])
    assert episode.steps[0].action is None
    assert "ended with its thoughts" in episode.steps[0].error
    assert (episode.notes[0].is_readable, episode.answer) == (False, "yes")


def test_an_action_goes_where_its_reader_points():
    def reader(answer, seen):
        return Choice(make_action("click", description=f"{answer} on {seen.url}"), (7, 8))

    async def ask(decision):
        return Reply("there", reader=reader)

    episode, browser = LiveEpisode(make_task("one", max_steps=1)), FakeBrowser()
    asyncio.run(run_episode(episode, browser, ask))
    assert browser.points == [(7, 8)]
    assert episode.steps[0].action.arguments.description == "there on https://shop.example/"
