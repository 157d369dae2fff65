"""A bank as a plain folder that other tools can read, and that is searched without a vector store.

<export>/export.json              the embedder's identity, and the digests of entries.jsonl and catalogue.txt
<export>/entries.jsonl            a line for each trajectory: its id, task, site, outcome and so on, and its checksums
<export>/vectors.npy              float32, a row for each line of entries.jsonl
<export>/trajectories/<id>/       as in a bank
<export>/catalogue.txt            as in a bank, where it has one
"""

import contextlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Literal, Self

import numpy as np
from pydantic import Field

from focusmem.bank.checksums import vector_checks
from focusmem.bank.folder import EXPORT_FILE, MAX_WIDTH, BankFolder
from focusmem.bank.reports import Entry
from focusmem.bank.sketches import Vectors
from focusmem.errors import RecordError, StorageError
from focusmem.files import clear_unfinished, open_plain_file, read_plain_file, sha256_hex, whole_folder, write_whole
from focusmem.schemas import StoredTrajectory
from focusmem.schemas.record import MAX_DOCUMENT_BYTES, Digest, NonEmptyText, Record, dump_record, parse_record

_ENTRIES, _VECTORS = "entries.jsonl", "vectors.npy"
_LENGTH_BYTES = slice(8, 10)
"""The bytes of a NumPy file that hold the length of its header."""
_MAX_ENTRIES_BYTES = 2**32
_AGAIN = "Export the bank again, or copy the export again from its origin."

Block = tuple[Sequence[Entry], Vectors]
"""Some trajectories with a vector for each."""


class ExportManifest(Record):
    schema_version: Literal[2] = 2
    """Increased when the meaning of a field or of a file changes."""
    identity: NonEmptyText
    """The identity of the embedder that made the vectors."""
    width: Annotated[int, Field(ge=1, le=MAX_WIDTH)]
    """Numbers per vector."""
    trusted_sources: tuple[NonEmptyText, ...] = ()
    """The sources that the bank trusted; empty if it trusted none."""
    entries_sha256: Digest
    """The digest of entries.jsonl. Its lines hold the checksums of trajectories and vectors."""
    catalogue_sha256: Digest
    """The digest of the catalogue's names, one per line; the digest of empty text if there is no catalogue."""


class Line(Entry):
    """A line of entries.jsonl."""

    content: Digest
    """The digest of trajectory.json. Its screenshots are named after their own digests."""
    vector_crc32: Annotated[int, Field(ge=0, lt=2**32)]
    """The checksum of the bytes of the vector."""

    def entry(self) -> Entry:
        return Entry(**self.model_dump(include=set(Entry.model_fields)))


@dataclass(frozen=True)
class Contents:
    """Everything in an export except its trajectories. All of it is verified except the vectors."""

    manifest: ExportManifest
    lines: list[Line]
    vectors_ND: Vectors
    """The vectors are read from disk when they are used."""
    catalogue: list[str]


class ExportFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._folder = BankFolder(path)

    @classmethod
    @contextlib.contextmanager
    def new(cls, path: Path) -> Iterator[Self]:
        """Yields an export to fill. It appears under its name only when it is complete. Unfinished folders of killed
        exports are removed.
        """
        clear_unfinished(path.absolute().parent)
        with whole_folder(path) as partial:
            yield cls(partial)

    def is_there(self) -> bool:
        return (self.path / EXPORT_FILE).exists()

    def trajectory(self, trajectory_id: str) -> Path:
        return self._folder.trajectory(trajectory_id)

    # Reading

    def read(self) -> Contents:
        path = self.path / EXPORT_FILE
        manifest = parse_record(ExportManifest, read_plain_file(path, MAX_DOCUMENT_BYTES), str(path))
        lines = self._lines(manifest)
        catalogue = self._folder.catalogue()
        if _digest_of(catalogue) != manifest.catalogue_sha256:
            raise RecordError(f"The catalogue of {self.path} has changed since it was exported. {_AGAIN}")
        return Contents(manifest, lines, self._vectors(len(lines), manifest.width), catalogue)

    def load(self, line: Line) -> StoredTrajectory:
        stored = self._folder.load_checked(line.trajectory_id, line.content, _AGAIN)
        if stored.trajectory.source != line.source:  # searches by trusted source use the lines
            raise RecordError(
                f"The trajectory {line.trajectory_id} names the source {stored.trajectory.source!r}, but {_ENTRIES} "
                f"says {line.source!r}. {_AGAIN}"
            )
        return stored

    def load_unlisted(self, trajectory_id: str) -> StoredTrajectory:
        """A trajectory that no line names."""
        return self._folder.load(trajectory_id)

    def _lines(self, manifest: ExportManifest) -> list[Line]:
        path = self.path / _ENTRIES
        data = read_plain_file(path, _MAX_ENTRIES_BYTES)
        lines = [
            parse_record(Line, line, f"{path}, line {number}")
            for number, line in enumerate(data.split(b"\n"), start=1)
            if line
        ]
        ids = {line.trajectory_id for line in lines}
        if len(ids) < len(lines):
            raise RecordError(f"{path} names {len(lines) - len(ids)} trajectories twice.")
        if sha256_hex(data) != manifest.entries_sha256:
            raise RecordError(f"{path} has changed since it was exported. {_AGAIN}")
        return lines

    def _vectors(self, num: int, width: int) -> Vectors:
        path = self.path / _VECTORS
        with open_plain_file(path) as file:
            start, end = _start_of_numbers(file, num, width), file.seek(0, 2)
            if start is None or end - start != 4 * num * width:
                raise RecordError(f"{path} should hold exactly {num} rows of {width} float32 numbers. {_AGAIN}")
            if not num:
                return np.empty((0, width), dtype=np.float32)
            found: Vectors = np.memmap(file, dtype="<f4", mode="r", offset=start, shape=(num, width))
        return found

    # Writing

    def write(
        self,
        identity: str,
        width: int,
        contents: Mapping[str, str],
        blocks: Iterable[Block],
        catalogue: Sequence[str],
        *,
        trusted_sources: Sequence[str] = (),
    ) -> None:
        """Writes everything except the trajectories. `contents` holds the digest of each trajectory, by id."""
        lines: list[str] = []
        with (self.path / _VECTORS).open("xb") as file:
            np.lib.format.write_array_header_1_0(file, _header(len(contents), width))
            for entries, vectors_ND in blocks:
                file.write(vectors_ND.astype("<f4").tobytes())
                lines += [
                    _line(entry, contents[entry.trajectory_id], int(check))
                    for entry, check in zip(entries, vector_checks(vectors_ND), strict=True)
                ]
        if len(lines) != len(contents):
            raise StorageError(
                f"The bank has {len(lines)} of the {len(contents)} trajectories: it changed meanwhile. Export it again."
            )
        data = "".join(lines).encode()
        write_whole(self.path / _ENTRIES, data)
        if catalogue:
            self._folder.extend_catalogue(catalogue)
        manifest = ExportManifest(
            identity=identity,
            width=width,
            trusted_sources=tuple(trusted_sources),
            entries_sha256=sha256_hex(data),
            catalogue_sha256=_digest_of(self._folder.catalogue()),
        )
        write_whole(self.path / EXPORT_FILE, dump_record(manifest))


def _line(entry: Entry, content: str, check: int) -> str:
    line = Line(**entry.model_dump(), content=content, vector_crc32=check)
    return f"{line.model_dump_json(exclude_none=True)}\n"


def _digest_of(catalogue: Sequence[str]) -> str:
    return sha256_hex("\n".join(catalogue).encode())


def _start_of_numbers(file: IO[bytes], num: int, width: int) -> int | None:
    """Where the numbers begin in a NumPy file of this shape; None if the file has another shape. The header is compared
    and not parsed, because NumPy evaluates it as Python.
    """
    expected = io.BytesIO()
    np.lib.format.write_array_header_1_0(expected, _header(num, width))
    file.seek(_LENGTH_BYTES.start)
    length = int.from_bytes(file.read(2), "little")
    file.seek(0)
    found = file.read(_LENGTH_BYTES.stop + length)
    is_alike = all(
        found[part].strip() == expected.getvalue()[part].strip()  # versions of NumPy pad it differently
        for part in (slice(_LENGTH_BYTES.start), slice(_LENGTH_BYTES.stop, None))
    )
    return len(found) if is_alike else None


def _header(num: int, width: int) -> dict[str, object]:
    return {"descr": "<f4", "fortran_order": False, "shape": (num, width)}
