"""From a query to hits: the leakage guard first, then the nearest of what remains. N rows, D width."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from focusmem.bank.index import ExactIndex, Index, Rows, SketchIndex
from focusmem.bank.leakage import LEAKAGE_KEYS, KeyColumns, Keys, LeakageGuard, Query, Removal, allowed
from focusmem.bank.sketches import Vectors
from focusmem.bank.snapshot import Body, fetch_vectors, read_block
from focusmem.bank.vectors import KEYS, ROW_ID, Block, VectorTable, read_settled
from focusmem.errors import ConfigError
from focusmem.schemas import Hit


@dataclass(frozen=True, kw_only=True)
class RetrievalConfig:
    max_exact_bytes: int = 512 * 2**20
    """Up to so many bytes of vectors are held in memory and searched exactly; larger banks through sketches."""
    num_first_words: int = 8
    """How many 64-bit words of each sketch a search of a large bank reads at first."""
    num_candidates: int = 20_000
    """How many rows these choose."""
    num_finalists: int = 512
    """How many of them whole sketches choose; the vectors of these are read from the table."""
    num_threads: int = 2
    """For the scan of a large bank; numpy's own threads are not affected."""
    refresh_s: float = 0.0
    """Whether the bank has changed is asked at most this often. On a local disk asking takes a quarter of a
    millisecond."""

    def __post_init__(self) -> None:
        for name in ("num_first_words", "num_candidates", "num_finalists", "num_threads"):
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
class _Snapshot:
    """The table at one version, as searches use it."""

    version: int
    block: Block
    columns: KeyColumns
    index: Index


class Retriever:
    """Searches a table; what it holds in memory follows the table as other processes change it."""

    def __init__(self, table: VectorTable, guard: LeakageGuard, config: RetrievalConfig) -> None:
        self.table, self.guard, self.config = table, guard, config
        self._snapshot: _Snapshot | None = None
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
            self._snapshot = None

    def _search(self, vector_D: Vectors, keys: Keys | None, top: int) -> Hits:
        now = self._current()
        return search_index(now.index, now.block["trajectory_id"], now.columns, vector_D, keys, top)

    def _current(self) -> _Snapshot:
        with self._lock:
            is_recent = time.monotonic() - self._asked < self.config.refresh_s
            if self._snapshot is None or not is_recent:
                version = self.table.newest_version()
                if self._snapshot is None or self._snapshot.version != version:
                    self._snapshot = self._refreshed(version)
                self._asked = time.monotonic()
            return self._snapshot

    def _refreshed(self, version: int) -> _Snapshot:
        is_exact = self.config.is_exact(self.table.num_rows(), self.table.width)
        body: Body = "vector" if is_exact else "sketch"
        old = None if self._snapshot is None or body not in self._snapshot.block else self._snapshot.block
        block = read_block(self.table, self.guard, body, old)
        columns = KeyColumns(*(block[name] for name in KEYS))
        return _Snapshot(version, block, columns, self._index(block, body))

    def _index(self, block: Block, body: Body) -> Index:
        if body == "vector":
            return ExactIndex(block["vector"])
        num_first = self.config.num_first_words

        def fetch(rows: Rows) -> Vectors:
            return fetch_vectors(self.table, block[ROW_ID][rows], block["stamp"][rows])

        return SketchIndex(
            first_VN=np.ascontiguousarray(block["sketch"][:, :num_first].T),
            rest_NW=block["sketch"][:, num_first:],
            fetch=fetch,
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
