"""See fixtures."""

from small_lab import policy, world

__all__ = ["policy", "world"]
