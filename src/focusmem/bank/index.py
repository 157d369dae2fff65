"""Finds the best rows for a query: exactly, by comparing all vectors, or approximately, by sketches and then the
vectors of the best candidates.

N rows, D width, W words of a sketch.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from focusmem.bank.leakage import Flags
from focusmem.bank.sketches import Vectors, Words, count_differences, sketch

Rows = npt.NDArray[np.intp]

_FAR = np.iinfo(np.uint16).max
_ROWS_AT_ONCE = 32_768  # so that words and differences fit in the processor's cache


class Index(Protocol):
    is_exact: bool

    def best(self, query_D: Vectors, allowed_N: Flags, num: int) -> tuple[Rows, Vectors]:
        """At most `num` allowed rows and their cosines, the best first; `query_D` has length one."""


@dataclass(frozen=True)
class ExactIndex:
    """Holds all vectors in memory. Reading them once is nearly the whole cost of a search."""

    vectors_ND: Vectors
    is_exact = True

    def best(self, query_D: Vectors, allowed_N: Flags, num: int) -> tuple[Rows, Vectors]:
        scores_N = self.vectors_ND @ query_D
        scores_N[~allowed_N] = -np.inf
        rows = _highest(scores_N, min(num, int(np.count_nonzero(allowed_N))))
        return rows, scores_N[rows]


@dataclass(frozen=True)
class SketchIndex:
    """Holds sketches in memory and reads vectors with `fetch`.

    A few words of every sketch choose candidates, all words choose finalists among them, and the vectors rank those.
    """

    first_VN: Sequence[Words]
    """The words of all sketches that every search reads; each word is one array, so that it is read in sequence."""
    rest_NW: Words
    """The other words."""
    fetch: Callable[[Rows], Vectors]
    executor: Executor
    num_threads: int
    num_candidates: int
    num_finalists: int
    is_exact = False

    def best(self, query_D: Vectors, allowed_N: Flags, num: int) -> tuple[Rows, Vectors]:
        words_W = sketch(query_D[None])[0]
        first_W, rest_W = np.split(words_W, [len(self.first_VN)])
        differences_N = self._scan(first_W)
        differences_N[~allowed_N] = _FAR
        num_allowed = int(np.count_nonzero(allowed_N))
        rows = _lowest(differences_N, min(self.num_candidates, num_allowed))
        differences = differences_N[rows] + count_differences(self.rest_NW[rows], rest_W)
        rows = rows[_lowest(differences, min(max(num, self.num_finalists), len(rows)))]
        # Not a matrix product: its threads would wait for the threads that read the vectors.
        scores = np.einsum("nd,d->n", self.fetch(rows), query_D)
        order = _highest(scores, min(num, len(rows)))
        return rows[order], scores[order]

    def _scan(self, first_V: Words) -> npt.NDArray[np.uint16]:
        num = len(self.rest_NW)
        differences_N = np.zeros(num, dtype=np.uint16)

        def scan(start: int, end: int) -> None:
            for low in range(start, end, _ROWS_AT_ONCE):
                high = min(end, low + _ROWS_AT_ONCE)
                for words_N, word in zip(self.first_VN, first_V, strict=True):
                    differences_N[low:high] += np.bitwise_count(words_N[low:high] ^ word)

        borders = [num * part // self.num_threads for part in range(self.num_threads + 1)]
        list(self.executor.map(scan, borders[:-1], borders[1:]))  # numpy releases the interpreter lock while it counts
        return differences_N


def _highest(scores_N: Vectors, num: int) -> Rows:
    """Rows of the `num` highest scores, in order; of equal scores the earlier row comes first."""
    if not num:
        return np.empty(0, dtype=np.intp)
    limit = np.partition(scores_N, len(scores_N) - num)[len(scores_N) - num]
    rows = np.flatnonzero(scores_N >= limit)
    return rows[np.argsort(-scores_N[rows], kind="stable")][:num]


def _lowest(differences_N: npt.NDArray[np.uint16], num: int) -> Rows:
    """Rows of the `num` lowest differences, unordered. The limit is estimated from a sample."""
    total = len(differences_N)
    if num >= total:
        return np.arange(total)
    step = max(1, total // max(num, 10_000))
    sample = differences_N[::step]
    place = min(len(sample) - 1, 2 * num * len(sample) // total + 8)
    rows = np.flatnonzero(differences_N <= np.partition(sample, place)[place])
    if len(rows) < num:
        rows = np.arange(total)
    return rows[np.argpartition(differences_N[rows], num - 1)[:num]]
