"""A bank whose vectors fit in memory and are searched exactly. Exports and temporary banks are of this kind. It needs
no vector store, and it never changes. N trajectories, D width.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from focusmem.bank.candidates import Candidates, outcome_codes, source_numbers
from focusmem.bank.checksums import damaged_vectors, named
from focusmem.bank.embedder import Embedder
from focusmem.bank.embedding import embed_each
from focusmem.bank.export_folder import Block, ExportFolder
from focusmem.bank.forms import difference
from focusmem.bank.index import ExactIndex
from focusmem.bank.leakage import KeyColumns, LeakageGuard, Query
from focusmem.bank.reports import Entry, Statistics
from focusmem.bank.retrieval import Hits, check_top, check_width, search_index
from focusmem.bank.sketches import Vectors
from focusmem.errors import ConfigError, RecordError, StorageError
from focusmem.schemas import StoredTrajectory, content_digest, save_trajectory

Loader = Callable[[str], StoredTrajectory]
"""Reads a trajectory, given its id."""


class NumpyBank:
    def __init__(
        self,
        entries: Sequence[Entry],
        vectors_ND: Vectors,
        load: Loader,
        *,
        embedder: str,
        name: str,
        catalogue: Sequence[str] = (),
        trusted_sources: Sequence[str] = (),
    ) -> None:
        """`vectors_ND` has a row for each entry. `embedder` is the identity of the embedder that made them; messages
        show `name`.
        """
        self.embedder, self.width, self.name = embedder, vectors_ND.shape[1], name
        self.vectors_ND, self.trusted_sources = vectors_ND, tuple(trusted_sources)
        self.guard = LeakageGuard(catalogue)
        self._rows, self._load, self._catalogue = tuple(entries), load, tuple(catalogue)
        self.candidates = Candidates(
            np.array([entry.trajectory_id for entry in entries], dtype=object),
            KeyColumns.of([self.guard.keys(entry.query) for entry in entries]),
            outcome_codes(entry.outcome for entry in entries),
            source_numbers(entry.source for entry in entries),
        )
        self._index = ExactIndex(vectors_ND)

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Opens a folder that `focusmem bank export` has written."""
        folder = ExportFolder(Path(path))
        contents = folder.read()
        lines, vectors_ND = contents.lines, np.array(contents.vectors_ND)  # in memory: the file may be replaced
        checks_N = np.array([line.vector_crc32 for line in lines], dtype=np.int64)
        damaged = [lines[row].trajectory_id for row in np.flatnonzero(damaged_vectors(vectors_ND, checks_N))]
        if damaged:
            raise RecordError(
                f"The vectors of these trajectories in {path} are damaged: {named(damaged)}. Export the bank again, or "
                f"make new vectors in a new bank: focusmem bank import NEW {path}/trajectories --embedder FOLDER"
            )
        by_id = {line.trajectory_id: line for line in lines}
        return cls(
            [line.entry() for line in lines],
            vectors_ND,
            lambda name: folder.load(by_id[name]) if name in by_id else folder.load_unlisted(name),
            embedder=contents.manifest.identity,
            name=str(path),
            catalogue=contents.catalogue,
            trusted_sources=contents.manifest.trusted_sources,
        )

    def check_embedder(self, identity: str) -> None:
        if identity != self.embedder:
            raise StorageError(
                f"{difference(self.name, self.embedder, identity)} Use the bank's embedder, or make "
                f"new vectors in a new bank with: focusmem bank import NEW {self.name} --embedder FOLDER "
                "(for a bank instead of an export: focusmem bank reembed)."
            )

    def search(
        self,
        vector_D: npt.NDArray[np.floating[Any]],
        query: Query | None,
        top: int = 3,
        *,
        outcomes: Collection[str] | None = None,
        sources: Collection[str] | None = None,
    ) -> Hits:
        """The nearest trajectories that the leakage guard lets through; with `query` None the guard is off.

        `outcomes` and `sources` restrict the search to trajectories with these outcomes and from these sources.
        """
        check_top(top)
        query_D = np.asarray(vector_D, dtype=np.float32)
        check_width(query_D, self.width)
        keys = None if query is None else self.guard.keys(query)
        return search_index(self._index, self.candidates, query_D, keys, top, outcomes, sources)

    def load(self, trajectory_id: str) -> StoredTrajectory:
        return self._load(trajectory_id)

    def sites(self) -> list[str]:
        return sorted({entry.site for entry in self._rows})

    def entries(self) -> list[Entry]:
        return sorted(self._rows, key=lambda entry: entry.trajectory_id)

    def blocks(self) -> list[Block]:
        """All entries with their vectors, in the order of the rows."""
        return [(self._rows, self.vectors_ND)]

    def catalogue(self) -> list[str]:
        return list(self._catalogue)

    def damaged(self) -> list[str]:
        """Always empty, because damaged vectors are refused when the bank is opened."""
        return []

    def without_vector(self) -> list[str]:
        """No trajectory of this bank lacks a vector."""
        return []

    def stats(self) -> Statistics:
        return Statistics.of(
            self._rows,
            path=self.name,
            embedder=self.embedder,
            width=self.width,
            num_catalogue_names=len(self._catalogue),
            trusted_sources=self.trusted_sources,
        )


def write_numpy_bank(
    folder: Path, items: Sequence[StoredTrajectory], embedder: Embedder, *, trusted_sources: Iterable[str] = ()
) -> None:
    """Write trajectories with their vectors as a new export, in their order, whole or not at all."""
    kept, vectors_ND, failures = embed_each(items, embedder)
    if failures:
        raise ConfigError(f"The trajectory {failures[0].name} cannot be embedded: {failures[0].reason}")
    with ExportFolder.new(folder) as export:
        for item in kept:
            save_trajectory(export.trajectory(item.trajectory.trajectory_id), item.trajectory, item.screenshots)
        entries = [Entry.of(item.trajectory, embedder.left_out_of_trajectory(item)) for item in kept]
        contents = {item.trajectory.trajectory_id: content_digest(item.trajectory) for item in kept}
        trusted = sorted(set(trusted_sources))
        export.write(embedder.identity, embedder.width, contents, [(entries, vectors_ND)], (), trusted_sources=trusted)
