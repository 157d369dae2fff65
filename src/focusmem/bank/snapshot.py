"""The part of a vector table that searches need, in memory, and brought up to date at little cost.

Each row carries a stamp that no other writing of any row has. Comparing stamps tells which rows are new and which
are gone, so that a change of a few rows reads a few rows.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt

from focusmem.bank.leakage import LeakageGuard, Query
from focusmem.bank.sketches import Vectors
from focusmem.bank.vectors import KEYS, ROW_ID, Block, VectorsError, VectorTable

Body = Literal["vector", "sketch"]
"""What is held of each vector: all of it, or its sketch."""

_HELD = ("trajectory_id", "stamp", "guard", *KEYS)
_KEY_TEXTS = ("task_id", "instruction", "instance", "template")
_FEW_ROWS = 10_000


def read_block(table: VectorTable, guard: LeakageGuard, body: Body, old: Block | None = None) -> Block:
    """The rows of the table's present version; `old` is what an earlier call returned."""
    block = None if old is None else _updated(table, guard, body, old)
    if block is not None:
        return block
    return _with_keys_of(guard, table, table.read([*_HELD, body, ROW_ID]))


def fetch_vectors(table: VectorTable, row_ids: npt.NDArray[np.uint64], stamps: npt.NDArray[np.int64]) -> Vectors:
    """The vectors of some rows, in their order; an error where the table has moved them since."""
    if not len(row_ids):
        return np.empty((0, table.width), dtype=np.float32)
    found = table.take(row_ids, ["stamp", "vector"])
    vectors: Vectors = found["vector"][_places(found["stamp"], stamps, table)]
    return vectors


def _updated(table: VectorTable, guard: LeakageGuard, body: Body, old: Block) -> Block | None:
    """What is held, without the rows that are gone and with the new ones; None where reading all is simpler."""
    seen = table.read(["stamp", ROW_ID])
    is_new = ~np.isin(seen["stamp"], old["stamp"])
    if np.count_nonzero(is_new) > max(_FEW_ROWS, len(is_new) // 4):
        return None
    is_kept = np.isin(old["stamp"], seen["stamp"])
    kept = old if is_kept.all() else {name: column[is_kept] for name, column in old.items()}
    parts = [kept]
    if is_new.any():
        fresh = table.take(seen[ROW_ID][is_new], [*_HELD, body])
        parts.append({**fresh, ROW_ID: np.zeros(len(fresh["stamp"]), dtype=np.uint64)})
    block = {name: np.concatenate([part[name] for part in parts]) for name in old}
    # Rows keep their stamps, but the table may have moved them.
    block[ROW_ID] = seen[ROW_ID][_places(seen["stamp"], block["stamp"], table)]
    return _with_keys_of(guard, table, block)


def _with_keys_of(guard: LeakageGuard, table: VectorTable, block: Block) -> Block:
    """Keys that another guard made (other rules, another catalogue) are made again, from the stored texts."""
    strange = np.flatnonzero(block["guard"] != guard.version)
    if not len(strange):
        return block
    block = {**block, **{name: block[name].copy() for name in ("guard", *KEYS)}}
    for start in range(0, len(strange), _FEW_ROWS):
        rows = strange[start : start + _FEW_ROWS]
        texts = table.take(block[ROW_ID][rows], ["stamp", *_KEY_TEXTS])
        order = _places(texts["stamp"], block["stamp"][rows], table)
        for row, place in zip(rows, order, strict=True):
            keys = guard.keys(Query(**{name: texts[name][place] for name in _KEY_TEXTS}))
            for name, key in zip(KEYS, (keys.task, keys.instance, keys.template, keys.wording), strict=True):
                block[name][row] = key
    block["guard"][strange] = guard.version
    return block


def _places(stamps: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64], table: VectorTable) -> npt.NDArray[np.intp]:
    """Where each wanted stamp is among `stamps`."""
    order = np.argsort(stamps)
    places = order[np.minimum(np.searchsorted(stamps, wanted, sorter=order), len(order) - 1)] if len(order) else order
    if len(places) != len(wanted) or not np.array_equal(stamps[places], wanted):
        raise VectorsError(
            f"The vectors of the bank {table.label} changed while they were read, several times in a row; try again."
        )
    found: npt.NDArray[np.intp] = places
    return found
