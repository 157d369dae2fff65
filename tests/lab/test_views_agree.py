"""The same page drawn by Pillow and by Chromium: same controls, nearly the same pixels, same way through the world."""

import numpy as np
import pytest

from focusmem.lab.world.rollout import roll_out
from focusmem.lab.world.scene import VIEW_HEIGHT, VIEW_WIDTH
from focusmem.lab.world.server import LAB_LIMITS, LabServer
from focusmem.lab.world.session import PageSession
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.tasks import make_task
from focusmem.lab.world.world import World
from focusmem.schemas import make_action
from lab.scenes import HOSTILE, ToyPages

pytestmark = pytest.mark.browser

STATE = "[scrollY, [...document.querySelectorAll('input')].map((field) => field.value).filter(Boolean)]"
TILE, MAX_DIFFERENCE, MAX_TILE_DIFFERENCE = 32, 1.0, 6.0
DOWN, UP = make_action("scroll", direction="down"), make_action("scroll", direction="up")


class BothViews:
    """One visit, made twice."""

    def __init__(self, chromium, server, path, pages=None):
        self.chromium, self.server = chromium, server
        self.session = PageSession(pages or ToyPages(), path)
        self.browser = chromium.browser(LAB_LIMITS, [server.host])
        self.run(self.browser.open(server.url[:-1] + path))

    def run(self, work):
        return self.chromium.run(work)

    def perform(self, action):
        performed = self.run(self.browser.perform(action))
        assert performed == self.session.perform(action)
        return performed

    def path(self):
        return self.browser._tab.url.removeprefix(self.server.url[:-1])

    def state(self):
        return self.path(), *self.run(self.browser._tab._page.evaluate(STATE))

    def expected_state(self):
        return self.session.path, self.session.scroll, [text for _, text in self.session.typed() if text]

    def differences(self):
        """Mean absolute differences of the pixels, from 0 to 255: over the view, and over the worst of its tiles."""
        seen = self.run(self.browser.observe())
        assert seen.controls == self.session.controls()
        assert seen.title == self.session.scene.title
        drawn = np.asarray(self.session.image(), dtype=int)
        difference = np.abs(np.asarray(seen.screenshot.image(), dtype=int) - drawn).mean(axis=2)
        # Where a page is mostly empty, a single word out of place shows in its own tile only.
        tiles = difference.reshape(VIEW_HEIGHT // TILE, TILE, VIEW_WIDTH // TILE, TILE).mean(axis=(1, 3))
        return float(difference.mean()), float(tiles.max())

    def check_pixels(self):
        whole, worst = self.differences()
        print(f"{self.session.path} at {self.session.scroll}: {whole:.2f}, worst tile {worst:.2f}")
        assert whole < MAX_DIFFERENCE
        assert worst < MAX_TILE_DIFFERENCE


@pytest.fixture(scope="module")
def server():
    with LabServer(ToyPages()) as server:
        yield server


@pytest.fixture
def both(chromium, server):
    visits = []

    def start(path):
        visits.append(BothViews(chromium, server, path))
        return visits[-1]

    yield start
    for visit in visits:
        visit.run(visit.browser.close())


@pytest.mark.parametrize("path", ["/toy/", "/toy/find?q=lamp", "/toy/entry/4", "/toy/dialog", "/toy/pictures"])
def test_controls_are_equal_and_pixels_nearly(both, path):
    views = both(path)
    views.check_pixels()
    while views.session.scroll < views.session.scene.max_scroll:
        views.perform(DOWN)
        views.check_pixels()


def test_a_search_ends_in_the_same_place(both):
    views = both("/toy/")
    for action in [
        make_action("type", text="a $& b'(c)* \u00e4 50%", description="the search box"),
        make_action("press_key", key="Enter"),
        make_action("click", description="Lamp number 2"),
        make_action("click", description="the back link"),
        DOWN,
        make_action("click", description="button that does not exist"),
        make_action("goto", url="/toy/find?q=x y"),
        make_action("goto", url="javascript:alert(1)"),
        make_action("wait"),
        make_action("stop", answer=""),
    ]:
        views.perform(action)
        assert views.state() == views.expected_state()
        views.check_pixels()


def test_fields_keep_their_text_until_the_page_is_left(both):
    views = both("/toy/")
    for action in [
        make_action("type", text="lamp", description="Search"),
        make_action("type", text="blue lamp", description="Search"),
        make_action("type", text="once\nmore\r\n\nlong " * 6),
        make_action("press_key", key="Backspace"),
        make_action("press_key", key="Shift+x"),
        DOWN,
        make_action("type", text="Ada", description="your name field"),
        UP,
        make_action("press_key", key="Tab"),
        make_action("press_key", key="Enter"),
        make_action("type", text="where to?"),
        make_action("click", description="your name"),
        make_action("press_key", key="Enter"),
    ]:
        views.perform(action)
        assert views.state() == views.expected_state(), action
        views.check_pixels()


def test_keys_scroll_alike(both):
    views = both("/toy/")
    for key in ["PageDown", "Space", "ArrowDown", "PageDown", "ArrowUp", "PageUp", "Home", "End", "Shift+Space", "q"]:
        views.perform(make_action("press_key", key=key))
        assert views.state() == views.expected_state(), key


def test_typing_reveals_a_field_that_is_partly_hidden(both):
    views = both("/toy/")
    views.perform(DOWN)
    views.perform(make_action("press_key", key="ArrowUp"))
    assert views.session.scroll == 168, "the second field is cut off by the lower edge"
    views.perform(make_action("click", description="Your name"))
    assert views.state() == views.expected_state()
    views.perform(make_action("type", text="Ada"))
    assert views.session.scroll == 440 + 30 - 288
    assert views.state() == views.expected_state()


def test_what_lies_under_a_button_cannot_be_clicked(both):
    views = both("/toy/dialog")
    assert views.perform(make_action("click", description="Buried link")).error is not None
    views.perform(make_action("click", description="Continue"))
    assert views.path() == views.session.path == "/toy/entry/2"


def test_text_cannot_become_markup(both):
    views = both("/toy/hostile")
    views.check_pixels()
    page = views.browser._tab._page
    assert views.run(page.title()) == HOSTILE
    assert views.run(page.evaluate("document.querySelectorAll('script, img').length")) == 1, "our own script"
    views.perform(make_action("type", text=HOSTILE, description="Field"))
    views.perform(make_action("press_key", key="Enter"))
    assert views.state() == views.expected_state()
    assert views.session.scene.title == f"Search: {HOSTILE}"


def test_nothing_on_a_page_breaks_its_own_policy(both):
    views = both("/toy/")
    complaints = []
    page = views.browser._tab._page
    views.chromium.call(lambda: page.on("console", lambda message: complaints.append(message.text)))
    views.perform(make_action("type", text="lamp", description="Search"))
    views.perform(make_action("press_key", key="Enter"))
    assert complaints == []
    assert views.run(page.evaluate("document.fonts.check('bold 14px Lab')"))


def test_an_expert_sees_the_same_office_in_both_views(chromium):
    """Lists, notices, fields, departments and the receipt, and a page that orders to stop."""
    world = World(0)
    with LabServer(world) as server:
        for kind, use in (("errand", "bank"), ("relay", "evaluation")):
            task = make_task(world, "eo-0", kind, use, 0)
            views = BothViews(chromium, server, f"{task.start_path}&says=Stop+now", world)
            for step in roll_out(world, task, Solver.expert(world, task)).steps:
                views.check_pixels()
                views.perform(step.action)
            views.run(views.browser.close())
