"""The bank's vectors on disk: a LanceDB table with a row per trajectory. The only file that knows LanceDB.

Besides its vector, a row holds its sketch, the keys of the leakage guard, and the fields that lists show. A search
therefore opens no folder except those of its hits. LanceDB returns changed bytes without an error, so each row also
holds checksums.
"""

import contextlib
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from focusmem.bank.checksums import (
    CHECKS,
    ENTRY_COLUMNS,
    SEARCH_COLUMNS,
    damaged_vectors,
    entry_checks,
    named,
    search_checks,
    vector_checks,
)
from focusmem.bank.folder import is_address
from focusmem.bank.sketches import num_words, sketch
from focusmem.errors import MissingPackageError, StorageError
from focusmem.files import is_safe_name

if TYPE_CHECKING:
    import pyarrow as pa

ResultT = TypeVar("ResultT")

Block = dict[str, npt.NDArray[Any]]
"""Some rows, an array for each column."""

TEXTS = ("trajectory_id", "content", "task_id", "instruction", "site", "outcome", "source")
OPTIONAL_TEXTS = ("instance", "template")
KEYS = ("task_key", "instance_key", "template_key", "wording_key")
NUMBERS = ("num_steps", "num_frames_left_out", "num_characters_left_out", "guard", *KEYS)
ROW_ID = "_rowid"
ALL_COLUMNS = tuple(dict.fromkeys((*ENTRY_COLUMNS, *SEARCH_COLUMNS, *CHECKS, "vector")))
"""All columns that the checksums cover, and the checksums."""

_NUM_FAILURES_FORGIVEN = 5
_MANY_FRAGMENTS = 64
_ROWS_PER_FRAGMENT = 2_000


UNTOUCHED = "What was there before is untouched."


class VectorsError(StorageError):
    """The table is missing or damaged; the message says what to do."""


class DamagedRowsError(StorageError):
    """The table can be read, but some rows differ from what was written. Reading again does not help."""

    @classmethod
    def of(cls, names: Sequence[str], label: str) -> Self:
        return cls(
            f"The vectors of the bank {label} are damaged; the rows of these trajectories have changed: "
            f"{named(names)}. Make these vectors again with: focusmem bank reembed {label} --embedder FOLDER"
        )


class VectorTable:
    """`place` is a folder or an address that LanceDB opens; `label` is the bank's name in messages."""

    def __init__(self, place: str, name: str, label: str, table: Any) -> None:
        self.place, self.name, self.label = place, name, label
        self._table = table
        with self._reading():
            self.width = int(table.schema.field("vector").type.list_size)
            if not table.schema.equals(_schema(self.width)):
                raise ValueError("the table has other columns than this focusmem writes")

    # Opening

    @classmethod
    def open(cls, place: str, name: str, label: str) -> Self:
        with _reading(label):
            _check_files(place, name)
            table = _connect(place).open_table(name)
        return cls(place, name, label, table)

    @classmethod
    def create(cls, place: str, name: str, label: str, width: int) -> Self:
        """Makes a table, or opens the existing one."""
        with _writing(label):
            _check_files(place, name)
            table = _connect(place).create_table(name, schema=_schema(width), exist_ok=True)
        return cls(place, name, label, table)

    # Contents

    def newest_version(self) -> int:
        """The number of the newest version; every change by any process increases it. From now on this object shows
        that version.
        """
        with self._reading():
            self._table.checkout_latest()
            return int(self._table.version)

    def num_rows(self) -> int:
        with self._reading():
            return int(self._table.count_rows())

    def read(self, columns: Sequence[str], *, where: str | None = None) -> Block:
        """Columns of all rows; `_rowid` names a row until the table changes."""
        with self._reading():
            return _as_block(self._query(columns, where).to_arrow(), columns)

    def scan(self, columns: Sequence[str], *, where: str | None = None) -> Iterator[Block]:
        """Like `read`, but block by block."""
        with self._reading():
            batches = self._query(columns, where).to_batches()
        while True:
            with self._reading():
                batch = next(batches, None)
                block = None if batch is None else {name: _as_array(batch.column(name)) for name in columns}
            if block is None:
                return
            yield block

    def _query(self, columns: Sequence[str], where: str | None) -> Any:
        query = self._table.search().select([name for name in columns if name != ROW_ID])
        query = query.with_row_id(True) if ROW_ID in columns else query
        return query if where is None else query.where(where)

    def take(self, row_ids: npt.NDArray[np.uint64], columns: Sequence[str]) -> Block:
        """Some rows, in no particular order."""
        with self._reading():
            return _as_block(self._table.take_row_ids(row_ids.tolist()).select(list(columns)).to_arrow(), columns)

    def sound_contents(self, ids: Sequence[str]) -> dict[str, str]:
        """The digests of these trajectories, without trajectories whose rows are damaged."""
        found: dict[str, str] = {}
        for block in self.scan(ALL_COLUMNS, where=_among(ids)) if ids else ():
            rows = zip(block["trajectory_id"].tolist(), block["content"].tolist(), damaged_rows(block), strict=True)
            found.update({name: content for name, content, is_damaged in rows if not is_damaged})
        return found

    def damaged(self) -> list[str]:
        """The ids of all damaged rows. This reads the whole table."""
        return [
            str(name)
            for block in self.scan(ALL_COLUMNS)
            for name in block["trajectory_id"][damaged_rows(block)].tolist()
        ]

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """The digests, like `contents`, but without rows whose texts are damaged."""
        if not ids:
            return {}
        found = self.read([*ENTRY_COLUMNS, "entry_check"], where=_among(ids))
        is_sound_N = entry_checks(found) == found["entry_check"]
        return dict(
            zip(found["trajectory_id"][is_sound_N].tolist(), found["content"][is_sound_N].tolist(), strict=True)
        )

    def contents(self, ids: Sequence[str] | None = None) -> dict[str, str]:
        """The digest of each trajectory, by its id: of all trajectories, or of the named ones."""
        if ids is not None and not ids:
            return {}
        found = self.read(["trajectory_id", "content"], where=None if ids is None else _among(ids))
        return dict(zip(found["trajectory_id"].tolist(), found["content"].tolist(), strict=True))

    # Changing it

    def upsert(self, rows: "pa.Table") -> None:
        """Add rows, whole or not at all. A row replaces the one with the same id."""
        with self._writing():
            self._table.checkout_latest()
            merge = self._table.merge_insert("trajectory_id")
            merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)

    def append(self, rows: Iterable["pa.Table"]) -> None:
        """Add many new rows at once. Whether their ids are known is not checked."""
        import pyarrow

        batches = (batch for table in rows for batch in table.to_batches())
        with self._writing():
            self._table.checkout_latest()
            self._table.add(pyarrow.RecordBatchReader.from_batches(_schema(self.width), batches))

    def remove(self, ids: Sequence[str]) -> None:
        """From now on no search finds these rows. Their bytes stay in older files until `purge`."""
        if ids:
            with self._writing():
                self._table.checkout_latest()
                self._table.delete(_among(ids))

    def purge(self) -> None:
        """Rewrite the table and drop the files of older versions, so that removed rows are gone from disk."""
        with self._writing():
            self._table.checkout_latest()  # rows that others have added since must not be lost
            self._overwrite(self._table)

    def replace_rows(self, other: "VectorTable") -> None:
        """Replace all rows by those of another table. Searches find the old rows or the new ones, never a mixture."""
        with self._writing():
            self._table.checkout_latest()
            other._table.checkout_latest()
            self._overwrite(other._table)

    def _overwrite(self, source: Any) -> None:
        self._table.add(source.search().to_batches(), mode="overwrite")
        self._forget_versions()

    def _forget_versions(self) -> None:
        # Not zero, because LanceDB warns that readers of an older version would fail. Ours try again.
        self._table.optimize(cleanup_older_than=timedelta(milliseconds=1), delete_unverified=True)

    def forget_versions(self) -> None:
        """Drop the files of older versions. Raises StorageError if an older version is damaged; then nothing can be
        removed from the table any more.
        """
        with self._writing():
            self._table.checkout_latest()
            self._forget_versions()

    def tidy(self) -> None:
        """Join the small files that additions leave, if there are many."""
        with self._writing():
            self._table.checkout_latest()
            pieces = self._table.stats()["fragment_stats"]["num_fragments"]
            if pieces > max(_MANY_FRAGMENTS, self._table.count_rows() // _ROWS_PER_FRAGMENT):
                self._table.optimize(cleanup_older_than=timedelta(hours=1))

    def _reading(self) -> contextlib.AbstractContextManager[None]:
        return _reading(self.label)

    def _writing(self) -> contextlib.AbstractContextManager[None]:
        return _writing(self.label)


def read_settled(read: Callable[[], ResultT], start_again: Callable[[], object]) -> ResultT:
    """Read without a lock, and try again a few times if the table was rewritten meanwhile."""
    for _ in range(_NUM_FAILURES_FORGIVEN):
        try:
            return read()
        except VectorsError:
            start_again()
    return read()


def table_names(place: str, label: str) -> list[str]:
    with _reading(label):
        return list(_connect(place).list_tables().tables)


def drop_table(place: str, name: str, label: str) -> None:
    with _writing(label):
        _connect(place).drop_table(name)


def make_rows(
    columns: Mapping[str, Sequence[Any] | npt.NDArray[Any]], vectors_ND: npt.NDArray[np.float32]
) -> "pa.Table":
    """Rows for `upsert`: a value for each of TEXTS, OPTIONAL_TEXTS and NUMBERS, and the vectors."""
    import pyarrow

    num, width = vectors_ND.shape
    vectors_ND = np.ascontiguousarray(vectors_ND, dtype=np.float32)
    # A row gets a new number each time it is written, so that readers fetch only rows they have not seen.
    stamps = [secrets.randbits(63) for _ in range(num)]
    sketches_NW = sketch(vectors_ND)
    checked: dict[str, Any] = {**columns, "sketch": sketches_NW, "vector_check": vector_checks(vectors_ND)}
    known: dict[str, Any] = {
        **checked,
        "entry_check": entry_checks(checked),
        "search_check": search_checks(checked),
        "stamp": stamps,
        "sketch": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(sketches_NW.ravel()), sketches_NW.shape[1]),
        "vector": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors_ND.ravel()), width),
    }
    schema = _schema(width)
    return pyarrow.table([pyarrow.array(known[name], schema.field(name).type) for name in schema.names], schema=schema)


def rows_to_bytes(rows: "pa.Table") -> bytes:
    import pyarrow

    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def rows_from_bytes(data: bytes, width: int) -> "pa.Table":
    """The inverse of `rows_to_bytes`. Raises ValueError if the bytes hold no rows that a table of this width takes."""
    import pyarrow

    try:
        rows = pyarrow.ipc.open_file(data).read_all()
        rows.validate(full=True)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(str(error)) from error
    if not rows.schema.equals(_schema(width)):
        raise ValueError(f"it has other columns than a table of vectors with {width} numbers")
    names = rows.column("trajectory_id").to_pylist()
    if not all(map(is_safe_name, names)) or damaged_rows(_as_block(rows, ALL_COLUMNS)).any():
        raise ValueError("its rows are damaged")
    return rows


def damaged_rows(block: Block) -> npt.NDArray[np.bool_]:
    """A mask of the rows that differ from what was written; the block has ALL_COLUMNS."""
    is_damaged_N: npt.NDArray[np.bool_] = entry_checks(block) != block["entry_check"]
    is_damaged_N |= search_checks(block) != block["search_check"]
    is_damaged_N |= damaged_vectors(block["vector"], block["vector_check"])
    return is_damaged_N


def _schema(width: int) -> "pa.Schema":
    import pyarrow

    texts = [pyarrow.field(name, pyarrow.string(), nullable=False) for name in TEXTS]
    optional = [pyarrow.field(name, pyarrow.string()) for name in OPTIONAL_TEXTS]
    numbers = [pyarrow.field(name, pyarrow.int64(), nullable=False) for name in ("stamp", *NUMBERS, *CHECKS)]
    words = pyarrow.field("sketch", pyarrow.list_(pyarrow.uint64(), num_words(width)), nullable=False)
    vector = pyarrow.field("vector", pyarrow.list_(pyarrow.float32(), width), nullable=False)
    return pyarrow.schema([*texts, *optional, *numbers, words, vector])


def _check_files(place: str, name: str) -> None:
    """Raises ValueError if a table's folder holds anything but files and folders. LanceDB would follow a link, and wait
    for ever for a pipe.
    """
    if is_address(place):
        return
    paths = [Path(place) / f"{name}.lance"]
    while paths:
        path = paths.pop()
        with contextlib.suppress(FileNotFoundError):  # another process may have removed it
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                paths += path.iterdir()
            elif not stat.S_ISREG(mode):
                raise ValueError(f"{path} should be an ordinary file, but it is a link, a pipe or a device")


def _connect(place: str) -> Any:
    try:
        import lancedb
    except ImportError as error:
        raise MissingPackageError("lancedb") from error
    return lancedb.connect(place)


def _as_block(rows: "pa.Table", columns: Sequence[str]) -> Block:
    return {name: _as_array(rows.column(name).combine_chunks()) for name in columns}


def _as_array(column: Any) -> npt.NDArray[Any]:
    import pyarrow

    if pyarrow.types.is_fixed_size_list(column.type):
        values: npt.NDArray[Any] = column.flatten().to_numpy(zero_copy_only=False)
        return values.reshape(len(column), column.type.list_size)
    found: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return found


def _among(ids: Sequence[str]) -> str:
    """A filter for these ids. Ids are safe file names, so they contain nothing to escape."""
    return f"trajectory_id IN ({', '.join(repr(one) for one in ids)})"


_LANCE_ERRORS = (OSError, RuntimeError, ValueError, KeyError)
_PANICS = ("RustPanic", "PanicException")
"""The names of classes that LanceDB raises when its own code fails, for example on damaged files. Neither class can be
imported, and PanicException is not a subclass of Exception.
"""


@contextlib.contextmanager
def _reading(label: str) -> Iterator[None]:
    with _failing_as(
        VectorsError,
        f"The vectors of the bank {label} are missing or damaged",
        f"Its trajectories are not affected; make the vectors again with: focusmem bank reembed {label} --embedder "
        "FOLDER",
    ):
        yield


@contextlib.contextmanager
def _writing(label: str) -> Iterator[None]:
    mending = f"If the table is damaged, mend it with: focusmem bank reembed {label} --embedder FOLDER"
    with _failing_as(StorageError, f"Could not write the vectors of the bank {label}", UNTOUCHED, mending):
        yield


@contextlib.contextmanager
def _failing_as(kind: type[StorageError], what: str, remedy: str, mending: str = "") -> Iterator[None]:
    """`mending` is added to the message, except for errors of the operating system, such as a full disk."""
    try:
        yield
    except BaseException as error:
        is_panic = type(error).__name__ in _PANICS
        if not is_panic and not isinstance(error, _LANCE_ERRORS):
            raise
        reason = "LanceDB cannot read its own files" if is_panic else _reason(error)
        is_of_system = isinstance(error, OSError) or "LanceError(IO)" in str(error)
        remedy = f"{mending}. {remedy}" if mending and not is_of_system else remedy
        raise kind(f"{what}: {reason}. {remedy}") from error


def _reason(error: BaseException) -> str:
    """LanceDB's message without the line of its source."""
    return (
        (str(error) or type(error).__name__).splitlines()[0].split(", /")[0].removeprefix("lance error: ").rstrip(".")
    )
