"""A bank as a plain folder that other tools can read, and that is searched without a vector store.

<export>/export.json              which embedder made the vectors
<export>/entries.jsonl            a line for each trajectory: its id, task, site, outcome and so on
<export>/vectors.npy              float32, a row for each line of entries.jsonl
<export>/trajectories/<id>/       as in a bank
<export>/catalogue.txt            as in a bank, where it has one
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from focusmem.bank.folder import EXPORT_FILE, MAX_WIDTH, BankFolder
from focusmem.bank.reports import Entry
from focusmem.bank.sketches import Vectors
from focusmem.errors import RecordError, StorageError
from focusmem.files import read_plain_file, write_whole
from focusmem.schemas.record import MAX_DOCUMENT_BYTES, NonEmptyText, Record, dump_record, parse_record

_ENTRIES, _VECTORS = "entries.jsonl", "vectors.npy"
_MAX_ENTRIES_BYTES = 2**32

Block = tuple[Sequence[Entry], Vectors]
"""Some trajectories with a vector for each."""


class ExportManifest(Record):
    schema_version: Literal[1] = 1
    """Increased when the meaning of a field or of a file changes."""
    identity: NonEmptyText
    """The identity of the embedder that made the vectors."""
    width: Annotated[int, Field(ge=1, le=MAX_WIDTH)]
    """Numbers per vector."""
    trusted_sources: tuple[NonEmptyText, ...] = ()
    """The sources that the bank trusted; empty if it named none."""


class ExportFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.contents = BankFolder(path)
        """Its trajectories and its catalogue."""

    def is_there(self) -> bool:
        return (self.path / EXPORT_FILE).exists()

    # Reading

    def manifest(self) -> ExportManifest:
        path = self.path / EXPORT_FILE
        return parse_record(ExportManifest, read_plain_file(path, MAX_DOCUMENT_BYTES), str(path))

    def read(self, manifest: ExportManifest) -> Block:
        """All entries and all vectors, in the order of the files. The vectors are read from disk when they are used."""
        entries = self._entries()
        path = self.path / _VECTORS
        try:
            vectors_ND: Vectors = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise StorageError(f"Could not read {path}: {error}.") from error
        if vectors_ND.shape != (len(entries), manifest.width) or vectors_ND.dtype != np.float32:
            raise RecordError(f"{path} does not hold {len(entries)} rows of {manifest.width} float32 numbers.")
        return entries, vectors_ND

    def _entries(self) -> list[Entry]:
        path = self.path / _ENTRIES
        lines = read_plain_file(path, _MAX_ENTRIES_BYTES).split(b"\n")
        entries = [
            parse_record(Entry, line, f"{path}, line {number}") for number, line in enumerate(lines, start=1) if line
        ]
        ids = {entry.trajectory_id for entry in entries}
        if len(ids) < len(entries):
            raise RecordError(f"{path} names {len(entries) - len(ids)} trajectories twice.")
        return entries

    # Writing

    def write(self, manifest: ExportManifest, num: int, blocks: Iterable[Block], catalogue: Sequence[str]) -> None:
        """Writes everything except the trajectories. `num` is the number of entries in all blocks."""
        header = {"descr": "<f4", "fortran_order": False, "shape": (num, manifest.width)}
        lines: list[str] = []
        with (self.path / _VECTORS).open("xb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for entries, vectors_ND in blocks:
                file.write(vectors_ND.astype("<f4").tobytes())
                lines += [f"{entry.model_dump_json(exclude_none=True)}\n" for entry in entries]
        if len(lines) != num:
            raise StorageError(f"{len(lines)} trajectories were found instead of {num}: the bank changed meanwhile.")
        write_whole(self.path / _ENTRIES, "".join(lines).encode())
        if catalogue:
            self.contents.extend_catalogue(catalogue)
        write_whole(self.path / EXPORT_FILE, dump_record(manifest))
