import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focusmem.lab.world.scene import VIEW_WIDTH, Word
from focusmem.lab.world.session import PageSession
from focusmem.lab.world.world import World

PATHS = ["/", "/e-0/", "/e-1/", "/e-2/entry/3?seen=1", "/e-3/kind/lake?seen=1", "/e-0/find?q=lamp", "/e-1/compare"]
HUGE = "9" * 5000
HOSTILE = [
    "",
    "//",
    "//[",
    "//[::1/e-0/",
    "/../../etc/passwd",
    "/e-0/../../e-1/",
    "/e-0/%2e%2e/%2e%2e",
    "/e-9999999/",
    "/E-0/",
    "/e-\u0663/",
    "/x-1/",
    "/e-0/entry/\u00b2",
    "/e-0/entry/%C2%B2",
    "/e-0/entry/-1",
    "/e-0/entry/40",
    f"/e-0/entry/{HUGE}",
    f"/e-0/entry/3?put={HUGE}.{HUGE}",
    "/e-0/entry/3?put=%C2%B2...-4.1e9.3.3",
    "/e-0/compare?put=" + ".".join(map(str, range(1500))),
    f"/e-0/kind/lamp?p={HUGE}",
    "/e-0/kind/lamp?p=%C2%B2&p=-1",
    "/e-0/kind/lamp?order=%00&only=" + "z" * 300,
    "/e-0/menu/lamp/" + "y" * 300,
    "/e-0/find?q=" + "x" * 500,
    "/e-0/find?q=%00%ff%ed%a0%80",
    "/e-0/find?q=\u202e\u0000\U0001f600",
    "/e-0/find?=&&&;q=[]&q",
    "/e-0/?seen=1&seen=2#[",
]


def words_fit(scene):
    return all(word.left + word.font.width(word.text) <= VIEW_WIDTH for word in scene.drawn if isinstance(word, Word))


@pytest.mark.parametrize("path", PATHS)
def test_pages_are_a_function_of_seed_and_path(path):
    assert World(5).scene(path) == World(5).scene(path)
    assert World(5).scene(path) != World(6).scene(path)


def test_the_index_leads_to_sites_of_every_split():
    world = World(0)
    index = world.scene("/")
    assert {control.href[1] for control in index.controls} == set("pmve")
    for control in index.controls:
        name = control.name.rpartition(" (")[0]
        assert world.scene(control.href).title == name


@pytest.mark.parametrize("path", HOSTILE)
def test_any_path_has_a_page(path):
    session = PageSession(World(0), path)
    session.image()
    assert words_fit(session.scene)


@settings(max_examples=60)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40), st.sampled_from(["/", "?q=", "/entry/", "?put="])
)
def test_any_text_in_a_path_has_a_page(text, where):
    world = World(0)
    for site_id in ("e-0", "e-1"):
        session = PageSession(world, f"/{site_id}{where}{text}")
        session.controls()
        assert words_fit(session.scene)


def test_what_is_not_there_says_so():
    world = World(0)
    for path in ("/e-0/entry/40", "/e-0/entry/1/part/Nope", "/e-0/menu/lamp/Nope", "/e-0/kind/nope", "/e-0/entry/1/x"):
        assert "does not exist" in world.scene(path).text(), path
