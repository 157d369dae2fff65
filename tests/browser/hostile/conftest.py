"""See fixtures."""

from browser.fixtures import chromium

__all__ = ["chromium"]
