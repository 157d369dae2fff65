"""Measures the time and the recall of bank searches, on random vectors.

A query is a stored vector with some noise. The leakage guard removes that vector (same task) and all that share its
template. With `clusters`, the other members of a cluster are the right hits; they are nearly tied, which is a hard
case. `smooth` vectors depend on a few hidden numbers, lie around a common mean and spread unevenly, as those of real
models do; the similarity of neighbours decreases slowly. The ground truth compares every vector. N rows, Q queries, D
width, H hidden numbers.
"""

import math
import platform
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, NonNegativeFloat, PositiveInt

from focusmem.bank import Bank, Query
from focusmem.bank.folder import MAX_WIDTH
from focusmem.bank.vectors import make_rows
from focusmem.errors import ConfigError, StorageError
from focusmem.progress import Progress
from focusmem.seeds import derive_seed
from focusmem.settings import checked_dataclass

if TYPE_CHECKING:
    import pyarrow as pa

Vectors = npt.NDArray[np.float32]

Kind = Literal["clusters", "smooth"]

_NUM_HIDDEN, _NUM_UNITS = 48, 256
_ROWS_AT_ONCE = 8_192
_TIE = 1e-6  # larger than the rounding differences between orders of summation


@checked_dataclass(frozen=True, kw_only=True)
class BankCostConfig:
    num_vectors: PositiveInt = 25_737
    """Number of trajectories; the default is the size of the paper's bank."""
    width: Annotated[int, Field(ge=1, le=MAX_WIDTH)] = 2_048
    kind: Kind = "clusters"
    num_centres: PositiveInt = 4_000
    """Number of clusters, all equally likely."""
    noise: NonNegativeFloat = 0.75
    """Length of the noise that is added to a centre of length one."""
    query_noise: NonNegativeFloat = 0.5
    """Length of the noise that turns a stored vector into a query."""
    num_templates: PositiveInt = 50
    """Number of templates. The guard removes all rows that share the query's template."""
    num_queries: PositiveInt = 100
    top: PositiveInt = 3
    seed: int = 0
    folder: Path | None = None
    """Where the bank is made and removed afterwards; None takes the system's temporary folder."""

    def __post_init__(self) -> None:
        most = min(self.num_vectors, _ROWS_AT_ONCE)
        if self.num_queries > most:
            raise ConfigError(f"BankCostConfig.num_queries is {self.num_queries}; at most {most} can be made.")


def measure_bank(config: BankCostConfig) -> dict[str, Any]:
    """Make a bank, search it, compare with the ground truth, and remove it."""
    try:
        made = tempfile.TemporaryDirectory(prefix="focusmem-bench-", dir=config.folder)
    except OSError as error:
        raise StorageError(f"Could not make a bank in {config.folder}: {error.strerror}.") from error
    with made as folder:
        return _Measurement(config, Path(folder) / "bank").figures()


class _Measurement:
    width: int
    identity = "made-up"

    def __init__(self, config: BankCostConfig, path: Path) -> None:
        self.config, self.path, self.width = config, path, config.width
        self.centres_CD = _unit(self._normal(config.num_centres, "centres"))
        self.mean_D, spread_D = self._normal(2, "mean and spread")
        self.spread_D = np.exp(0.5 * spread_D)
        self.inner_HU = self._normal(_NUM_HIDDEN, "inner", width=_NUM_UNITS)
        self.outer_UD = self._normal(_NUM_UNITS, "outer")
        first_ND = self._vectors(0)
        self.sources = [len(first_ND) // config.num_queries * number for number in range(config.num_queries)]
        self.queries_QD = _unit(
            first_ND[self.sources] + config.query_noise * _unit(self._normal(config.num_queries, "queries"))
        )
        self.truth = [_Best(config.top) for _ in self.sources]

    def figures(self) -> dict[str, Any]:
        bank = Bank.create(self.path, self)
        start = time.perf_counter()
        bank.vectors.append(self._rows(bank))
        made_s = time.perf_counter() - start
        start = time.perf_counter()
        bank = Bank.open(self.path)
        bank.search(self.queries_QD[0], None)
        load_s = time.perf_counter() - start
        filtered_s, recall = self._timed(bank, is_guarded=True)
        unfiltered_s, _ = self._timed(bank, is_guarded=False)
        return {
            "config": {name: str(value) if name == "folder" else value for name, value in asdict(self.config).items()},
            "python": platform.python_version(),
            "numpy": np.__version__,
            "is_exact": bank.search(self.queries_QD[0], None).is_exact,
            "recall": recall,
            "median_s": statistics.median(filtered_s),
            "p95_s": float(np.quantile(filtered_s, 0.95)),
            "median_unfiltered_s": statistics.median(unfiltered_s),
            "make_s": made_s,
            "load_s": load_s,
            "num_bytes_on_disk": sum(path.stat().st_size for path in self.path.rglob("*") if path.is_file()),
            "max_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }

    def _timed(self, bank: Bank, *, is_guarded: bool) -> tuple[list[float], float | None]:
        """The seconds of each search, and the share of right hits that was found. The share is None if there were no
        right hits.
        """
        times, num_right = [], 0
        for source, query_D, truth in zip(self.sources, self.queries_QD, self.truth, strict=True):
            query = Query(task_id=_task(source), template=self._template(source)) if is_guarded else None
            start = time.perf_counter()
            found = bank.search(query_D, query, self.config.top)
            times.append(time.perf_counter() - start)
            num_right += sum(hit.score >= truth.limit() - _TIE for hit in found.hits)
        num_true = sum(truth.num for truth in self.truth)
        return times, num_right / num_true if num_true else None

    # The bank's contents

    def _rows(self, bank: Bank) -> Iterator["pa.Table"]:
        templates = [
            bank.guard.keys(Query(template=self._template(number))).template
            for number in range(self.config.num_templates)
        ]
        with Progress("vectors", total=self.config.num_vectors) as line:
            for start in range(0, self.config.num_vectors, _ROWS_AT_ONCE):
                vectors_ND = self._vectors(start)
                numbers = range(start, start + len(vectors_ND))
                self._learn_truth(start, vectors_ND)
                texts = dict.fromkeys(("content", "instruction", "site", "source"), [""] * len(numbers))
                yield make_rows(
                    {
                        **texts,
                        "trajectory_id": [f"vector-{number}" for number in numbers],
                        "task_id": [_task(number) for number in numbers],
                        "outcome": ["success"] * len(numbers),
                        "instance": [None] * len(numbers),
                        "template": [self._template(number) for number in numbers],
                        "num_steps": [1] * len(numbers),
                        "num_frames_left_out": [0] * len(numbers),
                        "num_characters_left_out": [0] * len(numbers),
                        "guard": [bank.guard.version] * len(numbers),
                        "task_key": [bank.guard.keys(Query(task_id=_task(number))).task for number in numbers],
                        "instance_key": [0] * len(numbers),
                        "template_key": [templates[number % len(templates)] for number in numbers],
                        "wording_key": [0] * len(numbers),
                    },
                    vectors_ND,
                )
                line.step(len(numbers))

    def _vectors(self, start: int) -> Vectors:
        num = min(_ROWS_AT_ONCE, self.config.num_vectors - start)
        if self.config.kind == "smooth":
            hidden_NH = self._normal(num, "hidden", start, width=_NUM_HIDDEN)
            units_NU = np.tanh(1.5 / np.sqrt(_NUM_HIDDEN) * hidden_NH @ self.inner_HU)
            smooth_ND = units_NU @ self.outer_UD / np.sqrt(_NUM_UNITS)
            return _unit((smooth_ND + 0.7 * self.mean_D) * self.spread_D + 0.05 * self._normal(num, "noise", start))
        random = np.random.default_rng(derive_seed(self.config.seed, "members", start))
        centres_ND = self.centres_CD[random.integers(self.config.num_centres, size=num)]
        return _unit(centres_ND + self.config.noise * _unit(self._normal(num, "noise", start)))

    def _learn_truth(self, start: int, vectors_ND: Vectors) -> None:
        scores_QN = self.queries_QD @ vectors_ND.T
        numbers = np.arange(start, start + len(vectors_ND))
        for scores_N, source, truth in zip(scores_QN, self.sources, self.truth, strict=True):
            is_allowed = numbers % self.config.num_templates != source % self.config.num_templates
            truth.add(scores_N[is_allowed])

    def _template(self, number: int) -> str:
        return f"template {number % self.config.num_templates}"

    def _normal(self, num: int, *names: str | int, width: int | None = None) -> Vectors:
        random = np.random.default_rng(derive_seed(self.config.seed, *names))
        return random.standard_normal((num, width or self.config.width), dtype=np.float32)


class _Best:
    """The highest scores so far."""

    def __init__(self, num: int) -> None:
        self._wanted = num
        self._scores = np.empty(0, dtype=np.float32)

    def add(self, scores: Vectors) -> None:
        self._scores = np.sort(np.concatenate([self._scores, scores]))[-self._wanted :]

    @property
    def num(self) -> int:
        return len(self._scores)

    def limit(self) -> float:
        return float(self._scores[0]) if self.num else math.inf


def _task(number: int) -> str:
    return f"task-{number}"


def _unit(vectors_ND: Vectors) -> Vectors:
    found: Vectors = (vectors_ND / np.linalg.norm(vectors_ND, axis=1, keepdims=True)).astype(np.float32, copy=False)
    return found
