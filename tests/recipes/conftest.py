"""See fixtures."""

from browser.fixtures import chromium
from small_lab import policy, world

__all__ = ["chromium", "policy", "world"]
