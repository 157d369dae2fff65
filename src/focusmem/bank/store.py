"""The bank: trajectories in a folder, and the table of vectors by which they are found.

Readers take no lock. A writer takes the lock, finishes the work that the journal names, writes its own plan into the
journal, and carries it out.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from focusmem.bank.checksums import ENTRY_COLUMNS, are_unit, entry_checks
from focusmem.bank.embedder import Embedder, Identified
from focusmem.bank.embedding import embed_each
from focusmem.bank.folder import BankFolder, Manifest, given_place
from focusmem.bank.forms import difference
from focusmem.bank.journal import Journal, Note
from focusmem.bank.leakage import KeyColumns, LeakageGuard, Query
from focusmem.bank.reports import Added, Deleted, Entry, Failure, Statistics
from focusmem.bank.retrieval import Hits, RetrievalConfig, Retriever, check_top
from focusmem.bank.sketches import Vectors
from focusmem.bank.trust import check_sources
from focusmem.bank.vectors import (
    ALL_COLUMNS,
    UNTOUCHED,
    Block,
    DamagedRowsError,
    ResultT,
    VectorTable,
    damaged_rows,
    make_rows,
    read_settled,
    table_names,
)
from focusmem.errors import ConfigError, StorageError, UserError
from focusmem.files import check_not_linked, remove_folder, sha256_hex
from focusmem.schemas import (
    LeftOut,
    StoredTrajectory,
    Trajectory,
    check_screenshots,
    content_digest,
    is_intact,
    save_trajectory,
)
from focusmem.schemas.trajectory_folder import TRAJECTORY_FILE

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

TABLE_PREFIX = "vectors-"
_ENTRY_FIELDS = tuple(Entry.model_fields)


class Bank:
    """Get one with `Bank.open` or `Bank.create`. Each process needs its own object, because LanceDB does not survive a
    fork. Several processes may use a bank at once, and several threads may share an object.
    """

    def __init__(self, folder: BankFolder, manifest: Manifest, config: RetrievalConfig) -> None:
        self.folder, self.manifest, self.config = folder, manifest, config
        self.guard = LeakageGuard(folder.catalogue())
        self.place = folder.place_of_vectors(manifest)
        self.journal = Journal(folder.journal_path)
        self._manifest_state = folder.manifest_state()
        self._vectors: VectorTable | None = None
        self._retriever: Retriever | None = None
        self._digests: dict[str, str] | None = None

    @classmethod
    def open(cls, path: Path | str, *, config: RetrievalConfig | None = None) -> Self:
        folder = BankFolder(Path(path))
        bank = cls(folder, folder.manifest(), config or RetrievalConfig())
        bank._finish_quietly()
        return bank

    @classmethod
    def create(
        cls,
        path: Path | str,
        embedder: Identified,
        *,
        vectors: str | None = None,
        catalogue: Iterable[str] | None = None,
        trusted_sources: Iterable[str] = (),
        config: RetrievalConfig | None = None,
    ) -> Self:
        """Makes a bank for the vectors of an embedder, or opens the existing one, which must be of the same embedder.

        `vectors` puts the table elsewhere: into another folder, or at an address on object storage. `catalogue` holds
        names that the leakage guard should replace by slots. A new bank trusts `trusted_sources`; an existing bank
        keeps its own trusted sources.
        """
        folder = BankFolder(Path(path))
        folder.check_not_export()
        with folder.locked():
            if not folder.has_manifest():
                _make(folder, embedder, vectors, trusted_sources)
            manifest = folder.manifest()
            _check_embedder(folder, manifest, embedder.identity)
            if vectors is not None and not folder.has_vectors_at(manifest, vectors):
                raise StorageError(f"The vectors of the bank {path} lie at {manifest.vectors} and cannot be moved.")
            if catalogue is not None:
                folder.extend_catalogue(catalogue)
        return cls.open(path, config=config)

    # Finding and reading

    @property
    def name(self) -> str:
        """The bank's name in messages."""
        return str(self.folder.path)

    @property
    def embedder(self) -> str:
        """The identity of the embedder that made the vectors."""
        return self.manifest.embedder

    @property
    def width(self) -> int:
        """Numbers per vector."""
        return self.manifest.width

    @property
    def vectors(self) -> VectorTable:
        if self._vectors is None:
            self._vectors = VectorTable.open(self.place, table_name(self.manifest.embedder), str(self.folder.path))
        return self._vectors

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
        self._check_manifest()
        if self._retriever is None:
            self._retriever = Retriever(self.vectors, self.guard, self.config)
        return self._retriever.search(np.asarray(vector_D, dtype=np.float32), query, top, outcomes, sources)

    def load(self, trajectory_id: str) -> StoredTrajectory:
        """Reads the record at once, and screenshots when they are used. Both are compared with the digests that were
        stored when the trajectory was added.
        """
        self.folder.trajectory(trajectory_id)  # refuses what cannot be an id
        if self._digests is None:
            self._digests = self._settled(self.vectors.contents)
        digest = self._digests.get(trajectory_id)
        if digest is not None:
            with contextlib.suppress(UserError):
                return self.load_checked(trajectory_id, digest)
        # The digests in memory may be older than the trajectory, so its digest is read again.
        digest = self._settled(lambda: self.vectors.contents([trajectory_id])).get(trajectory_id)
        if digest is None:
            return self.folder.load(trajectory_id)
        self._digests[trajectory_id] = digest
        return self.load_checked(trajectory_id, digest)

    def load_checked(self, name: str, digest: str) -> StoredTrajectory:
        """Like `load`, for callers that know the digest."""
        path = self.folder.path
        remedy = (
            f"Add a sound copy of it with: focusmem bank add {path} FOLDER --embedder FOLDER; or remove it with: "
            f"focusmem bank delete {path} {name}"
        )
        return self.folder.load_checked(name, digest, remedy)

    def has_each(self, trajectories: Sequence[Trajectory]) -> list[bool]:
        """Whether the bank has each of these trajectories, with the same content."""
        names = [one.trajectory_id for one in trajectories]
        there = self._settled(lambda: self.vectors.digests(names))
        return [there.get(one.trajectory_id) == content_digest(one) for one in trajectories]

    def sites(self) -> list[str]:
        """The sites of its trajectories, in alphabetical order."""
        return sorted({entry.site for entry in self.entries()})

    def entries(self) -> list[Entry]:
        """All trajectories, ordered by id."""
        found = self._settled(lambda: self.vectors.read([*ENTRY_COLUMNS, "entry_check"]))
        is_damaged_N = entry_checks(found) != found["entry_check"]
        if is_damaged_N.any():
            raise DamagedRowsError.of(found["trajectory_id"][is_damaged_N].tolist(), self.name)
        return sorted(_entries(found), key=lambda entry: entry.trajectory_id)

    def blocks(self) -> Iterator[tuple[list[Entry], Vectors]]:
        """Yields all entries with their vectors, block by block, in the order of the table. Damaged rows are left
        out.
        """
        self.vectors.newest_version()
        for block in self.vectors.scan(ALL_COLUMNS):
            is_sound_N = ~damaged_rows(block)
            sound = {name: column[is_sound_N] for name, column in block.items()}
            yield _entries(sound), sound["vector"]

    def damaged(self) -> list[str]:
        """The ids of trajectories whose rows are damaged. This reads all vectors."""
        return sorted(self._settled(self.vectors.damaged))

    def without_vector(self) -> list[str]:
        """Trajectories that no search finds because they have no vector, by id."""
        return sorted(set(self.folder.trajectory_ids()) - set(self._settled(self.vectors.contents)))

    def _settled(self, read: Callable[[], ResultT]) -> ResultT:
        """Returns the result of `read` for the newest version of the table."""
        self.vectors.newest_version()
        return read_settled(read, self.vectors.newest_version)

    def catalogue(self) -> list[str]:
        return self.folder.catalogue()

    def check_embedder(self, identity: str) -> None:
        """Raise an error if vectors of this embedder cannot be compared with those of the bank."""
        _check_embedder(self.folder, self.manifest, identity)

    def stats(self) -> Statistics:
        entries = self.entries()
        return Statistics.of(
            entries,
            path=self.name,
            embedder=self.embedder,
            width=self.width,
            num_without_vector=len(self.without_vector()),
            is_exact=self.config.is_exact(len(entries), self.width),
            num_catalogue_names=len(self.catalogue()),
            trusted_sources=self.trusted_sources,
        )

    # Trust

    @property
    def trusted_sources(self) -> tuple[str, ...]:
        """The sources that the bank trusts; empty if it trusts none. Changes by other processes are followed."""
        self._check_manifest()
        return self.manifest.trusted_sources

    def trust(self, sources: Iterable[str]) -> None:
        """From now on the bank trusts these sources and no others."""
        named = tuple(sorted(set(sources)))
        check_sources(self.name, named, self.entries())
        with self.folder.locked():
            self._check_manifest()
            self.folder.write_manifest(self.manifest.model_copy(update={"trusted_sources": named}))
            self._check_manifest()

    def extend_catalogue(self, names: Sequence[str]) -> None:
        """From now on the leakage guard replaces these names by slots as well."""
        if not names:
            return
        with self.folder.locked():
            self.folder.extend_catalogue(names)
        self.guard = LeakageGuard(self.folder.catalogue())
        self._retriever = None

    # Adding

    def add(self, items: Sequence[StoredTrajectory], embedder: Embedder) -> Added:
        """Add trajectories. Trajectories that the bank already holds are not embedded again. Failures are reported, not
        raised.
        """
        self.check_embedder(embedder.identity)
        wanted, report = self._sort_out(items)
        fresh, vectors_ND, failures = embed_each([items[place] for place in wanted], embedder)
        report += Added(failures=failures)
        if not fresh:
            return report
        left_out = [embedder.left_out_of_trajectory(item) for item in fresh]
        return report + self.add_vectors(fresh, vectors_ND, embedder.identity, left_out=left_out)

    def add_vectors(
        self,
        items: Sequence[StoredTrajectory],
        vectors_ND: Vectors,
        embedder: str,
        *,
        left_out: Sequence[LeftOut] | None = None,
    ) -> Added:
        """Like `add`, with known vectors. `embedder` is the identity of the embedder that made them. `left_out` says
        what the embedder did not read of each item; None means that it read everything.
        """
        self.check_embedder(embedder)
        vectors_ND = _checked(vectors_ND, len(items), self.manifest.width)
        with self._writing():
            wanted, report = self._sort_out(items)
            lost = [LeftOut() if left_out is None else left_out[place] for place in wanted]
            if wanted:
                self._write([items[place] for place in wanted], vectors_ND[wanted], lost)
        names = tuple(items[place].trajectory.trajectory_id for place in wanted)
        shortened = tuple((name, one) for name, one in zip(names, lost, strict=True) if not one.is_nothing)
        return report + Added(added=names, shortened=shortened)

    def _sort_out(self, items: Sequence[StoredTrajectory]) -> tuple[list[int], Added]:
        """The indices of the items that are sound and new, and a report on the others. An item whose copy in the bank
        is damaged counts as new.
        """
        names = [item.trajectory.trajectory_id for item in items]
        there = self._settled(lambda: self.vectors.sound_contents(names))
        seen: set[str] = set()
        wanted, known, failures = [], [], []
        for place, item in enumerate(items):
            name, content = item.trajectory.trajectory_id, content_digest(item.trajectory)
            if there.get(name) == content and (name in seen or is_intact(self.folder.trajectory(name), content)):
                known.append(name)
            elif problem := self._problem(item, content, there.get(name)):
                failures.append(Failure(name, problem))
            else:
                wanted.append(place)
                there[name] = content
                seen.add(name)
        return wanted, Added(known=tuple(known), failures=tuple(failures))

    def _problem(self, item: StoredTrajectory, content: str, content_there: str | None) -> str | None:
        """Why a trajectory cannot be added; `content_there` is the digest in its row, if it has one."""
        name = item.trajectory.trajectory_id
        folder = self.folder.trajectory(name)
        try:
            check_screenshots(item)
            check_not_linked(folder)
        except UserError as error:
            return str(error)
        if content_there is None:
            content_there = self._content_on_disk(name)
        return None if content_there in (None, content) else self._says_other_content(name)

    def _says_other_content(self, name: str) -> str:
        path = self.folder.path
        return f"The bank has another trajectory {name}; delete that one first with: focusmem bank delete {path} {name}"

    def _write(self, items: Sequence[StoredTrajectory], vectors_ND: Vectors, left_out: Sequence[LeftOut]) -> None:
        rows = self.make_rows([item.trajectory for item in items], vectors_ND, left_out)
        is_new = [not self.folder.trajectory(item.trajectory.trajectory_id).exists() for item in items]
        note = self.journal.note_adding(rows)
        try:
            for item in items:
                self._save(item)
            self.vectors.upsert(rows)
        except UserError:  # usually a full disk: remove the files again; the note covers rows that were already written
            for item, was_made_here in zip(items, is_new, strict=True):
                if was_made_here:
                    remove_folder(self.folder.trajectory(item.trajectory.trajectory_id))
            raise
        self.journal.cross_out(note)
        with contextlib.suppress(StorageError):  # the rows are written; joining small files can wait
            self.vectors.tidy()

    def _save(self, item: StoredTrajectory) -> None:
        """Writes the trajectory's files. Damaged files are replaced."""
        folder = self.folder.trajectory(item.trajectory.trajectory_id)
        if folder.exists() and not (folder / TRAJECTORY_FILE).exists():
            remove_folder(folder)
        save_trajectory(folder, item.trajectory, item.screenshots, replace=True)

    def make_rows(
        self, trajectories: Sequence[Trajectory], vectors_ND: Vectors, left_out: Sequence[LeftOut]
    ) -> "pa.Table":
        entries = [Entry.of(*one) for one in zip(trajectories, left_out, strict=True)]
        keys = KeyColumns.of([self.guard.keys(entry.query) for entry in entries])
        return make_rows(
            {
                **{name: [getattr(entry, name) for entry in entries] for name in _ENTRY_FIELDS},
                "content": [content_digest(one) for one in trajectories],
                "guard": [self.guard.version] * len(entries),
                "task_key": keys.task_N,
                "instance_key": keys.instance_N,
                "template_key": keys.template_N,
                "wording_key": keys.wording_N,
            },
            vectors_ND,
        )

    # Deleting

    def delete(self, ids: Iterable[str], *, on_delete: Callable[[StoredTrajectory], None] | None = None) -> Deleted:
        """Remove trajectories with their vectors and files.

        `on_delete` is called with each of them first, so that the caller can remove what it derived from them, such as
        cached evidence.
        """
        asked = list(dict.fromkeys(ids))
        folders = {name: self.folder.trajectory(name) for name in asked}
        with self._writing():
            self.vectors.newest_version()
            there = self.vectors.contents(asked)
            found = [name for name in asked if name in there or folders[name].exists()]
            for name in found:
                if on_delete is not None:
                    self._tell(on_delete, name)
            if found:
                note = self.journal.note_deleting(found)
                try:
                    self._remove(found)
                except StorageError as error:  # usually a full disk
                    self._take_back(note, found, there, error)
                    raise
                self.journal.cross_out(note)
        return Deleted(tuple(found), tuple(name for name in asked if name not in found))

    def _take_back(self, note: Path, ids: Sequence[str], rows: dict[str, str], error: StorageError) -> None:
        """Cancel a deletion that has removed nothing. Otherwise raise an error that says when it will be finished."""
        self.vectors.newest_version()
        is_whole = self.vectors.contents(ids) == rows
        if is_whole and all(name in rows or self.folder.trajectory(name).exists() for name in ids):
            self.journal.cross_out(note)
            return
        raise StorageError(
            f"{str(error).removesuffix(UNTOUCHED).rstrip()} The deletion is noted but not finished; it will be "
            "finished the next time the bank is opened and can be written."
        ) from error

    def _tell(self, on_delete: Callable[[StoredTrajectory], None], name: str) -> None:
        try:
            stored = self.load(name)
            dict(stored.screenshots)
        except UserError as error:  # the trajectory is deleted all the same
            _log.warning("what was derived from trajectory %s cannot be found: %s", name, error)
        else:
            on_delete(stored)

    def _remove(self, ids: Sequence[str]) -> None:
        tables = self._tables()
        for table in tables:
            table.remove(ids)
        for name in ids:
            remove_folder(self.folder.trajectory(name))
        for table in tables:
            table.purge()
        self.journal.remove_set_aside()

    def _tables(self) -> list[VectorTable]:
        """The current table first. There is a second table while vectors are being made again."""
        own, label = table_name(self.manifest.embedder), str(self.folder.path)
        names = [name for name in table_names(self.place, label) if name.startswith(TABLE_PREFIX) and name != own]
        return [self.vectors, *(VectorTable.open(self.place, name, label) for name in names)]

    # Writers, one at a time

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with self.folder.locked():
            self._check_manifest()
            self.finish()
            yield

    def _check_manifest(self) -> None:
        state = self.folder.manifest_state()
        if state == self._manifest_state:
            return
        manifest = self.folder.manifest()
        if manifest.embedder != self.manifest.embedder:
            raise StorageError(
                f"The vectors of the bank {self.folder.path} have been made again with another embedder since it was "
                "opened; open it again, and search with vectors of that embedder."
            )
        self.manifest, self._manifest_state = manifest, state

    def finish(self) -> None:
        """Finish the work that a killed writer had noted. The caller must hold the lock."""
        notes = self.journal.notes(self.width)
        for note in notes:
            self._finish_note(note)
            self.journal.cross_out(note.path)
        if notes:
            self.folder.remove_remains()

    def _finish_note(self, note: Note) -> None:
        if note.to_delete:
            self._remove(note.to_delete)
        if note.to_add is None:
            return
        self.vectors.newest_version()
        names, contents = note.to_add["trajectory_id"].to_pylist(), note.to_add["content"].to_pylist()
        there, sound = self.vectors.contents(names), self.vectors.sound_contents(names)
        # A trajectory that is whole on disk gets its vector; the row of any other is removed.
        is_whole = [self._content_on_disk(name) == content for name, content in zip(names, contents, strict=True)]
        is_due = [whole and name not in sound for name, whole in zip(names, is_whole, strict=True)]
        if any(is_due):
            self.vectors.upsert(note.to_add.filter(np.array(is_due)))
        self.vectors.remove([name for name, whole in zip(names, is_whole, strict=True) if not whole and name in there])

    def _content_on_disk(self, name: str) -> str | None:
        """The digest of the files' content; None if there is no such trajectory, or it cannot be read."""
        try:
            return content_digest(self.folder.load(name).trajectory)
        except UserError:
            return None

    def _finish_quietly(self) -> None:
        """Finishes work that a killed writer had noted. If the folder cannot be written, or another process is writing,
        the work stays for the next writer.
        """
        if self.journal.is_empty():
            return
        try:
            with self.folder.locked(timeout_s=0):
                self.finish()
        except StorageError as error:
            _log.warning("unfinished work in the bank is left for the next writer: %s", error)


def _make(folder: BankFolder, embedder: Identified, vectors: str | None, trusted_sources: Iterable[str]) -> None:
    if folder.trajectory_ids():
        raise StorageError(
            f"{folder.path} holds trajectories but no bank.json: it is a bank that has lost its manifest, or not a "
            "bank. Choose a new folder and add the trajectories to it."
        )
    trusted = tuple(sorted(set(trusted_sources)))
    manifest = Manifest(embedder=embedder.identity, width=embedder.width, trusted_sources=trusted)
    manifest = manifest if vectors is None else manifest.model_copy(update={"vectors": given_place(vectors)})
    place = folder.place_of_vectors(manifest)
    VectorTable.create(place, table_name(embedder.identity), str(folder.path), embedder.width)
    folder.write_manifest(manifest)


def _check_embedder(folder: BankFolder, manifest: Manifest, identity: str) -> None:
    if identity != manifest.embedder:
        raise StorageError(
            f"{difference(str(folder.path), manifest.embedder, identity)} Use the bank's embedder, or make all vectors "
            f"again with: focusmem bank reembed {folder.path} --embedder FOLDER"
        )


def table_name(embedder: str) -> str:
    """Each embedder has its own table, so that a new table can be filled while the old one is in use."""
    return TABLE_PREFIX + sha256_hex(embedder.encode())[:16]


def _checked(vectors_ND: npt.NDArray[np.floating[Any]], num: int, width: int) -> Vectors:
    found = np.asarray(vectors_ND, dtype=np.float32)
    if found.shape != (num, width):
        shape = "x".join(map(str, found.shape))
        raise ConfigError(
            f"Vectors of shape {shape} were given; the bank needs {num}x{width}, one for each trajectory."
        )
    if not are_unit(found).all():
        raise ConfigError("The bank takes vectors of length one; divide each by its length first.")
    return found


def _entries(block: Block) -> list[Entry]:
    rows = zip(*(block[name].tolist() for name in _ENTRY_FIELDS), strict=True)
    return [Entry(**dict(zip(_ENTRY_FIELDS, row, strict=True))) for row in rows]
