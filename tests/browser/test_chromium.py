"""Chromium on local pages with one awkward thing each."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from browser.fixtures import descendants, is_gone
from browser.sites import Site
from focusmem.browser import chromium_process
from focusmem.browser.base import BrowserLimits, Performed
from focusmem.browser.chromium import ChromiumBrowser
from focusmem.browser.chromium_process import ChromiumPool
from focusmem.browser.playwright_api import PlaywrightError
from focusmem.errors import BlockedError, UserError, WorldError
from focusmem.schemas import make_action

pytestmark = pytest.mark.browser

LONG_S = 600
"""A limit that is reached only if the awaited event never happens."""
LIMITS = BrowserLimits(
    width=640, height=480, load_s=LONG_S, settle_s=0.0, wait_s=0.0, action_s=2 * LONG_S, step_s=3 * LONG_S
)
HURRIED = BrowserLimits(width=640, height=480, load_s=0.2, settle_s=0.0, wait_s=0.0, action_s=1.0)


@pytest.fixture(scope="module")
def site():
    with Site() as site:
        yield site


@pytest.fixture
def visit(chromium, site):
    """Run a coroutine function with a browser that stands on a page of the site."""

    def run(path, work, limits=LIMITS, allowed=(), **options):
        async def whole():
            browser = await ChromiumBrowser.launch(limits, [site.host, *allowed], pool=chromium.pool, **options)
            try:
                await browser.open(site.url + path)
                return await work(browser)
            finally:
                await browser.close()

        return chromium.run(whole())

    return run


def do(browser, name, **arguments):
    return browser.perform(make_action(name, **arguments))


async def title(browser):
    return (await browser.observe()).title


# Looking.


def test_a_screenshot_is_the_view(visit):
    async def work(browser):
        return await browser.observe()

    seen = visit("/tall", work)
    assert (seen.screenshot.width, seen.screenshot.height) == (640, 480)
    assert seen.title == "Tall"
    assert seen.controls == ()


def test_controls_carry_the_names_a_screen_reader_would_say(visit):
    async def work(browser):
        return (await browser.observe()).controls

    controls = visit("/names", work)
    assert [(control.name, control.kind) for control in controls] == [
        ("By label", "link"),
        ("By other", "button"),
        ("By wrapping", "field"),
        ("By placeholder", "field"),
        ("By alt", "button"),
        ("By picture", "link"),
        ("By text", "link"),
        ("By title", "link"),
        ("By value", "button"),
        ("By role", "button"),
        ("In the shadow", "button"),
        ("A link over two lines, because it is long", "link"),
    ]


def test_a_page_cannot_lie_about_its_controls(visit):
    async def work(browser):
        return await browser.observe()

    assert [control.name for control in visit("/lies", work).controls] == ["Fine"]


# Acting.


def test_click_leads_on_and_says_where_it_was(visit, site):
    async def work(browser):
        performed = await do(browser, "click", description="the second page link")
        return performed, await browser.observe()

    performed, seen = visit("/", work)
    assert performed.error is None
    assert performed.click_point is not None
    assert (seen.url, seen.title) == (f"{site.url}/second", "Second")


def test_an_element_that_is_not_there_is_an_error_for_the_policy(visit):
    async def work(browser):
        return await do(browser, "click", description="checkout")

    performed = visit("/", work)
    assert performed == Performed(error="Nothing in view is called 'checkout'; use the words on the page, or scroll.")


def test_typing_replaces_and_enter_sends(visit, site):
    async def work(browser):
        await do(browser, "type", text="new words", description="search field")
        await do(browser, "press_key", key="Enter")
        return (await browser.observe()).url

    assert visit("/form", work) == f"{site.url}/second?q=new+words"


def test_with_enter_one_action_searches(visit, site):
    async def work(browser):
        performed = await do(browser, "type", text="blue mug", description="search field")
        return performed.error, (await browser.observe()).url

    assert visit("/form", work, presses_enter=True) == (None, f"{site.url}/second?q=blue+mug")
    assert visit("/form", work) == (None, f"{site.url}/form")


def test_with_enter_an_option_is_only_chosen_and_a_field_that_refuses_gets_no_enter(visit, site):
    async def work(browser):
        results = [
            await do(browser, "type", text="Blue", description="colour"),
            await do(browser, "type", text="x", description="locked"),
        ]
        value = await browser._tab._page.evaluate("document.querySelector('select').value")
        return [result.error for result in results], value, (await browser.observe()).url

    errors, value, url = visit("/form", work, presses_enter=True)
    assert (errors, value, url) == ([None, "The field cannot be changed."], "Blue", f"{site.url}/form")


def test_a_scaled_view_has_larger_screenshots_and_clicks_where_they_show(visit, site):
    limits = replace(LIMITS, width=320, height=240, scale=1.5)

    async def work(browser):
        seen = await browser.observe()
        performed = await do(browser, "click", description="Second page")
        return seen, performed, (await browser.observe()).url

    small = visit("/", work, replace(limits, scale=1.0))[0]
    seen, performed, url = visit("/", work, limits)
    assert (seen.screenshot.width, seen.screenshot.height) == (480, 360) == limits.screenshot_size
    assert url == f"{site.url}/second"
    [link, *_], [small_link, *_] = seen.controls, small.controls
    assert performed.click_point == link.centre
    assert (link.left, link.width) == (int(small_link.left * 1.5), int(small_link.width * 1.5))


def test_typing_into_each_kind_of_field(visit):
    async def work(browser):
        page = browser._tab._page
        results = [
            await do(browser, "type", text="several\nlines", description="message"),
            await do(browser, "type", text="Blue", description="colour"),
            await do(browser, "type", text="Green", description="colour"),
            await do(browser, "type", text="x", description="locked"),
            await do(browser, "type", text="x", description="upload"),
            await do(browser, "click", description="I agree"),
        ]
        script = "[...document.querySelectorAll('textarea, select, #agree')].map((one) => one.checked ?? one.value)"
        return [result.error for result in results], await page.evaluate(script)

    errors, values = visit("/form", work)
    assert values == ["several\nlines", "Blue", True]
    assert errors == [
        None,
        None,
        "The field has no option 'Green'.",
        "The field cannot be changed.",
        "No field in view is called 'upload'; use the words on the page, or scroll.",
        None,
    ]


def test_typing_without_a_description(visit):
    async def work(browser):
        before = await do(browser, "type", text="x")
        await do(browser, "click", description="message")
        after = await do(browser, "type", text="hello")
        return before, after, await browser._tab._page.evaluate("document.querySelector('textarea').value")

    before, after, value = visit("/form", work)
    assert before.error == "There are 4 fields in view; say which one to type into."
    assert after == Performed()
    assert value == "hello"


def test_scrolling_a_very_tall_page_to_its_end(visit):
    async def work(browser):
        await do(browser, "press_key", key="End")
        await do(browser, "scroll", direction="up")
        await do(browser, "scroll", direction="down")
        performed = await do(browser, "click", description="the end")
        return performed, await title(browser)

    performed, found = visit("/tall", work)
    assert performed.error is None
    assert found == "Second"


def test_scrolling_moves_the_list_in_the_middle_first(visit):
    async def work(browser):
        positions = []
        for _ in range(3):
            await do(browser, "scroll", direction="down")
            positions.append(await browser._tab._page.evaluate("[inner.scrollTop > 0, scrollY > 0]"))
        return positions

    assert visit("/list", work) == [[True, False], [True, False], [True, True]]


def test_goto_takes_addresses_and_paths_of_the_allowed_sites(visit, site):
    async def work(browser):
        errors = [
            (await do(browser, "goto", url=url)).error
            for url in [
                "/second",
                f"{site.url}/",
                "https://elsewhere.test/",
                "javascript:alert(1)",
                "file:///etc/passwd",
            ]
        ]
        return errors, await title(browser)

    errors, found = visit("/", work)
    assert errors[:2] == [None, None]
    assert "elsewhere.test does not belong to this task" in errors[2]
    assert all("cannot be opened" in error for error in errors[3:])
    assert found == "Home"


@pytest.mark.parametrize(
    ("path", "reason"), [("/nothing", "the site sent no page"), ("/file", "it is a file to download")]
)
@pytest.mark.parametrize("name", ["goto", "click"])
def test_what_is_no_page_is_an_error_and_the_page_stays(visit, path, reason, name):
    async def work(browser):
        arguments = {"url": path} if name == "goto" else {"description": path}
        return await do(browser, name, **arguments), await title(browser)

    performed, found = visit("/files", work)
    assert performed.error == f"The page could not be opened ({reason})."
    assert found == "Files"


@pytest.mark.parametrize(
    ("path", "reason"), [("/nothing", "the site sent no page"), ("/file", "it is a file to download")]
)
def test_a_start_page_that_is_no_page_says_why(visit, path, reason):
    with pytest.raises(WorldError, match=f"cannot be opened. The page could not be opened .{reason}"):
        visit(path, title)


def test_unknown_keys_wait_and_stop(visit):
    async def work(browser):
        return [
            await do(browser, "press_key", key="Hyper+Q"),
            await do(browser, "wait"),
            await do(browser, "stop", answer="done"),
        ]

    unknown, waited, stopped = visit("/", work)
    assert "no key 'Hyper+Q'" in unknown.error
    assert waited == stopped == Performed()


# Pages that want more than they should.


def test_dialogs_answer_themselves(visit):
    async def work(browser):
        await do(browser, "click", description="ask me")
        answered = await title(browser)
        await do(browser, "click", description="hold me")
        await do(browser, "click", description="leave")
        return answered, await title(browser)

    assert visit("/dialogs", work) == (",false,", "Second")


@pytest.mark.parametrize(
    ("description", "arrives"),
    [("New window", "/second"), ("Unrelated window", "/second?noopener"), ("Script window", "/second?script")],
)
def test_new_windows_open_in_the_same_page(visit, site, description, arrives):
    """The page is fetched once: the window itself fetches nothing, and is closed."""
    num_before = len(site.asked)

    async def work(browser):
        performed = await do(browser, "click", description=description)
        seen = await browser.observe()
        await do(browser, "wait")
        return performed.error, seen.url, len(browser._context.pages)

    assert visit("/windows", work) == (None, site.url + arrives, 1)
    assert site.asked[num_before:].count(arrives) == 1


def test_windows_that_lead_nowhere_are_closed(visit):
    async def work(browser):
        refused = await do(browser, "click", description="foreign window")
        await do(browser, "click", description="many windows")
        async with asyncio.timeout(LONG_S):
            while len(browser._context.pages) > 1:
                await asyncio.sleep(0.02)
        return refused.error, await title(browser)

    error, found = visit("/windows", work)
    assert "elsewhere.test does not belong to this task" in error
    assert found == "Windows"


@pytest.mark.parametrize("script", ["open('http://elsewhere.test/')", "location = 'http://elsewhere.test/'"])
def test_a_start_page_that_wants_to_go_elsewhere_is_a_page(chromium, script):
    """It is refused, and the page that has opened stays."""
    with Site(greedy=f"<title>Greedy</title><p>Text<script>{script}</script>") as site:

        async def work():
            browser = await ChromiumBrowser.launch(LIMITS, [site.host], pool=chromium.pool)
            try:
                await browser.open(f"{site.url}/greedy")
                return await title(browser)
            finally:
                await browser.close()

        assert chromium.run(work()) == "Greedy"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("location = 'http://elsewhere.test/'", "The site elsewhere.test does not belong to this task"),
        ("location = '/file'", "it is a file to download"),
        ("stop()", "The page stopped before it showed anything"),
    ],
)
def test_a_page_that_never_shows_anything_says_why(chromium, script, reason):
    """Chromium draws no page without a body, so that a look at it would take until the limit."""
    with Site(empty=f"<title>Empty</title><script>{script}</script>") as site:

        async def work():
            browser = await ChromiumBrowser.launch(LIMITS, [site.host], pool=chromium.pool)
            try:
                with pytest.raises(WorldError, match=f"cannot be opened.*{reason}"):
                    await browser.open(f"{site.url}/empty")
                await browser.open(f"{site.url}/second")
                performed = await do(browser, "goto", url="/empty")
                return performed.error, await title(browser)
            finally:
                await browser.close()

        error, found = chromium.run(work())
    assert reason in error
    assert found == "Second"


def test_nothing_outside_the_allow_list_is_reached(chromium):
    """By a link, a picture, a script or a redirect, of a page or of a picture."""
    with Site() as other:
        foreign = f"http://localhost:{other.host.partition(':')[2]}"
        page = f"""<title>Greedy</title>
            <a href="{foreign}/link">Away</a> <a href="/redirect?{other.url}/hop">Hop</a>
            <img src="{other.url}/picture"><img src="/redirect?{foreign}/picture">
            <iframe src="{foreign}/frame"></iframe>
            <script>fetch("{foreign}/fetch", {{mode: "no-cors"}}).catch(() => 0);
                new WebSocket("{other.url.replace("http", "ws")}/socket");</script>"""
        with Site(greedy=page) as site:

            async def work():
                browser = await ChromiumBrowser.launch(LIMITS, [site.host], pool=chromium.pool)
                await browser.open(f"{site.url}/greedy")
                errors = [(await do(browser, "click", description=name)).error for name in ("Away", "Hop")]
                found = await title(browser)
                redirected = await do(browser, "goto", url=f"/redirect?{foreign}/start")
                try:
                    await browser.open(f"{site.url}/redirect?{foreign}/start")
                except WorldError as error:
                    return [*errors, redirected.error, str(error)], found
                finally:
                    await browser.close()

            errors, found = chromium.run(work())
        assert other.asked == []
        assert len(errors) == 4
        assert all("does not belong to this task" in error for error in errors)
        assert found == "Greedy", "the page stays after a refused click, and comes back after a refused redirect"


def test_an_episode_leaves_nothing_to_the_next(visit, site):
    async def work(browser):
        first = await title(browser)
        await browser.open(f"{site.url}/cookie")
        second = await title(browser)
        await do(browser, "goto", url="/cookie")
        return first, second, await title(browser)

    assert visit("/cookie", work) == ("", "", "seen=1")


# Time, and death.


@pytest.mark.parametrize("path", ["/never", "/alerts"])
def test_a_page_that_does_not_come_to_rest_ends_the_episode(visit, path):
    async def work(browser):
        await browser.observe()

    with pytest.raises(WorldError, match="took too long: action_s"):
        visit(path, work, HURRIED)


def test_a_page_that_hangs_after_a_click_ends_the_episode_but_not_its_neighbours(chromium, site):
    async def work():
        stuck = await ChromiumBrowser.launch(LIMITS, [site.host], pool=chromium.pool)
        neighbour = await ChromiumBrowser.launch(LIMITS, [site.host], pool=chromium.pool)
        await stuck.open(f"{site.url}/busy")
        await neighbour.open(f"{site.url}/second")
        stuck._clock._limits = HURRIED
        with pytest.raises(WorldError, match="The action click took too long"):
            await do(stuck, "click", description="think hard")
        with pytest.raises(WorldError, match="No page is open"):
            await stuck.observe()
        found = await title(neighbour)
        stuck._clock._limits = LIMITS
        await stuck.open(f"{site.url}/second")
        found += await title(stuck)
        await stuck.close()
        await neighbour.close()
        return found

    assert chromium.run(work()) == "SecondSecond"


def test_a_link_that_never_answers_ends_the_episode(visit):
    async def work(browser):
        browser._clock._limits = HURRIED
        await do(browser, "click", description="never")

    with pytest.raises(WorldError, match="The action click took too long"):
        visit("/", work)


def test_a_page_that_is_never_complete_is_looked_at_as_it_is(visit):
    async def work(browser):
        browser._tab._load_s = LONG_S
        await do(browser, "click", description="second page")
        return await title(browser)

    assert visit("/slow-picture", work, replace(LIMITS, load_s=0.2)) == "Second"


@pytest.mark.parametrize("path", ["/refused", "/too-many", "/puzzle"])
def test_a_site_that_refuses_the_agent_at_once(visit, path):
    with pytest.raises(BlockedError, match="was refused: HTTP 4"):
        visit(path, lambda browser: browser.observe())


@pytest.mark.parametrize(("path", "is_shut_out"), [("/too-many", True), ("/puzzle", True), ("/refused", False)])
def test_a_site_that_refuses_later_on(visit, path, is_shut_out):
    """One page may be forbidden to everyone, and the policy can go on from there."""

    async def work(browser):
        if is_shut_out:
            with pytest.raises(BlockedError):
                await do(browser, "goto", url=path)
            return None
        await do(browser, "goto", url=path)
        assert await title(browser) == "Forbidden"
        await do(browser, "goto", url="/second")
        return await title(browser)

    assert visit("/", work) == (None if is_shut_out else "Second")


def test_episodes_that_do_not_share_a_process(site):
    async def work():
        async with ChromiumPool(max_users=1) as pool:
            one, other = [await ChromiumBrowser.launch(LIMITS, [site.host], pool=pool) for _ in range(2)]
            await one.open(f"{site.url}/")
            await other.open(f"{site.url}/second")
            used = one._process, other._process
            os.kill(one._process._pid, signal.SIGKILL)
            with pytest.raises(WorldError):
                await one.observe()
            found = await title(other)
            await other.abandon()
            third = await ChromiumBrowser.launch(LIMITS, [site.host], pool=pool)
            await third.open(f"{site.url}/")
            return used[0] is not used[1], found, used[1].is_alive, await title(third)

    assert asyncio.run(work()) == (True, "Second", False, "Home")


@asynccontextmanager
async def own_browser(site, limits=LIMITS):
    browser = await ChromiumBrowser.launch(limits, [site.host])
    try:
        yield browser
    finally:
        await browser.close()


async def gone(processes):
    """Waits until these have ended; the kernel and the driver take a moment."""
    async with asyncio.timeout(LONG_S):
        while processes & descendants():
            await asyncio.sleep(0.05)
    return True


def test_a_killed_browser_is_an_error_and_the_next_episode_gets_a_new_one(site):
    async def work():
        async with own_browser(site) as browser:
            await browser.open(f"{site.url}/")
            os.kill(browser._process._pid, signal.SIGKILL)
            with pytest.raises(WorldError):
                await browser.observe()
            await browser.open(f"{site.url}/second")
            return await title(browser)

    assert asyncio.run(work()) == "Second"


@pytest.mark.parametrize("is_waiting", [True, False])
def test_a_page_that_closes_ends_the_episode_at_once_and_says_so(visit, is_waiting):
    async def work(browser):
        session = browser._tab._session
        browser._limits = replace(LIMITS, load_s=0, wait_s=LONG_S)
        closing = asyncio.create_task(session.send("Page.close"))
        if not is_waiting:
            await closing
        with pytest.raises(WorldError, match=r"failed: the page closed itself\."):
            await (do(browser, "wait") if is_waiting else browser.observe())
        await closing
        browser._limits = LIMITS
        await browser.open(f"http://{browser._allowed[0]}/second")
        return await title(browser)

    assert visit("/", work) == "Second"


async def crash(browser, after_s=0.0):
    """What a page that takes too much memory does. Chromium does not answer this."""
    session = browser._tab._session
    await asyncio.sleep(after_s)
    with suppress(PlaywrightError, TimeoutError):
        async with asyncio.timeout(1):
            await session.send("Page.crash")


@pytest.mark.parametrize("after_s", [0.0, 0.5])
def test_a_page_that_crashes_ends_the_episode_at_once_and_says_so(site, after_s):
    async def work():
        async with own_browser(site, replace(LIMITS, load_s=0, wait_s=LONG_S)) as browser:
            await browser.open(f"{site.url}/")
            crashing = asyncio.create_task(crash(browser, after_s))
            if not after_s:
                await crashing
            with pytest.raises(WorldError, match=r"failed: the page crashed\."):
                await (do(browser, "wait") if after_s else browser.observe())
            await crashing
            await browser.open(f"{site.url}/second")
            return await title(browser)

    assert asyncio.run(work()) == "Second"


def test_no_process_is_left_behind(site):
    async def work():
        before = descendants()
        async with own_browser(site, HURRIED) as browser:
            process = await browser._pool.process((site.host,))
            chromium = {process._pid} | descendants(process._pid)
            assert chromium <= descendants()
            with pytest.raises(WorldError):
                await browser.open(f"{site.url}/alerts")
            is_killed = await gone(chromium)
        return is_killed, await gone(descendants() - before)

    assert asyncio.run(work()) == (True, True)


def test_a_limit_that_has_passed_while_nobody_looked(site):
    async def work():
        async with own_browser(site) as browser:
            await browser.open(f"{site.url}/")
            browser._clock._episode_start -= LIMITS.episode_s
            with pytest.raises(WorldError, match="episode_s"):
                await browser.observe()

    asyncio.run(work())


def test_closing_twice_and_before_opening(site):
    async def work():
        async with own_browser(site) as browser:
            await browser.close()
            with pytest.raises(WorldError, match="No page is open"):
                await browser.observe()

    asyncio.run(work())


def test_where_there_is_no_browser_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr("focusmem.browser.chromium_process.find_browser", lambda: None)
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # Playwright does not tidy up after a browser that never started

    async def work():
        async with ChromiumPool() as pool:
            await ChromiumBrowser.launch(LIMITS, ["shop.example"], pool=pool)

    with pytest.raises(UserError, match="apt-get install chromium-headless-shell"):
        asyncio.run(work())


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "echo debug >&2; echo chromium: error while loading shared libraries: libnss3.so: gone >&2; exit 127",
            "chromium: error while loading shared libraries: libnss3.so: gone",
        ),
        ("echo '[1:FATAL:host.cc(1)] No usable sandbox!' >&2; exit 1", "[1:FATAL:host.cc(1)] No usable sandbox!"),
        ("echo first >&2; echo It is broken. >&2; exit 1", "first; It is broken."),
        ("exit 3", "Target page, context or browser has been closed (exitCode=3, signal=null)"),
    ],
)
def test_why_a_browser_does_not_start_is_said_in_a_line(monkeypatch, tmp_path, script, reason):
    (tmp_path / "broken").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "broken").chmod(0o755)
    monkeypatch.setenv("FOCUSMEM_BROWSER", str(tmp_path / "broken"))

    async def work():
        async with ChromiumPool() as pool:
            await pool.process(("shop.example",))

    with pytest.raises(UserError) as found:
        asyncio.run(work())
    assert str(found.value) == f"Chromium did not start: {reason}"


def test_a_driver_that_does_not_start_is_told_with_what_may_be_missing():
    """In a process of its own, since Playwright leaves the dead driver's pipes to the garbage collector."""
    code = (
        "import asyncio; from focusmem.browser.chromium_process import ChromiumPool; "
        "asyncio.run(ChromiumPool().process(('shop.example',)))"
    )
    environment = os.environ | {"PLAYWRIGHT_NODEJS_PATH": "/bin/false"}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=LONG_S
    )
    assert "focusmem.errors.UserError: Playwright's driver did not start" in result.stderr
    assert "apt-get install libatomic1" in result.stderr


def test_where_there_is_no_playwright_the_error_says_what_to_install():
    code = "import sys; sys.modules['playwright'] = None; import focusmem.browser.chromium"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install playwright" in result.stderr


@pytest.fixture
def temporary(monkeypatch):
    """A folder for temporary files of this test only, with a path of the usual length."""
    with tempfile.TemporaryDirectory(prefix="fm-", dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


BROWSER_THAT_WAITS = """
import asyncio
from focusmem.browser.chromium_process import ChromiumPool

async def work():
    await ChromiumPool().process(("localhost",))
    print("started", flush=True)
    await asyncio.Event().wait()

asyncio.run(work())
"""


def test_what_a_killed_process_left_goes_at_the_next_start_and_what_is_in_use_stays(temporary):
    """Everything is killed at once: the process, Playwright's driver and Chromium, so that nobody can tidy up."""
    words = [sys.executable, "-c", BROWSER_THAT_WAITS]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "started\n"
        victims = [process.pid, *descendants(process.pid)]
        for signal_number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, so that none outlives another
            for pid in victims:
                os.kill(pid, signal_number)
    assert all(is_gone(pid) for pid in victims)
    left = set(temporary.iterdir())
    assert {path.name[:10] for path in left} == {"focusmem-c", "playwright"}

    async def work():
        async with ChromiumPool() as pool, ChromiumPool() as second:
            await pool.process(("localhost",))
            in_use = set(temporary.iterdir())
            await second.process(("localhost",))
            return in_use, set(temporary.iterdir())

    in_use, later = asyncio.run(work())
    assert in_use & left == set()
    assert in_use < later
    assert list(temporary.iterdir()) == []


def test_a_browser_starts_below_a_long_temporary_folder(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr(tempfile, "tempdir", str(long))

    async def work():
        async with ChromiumPool() as pool:
            return (await pool.process(("localhost",))).is_alive

    assert asyncio.run(work())


def test_a_start_that_nobody_waits_for_leaves_nothing(temporary, monkeypatch):
    """Cancelled between the launch and the first answer: neither the process nor its folders stay."""
    asyncio.run(_give_up_while_it_starts(monkeypatch))
    assert list(temporary.glob("focusmem-chromium-*")) == []


async def _give_up_while_it_starts(monkeypatch):
    identify = chromium_process._identify
    started = asyncio.Event()

    async def slow(browser, folder):
        pids.append(await identify(browser, folder))
        started.set()
        await asyncio.Event().wait()

    pids: list[int] = []
    monkeypatch.setattr(chromium_process, "_identify", slow)
    async with chromium_process.ChromiumPool() as pool:
        waiting = asyncio.create_task(pool.process(("localhost",)))
        await started.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert pids[0] not in descendants()
