"""Grounding through a real endpoint on this machine, and with it through a real browser."""

import asyncio
import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from browser.sites import Site
from chat_server import ChatServer, completion
from factories import make_screenshot
from focusmem.browser.base import BrowserLimits, Performed
from focusmem.browser.chromium import ChromiumBrowser
from focusmem.browser.grounder import Point
from focusmem.browser.model_grounder import ModelGrounder, parse_point
from focusmem.browser.opening import make_grounder
from focusmem.clients.openai_chat import ChatConfig, OpenAIChat
from focusmem.errors import ConfigError, GroundingError, WorldError
from focusmem.schemas import make_action

SCREENSHOT = make_screenshot(1, width=640, height=480)


class PictureOnly:
    """A view whose controls nobody may ask for."""

    async def screenshot(self):
        return SCREENSHOT


def grounder(server, **changes):
    config = ChatConfig(**{"url": server.url, "model": "eyes"} | changes)
    return ModelGrounder(OpenAIChat(config))


def find(server, description="the search box", **changes):
    return asyncio.run(grounder(server, **changes).find(description, PictureOnly()))


# Reading the reply.


@pytest.mark.parametrize(
    "reply", ["(512, 334)", "[512, 334]", "512, 334", "(512,334)", " ( 512 , 334 )\n", "(512.0, 334.000)"]
)
def test_one_pair_is_read_however_it_is_written(reply):
    assert parse_point(reply, "per_mille") == Point(512, 334, "per_mille")


@pytest.mark.parametrize(
    "reply",
    [
        "", "I cannot find it.", "512", "(512 334)", "(512, 334", "(512, 334]", "(1, 2), (3, 4)", "(1, 2, 3)",
        "(1, 2) (1, 2)", "The answer is (512, 334).", "(nan, 3)", "(inf, 3)", "(1e3, 3)", "(0x10, 3)", "(\u0661, 2)",
        "(1, 2)(", "__import__('os'), 1", "(1234567, 3)",
    ],
)  # fmt: skip
def test_anything_else_is_an_error_that_names_the_reply(reply):
    with pytest.raises(GroundingError) as caught:
        parse_point(reply, "per_mille")
    assert repr(reply) in str(caught.value)


@given(st.integers(-999, 1999), st.integers(-999, 1999))
def test_written_and_read_is_the_same(x, y):
    for form in ("({}, {})", "[{},{}]", "{}, {}"):
        assert parse_point(form.format(x, y), "per_mille") == Point(x, y, "per_mille")


@given(st.text(alphabet="0123456789.,-()[] \nen", max_size=16) | st.text(max_size=40))
def test_any_text_is_a_point_or_an_error(text):
    try:
        point = parse_point(text, "per_mille")
    except GroundingError:
        return
    assert isinstance(point.x, float)
    assert text.count(",") == 1


# Asking.


def test_the_picture_comes_first_and_nothing_is_left_to_chance(monkeypatch):
    monkeypatch.setenv("EYES_KEY", "a-long-secret")
    with ChatServer(completion("(500, 250)")) as server:
        found = find(server, "the blue lamp {{not a slot}}", key_variable="EYES_KEY")
    assert found == Point(500, 250, "per_mille")
    [asked] = server.asked
    assert asked["model"] == "eyes"
    assert asked["temperature"] == 0
    [message] = asked["messages"]
    picture, words = message["content"]
    kind, _, data = picture["image_url"]["url"].partition(",")
    assert (message["role"], picture["type"], words["type"]) == ("user", "image_url", "text")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(data) == SCREENSHOT.png
    assert "Description: the blue lamp {{not a slot}}\n" in words["text"]
    assert words["text"].endswith("Answer:")
    assert server.headers[0]["Authorization"] == "Bearer a-long-secret"


def test_shares_of_the_picture_are_not_taken_for_its_corner():
    with ChatServer(completion("(0.5, 0.3)")) as server, pytest.raises(GroundingError, match="shares of the picture"):
        find(server)


@pytest.mark.parametrize("reply", ["(1200, 5)", "(5, -60)"])
def test_a_point_far_outside_names_the_reply(reply):
    with ChatServer(completion(reply)) as server, pytest.raises(GroundingError, match="far outside") as caught:
        find(server)
    assert repr(reply) in str(caught.value)


def test_a_reply_that_was_cut_off_is_not_believed():
    with ChatServer(completion("512, 33", "length")) as server, pytest.raises(GroundingError, match="cut off"):
        find(server)


def test_a_grounder_may_think_first():
    with ChatServer(completion("<think>At (1, 2)?</think>(512, 334)")) as server:
        assert find(server) == Point(512, 334, "per_mille")


def test_what_goes_wrong_with_the_endpoint_ends_the_episode_by_grounding():
    with ChatServer((400, "too many pixels")) as server, pytest.raises(GroundingError, match="400: 'too many pixels'"):
        find(server)
    with ChatServer((404, "no such model")) as server, pytest.raises(ConfigError, match="404: 'no such model'"):
        find(server)


def test_a_grounder_from_its_address(monkeypatch):
    assert make_grounder(None) is None
    with pytest.raises(ConfigError, match="--grounder-model"):
        make_grounder("http://localhost:8000/v1")
    with pytest.raises(ConfigError, match="has no endpoint"):
        make_grounder(None, "osunlp/UGround-V1-7B")
    for key, header in ((None, None), ("a-long-secret", "Bearer a-long-secret")):
        monkeypatch.delenv("FOCUSMEM_GROUNDER_KEY", raising=False)
        if key is not None:
            monkeypatch.setenv("FOCUSMEM_GROUNDER_KEY", key)
        with ChatServer(completion("(1, 2)")) as server:
            made = make_grounder(server.url, "osunlp/UGround-V1-7B")
            assert asyncio.run(made.find("the box", PictureOnly())) == Point(1, 2, "per_mille")
        assert server.asked[0]["model"] == "osunlp/UGround-V1-7B"
        assert server.headers[0].get("Authorization") == header


# In a browser.

LIMITS = BrowserLimits(width=640, height=480, load_s=1.0, settle_s=0.0, wait_s=0.0)
# Only the place on the screen tells what is what.
PAGE = """<title>Start</title><style>* { position: absolute; margin: 0; } div { width: 320px; height: 480px; }</style>
    <div onclick="document.title = 'left'" style="left: 0"></div>
    <div onclick="document.title = 'right'" style="left: 320px"></div>
    <input aria-label="x" style="left: 400px; top: 400px" oninput="document.title = this.value">"""


@pytest.fixture(scope="module")
def site():
    with Site(blank=PAGE) as site:
        yield site


def visit(chromium, site, server, *actions):
    async def whole():
        browser = await ChromiumBrowser.launch(LIMITS, [site.host], pool=chromium.pool, grounder=grounder(server))
        try:
            await browser.open(f"{site.url}/blank")
            seen = await browser.observe()
            done = [await browser.perform(action) for action in actions]
            return seen, done, (await browser.observe()).title
        finally:
            await browser.close()

    return chromium.run(whole())


@pytest.mark.browser
def test_a_click_goes_where_the_model_points(chromium, site):
    with ChatServer(completion("(501, 500)")) as server:
        seen, done, title = visit(chromium, site, server, make_action("click", description="the right half"))
    assert (done, title) == ([Performed((320, 240))], "right")
    sent = server.asked[0]["messages"][0]["content"][0]["image_url"]["url"]
    assert base64.b64decode(sent.partition(",")[2]) == seen.screenshot.png


@pytest.mark.browser
def test_a_point_past_the_edge_is_clicked_at_the_edge(chromium, site):
    with ChatServer(completion("(1000, 1000)")) as server:
        _, done, title = visit(chromium, site, server, make_action("click", description="the corner"))
    assert (done, title) == ([Performed((639, 479))], "right")


@pytest.mark.browser
def test_text_goes_into_the_field_the_model_points_at(chromium, site):
    action = make_action("type", text="blue mug", description="the box at the bottom")
    with ChatServer(completion("(680, 855)")) as server:
        _, done, title = visit(chromium, site, server, action)
    assert (done, title) == ([Performed((435, 410))], "blue mug")


@pytest.mark.browser
def test_without_a_description_no_model_is_asked(chromium, site):
    with ChatServer(completion("(0, 0)")) as server:
        _, _, title = visit(chromium, site, server, make_action("type", text="red"))
    assert (title, server.asked) == ("red", [])


@pytest.mark.browser
def test_a_model_that_talks_nonsense_ends_the_episode_and_the_next_one_begins_afresh(chromium, site):
    click = make_action("click", description="the right half")

    async def whole(server):
        browser = await ChromiumBrowser.launch(LIMITS, [site.host], pool=chromium.pool, grounder=grounder(server))
        try:
            await browser.open(f"{site.url}/blank")
            with pytest.raises(GroundingError, match="left of the lamp"):
                await browser.perform(click)
            with pytest.raises(WorldError, match="No page is open"):
                await browser.observe()
            await browser.open(f"{site.url}/blank")
            return await browser.perform(click)
        finally:
            await browser.close()

    with ChatServer(completion("left of the lamp"), completion("(900, 100)")) as server:
        assert chromium.run(whole(server)) == Performed((576, 48))
    assert json.dumps(server.asked[0]) == json.dumps(server.asked[1]), "the same page, looked at again"
