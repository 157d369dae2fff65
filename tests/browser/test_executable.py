import os
import shutil
import subprocess
from pathlib import Path

import pytest

from focusmem.browser.executable import SYSTEM_BROWSERS, browser_version, find_browser
from focusmem.errors import UserError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def install(monkeypatch, tmp_path):
    """A machine that has only these browsers."""
    monkeypatch.delenv("FOCUSMEM_BROWSER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    def installed(*names):

        for name in names:
            (tmp_path / name).write_text(f"#!/bin/sh\necho {name} 1.2\n")
            (tmp_path / name).chmod(0o755)
        return tmp_path

    return installed


@pytest.mark.parametrize("name", SYSTEM_BROWSERS)
def test_any_of_them_is_driven_if_it_is_the_only_one(install, name):
    folder = install(name)
    assert find_browser() == str(folder / name)
    assert browser_version() == f"{name} 1.2 ({folder / name})"


@pytest.mark.parametrize("name", SYSTEM_BROWSERS)
def test_the_environment_chooses_one_by_name_or_path(install, monkeypatch, name):
    folder = install(*SYSTEM_BROWSERS)
    assert find_browser() == str(folder / SYSTEM_BROWSERS[0])
    for wanted in (name, str(folder / name)):
        monkeypatch.setenv("FOCUSMEM_BROWSER", wanted)
        assert find_browser() == str(folder / name)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            "firefox",
            r"'firefox'; use one of chromium-headless-shell, .* \(installed here: chromium\), or the full path",
        ),
        ("google-chrome", "'google-chrome', which is not installed; installed here: chromium. Install it, or unset"),
        ("/nowhere/chrome", "'/nowhere/chrome', which is not a program; installed here: chromium. Correct the path"),
    ],
)
def test_an_unknown_one_is_a_friendly_error(install, monkeypatch, wanted, message):
    install("chromium")
    monkeypatch.setenv("FOCUSMEM_BROWSER", wanted)
    with pytest.raises(UserError, match=f"FOCUSMEM_BROWSER is {message}"):
        find_browser()


def test_without_any_playwright_has_its_own(install):
    install()
    assert shutil.which("chromium") is None
    assert (find_browser(), browser_version()) == (None, "the Chromium of Playwright")


@pytest.mark.parametrize(
    ("words", "surroundings", "expected"), [(["BROWSER=chromium"], {}, True), ([], {"BROWSER": "firefox"}, False)]
)
def test_make_takes_the_browser_from_its_command_line_alone(words, surroundings, expected):
    """Desktops have a BROWSER in their environment that means another program."""
    around = {name: value for name, value in os.environ.items() if name not in ("FOCUSMEM_BROWSER", "MAKEFLAGS")}
    command = ["make", "--print-data-base", "--dry-run", "help", *words]
    database = subprocess.run(command, cwd=ROOT, env=around | surroundings, capture_output=True, text=True, check=True)
    assert ("FOCUSMEM_BROWSER" in database.stdout) is expected
