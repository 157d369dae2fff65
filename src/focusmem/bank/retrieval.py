"""From a query to hits: the leakage guard first, then the nearest of what remains. N rows, D width."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from focusmem.bank.index import ExactIndex, Index, SketchIndex
from focusmem.bank.leakage import LEAKAGE_KEYS, KeyColumns, Keys, LeakageGuard, Query, Removal, allowed
from focusmem.bank.sketches import Vectors
from focusmem.bank.snapshot import Snapshot, take_snapshot
from focusmem.bank.vectors import VectorTable, read_settled
from focusmem.errors import ConfigError
from focusmem.schemas import Hit


@dataclass(frozen=True, kw_only=True)
class RetrievalConfig:
    max_exact_bytes: int = 512 * 2**20
    """Up to so many bytes of vectors are held in memory and searched exactly; larger banks through sketches."""
    num_candidates: int = 20_000
    """How many rows of a large bank the first words of all sketches choose."""
    num_finalists: int = 512
    """How many of them whole sketches choose; the vectors of these are read from the table."""
    num_threads: int = 2
    """For the scan of a large bank; numpy's own threads are not affected."""
    refresh_s: float = 0.0
    """Whether the bank has changed is asked at most this often. On a local disk asking takes a quarter of a
    millisecond."""

    def __post_init__(self) -> None:
        for name in ("num_candidates", "num_finalists", "num_threads"):
            if getattr(self, name) < 1:
                raise ConfigError(f"RetrievalConfig.{name} is {getattr(self, name)}; it must be at least 1.")
        for name in ("max_exact_bytes", "refresh_s"):
            if getattr(self, name) < 0:
                raise ConfigError(f"RetrievalConfig.{name} is {getattr(self, name)}; it cannot be negative.")

    def is_exact(self, num_vectors: int, width: int) -> bool:
        """Whether so many vectors are searched one by one."""
        return num_vectors * width * np.dtype(np.float32).itemsize <= self.max_exact_bytes


@dataclass(frozen=True, slots=True)
class Hits:
    hits: tuple[Hit, ...]
    """The best first."""
    removed: Removal
    """What the leakage guard took out before anything was ranked."""
    is_exact: bool
    """False where sketches chose the candidates."""


def search_index(
    index: Index, ids_N: npt.NDArray[np.object_], columns: KeyColumns, vector_D: Vectors, keys: Keys | None, top: int
) -> Hits:
    """The nearest rows that share no key with the query; all rows are candidates where `keys` is None."""
    query_D = _unit(vector_D)
    none_N = np.zeros(len(ids_N), dtype=np.bool_)
    matches = dict.fromkeys(LEAKAGE_KEYS, none_N) if keys is None else columns.matches(keys)
    rows, scores = index.best(query_D, allowed(matches), top)
    hits = [
        Hit(trajectory_id=str(ids_N[row]), score=float(score), rank=rank)
        for rank, (row, score) in enumerate(zip(rows, scores, strict=True))
    ]
    return Hits(tuple(hits), Removal(ids_N, matches), index.is_exact)


@dataclass(frozen=True)
class _Version:
    """The table at one version, as searches use it."""

    number: int
    snapshot: Snapshot
    index: Index


class Retriever:
    """Searches a table; what it holds in memory follows the table as other processes change it."""

    def __init__(self, table: VectorTable, guard: LeakageGuard, config: RetrievalConfig) -> None:
        self.table, self.guard, self.config = table, guard, config
        self._held: _Version | None = None
        self._asked = -float("inf")
        self._lock = threading.Lock()
        self._executor = ThreadPoolExecutor(config.num_threads, thread_name_prefix="focusmem-bank")

    def search(self, vector_D: Vectors, query: Query | None, top: int) -> Hits:
        if vector_D.shape != (self.table.width,):
            found = "x".join(map(str, vector_D.shape))
            raise ConfigError(f"The query is {found} numbers wide, but the bank's vectors are {self.table.width} wide.")
        keys = None if query is None else self.guard.keys(query)
        return read_settled(lambda: self._search(vector_D, keys, top), self.forget)

    def forget(self) -> None:
        """Read everything again at the next search."""
        with self._lock:
            self._held = None

    def _search(self, vector_D: Vectors, keys: Keys | None, top: int) -> Hits:
        now = self._current()
        return search_index(now.index, now.snapshot.ids_N, now.snapshot.keys, vector_D, keys, top)

    def _current(self) -> _Version:
        with self._lock:
            is_recent = time.monotonic() - self._asked < self.config.refresh_s
            if self._held is None or not is_recent:
                number = self.table.newest_version()
                if self._held is None or self._held.number != number:
                    self._held = self._read(number)
                self._asked = time.monotonic()
            return self._held

    def _read(self, number: int) -> _Version:
        is_exact = self.config.is_exact(self.table.num_rows(), self.table.width)
        old = None if self._held is None else self._held.snapshot
        snapshot = take_snapshot(self.table, self.guard, "vector" if is_exact else "sketch", old)
        return _Version(number, snapshot, ExactIndex(snapshot.vectors_ND) if is_exact else self._sketches(snapshot))

    def _sketches(self, snapshot: Snapshot) -> SketchIndex:
        return SketchIndex(
            first_VN=snapshot.first_VN,
            rest_NW=snapshot.rest_NW,
            fetch=lambda rows: snapshot.fetch(self.table, rows),
            executor=self._executor,
            num_threads=self.config.num_threads,
            num_candidates=self.config.num_candidates,
            num_finalists=self.config.num_finalists,
        )


def _unit(vector_D: npt.NDArray[np.floating[Any]]) -> Vectors:
    found = np.asarray(vector_D, dtype=np.float32)
    length = float(np.linalg.norm(found))
    if not np.isfinite(length) or length == 0:
        raise ConfigError("The query vector is zero or not finite, so that it points nowhere.")
    return found / np.float32(length)
