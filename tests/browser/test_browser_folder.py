import tempfile
from pathlib import Path

import pytest

from focusmem.browser.browser_folder import BrowserFolder, remove_leftovers

SOCKET = "org.chromium.Chromium.scoped_dir.AbCdEf/SingletonSocket"
MAX_SOCKET = 103
"""The longest address of a socket, on the system where it is shortest."""


@pytest.fixture
def place(monkeypatch):
    with tempfile.TemporaryDirectory(prefix="fm-", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def test_sockets_fit_below_any_temporary_folder(place, monkeypatch):
    for length in range(1, 120, 7):
        folder = place / ("x" * length)
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        ours = BrowserFolder.make()
        assert len(str(ours.path / SOCKET)) <= MAX_SOCKET
        ours.remove()
        assert not ours.path.exists()


@pytest.mark.parametrize(
    ("name", "is_removed"),
    [
        ("playwright_chromiumdev_profile-Ab1", True),
        ("playwright stuff/playwright_chromiumdev_profile-Ab1", False),
        ("my profile", False),
    ],
)
def test_only_profiles_that_playwright_made_are_removed(place, name, is_removed):
    profile = place / name
    profile.mkdir(parents=True)
    folder = BrowserFolder.make()
    folder.keep_profile(f"chromium --user-data-dir={profile} --other")
    folder.remove()
    assert profile.exists() is not is_removed


def test_what_is_in_use_is_no_leftover(place):
    dead, living = BrowserFolder.make(), BrowserFolder.make()
    dead._lock.let_go()
    (place / "focusmem-chromium-link").symlink_to(place)
    (place / "other").mkdir()
    remove_leftovers()
    assert sorted(place.iterdir()) == sorted([living.path, place / "focusmem-chromium-link", place / "other"])
    living.remove()
