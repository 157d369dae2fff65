"""The leakage guard removes trajectories that could give a task away.

Two tasks count as the same if they share one of three keys: the task identifier, the annotated instance, and the
instruction with its particulars replaced by slots. The guard is used when training data are chosen, against bank and
evaluation tasks (`LeakageGuard.screen`), and at each retrieval, against the current query (`KeyColumns.matches`).
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Generic, Literal, Self, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from focusmem.bank.wording import RULES_VERSION, Catalogue, fold, plain_template, slot_template
from focusmem.schemas import Task, Trajectory

LeakageKey = Literal["task", "instance", "template"]
LEAKAGE_KEYS: tuple[LeakageKey, ...] = get_args(LeakageKey)

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

_NO_KEY = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is known about the current task. A field without a value removes nothing."""

    task_id: str | None = None
    instruction: str | None = None
    instance: str | None = None
    """The concrete object that the task is about."""
    template: str | None = None
    """The annotated wording with its slots; if there is none, it is made from the instruction."""

    @classmethod
    def of(cls, record: Task | Trajectory) -> Self:
        return cls(
            task_id=record.task_id,
            instruction=record.instruction,
            instance=record.annotations.instance,
            template=record.annotations.template,
        )


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one task, as numbers; zero stands for a missing key."""

    task: int
    instance: int
    template: int
    """The key of the annotated template."""
    wording: int
    """The key of the template that is made from the instruction. It is compared if one of two tasks has no annotated
    template."""


@dataclass(frozen=True)
class KeyColumns:
    """The keys of many tasks, one row per task."""

    task_N: Numbers
    instance_N: Numbers
    template_N: Numbers
    wording_N: Numbers

    @classmethod
    def of(cls, keys: Sequence[Keys]) -> Self:
        names = [field.name for field in fields(Keys)]
        return cls(*(np.array([getattr(one, name) for one in keys], dtype=np.int64) for name in names))

    def matches(self, keys: Keys) -> dict[LeakageKey, Flags]:
        """For each key, a mask of the rows that share it."""
        by_wording_N = _equal(self.wording_N, keys.wording)
        if keys.template != _NO_KEY:  # annotations are compared with annotations, wordings with wordings
            by_wording_N &= self.template_N == _NO_KEY
            by_wording_N |= self.template_N == keys.template
        return {
            "task": _equal(self.task_N, keys.task),
            "instance": _equal(self.instance_N, keys.instance),
            "template": by_wording_N,
        }


class Removal:
    """What the guard removed, and by which key. One candidate may match several keys."""

    def __init__(
        self,
        names: Sequence[str] | npt.NDArray[np.object_],
        matches: Mapping[LeakageKey, Flags],
        num_candidates: int | None = None,
    ) -> None:
        """`matches` says for each key which of `names` share it. `num_candidates` is needed if not all names are
        candidates.
        """
        self._names = names
        self._rows = {key: np.flatnonzero(matches[key]) for key in LEAKAGE_KEYS}
        self.num_candidates = len(names) if num_candidates is None else num_candidates
        self.num_by_key: dict[LeakageKey, int] = {key: len(rows) for key, rows in self._rows.items()}
        self.num_removed = int(np.count_nonzero(_any_of(matches)))

    def ids(self, key: LeakageKey) -> tuple[str, ...]:
        """The candidates that one key removed, in their order."""
        return tuple(str(self._names[int(row)]) for row in self._rows[key])

    def __str__(self) -> str:
        if not self.num_removed:
            return f"none of {self.num_candidates} removed"
        parts = ", ".join(f"{key} {num}" for key, num in self.num_by_key.items() if num)
        return f"{self.num_removed} of {self.num_candidates} removed (by {parts})"


RecordT = TypeVar("RecordT", Task, Trajectory)


@dataclass(frozen=True)
class Screened(Generic[RecordT]):
    kept: tuple[RecordT, ...]
    removed: Removal


class LeakageGuard:
    """Makes keys and compares them. `catalogue` holds names that the wording rules do not recognise."""

    def __init__(self, catalogue: Iterable[str] = ()) -> None:
        self._catalogue = Catalogue(catalogue)
        self.version = _number(f"{RULES_VERSION} {self._catalogue.digest}")
        """Keys made by guards of equal versions can be compared."""

    def keys(self, query: Query) -> Keys:
        instruction = query.instruction and slot_template(query.instruction, self._catalogue)
        return Keys(
            task=_number(query.task_id),
            instance=_number(query.instance and fold(query.instance)),
            template=_number(query.template and plain_template(query.template)),
            wording=_number(instruction),
        )

    def screen(self, candidates: Iterable[RecordT], against: Iterable[Task | Trajectory]) -> Screened[RecordT]:
        """Keep the candidates that share no key with any of `against`."""
        found = list(candidates)
        columns = KeyColumns.of([self.keys(Query.of(record)) for record in found])
        matches = _matches_any(columns, KeyColumns.of([self.keys(Query.of(record)) for record in against]))
        names = [record.trajectory_id if isinstance(record, Trajectory) else record.task_id for record in found]
        is_removed_N = _any_of(matches)
        kept = tuple(record for record, is_removed in zip(found, is_removed_N, strict=True) if not is_removed)
        return Screened(kept, Removal(names, matches))


def allowed(matches: Mapping[LeakageKey, Flags]) -> Flags:
    """A mask of the rows that share no key."""
    return ~_any_of(matches)


def _matches_any(columns: KeyColumns, against: KeyColumns) -> dict[LeakageKey, Flags]:
    """Like `KeyColumns.matches`, but compares with many tasks at once."""
    is_annotated_N = columns.template_N != _NO_KEY
    others_annotated_M = against.template_N != _NO_KEY
    by_template_N = _among(columns.template_N, against.template_N)
    by_wording_N = _among(columns.wording_N, against.wording_N)
    by_bare_wording_N = _among(columns.wording_N, against.wording_N[~others_annotated_M])
    return {
        "task": _among(columns.task_N, against.task_N),
        "instance": _among(columns.instance_N, against.instance_N),
        "template": np.where(is_annotated_N, by_template_N | by_bare_wording_N, by_wording_N),
    }


def _equal(column_N: Numbers, key: int) -> Flags:
    found_N: Flags = column_N == key if key != _NO_KEY else np.zeros(len(column_N), dtype=np.bool_)
    return found_N


def _among(column_N: Numbers, keys_M: Numbers) -> Flags:
    found_N: Flags = np.isin(column_N, keys_M) & (column_N != _NO_KEY)
    return found_N


def _any_of(matches: Mapping[LeakageKey, Flags]) -> Flags:
    return matches["task"] | matches["instance"] | matches["template"]


def _number(text: str | None) -> int:
    """64 bits of a digest, so that two keys of even a large bank are never equal by chance."""
    if text is None or not text.strip():
        return _NO_KEY
    digest = hashlib.blake2b(text.strip().encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True) or 1
