"""The part of a vector table that searches need, in memory. It is updated at little cost.

A row gets a new stamp each time it is written. Comparing stamps shows which rows are new and which are gone, so that a
change of a few rows reads a few rows. N rows, D width, W words of a sketch.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from focusmem.bank.candidates import Candidates, outcome_codes, source_numbers
from focusmem.bank.checksums import ENTRY_COLUMNS, SEARCH_COLUMNS, damaged_vectors, entry_checks, search_checks
from focusmem.bank.leakage import KeyColumns, LeakageGuard, Query
from focusmem.bank.sketches import Vectors, Words
from focusmem.bank.vectors import KEYS, ROW_ID, Block, DamagedRowsError, VectorsError, VectorTable

Body = Literal["vector", "sketch"]
"""Which form of each vector is held: the whole vector or its sketch."""

_HELD = ("trajectory_id", "stamp", "guard", "outcome", "source", *KEYS)
_CHECKED = ("sketch", "vector_check", "search_check")
"""Columns that are read only to compare checksums, so that no search uses a damaged row."""
_KEY_TEXTS = ("task_id", "instruction", "instance", "template")
_FIRST_WORDS = tuple(f"word_{place}" for place in range(8))
_FEW_ROWS = 10_000


class Growing:
    """An array that grows at its end without being copied each time. Growing it does not change earlier states."""

    def __init__(self, values: npt.NDArray[Any], buffer: npt.NDArray[Any] | None = None) -> None:
        self.values = values
        self._buffer = values if buffer is None else buffer

    def extended(self, more: npt.NDArray[Any]) -> "Growing":
        """Returns the array with more rows. It may be called only once for each state, because the new rows are written
        into a buffer that the states share.
        """
        num, total, buffer = len(self.values), len(self.values) + len(more), self._buffer
        if total > len(buffer):
            buffer = np.empty((total + total // 8 + 64, *self.values.shape[1:]), dtype=self.values.dtype)
            buffer[:num] = self.values
        buffer[num:total] = more
        return Growing(buffer[:total], buffer)


@dataclass(frozen=True)
class Snapshot:
    """The rows of one version of the table."""

    body: Body
    columns: dict[str, Growing]

    @property
    def ids_N(self) -> npt.NDArray[np.object_]:
        return self.columns["trajectory_id"].values

    @property
    def candidates(self) -> Candidates:
        keys = KeyColumns(*(self.columns[name].values for name in KEYS))
        return Candidates(self.ids_N, keys, self.columns["outcome"].values, self.columns["source"].values)

    @property
    def vectors_ND(self) -> Vectors:
        return self.columns["vector"].values

    @property
    def first_VN(self) -> list[Words]:
        """The words of all sketches that every search reads, an array for each word."""
        return [self.columns[name].values for name in _FIRST_WORDS if name in self.columns]

    @property
    def rest_NW(self) -> Words:
        return self.columns["rest"].values

    def fetch(self, table: VectorTable, rows: npt.NDArray[np.intp]) -> Vectors:
        """The vectors of some rows, from the table. Raises an error if the table has moved them since."""
        if not len(rows):
            return np.empty((0, table.width), dtype=np.float32)
        stamps = self.columns["stamp"].values[rows]
        found = table.take(self.columns[ROW_ID].values[rows], ["stamp", "vector", "vector_check"])
        order = _places(found["stamp"], stamps, table)
        vectors: Vectors = found["vector"][order]
        _refuse(damaged_vectors(vectors, found["vector_check"][order]), self.ids_N[rows], table)
        return vectors


def take_snapshot(table: VectorTable, guard: LeakageGuard, body: Body, old: Snapshot | None = None) -> Snapshot:
    """A snapshot of the table's newest version. `old` is the latest earlier snapshot; a snapshot may be given as `old`
    only once.
    """
    if old is not None and old.body == body:
        seen = table.read(["stamp", ROW_ID])
        num_old, num_seen = len(old.ids_N), len(seen["stamp"])
        # Additions come last, and are the only change most of the time.
        if num_old <= num_seen and np.array_equal(seen["stamp"][:num_old], old.columns["stamp"].values):
            return _with_rows_after(old, table, guard, seen)
        kept = _only_seen(old, seen)
        if num_seen - len(kept.ids_N) <= max(_FEW_ROWS, num_seen // 4):
            return _with_rows_after(kept, table, guard, _kept_first(kept, seen, table))
    block = _held_form(guard, table, table.read([*_columns(body), ROW_ID]), body)
    return Snapshot(body, {name: Growing(column) for name, column in block.items()})


def _with_rows_after(old: Snapshot, table: VectorTable, guard: LeakageGuard, seen: Block) -> Snapshot:
    """A snapshot with the old rows, and with the rows that the table has after them."""
    num_old = len(old.ids_N)
    columns = {**old.columns, ROW_ID: Growing(seen[ROW_ID][:num_old])}  # rows may have moved
    if num_old == len(seen["stamp"]):
        return Snapshot(old.body, columns)
    fresh = table.take(seen[ROW_ID][num_old:], _columns(old.body))
    order = _places(fresh["stamp"], seen["stamp"][num_old:], table)
    fresh = {**{name: column[order] for name, column in fresh.items()}, ROW_ID: seen[ROW_ID][num_old:]}
    block = _held_form(guard, table, fresh, old.body)
    return Snapshot(old.body, {name: column.extended(block[name]) for name, column in columns.items()})


def _only_seen(old: Snapshot, seen: Block) -> Snapshot:
    is_kept = np.isin(old.columns["stamp"].values, seen["stamp"])
    return Snapshot(old.body, {name: Growing(column.values[is_kept]) for name, column in old.columns.items()})


def _kept_first(kept: Snapshot, seen: Block, table: VectorTable) -> Block:
    """Reorders the columns that were read: first the rows that are held already, then the others."""
    held = _places(seen["stamp"], kept.columns["stamp"].values, table)
    is_new = np.ones(len(seen["stamp"]), dtype=np.bool_)
    is_new[held] = False
    order = np.concatenate([held, np.flatnonzero(is_new)])
    return {name: column[order] for name, column in seen.items()}


def _columns(body: Body) -> list[str]:
    return list(dict.fromkeys((*_HELD, *_CHECKED, body)))


def _held_form(guard: LeakageGuard, table: VectorTable, block: Block, body: Body) -> Block:
    is_damaged_N = search_checks({name: block[name] for name in SEARCH_COLUMNS}) != block["search_check"]
    if body == "vector":
        is_damaged_N |= damaged_vectors(block["vector"], block["vector_check"])
    _refuse(is_damaged_N, block["trajectory_id"], table)
    block = _with_keys_of(guard, table, {name: block[name] for name in (*_HELD, body, ROW_ID)})
    block["outcome"] = outcome_codes(block["outcome"])
    block["source"] = source_numbers(block["source"])
    sketches_NW = block.pop("sketch", None)
    if sketches_NW is not None:
        first_NV, rest_NW = np.split(sketches_NW, [len(_FIRST_WORDS)], axis=1)
        block.update(zip(_FIRST_WORDS, np.ascontiguousarray(first_NV.T), strict=False))  # a small width has fewer words
        block["rest"] = np.ascontiguousarray(rest_NW)
    return block


def _refuse(is_damaged_N: npt.NDArray[np.bool_], ids_N: npt.NDArray[np.object_], table: VectorTable) -> None:
    if is_damaged_N.any():
        raise DamagedRowsError.of([str(name) for name in ids_N[is_damaged_N]], table.label)


def _with_keys_of(guard: LeakageGuard, table: VectorTable, block: Block) -> Block:
    """Keys that another guard made (other rules, another catalogue) are made again, from the stored texts."""
    strange = np.flatnonzero(block["guard"] != guard.version)
    block = dict(block)
    if not len(strange):
        return block
    block.update({name: block[name].copy() for name in ("guard", *KEYS)})
    for start in range(0, len(strange), _FEW_ROWS):
        rows = strange[start : start + _FEW_ROWS]
        texts = table.take(block[ROW_ID][rows], ["stamp", *ENTRY_COLUMNS, "entry_check"])
        _refuse(entry_checks(texts) != texts["entry_check"], texts["trajectory_id"], table)
        order = _places(texts["stamp"], block["stamp"][rows], table)
        for row, place in zip(rows, order, strict=True):
            keys = guard.keys(Query(**{name: texts[name][place] for name in _KEY_TEXTS}))
            for name, key in zip(KEYS, (keys.task, keys.instance, keys.template, keys.wording), strict=True):
                block[name][row] = key
    block["guard"][strange] = guard.version
    return block


def _places(stamps: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64], table: VectorTable) -> npt.NDArray[np.intp]:
    """The index of each wanted stamp in `stamps`."""
    order = np.argsort(stamps)
    places = order[np.minimum(np.searchsorted(stamps, wanted, sorter=order), len(order) - 1)] if len(order) else order
    if len(places) != len(wanted) or not np.array_equal(stamps[places], wanted):
        raise VectorsError(
            f"The vectors of the bank {table.label} changed while they were read, several times in a row; try again."
        )
    found: npt.NDArray[np.intp] = places
    return found
