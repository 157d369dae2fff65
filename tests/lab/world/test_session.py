import pytest

from focusmem.browser.base import Performed
from focusmem.lab.world import raster
from focusmem.lab.world.scene import SCROLL_PIXELS, VIEW_HEIGHT, VIEW_WIDTH, Box, Control
from focusmem.lab.world.session import ORIGIN, PageSession
from focusmem.schemas import make_action
from lab.scenes import ToyPages


@pytest.fixture
def home():
    return PageSession(ToyPages(), "/toy/")


def do(session, name, **arguments):
    return session.perform(make_action(name, **arguments))


def test_a_click_says_where_it_was_and_leads_on(home):
    performed = do(home, "click", description="the pictures link")
    assert performed.click_point is not None
    assert performed.error is None
    assert home.path == "/toy/pictures"
    assert home.scene.title == "Pictures"


def test_only_what_is_in_view_can_be_clicked(home):
    assert do(home, "click", description="Sign up").error is not None
    do(home, "scroll", direction="down")
    do(home, "scroll", direction="down")
    do(home, "scroll", direction="down")
    assert do(home, "click", description="Sign up").error is None
    assert home.path == "/toy/entry/9"


def test_controls_are_cut_off_at_the_edge_of_the_view():
    assert Box(-5, 200, 20, 30).visible_from(210) == Box(0, 0, 15, 20)
    assert Box(VIEW_WIDTH - 5, 280, 20, 30).visible_from(0) == Box(VIEW_WIDTH - 5, 280, 5, 8)
    assert Box(0, VIEW_HEIGHT, 10, 10).visible_from(0) is None
    assert Box(VIEW_WIDTH, 0, 10, 10).visible_from(0) is None


def test_scrolling_stops_at_both_ends(home):
    do(home, "scroll", direction="up")
    assert home.scroll == 0
    do(home, "scroll", direction="down")
    assert home.scroll == SCROLL_PIXELS
    for _ in range(5):
        do(home, "scroll", direction="down")
    assert home.scroll == home.scene.max_scroll == 760 - VIEW_HEIGHT


def test_enter_leads_to_the_fields_path_with_the_text(home):
    do(home, "type", text="50% & more/less?", description="search")
    assert home.typed() == (("Search", "50% & more/less?"),)
    do(home, "press_key", key="Enter")
    assert home.path == "/toy/find?q=50%25%20%26%20more%2Fless%3F&seen=1"
    assert home.scene.title == "Search: 50% & more/less?"
    assert home.typed() == ()
    assert home.scroll == 0


def test_enter_without_a_focused_field_does_nothing(home):
    before = home.path, home.scroll
    assert do(home, "press_key", key="Enter") == Performed()
    assert (home.path, home.scroll) == before


def test_typed_text_is_seen(home):
    empty = home.image()
    do(home, "type", text="lamp", description="search")
    assert home.image() != empty


def test_a_visit_can_be_taken_up_where_another_stood(home):
    do(home, "scroll", direction="down")
    do(home, "type", text="a rather long name, longer than the field is", description="your name")
    again = PageSession(ToyPages(), home.path, scroll=home.scroll, typed=home.typed())
    assert again.image() == home.image()
    assert again.controls() == home.controls()


@pytest.mark.parametrize("url", ["/toy/entry/3", f"{ORIGIN}/toy/entry/3", f"{ORIGIN}/toy/entry/3#part"])
def test_goto_takes_paths_and_addresses_of_the_world(home, url):
    assert do(home, "goto", url=url) == Performed()
    assert home.path == "/toy/entry/3"


@pytest.mark.parametrize("url", ["https://shop.example/", "//evil.test/", "entry/3", "javascript:1", "about:blank"])
def test_goto_takes_nothing_else(home, url):
    assert do(home, "goto", url=url).error is not None
    assert home.path == "/toy/"


def test_unknown_keys_and_paths(home):
    assert "no key 'Fire'" in do(home, "press_key", key="Fire").error
    do(home, "goto", url="/elsewhere")
    assert home.scene.title == "Not found"


def test_a_control_leads_to_a_path():
    for href in ("https://shop.example/", "//evil.test/", "javascript:alert(1)", ""):
        with pytest.raises(ValueError, match="not a path"):
            Control(Box(0, 0, 1, 1), "link", "x", href)


def test_words_are_drawn_once_and_kept(home):
    """They take most of the time: without them a page is drawn in about a millisecond."""
    home.image()
    before = raster._mask.cache_info()
    home.image()
    after = raster._mask.cache_info()
    assert after.misses == before.misses
    assert after.hits > before.hits


def test_a_click_at_the_middle_of_a_control_does_what_its_name_does():
    for name in (control.name for control in PageSession(ToyPages(), "/toy/").controls()):
        by_name, by_point = PageSession(ToyPages(), "/toy/"), PageSession(ToyPages(), "/toy/")
        [found] = [control for control in by_name.controls() if control.name == name]
        performed = do(by_name, "click", description=name)
        assert performed.click_point == found.centre
        assert by_point.perform(make_action("click", description="?"), found.centre) == performed
        assert (by_point.path, by_point._focused) == (by_name.path, by_name._focused)


def test_text_goes_into_the_field_at_a_point_and_nowhere_else(home):
    controls = {control.name: control for control in home.controls()}
    typing = make_action("type", text="lamp", description="?")
    assert home.perform(typing, controls["Search"].centre) == Performed(controls["Search"].centre)
    assert home.typed() == (("Search", "lamp"),)
    assert home.perform(typing, (0, 0)) == Performed((0, 0), "There is no field at this point.")
    assert home._focused is None
