"""A plan of long work: units that need each other, in order. Each unit has a folder and goes on from what it holds.

Several processes may work through the same plan. A unit belongs to the process that holds the lock of its folder, so a
killed process leaves its unit free to be resumed.
"""

import json
import logging
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from focusmem.errors import ConfigError, FocusmemError, StorageError
from focusmem.files import FolderLock, is_safe_name, write_whole
from focusmem.recipes.reproduce.packing import light_files
from focusmem.settings import differences

_log = logging.getLogger(__name__)

UNIT_FILE: Final = "unit.json"
_POLL_S = 0.2

Status = Literal["finished", "failed", "begun", "ready", "waiting"]
"""`ready` has not begun and has all that it needs; `waiting` needs a unit that is not finished."""


@dataclass(frozen=True)
class Limit:
    """When a call has to end, in seconds since the epoch, which all processes of a call share. None is no limit."""

    ends_at: float | None = None

    @classmethod
    def after(cls, minutes: float | None) -> "Limit":
        return cls(None if minutes is None else time.time() + minutes * 60)

    @property
    def minutes_left(self) -> float | None:
        """At least a moment, because every stage takes at least one step."""
        return None if self.ends_at is None else max(1e-6, (self.ends_at - time.time()) / 60)

    def is_over(self) -> bool:
        return self.ends_at is not None and time.time() >= self.ends_at


@dataclass(frozen=True, kw_only=True)
class Unit:
    name: str
    run: Callable[[Path, Limit], bool]
    """Works in the unit's folder until it is finished or the limit is over. Returns whether it is finished."""
    needs: tuple[str, ...] = ()
    """The units that have to be finished before."""
    minutes: float = 0.0
    """An estimate of how long it takes on the machine that the plan is meant for."""
    num_steps: int | None = None
    """Training steps; None for a unit that does not train."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Plain values that decide what the unit makes. A unit that has begun goes on only with the same values."""
    files: Callable[[Path, bool], Mapping[str, bytes]] = light_files
    """What has to be carried to another machine, by path in the unit's folder; the flag says whether the unit is
    finished."""
    is_remade: bool = False
    """Whether another machine makes this unit again rather than carrying it."""


class Plan:
    """Units in an order in which each comes after those that it needs, and otherwise as they were listed."""

    def __init__(self, name: str, units: Sequence[Unit], folder: Path) -> None:
        self.name, self.folder = name, folder
        self.units = _ordered(units)

    @cached_property
    def by_name(self) -> dict[str, Unit]:
        return {unit.name: unit for unit in self.units}

    def place(self, name: str) -> Path:
        return self.folder / "units" / name

    def record(self, unit: Unit) -> dict[str, Any] | None:
        """What is known of a unit that has begun."""
        path = self.place(unit.name) / UNIT_FILE
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StorageError(
                f"{path} cannot be read ({error}). Delete {path.parent} to begin this unit again."
            ) from error
        if not isinstance(found, dict) or found.get("status") not in ("begun", "finished", "failed"):
            raise StorageError(f"{path} is damaged. Delete {path.parent} to begin this unit again.")
        return found

    def status(self, unit: Unit) -> Status:
        record = self.record(unit)
        if record is not None:
            status: Status = record["status"]
            return status
        return "ready" if self.has_needs(unit) else "waiting"

    def is_finished(self, name: str) -> bool:
        return self.status(self.by_name[name]) == "finished"

    def has_needs(self, unit: Unit) -> bool:
        return all(self.is_finished(name) for name in unit.needs)

    def check(self) -> None:
        """Refuses a folder with units that were begun with other settings."""
        for unit in self.units:
            record = self.record(unit)
            if record is None:
                continue
            changed = differences(record["settings"], _plain(unit.settings), free=())
            if changed:
                name, (before, now) = next(iter(changed.items()))
                raise ConfigError(
                    f"The unit {unit.name} in {self.folder} was begun with {name} = {before}, but this plan has {now}. "
                    "Use the same options, or choose another --out."
                )

    def chosen(self, only: str | None) -> tuple[Unit, ...]:
        """The units that a call may work on."""
        if only is None:
            return self.units
        if only not in self.by_name:
            raise ConfigError(f"There is no unit '{only}' in {self.name}; --dry-run lists them.")
        unit = self.by_name[only]
        missing = [name for name in unit.needs if not self.is_finished(name)]
        if missing:
            raise ConfigError(f"The unit {only} needs {', '.join(missing)} first; leave out --only.")
        return (unit,)

    def note(self, unit: Unit, **changes: Any) -> None:
        record = self.record(unit) or {"name": unit.name, "settings": _plain(unit.settings), "minutes": 0.0}
        text = json.dumps(record | changes, indent=2, allow_nan=False)
        write_whole(self.place(unit.name) / UNIT_FILE, text.encode())

    def rows(self) -> Iterator[tuple[Unit, Status, float]]:
        """Each unit with its status and the minutes spent so far, over all calls."""
        for unit in self.units:
            record = self.record(unit)
            yield unit, self.status(unit), 0.0 if record is None else record["minutes"]


def work_through(plan: Plan, limit: Limit, *, only: str | None = None) -> None:
    """Works on one unit after another, those that other processes leave, until none is left or the limit is over. A
    unit that fails does not stop those that do not need it.
    """
    left_alone: set[str] = set()
    """Units that this call began and cannot go on with."""
    while not limit.is_over():
        is_waiting = False
        for unit in plan.chosen(only):
            if unit.name in left_alone or plan.status(unit) in ("finished", "failed") or not plan.has_needs(unit):
                continue
            lock = _taken(plan.place(unit.name))
            if lock is None:
                is_waiting = True
                continue
            try:
                # Another process may have ended it since.
                if plan.status(unit) not in ("finished", "failed") and not _work(plan, unit, limit):
                    left_alone.add(unit.name)
            finally:
                lock.let_go()
            break
        else:
            if not is_waiting:
                return
            time.sleep(_POLL_S)


def _taken(folder: Path) -> FolderLock | None:
    """The lock of a unit's folder, or None if another process holds it."""
    lock = FolderLock(folder, f"Another process is at work in {folder}.")
    try:
        lock.take()
    except StorageError as error:
        if error.__cause__ is not None:  # the folder cannot be locked at all
            raise
        return None
    return lock


def _work(plan: Plan, unit: Unit, limit: Limit) -> bool:
    """Works on a unit, and returns whether it is finished."""
    record, started = plan.record(unit), time.monotonic()
    spent = 0.0 if record is None else record["minutes"]
    plan.note(unit, status="begun", error=None)
    _log.info("%s begins", unit.name)
    try:
        is_finished = unit.run(plan.place(unit.name), limit)
    except Exception as error:  # the others may still be done
        said = str(error) if isinstance(error, FocusmemError) else traceback.format_exc()
        plan.note(unit, status="failed", error=said, minutes=_spent(spent, started))
        _log.warning("%s failed: %s", unit.name, said)
        return False
    plan.note(unit, status="finished" if is_finished else "begun", minutes=_spent(spent, started))
    _log.info("%s %s", unit.name, "is finished" if is_finished else "goes on in the next call")
    return is_finished


def _spent(before: float, started: float) -> float:
    return round(before + (time.monotonic() - started) / 60, 3)


def retry_failed(plan: Plan) -> None:
    """Lets units that failed in an earlier call try again."""
    for unit in plan.units:
        if plan.status(unit) == "failed":
            plan.note(unit, status="begun", error=None)


def failures(plan: Plan) -> dict[str, str]:
    """What failed units said."""
    found = {}
    for unit in plan.units:
        record = plan.record(unit)
        if record is not None and record["status"] == "failed":
            found[unit.name] = record["error"]
    return found


def _ordered(units: Sequence[Unit]) -> tuple[Unit, ...]:
    names = [unit.name for unit in units]
    for unit in units:
        strangers = set(unit.needs) - set(names)
        if strangers or not is_safe_name(unit.name) or names.count(unit.name) > 1:
            raise ConfigError(f"The unit {unit.name!r} needs {sorted(strangers)}, or its name cannot be used.")
    placed: dict[str, Unit] = {}
    while len(placed) < len(units):
        free = (unit for unit in units if unit.name not in placed and placed.keys() >= set(unit.needs))
        following = next(free, None)
        if following is None:
            raise ConfigError(f"Units need each other in a circle: {', '.join(sorted(set(names) - placed.keys()))}.")
        placed[following.name] = following
    return tuple(placed.values())


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as JSON gives them back."""
    plain: dict[str, Any] = json.loads(json.dumps(settings, allow_nan=False))
    return plain
