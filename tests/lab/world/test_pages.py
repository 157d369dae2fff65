from collections import deque
from itertools import combinations

import pytest

from focusmem.lab.world import raster
from focusmem.lab.world.address import Address
from focusmem.lab.world.pages import LIST_SIZE, ORDERS
from focusmem.lab.world.scene import VIEW_HEIGHT, VIEW_WIDTH, Box, Word
from focusmem.lab.world.session import PageSession
from focusmem.lab.world.world import World
from focusmem.schemas import make_action

MARKET, ENCYCLOPEDIA = "e-2", "e-11"
"""Both have a dialog and a link to the picture; the encyclopedia has short editions as well."""
MAX_PAGES = 2500


@pytest.fixture(scope="module")
def world():
    return World(0)


def crawl(world, site_id):
    """Every page that links lead to from home; adding to the compare list is looked at but not followed."""
    todo, found = deque([f"/{site_id}/"]), {}
    while todo and len(found) < MAX_PAGES:
        path = todo.popleft()
        found[path] = world.scene(path)
        new = {
            control.href for control in found[path].controls if control.kind != "field" and "put=" not in control.href
        }
        todo.extend(sorted(new - found.keys() - set(todo)))
    assert len(found) < MAX_PAGES, "it never ends"
    return found


@pytest.fixture(scope="module", params=[MARKET, ENCYCLOPEDIA])
def crawled(request, world):
    return world.site(request.param), crawl(world, request.param)


def overlap(one, other):
    return one.left < other.right and other.left < one.right and one.top < other.bottom and other.top < one.bottom


def links(scene):
    return {control.name: control.href for control in scene.controls if control.kind != "field"}


def entries_in(world, path):
    """What a list or search shows, over all of its pages."""
    scene = world.scene(path)
    shown = [name for name, href in links(scene).items() if Address.parse(href).parts[:1] == ("entry",)]
    following = links(scene).get("Next page")
    assert len(shown) == LIST_SIZE or following is None
    return shown + (entries_in(world, following) if following else [])


# Every page there is


def test_links_lead_to_every_page(crawled):
    site, pages = crawled
    found = {Address.parse(path).parts for path in pages}
    for entry in site.entries:
        number = str(entry.index)
        assert ("entry", number) in found
        assert ("entry", number, "picture") in found
        assert {("entry", number, "part", section) for section in site.sections} <= found


def test_every_link_leads_somewhere(world, crawled):
    _, pages = crawled
    hrefs = {control.href.replace("{text}", "lamp") for scene in pages.values() for control in scene.controls}
    for href in hrefs:
        assert "does not exist" not in world.scene(href).text(), href


def test_controls_do_not_overlap_and_lie_on_the_page(crawled):
    _, pages = crawled
    for path, scene in pages.items():
        for one, other in combinations([control.box for control in scene.controls], 2):
            assert not overlap(one, other), path
        for control in scene.controls:
            box = control.box
            assert min(box.left, box.top) >= 0, path
            assert box.right <= VIEW_WIDTH, path
            assert box.bottom <= scene.height, path


def test_controls_of_a_page_have_different_names(crawled):
    _, pages = crawled
    for path, scene in pages.items():
        names = [control.name for control in scene.controls]
        assert len(set(names)) == len(names), path


def test_words_lie_on_the_page_and_not_on_each_other(crawled):
    site, pages = crawled
    for path, scene in pages.items():
        words = [item for item in scene.drawn if isinstance(item, Word)]
        boxes = [Box(one.left, one.top, one.font.width(one.text), one.font.line_height) for one in words]
        assert all(box.left >= 0 and box.right <= VIEW_WIDTH and box.bottom <= scene.height for box in boxes), path
        if set(links(scene)) == set(site.dialog_buttons):
            continue  # a dialog covers what is behind it
        by_line = sorted(boxes, key=lambda box: (box.top, box.left))
        for index, box in enumerate(by_line):
            below = (other for other in by_line[index + 1 : index + 30] if other.top < box.bottom)
            assert not any(overlap(box, other) for other in below), path


def test_pages_are_drawn_to_their_end(crawled):
    _, pages = crawled
    for path in list(pages)[::12]:
        scene = pages[path]
        assert raster.draw(scene, scene.max_scroll).size == (VIEW_WIDTH, VIEW_HEIGHT)
        assert len(raster.draw(scene).getcolors(maxcolors=VIEW_WIDTH * VIEW_HEIGHT)) > 2, path


def test_many_pages_are_longer_than_the_view(crawled):
    _, pages = crawled
    num_long = sum(scene.max_scroll > 0 for scene in pages.values())
    assert 0.2 < num_long / len(pages) < 0.95


# Dialog


@pytest.mark.parametrize("path", ["", "find?q=lamp", "entry/3", "compare", "kind/chair?order=low", "no/such/page"])
@pytest.mark.parametrize("site_id", [MARKET, ENCYCLOPEDIA])
def test_a_dialog_blocks_everything_else(world, site_id, path):
    site = world.site(site_id)
    scene = world.scene(f"/{site_id}/{path}")
    assert set(links(scene)) == set(site.dialog_buttons) == {control.name for control in scene.controls}
    session = PageSession(world, f"/{site_id}/{path}")
    assert session.perform(make_action("type", text="lamp", description="Search")).error is not None
    for label, href in links(scene).items():
        if label == site.conventions.dialog:
            assert set(site.dialog_buttons).isdisjoint(links(world.scene(href)))
            assert Address.parse(href).parts == Address.parse(f"/{site_id}/{path}").parts
        else:
            assert Address.parse(href).parts == ("join",)


def test_the_wrong_button_leads_back_to_the_dialog(world):
    join = world.scene(f"/{MARKET}/join")
    assert links(join) == {"Back to start": f"/{MARKET}"}
    assert set(links(world.scene(f"/{MARKET}"))) == set(world.site(MARKET).dialog_buttons)


def test_half_of_the_sites_have_no_dialog(world):
    for number in range(30):
        site = world.site(f"e-{number}")
        assert ("Search" in [one.name for one in world.scene(f"/e-{number}/").controls]) == (
            not site.conventions.dialog
        )


# Search, lists, compare list


@pytest.mark.parametrize("query", ["full", "last", "first"])
@pytest.mark.parametrize("parity", [0, 1])
def test_search_accepts_one_form_only(world, query, parity):
    number = next(n for n in range(parity, 60, 2) if world.site(f"e-{n}").conventions.query == query)
    site = world.site(f"e-{number}")
    for entry in site.entries[::5]:
        words = entry.name.split()
        forms = {"full": entry.name, "last": words[-1], "first": words[0]}
        for form, text in forms.items():
            path = f"/e-{number}/find?seen=1&q={text.replace(' ', '+').upper()}"
            shown = entries_in(world, path)
            assert (entry.name in shown) == (form == query)
            assert ("Nothing found" in world.scene(path).text()) == (form != query)


def test_typing_and_enter_search(world):
    site = world.site("e-16")
    session = PageSession(world, "/e-16/")
    session.perform(make_action("type", text=site.entries[9].name, description="Search"))
    session.perform(make_action("press_key", key="Enter"))
    assert site.entries[9].name in entries_in(world, session.path)


def price(entry):
    return float(entry.facts["price"].removeprefix("$"))


@pytest.mark.parametrize("order", [None, *ORDERS])
def test_lists_are_ordered_and_filtered(world, order):
    site = world.site(MARKET)
    for category in site.categories():
        everything = site.in_category(category)
        for material in [None, everything[0].facts["material"]]:
            query = (f"&order={order}" if order else "") + (f"&only={material}" if material else "")
            shown = entries_in(world, f"/{MARKET}/kind/{category}?seen=1{query}")
            wanted = [entry for entry in everything if material in (None, entry.facts["material"])]
            if order:
                wanted = sorted(wanted, key=price, reverse=order == "high")
            assert shown == [entry.name for entry in wanted]


def test_only_the_right_menu_sets_a_list(world):
    site = world.site(MARKET)
    category = site.categories()[0]
    path = f"/{MARKET}/kind/{category}?seen=1"
    menus = {name: href for name, href in links(world.scene(path)).items() if "/menu/" in href}
    assert len(menus) == 3
    for name, href in menus.items():
        choices = links(world.scene(href))
        if name == site.conventions.menu:
            filtered = links(world.scene(choices[f"Only {site.in_category(category)[0].facts['material']}"]))
            ordered = links(world.scene(filtered[name]))[ORDERS["high"]]
            query = Address.parse(ordered).query
            assert (query["order"], query["only"]) == ("high", site.in_category(category)[0].facts["material"])
        else:
            assert "nothing to set" in world.scene(href).text()
            assert choices["Back to the list"] == path


def test_the_compare_list_goes_along_and_grows(world):
    site = world.site("e-0")
    session = PageSession(world, "/e-0/entry/3")
    for index in (3, 7, 3):
        session.perform(make_action("goto", url=f"/e-0/entry/{index}?{session.path.partition('?')[2]}"))
        session.perform(make_action("click", description="Add to compare list"))
    assert session.perform(make_action("click", description="List 2")).error is None
    assert entries_in(world, session.path) == [site.entries[3].name, site.entries[7].name]
    session.perform(make_action("click", description=site.entries[7].name))
    assert Address.parse(session.path).put_aside == (3, 7)
    assert "List 2" in links(session.scene)


def test_a_thumbnail_does_not_give_away_the_colour(world):
    """The same list looks the same whatever its entries' colours: they must be looked up."""
    scene = world.scene(f"/{MARKET}/kind/{world.site(MARKET).categories()[0]}?seen=1")
    fills = {item.fill for item in scene.drawn if hasattr(item, "points")}
    assert len(fills) <= 4, "one silhouette in one colour and its shades"
