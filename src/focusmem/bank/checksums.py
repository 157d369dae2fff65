"""Checksums of the rows of a bank, by which damaged rows are recognised. The vector store itself has no checksums.

A row has three checksums, because lists, searches and single hits read different columns. CRC-32 detects every change
of up to 32 neighbouring bits, and takes a fraction of the time that reading the row takes.

Shapes: N rows, D width, W words of a sketch.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from focusmem.bank.sketches import Vectors

Columns = Mapping[str, Sequence[Any] | npt.NDArray[Any]]
Checks = npt.NDArray[np.int64]

ENTRY_COLUMNS = (
    *("trajectory_id", "content", "task_id", "instruction", "site", "outcome", "source"),
    *("num_steps", "instance", "template", "num_frames_left_out", "num_characters_left_out"),
)
"""The columns that `entry_check` covers: all that lists and exports show, and the trajectory's digest."""
SEARCH_NUMBERS = ("guard", "task_key", "instance_key", "template_key", "wording_key", "vector_check")
SEARCH_COLUMNS = ("trajectory_id", "outcome", "source", *SEARCH_NUMBERS, "sketch")
"""The columns that `search_check` covers: all that a search reads of every row, except the vector."""
CHECKS = ("entry_check", "search_check", "vector_check")

_UNIT_TOLERANCE = 1e-3


def entry_checks(columns: Columns) -> Checks:
    rows = zip(*(_plain(columns[name]) for name in ENTRY_COLUMNS), strict=True)
    return _as_checks(
        zlib.crc32("\0".join("\1" if cell is None else str(cell) for cell in row).encode()) for row in rows
    )


def search_checks(columns: Columns) -> Checks:
    numbers_NC = np.stack([np.asarray(columns[name], dtype="<i8") for name in SEARCH_NUMBERS], axis=1)
    sketches_NW = np.ascontiguousarray(columns["sketch"], dtype="<u8")
    texts = zip(*(_plain(columns[name]) for name in ("trajectory_id", "outcome", "source")), strict=True)
    return _as_checks(
        zlib.crc32(words_W, zlib.crc32(numbers_C, zlib.crc32("\0".join(row).encode())))
        for row, numbers_C, words_W in zip(texts, numbers_NC, sketches_NW, strict=True)
    )


def vector_checks(vectors_ND: Vectors) -> Checks:
    return _as_checks(zlib.crc32(vector_D) for vector_D in np.ascontiguousarray(vectors_ND, dtype="<f4"))


def are_unit(vectors_ND: Vectors) -> npt.NDArray[np.bool_]:
    """A mask: True for each vector of length one. A vector with a non-finite value counts as False."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares_N = np.einsum("nd,nd->n", vectors_ND, vectors_ND)  # unlike a norm, without a copy of all vectors
        found_N: npt.NDArray[np.bool_] = np.abs(np.sqrt(squares_N) - 1) <= _UNIT_TOLERANCE
    return found_N


def damaged_vectors(vectors_ND: Vectors, checks_N: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
    """A mask: True for each vector that does not match its checksum or is not of length one."""
    damaged_N: npt.NDArray[np.bool_] = (vector_checks(vectors_ND) != checks_N) | ~are_unit(vectors_ND)
    return damaged_N


def named(names: Sequence[str]) -> str:
    """The names for an error message; a long list is shortened."""
    few = ", ".join(names[:3])
    return f"{few} and {len(names) - 3} more" if len(names) > 3 else few


def _plain(column: Sequence[Any] | npt.NDArray[Any]) -> Sequence[Any]:
    found: Sequence[Any] = column.tolist() if isinstance(column, np.ndarray) else column
    return found


def _as_checks(found: Iterable[int]) -> Checks:
    return np.fromiter(found, dtype=np.int64)
