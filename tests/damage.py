"""Damage to the stored files and rows of a bank, as by a failing disk or a mistaken edit."""

import os
from pathlib import Path

import numpy as np
import pyarrow

from focusmem.bank import Bank


def flip(path: Path, byte: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(bytes(data))


def change_record(folder: Path) -> None:
    """The record stays a valid trajectory, with another instruction."""
    path = folder / "trajectory.json"
    text = path.read_text()
    start = text.index('"instruction": "') + len('"instruction": "')
    path.write_text(f"{text[:start]}X{text[start + 1 :]}")


def cut_record(folder: Path) -> None:
    (folder / "trajectory.json").write_text("{")


def lose_record(folder: Path) -> None:
    (folder / "trajectory.json").unlink()


def change_screenshot(folder: Path) -> None:
    flip(next((folder / "screenshots").iterdir()), 60)


def lose_screenshot(folder: Path) -> None:
    next((folder / "screenshots").iterdir()).unlink()


def change_row(bank: Bank, name: str, column: str) -> None:
    """Writes another value into a row without updating the row's checksums."""
    table = bank.vectors._table
    rows = table.search().where(f"trajectory_id = '{name}'").to_arrow()
    kind = rows.schema.field(column).type
    [value] = rows[column].to_pylist()
    if isinstance(value, list):
        changed = np.array([value], dtype=kind.value_type.to_pandas_dtype())
        changed.view(np.uint8)[0, 1] ^= 1  # its length stays nearly one
        array = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(changed.ravel()), kind.list_size)
    else:
        array = pyarrow.array([value + 1 if isinstance(value, int) else f"{value}X"], kind)
    bank.vectors.upsert(rows.set_column(rows.schema.get_field_index(column), rows.schema.field(column), array))


def bytes_in_table(bank: Bank, needle: bytes) -> tuple[Path, int]:
    """The file of the table that holds these bytes, and where."""
    [found] = [
        (path, data.index(needle))
        for path in sorted((bank.folder.path / "vectors").rglob("*.lance"))
        if path.is_file() and needle in (data := path.read_bytes())
    ]
    return found


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_link(path: Path) -> None:
    """A link to the same content, in the bank's own folder."""
    elsewhere = path.rename(path.parents[3] / "elsewhere")
    path.symlink_to(elsewhere)


def damage_manifest(bank: Bank) -> None:
    """LanceDB panics when it reads the newest list of its files."""
    newest = min((bank.folder.path / "vectors").rglob("*.manifest"))
    flip(newest, 2)
