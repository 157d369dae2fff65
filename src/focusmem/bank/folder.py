"""The bank's own folder: its manifest, its trajectories and its lock. This module does not read vectors.

<bank>/bank.json              which embedder made the vectors, and where they lie
<bank>/trajectories/<id>/     as `schemas/trajectory_folder.py` writes them
<bank>/vectors/               the LanceDB table, unless bank.json names another place
<bank>/catalogue.txt          names that the leakage guard makes slots of, one in a line
<bank>/journal/               the unfinished work of a writer that was killed
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from focusmem.errors import RecordError, StorageError, UserError
from focusmem.files import check_not_linked, is_safe_name, read_plain_file, remove_folder, write_whole
from focusmem.schemas import Screenshot, StoredTrajectory, load_trajectory
from focusmem.schemas.record import MAX_DOCUMENT_BYTES, NonEmptyText, Record, dump_record, parse_record

MAX_WIDTH = 65_536
BANK_FILE = "bank.json"
EXPORT_FILE = "export.json"
_TRAJECTORIES = "trajectories"
_CATALOGUE = "catalogue.txt"
_OWN_VECTORS = "vectors"
_LOCK_TIMEOUT_S = 600.0
_LOCK_POLL_S = 0.01


class Manifest(Record):
    schema_version: Literal[1] = 1
    """Increased when the meaning of a field, or of a column of the table, changes."""
    embedder: NonEmptyText
    """The identity of the embedder that made the vectors."""
    width: Annotated[int, Field(ge=1, le=MAX_WIDTH)]
    """Numbers per vector."""
    vectors: NonEmptyText = _OWN_VECTORS
    """Where the table lies: a folder within the bank, another folder, or an address such as s3://bucket/bank."""
    trusted_sources: tuple[NonEmptyText, ...] = ()
    """The sources of trajectories that searches may be restricted to; empty if the bank trusts none."""


class BankFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal_path = path / "journal"

    # The manifest

    def check_not_export(self) -> None:
        if (self.path / EXPORT_FILE).exists() and not self.has_manifest():
            raise StorageError(
                f"{self.path} is an export, which can be searched but not changed. Make a bank of it with: "
                f"focusmem bank import NEW {self.path}"
            )

    def has_manifest(self) -> bool:
        return (self.path / BANK_FILE).exists()

    def manifest(self) -> Manifest:
        path = self.path / BANK_FILE
        if not path.exists():
            self.check_not_export()
            raise StorageError(
                f"There is no bank at {self.path}: it has no {BANK_FILE}. Make one with: "
                f"focusmem bank add {self.path} TRAJECTORIES --embedder FOLDER"
            )
        try:
            return parse_record(Manifest, read_plain_file(path, MAX_DOCUMENT_BYTES), str(path))
        except RecordError as error:
            raise RecordError(
                f"{error} If the file is damaged, make a new bank of the trajectories with: focusmem bank import NEW "
                f"{self.path / _TRAJECTORIES} --embedder FOLDER"
            ) from error

    def write_manifest(self, manifest: Manifest) -> None:
        write_whole(self.path / BANK_FILE, dump_record(manifest))

    def manifest_state(self) -> tuple[int, int, int]:
        """A value that changes whenever the manifest is written."""
        try:
            found = (self.path / BANK_FILE).stat()
        except OSError as error:
            raise StorageError(f"The bank at {self.path} has lost its {BANK_FILE}: {error.strerror}.") from error
        return found.st_mtime_ns, found.st_ino, found.st_size

    def place_of_vectors(self, manifest: Manifest) -> str:
        """The table's address or folder; a relative folder lies in the bank."""
        return manifest.vectors if is_address(manifest.vectors) else str(self.path / manifest.vectors)

    def has_vectors_at(self, manifest: Manifest, given: str) -> bool:
        """Whether the vectors lie at the place that a user gives."""
        return given == manifest.vectors or given_place(given) == given_place(self.place_of_vectors(manifest))

    # Trajectories

    def trajectory(self, trajectory_id: str) -> Path:
        """The folder of a trajectory. Ids that cannot be a folder's name are refused."""
        if not is_safe_name(trajectory_id):
            raise RecordError(f"{trajectory_id!r} cannot be the id of a trajectory: it is not usable as a file name.")
        return self.path / _TRAJECTORIES / trajectory_id

    def load(self, trajectory_id: str, digest: str | None = None) -> StoredTrajectory:
        """With `digest`, a trajectory with another digest is refused. Links are not followed, because an export may
        come from anybody.
        """
        folder = self.trajectory(trajectory_id)
        check_not_linked(folder.parent)
        check_not_linked(folder)
        if not folder.is_dir():
            raise StorageError(f"The bank {self.path} has no trajectory {trajectory_id!r}.")
        found = load_trajectory(folder, digest)
        if found.trajectory.trajectory_id != trajectory_id:
            raise RecordError(f"{folder} holds the trajectory {found.trajectory.trajectory_id!r} under another name.")
        return found

    def load_checked(self, trajectory_id: str, digest: str, remedy: str) -> StoredTrajectory:
        """Loads a trajectory that should be there and undamaged. Damage is an error that names the trajectory and the
        remedy, also if a screenshot turns out to be damaged when it is read later.
        """
        what = f"The trajectory {trajectory_id} of the bank {self.path} is damaged"
        with _with_remedy(what, remedy):
            stored = self.load(trajectory_id, digest)
        return StoredTrajectory(stored.trajectory, _CheckedScreenshots(stored.screenshots, what, remedy))

    def trajectory_ids(self) -> list[str]:
        """The ids of all trajectories, sorted. Hidden folders (unfinished or being removed) do not count."""
        try:
            return sorted(path.name for path in (self.path / _TRAJECTORIES).iterdir() if is_safe_name(path.name))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError(f"Could not look into {self.path / _TRAJECTORIES}: {error.strerror}.") from error

    def remove_remains(self) -> None:
        """Remove the hidden folders that a killed writer left. The caller must hold the lock."""
        with contextlib.suppress(FileNotFoundError):
            for path in (self.path / _TRAJECTORIES).iterdir():
                if path.name.startswith("."):
                    remove_folder(path)

    # The catalogue

    def catalogue(self) -> list[str]:
        path = self.path / _CATALOGUE
        if not path.exists():
            return []
        try:
            text = read_plain_file(path, MAX_DOCUMENT_BYTES).decode()
        except UnicodeDecodeError as error:
            raise RecordError(f"{path} is not valid UTF-8 (at byte {error.start}).") from error
        return [line.strip() for line in text.splitlines() if line.strip()]

    def extend_catalogue(self, names: Iterable[str]) -> None:
        lines = sorted({" ".join(name.split()) for name in (*self.catalogue(), *names)} - {""})
        write_whole(self.path / _CATALOGUE, "".join(f"{line}\n" for line in lines).encode())

    # The lock

    @contextlib.contextmanager
    def locked(self, timeout_s: float = _LOCK_TIMEOUT_S) -> Iterator[None]:
        """Allows one writer at a time among all processes that share the folder. The lock of a killed writer is
        released.
        """
        import filelock  # only writers need it

        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(self.path / ".lock")
            lock.acquire(timeout=timeout_s, poll_interval=_LOCK_POLL_S)
        except filelock.Timeout as error:
            raise StorageError(
                f"Another process has been writing to the bank {self.path} for {timeout_s:.0f} s; try again later."
            ) from error
        except OSError as error:
            raise StorageError(f"Could not lock the bank {self.path}: {error.strerror}.") from error
        try:
            yield
        finally:
            lock.release()


class _CheckedScreenshots(Mapping[str, Screenshot]):
    def __init__(self, screenshots: Mapping[str, Screenshot], what: str, remedy: str) -> None:
        self._screenshots, self._what, self._remedy = screenshots, what, remedy

    def __getitem__(self, digest: str) -> Screenshot:
        with _with_remedy(self._what, self._remedy):
            return self._screenshots[digest]

    def __iter__(self) -> Iterator[str]:
        return iter(self._screenshots)

    def __len__(self) -> int:
        return len(self._screenshots)


@contextlib.contextmanager
def _with_remedy(what: str, remedy: str) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        raise StorageError(f"{what}: {error} {remedy}") from error


def given_place(vectors: str) -> str:
    """A place for vectors as a user gives it: an address, or a folder relative to the working directory."""
    return vectors if is_address(vectors) else str(Path(vectors).absolute())


def is_address(place: str) -> bool:
    """Whether a place of vectors is an address rather than a folder."""
    return "://" in place
