"""The laboratory's encyclopedia as a ZIM file, served by kiwix-serve, and played in Chromium."""

import asyncio
import os
import shutil
import sys
import urllib.request
from contextlib import AsyncExitStack

import pytest

from browser.fixtures import is_gone
from clocks import PATIENT_S
from focusmem.browser.base import BrowserLimits
from focusmem.browser.opening import BrowserChoice
from focusmem.errors import ConfigError, MissingPackageError, StorageError, UserError
from focusmem.lab.world import zim
from focusmem.lab.world.world import World
from focusmem.schemas import make_action
from focusmem.suites import kiwix
from focusmem.suites.benchmark import Source
from focusmem.suites.catalogue import BenchmarkSuite
from focusmem.suites.kiwix import KiwixServer, book_address
from suites.benchmark_files import mmina_row, write_mmina

needs_kiwix = pytest.mark.skipif(shutil.which(kiwix.PROGRAM) is None, reason="apt-get install kiwix-tools")
LIMITS = BrowserLimits(
    width=800, height=600, settle_s=0.2, wait_s=0.0, load_s=PATIENT_S, action_s=2 * PATIENT_S, step_s=4 * PATIENT_S
)


@pytest.fixture(scope="module")
def encyclopedia(tmp_path_factory):
    pytest.importorskip("libzim", reason="pip install libzim")
    out = tmp_path_factory.mktemp("zim") / "places.zim"
    num = zim.write_zim(World(), out, num_sites=1)
    assert num == len(zim.encyclopedias(World(), 1)[0].entries) + 1
    return out


def test_articles_hold_every_fact_and_link_to_each_other():
    [site] = zim.encyclopedias(World(), 1)
    made = {article.path: article for article in zim.articles([site], "places")}
    for entry in site.entries:
        article = made[zim.path_of(entry)]
        assert article.title == entry.name
        assert all(f"<td>{value}</td>" in article.html for value in entry.facts.values())
        assert f'href="{article.path}"' in made[zim.HOME].html


def test_the_file_is_written_whole_and_never_over_another(tmp_path):
    pytest.importorskip("libzim", reason="pip install libzim")
    with pytest.raises(ConfigError, match=r"should end in \.zim"):
        zim.write_zim(World(), tmp_path / "places")
    taken = tmp_path / "places.zim"
    taken.write_bytes(b"mine")
    with pytest.raises(StorageError, match="exists already"):
        zim.write_zim(World(), taken)
    with pytest.raises(ConfigError, match="There are 30 encyclopedias"):
        zim.write_zim(World(), tmp_path / "many.zim", num_sites=31)
    assert [path.name for path in tmp_path.iterdir()] == ["places.zim"]


def test_missing_programs_and_packages_name_themselves(tmp_path, monkeypatch):
    monkeypatch.setattr(kiwix.shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="apt-get install kiwix-tools"):
        KiwixServer(tmp_path / "places.zim")
    monkeypatch.setitem(sys.modules, "libzim", None)
    with pytest.raises(MissingPackageError, match="pip install libzim"):
        zim.write_zim(World(), tmp_path / "places.zim")


@pytest.mark.parametrize(
    ("said", "prefix"),
    [
        ("kiwix-tools 3.3.0\n\nlibkiwix 11.0.0", "places/A"),
        ("kiwix-tools 3.7.0\n\nlibkiwix 13.1.0", "content/places/A"),
    ],
)
def test_pages_have_the_address_of_the_installed_version(tmp_path, monkeypatch, said, prefix):
    script = tmp_path / "kiwix-serve"
    script.write_text(f"#!/bin/sh\nprintf '{said}'\n".replace("\n\n", "\\n\\n"))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert book_address(tmp_path / "places.zim") == f"{kiwix.ORIGIN}/{prefix}"


@needs_kiwix
def test_a_file_that_is_no_zim_is_the_users_mistake(tmp_path):
    with pytest.raises(UserError, match="There is no"):
        KiwixServer(tmp_path / "places.zim")
    (tmp_path / "places.zim").write_bytes(b"no ZIM file")
    with (
        pytest.raises(UserError, match=r"kiwix-serve did not serve .*places\.zim"),
        KiwixServer(tmp_path / "places.zim"),
    ):
        pass


@needs_kiwix
def test_the_server_ends_with_its_block(encyclopedia):
    with KiwixServer(encyclopedia) as server:
        pid = server._process.pid
        address = book_address(encyclopedia).replace(f"{kiwix.ORIGIN}/", server.url)
        with urllib.request.urlopen(f"{address}/{zim.LANDING}", timeout=PATIENT_S) as reply:
            assert b"<h1>Encyclopedia</h1>" in reply.read()
    assert is_gone(pid)


@pytest.mark.browser
@pytest.mark.slow
@needs_kiwix
def test_a_task_of_mmina_is_played_on_the_laboratorys_encyclopedia(encyclopedia, tmp_path):
    [site] = zim.encyclopedias(World(), 1)
    entry = site.entries[0]
    data = write_mmina(tmp_path, wikipedia=[mmina_row(1, f"How high is {entry.name}?")])
    suite = BenchmarkSuite("mmina-wikipedia", Source(data, wikipedia=str(encyclopedia)), limits=LIMITS)
    [task] = suite.tasks
    assert task.start_url == f"{book_address(encyclopedia)}/User%3AThe_other_Kiwix_guy/Landing"

    async def work():
        async with AsyncExitStack() as stack:
            make_browser = await suite.open_browsers(BrowserChoice(), stack)
            browser = await make_browser(task)
            stack.push_async_callback(browser.close)
            await browser.open(task.start_url)
            home = await browser.observe()
            searched = await browser.perform(
                make_action("type", text=entry.name, description="search the encyclopedia")
            )
            results = await browser.observe()
            opened = await browser.perform(make_action("click", description=entry.name))
            return home, searched, results, opened, await browser.observe()

    home, searched, results, opened, article = asyncio.run(work())
    assert home.title == "Encyclopedia"
    assert (searched.error, opened.error) == (None, None)
    assert results.url.startswith(f"{kiwix.ORIGIN}/search?"), "one action searches"
    assert article.title == entry.name
    assert article.url.startswith(f"{kiwix.ORIGIN}/")
    assert article.url.endswith(zim.path_of(entry))
