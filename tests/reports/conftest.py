"""One Chromium for the tests of the page; see browser/fixtures."""

from browser.fixtures import chromium

__all__ = ["chromium"]
