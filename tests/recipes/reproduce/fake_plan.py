"""A plan of units that count, for tests of the engine: each adds a line to its file until it has enough."""

import os
from functools import partial
from pathlib import Path

from focusmem.files import write_whole
from focusmem.recipes.reproduce.plan import Limit, Plan, Unit


def count(num: int, kill_at: int | None, folder: Path, limit: Limit) -> bool:
    """Counts to `num` in steps that are kept. With `kill_at`, the process dies at this number, but only once."""
    path, killed = folder / "numbers.txt", folder / "killed"
    numbers = path.read_text().split() if path.exists() else []
    while len(numbers) < num:
        if len(numbers) == kill_at and not killed.exists():
            killed.touch()
            os._exit(9)
        if limit.is_over():
            return False
        numbers.append(str(len(numbers)))
        write_whole(path, "\n".join(numbers).encode())
    return True


def make_plan(folder: Path, *, kill_at: int | None = None, num: int = 5) -> Plan:
    units = [
        Unit(name="last", needs=("left", "right"), run=partial(count, num, None), minutes=1, settings={"num": num}),
        Unit(name="right", needs=("first",), run=partial(count, num, kill_at), settings={"num": num}),
        Unit(name="left", needs=("first",), run=partial(count, num, None), settings={"num": num}),
        Unit(name="first", run=partial(count, num, None), settings={"num": num}),
    ]
    return Plan("fake", units, folder)
