"""Seeds that depend on names, not on the order of execution."""

import hashlib


def derive_seed(root: int, *names: str | int) -> int:
    """A 63-bit seed for one purpose, for example `derive_seed(0, "site", 17)`. Equal arguments give equal seeds."""
    text = "\x1f".join([str(root), *(f"{type(name).__name__}:{name}" for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
