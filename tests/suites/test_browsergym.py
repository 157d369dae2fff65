"""BrowserGym's MiniWoB tasks as a suite of ours, and our agent as one of BrowserGym's.

They need an environment of their own, as `docs/suites.md` says, and are skipped without it.
"""

import asyncio
import json
import pickle
from importlib.util import find_spec

import numpy as np
import pytest

from focusmem.agent.mind import Reply
from focusmem.browser.gym_page import GymPage, controls_of, goal_of, observation_of
from focusmem.browser.opening import BrowserChoice
from focusmem.errors import ConfigError, UserError
from focusmem.evaluation.suite_run import RunAbout, SuiteRun
from focusmem.recipes.browsergym_agent import FocusMemAgent, FocusMemAgentArgs
from focusmem.schemas import RunFolder, make_action
from focusmem.suites.browsergym import BrowserGymSuite

HAS_BROWSERGYM = find_spec("browsergym") is not None and find_spec("browsergym.miniwob") is not None
needs_browsergym = pytest.mark.skipif(not HAS_BROWSERGYM, reason="browsergym-miniwob is not installed")


def node(number, role, name="", *children):
    return {
        "nodeId": str(number),
        "role": {"value": role},
        "name": {"value": name},
        "childIds": [str(child) for child in children],
        "browsergym_id": str(number),
    }


def seen(left=10.0, top=20.0, width=30.0, height=10.0, *, visibility=1.0, clickable=False):
    return {"visibility": visibility, "bbox": [left, top, width, height], "clickable": clickable}


def make_obs(**changes):
    nodes = [
        node(1, "RootWebArea", "Shop", 2, 3, 4, 6, 7),
        node(2, "button", "Buy"),
        node(3, "textbox", "Search"),
        node(4, "generic", "", 5),
        node(5, "StaticText", "a mug"),
        node(6, "link", "Far below"),
        node(7, "link", ""),
    ]
    places = {
        "2": seen(top=50.0),
        "3": seen(left=-5.0),
        "4": seen(top=70.0, clickable=True),
        "6": seen(top=500.0),
        "7": seen(),
    }
    obs = {
        "goal_object": [{"type": "text", "text": "Buy a mug."}],
        "open_pages_titles": ("Other", "Shop"),
        "active_page_index": np.array([1]),
        "url": "https://shop.example/",
        "screenshot": np.zeros((100, 200, 3), dtype=np.uint8),
        "axtree_object": {"nodes": nodes},
        "extra_element_properties": places,
        "focused_element_bid": "",
        "last_action_error": "",
    }
    return obs | changes


class NotedPage(GymPage):
    """Notes what it is asked to do."""

    def __init__(self, obs, **values):
        super().__init__(**values)
        self._obs, self.codes = obs, []

    async def _step(self, code):
        self.codes.append(code)


def code_for(name, *, point=None, obs=None, presses_enter=False, **arguments):
    page = NotedPage(obs or make_obs(), presses_enter=presses_enter)
    performed = asyncio.run(page.perform(make_action(name, **arguments), point))
    return (page.codes or [None])[0], performed


def test_an_observation_becomes_ours():
    observed = observation_of(make_obs(), reward=0.5, is_over=True)
    assert (observed.title, observed.url) == ("Shop", "https://shop.example/")
    assert (observed.screenshot.width, observed.screenshot.height) == (200, 100)
    assert (observed.reward, observed.is_over) == (0.5, True)
    assert goal_of(make_obs()) == "Buy a mug."


def test_controls_are_what_can_be_seen_and_has_a_name():
    found = [(one.name, one.kind, one.left, one.top, one.width) for one in controls_of(make_obs())]
    assert found == [("Search", "field", 0, 20, 25), ("Buy", "button", 10, 50, 30), ("a mug", "button", 10, 70, 30)]


@pytest.mark.parametrize(
    ("name", "arguments", "code", "point"),
    [
        ("click", {"description": "Buy"}, "mouse_click(25, 55)", (25, 55)),
        ("scroll", {"direction": "up"}, "scroll(0, -75)", None),
        ("press_key", {"key": "ctrl+A"}, "keyboard_press('Control+a')", None),
        ("goto", {"url": "https://a.example/'x"}, 'goto("https://a.example/\'x")', None),
        ("wait", {}, "noop(2000)", None),
        ("stop", {"answer": "12 euros"}, "send_msg_to_user('12 euros')", None),
    ],
)
def test_an_action_becomes_browsergyms(name, arguments, code, point):
    written, performed = code_for(name, **arguments)
    assert (written, performed.click_point, performed.error) == (code, point, None)


def test_typing_clicks_selects_types_and_may_press_enter():
    text = "it's\n\"quoted\" \\ ')); import os #"
    written, _ = code_for("type", text=text, description="Search", presses_enter=True)
    assert written.split("\n") == [
        "mouse_click(12, 25)",
        "keyboard_press('ControlOrMeta+a')",
        f"keyboard_type({text!r})",
        "keyboard_press('Enter')",
    ]
    assert code_for("type", text="a")[0].startswith("mouse_click(12, 25)\n")  # the only field
    assert code_for("type", text="a", obs=make_obs(focused_element_bid="1"))[0].startswith("mouse_click(12, 25)\n")
    assert code_for("type", text="a", obs=make_obs(focused_element_bid="3"))[0].startswith("keyboard_press")


def test_a_field_without_a_name_is_found_by_its_role():
    obs = make_obs()
    obs["axtree_object"]["nodes"][2]["name"]["value"] = ""
    assert "textbox" in [one.name for one in controls_of(obs)]
    assert code_for("type", text="a", obs=obs)[0].startswith("mouse_click(12, 25)\n")


def test_what_cannot_be_done_is_told_to_the_policy():
    assert code_for("click", description="Sell")[0] is None
    assert "Nothing in view is called 'Sell'" in code_for("click", description="Sell")[1].error
    assert "There is no key" in code_for("press_key", key="Hyper")[1].error
    failed = make_obs(last_action_error="TimeoutError: 5000ms")
    assert code_for("wait", obs=failed)[1].error == "TimeoutError: 5000ms"
    assert code_for("click", description="what it points at", point=(3, 4))[0] == "mouse_click(3, 4)"


@pytest.mark.skipif(HAS_BROWSERGYM, reason="browsergym is installed")
def test_a_missing_package_names_itself():
    with pytest.raises(UserError, match=r"pip install focusmem\[browsergym\]"):
        BrowserGymSuite(["miniwob.click-test"])
    with pytest.raises(ConfigError, match="Name tasks of BrowserGym"):
        BrowserGymSuite([""])


# With BrowserGym and a browser

TASKS = ["click-test", "click-test-2", "click-button", "click-link", "enter-text", "focus-text"]


class Solver:
    """Does what the instruction says, by the words in it."""

    def ask(self, decisions):
        return [Reply(json.dumps(self.action(one.task.instruction, one.steps))) for one in decisions]

    def action(self, told, steps):
        quoted = told.split('"')[1] if '"' in told else None
        if "Enter " in told:  # type, then submit
            call = ("type", {"text": quoted}) if not steps else ("click", {"description": "Submit"})
        elif "textbox" in told:
            call = ("click", {"description": "textbox"})
        else:
            call = ("click", {"description": quoted or ("ONE" if "ONE" in told else "Click Me!")})
        return {"name": call[0], "arguments": call[1]}

    def forget(self, episode_id):
        """Keeps nothing."""


@needs_browsergym
@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.filterwarnings("default")  # BrowserGym's own
def test_miniwob_of_browsergym_is_a_suite(tmp_path):
    suite = BrowserGymSuite([f"miniwob.{name}" for name in TASKS], seed=3, max_steps=3)
    assert [task.task_id for task in suite.tasks] == [f"browsergym/miniwob.{name}.3" for name in TASKS]
    SuiteRun(suite, Solver(), tmp_path / "run", RunAbout(method="a script")).run(BrowserChoice())
    stored = {one.episode.task.task_id: one for one in RunFolder.open(tmp_path / "run").episodes()}
    assert {one.outcome for one in stored.values()} <= {"success", "failure"}, [
        one.episode.error for one in stored.values()
    ]
    won = [task_id for task_id, one in stored.items() if one.episode.reward == 1.0]
    assert won == list(stored)


@needs_browsergym
@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.filterwarnings("default")
def test_our_agent_acts_in_browsergyms_own_loop():
    from concurrent.futures import ThreadPoolExecutor

    from focusmem.browser import gym_browser

    def play(name, mind, max_steps):
        import gymnasium

        gym_browser.prepare(name)
        agent = FocusMemAgent(mind, max_steps=max_steps)
        env = gymnasium.make(f"browsergym/{name}", headless=True, action_mapping=agent.action_set.to_python_code)
        obs, _ = env.reset(seed=3)
        reward, actions = 0.0, []
        try:
            while (action := agent.get_action(agent.obs_preprocessor(obs))[0]) is not None:
                actions.append(action)
                obs, reward, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    break
        finally:
            env.close()
        return reward, actions, agent.live

    def in_its_thread(*words):
        return gym_browser._THREAD.submit(play, *words).result()

    assert isinstance(gym_browser._THREAD, ThreadPoolExecutor)
    assert in_its_thread("miniwob.click-button", Solver(), 3)[0] == 1.0

    args = pickle.loads(pickle.dumps(FocusMemAgentArgs({"policy.name": "lab", "memory.name": "none"}, max_steps=2)))
    own = args.make_agent()
    assert in_its_thread("miniwob.click-test", own._mind, 2)[2].steps

    class Quitter(Solver):
        def action(self, told, steps):
            return {"name": "stop", "arguments": {"answer": "done"}} if steps else {"name": "wait", "arguments": {}}

    reward, actions, live = in_its_thread("miniwob.click-test", Quitter(), 5)
    assert (reward, actions) == (0.0, ["noop(2000)", "send_msg_to_user('done')"])
    assert live.answer == "done"
