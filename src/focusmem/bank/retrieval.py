"""Finds the hits for a query. First the leakage guard removes trajectories, then the nearest of the others are found. N
rows, D width.
"""

import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from focusmem.bank.candidates import Candidates
from focusmem.bank.index import ExactIndex, Index, SketchIndex
from focusmem.bank.leakage import LEAKAGE_KEYS, Keys, LeakageGuard, Query, Removal, allowed
from focusmem.bank.sketches import Vectors
from focusmem.bank.snapshot import Snapshot, take_snapshot
from focusmem.bank.vectors import VectorTable, read_settled
from focusmem.errors import ConfigError
from focusmem.schemas import Hit
from focusmem.settings import checked_dataclass


@checked_dataclass(frozen=True, kw_only=True)
class RetrievalConfig:
    max_exact_bytes: NonNegativeInt = 512 * 2**20
    """Up to this size, all vectors are held in memory and searched exactly. Larger banks are searched by sketches."""
    num_candidates: PositiveInt = 20_000
    """Number of rows of a large bank that the first words of all sketches select."""
    num_finalists: PositiveInt = 512
    """Number of these rows that the whole sketches select; only their vectors are read from the table."""
    num_threads: PositiveInt = 2
    """Threads for the scan of a large bank; numpy's own threads are not affected."""
    refresh_s: NonNegativeFloat = 0.0
    """Minimum time between two checks whether the bank has changed. On a local disk, a check takes a quarter of a
    millisecond.
    """

    def is_exact(self, num_vectors: int, width: int) -> bool:
        """Whether a bank of this size is searched exactly."""
        return num_vectors * width * np.dtype(np.float32).itemsize <= self.max_exact_bytes


@dataclass(frozen=True, slots=True)
class Hits:
    hits: tuple[Hit, ...]
    """The best first."""
    removed: Removal
    """The trajectories that the leakage guard removed before the ranking."""
    is_exact: bool
    """False if sketches chose the candidates."""


def search_index(
    index: Index,
    candidates: Candidates,
    vector_D: Vectors,
    keys: Keys | None,
    top: int,
    outcomes: Collection[str] | None = None,
    sources: Collection[str] | None = None,
) -> Hits:
    """The nearest candidates that have one of `outcomes` and of `sources` and share no key with `query`. None allows
    all.
    """
    query_D = _unit(vector_D)
    none_N = np.zeros(len(candidates.ids_N), dtype=np.bool_)
    matches = dict.fromkeys(LEAKAGE_KEYS, none_N) if keys is None else candidates.keys.matches(keys)
    is_allowed_N, num_candidates = allowed(matches), len(none_N)
    is_wanted_N = candidates.wanted(outcomes, sources)
    if is_wanted_N is not None:
        matches = {key: flags_N & is_wanted_N for key, flags_N in matches.items()}
        is_allowed_N, num_candidates = is_allowed_N & is_wanted_N, int(np.count_nonzero(is_wanted_N))
    rows, scores = index.best(query_D, is_allowed_N, top)
    hits = [
        Hit(trajectory_id=str(candidates.ids_N[row]), score=float(score), rank=rank)
        for rank, (row, score) in enumerate(zip(rows, scores, strict=True))
    ]
    return Hits(tuple(hits), Removal(candidates.ids_N, matches, num_candidates), index.is_exact)


def check_top(top: int) -> None:
    if top < 1:
        raise ConfigError(f"top is {top}; ask for at least 1 hit.")


def check_width(vector_D: Vectors, width: int) -> None:
    if vector_D.shape != (width,):
        shape = "x".join(map(str, vector_D.shape))
        raise ConfigError(f"The query is {shape} numbers wide, but the bank's vectors are {width} wide.")


@dataclass(frozen=True)
class _Version:
    """One version of the table, in the form that searches use."""

    number: int
    snapshot: Snapshot
    index: Index


class Retriever:
    """Searches a table from memory, and follows the changes that other processes make to it."""

    def __init__(self, table: VectorTable, guard: LeakageGuard, config: RetrievalConfig) -> None:
        self.table, self.guard, self.config = table, guard, config
        self._held: _Version | None = None
        self._asked = -float("inf")
        self._lock = threading.Lock()
        self._executor = ThreadPoolExecutor(config.num_threads, thread_name_prefix="focusmem-bank")

    def search(
        self,
        vector_D: Vectors,
        query: Query | None,
        top: int,
        outcomes: Collection[str] | None = None,
        sources: Collection[str] | None = None,
    ) -> Hits:
        check_width(vector_D, self.table.width)
        keys = None if query is None else self.guard.keys(query)
        return read_settled(lambda: self._search(vector_D, keys, top, outcomes, sources), self.forget)

    def forget(self) -> None:
        """Read everything again at the next search."""
        with self._lock:
            self._held = None

    def _search(
        self,
        vector_D: Vectors,
        keys: Keys | None,
        top: int,
        outcomes: Collection[str] | None,
        sources: Collection[str] | None,
    ) -> Hits:
        now = self._current()
        return search_index(now.index, now.snapshot.candidates, vector_D, keys, top, outcomes, sources)

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
        raise ConfigError("The query vector is zero or not finite, so it has no direction.")
    return found / np.float32(length)
