"""Many trajectories in and out: from folders, and whole banks as plain folders that other tools can read.

<export>/export.json              which embedder made the vectors
<export>/trajectories/<id>/       as in a bank
<export>/ids.txt                  one id in a line
<export>/vectors.npy              float32, a row for each line of ids.txt
<export>/catalogue.txt            as in a bank, where it has one
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from focusmem.bank.embedder import Embedder, Identified
from focusmem.bank.embedding import are_unit, in_batches, load_each
from focusmem.bank.folder import MAX_WIDTH, BankFolder
from focusmem.bank.reports import Added, Exported, Failure
from focusmem.bank.sketches import Vectors
from focusmem.bank.store import Bank
from focusmem.errors import RecordError, StorageError, UserError
from focusmem.files import is_safe_name, read_plain_file, whole_folder, write_whole
from focusmem.progress import Progress
from focusmem.schemas import StoredTrajectory, find_trajectories, save_trajectory
from focusmem.schemas.record import MAX_DOCUMENT_BYTES, NonEmptyText, Record, dump_record, parse_record

_MANIFEST, _TRAJECTORIES, _IDS, _VECTORS = "export.json", "trajectories", "ids.txt", "vectors.npy"
_MAX_IDS_BYTES = 2**30


class ExportManifest(Record):
    schema_version: Literal[1] = 1
    """Raised when the meaning of a field or of a file changes."""
    identity: NonEmptyText
    """Of the embedder that made the vectors."""
    width: Annotated[int, Field(ge=1, le=MAX_WIDTH)]
    """Numbers per vector."""


def add_folders(bank: Bank, folders: Sequence[Path], embedder: Embedder, *, line: Progress | None = None) -> Added:
    """Add stored trajectories; what cannot be read or embedded is left out and told."""
    report = Added()
    for batch in in_batches(folders):
        items, failures = load_each(batch)
        done = Added(failures=failures) + bank.add(items, embedder)
        report += done
        _tick(line, len(batch), len(done.failures))
    return report


# Out


def export_bank(bank: Bank, out: Path, *, line: Progress | None = None) -> Exported:
    """Write a bank as a plain folder, whole or not at all. What cannot be read, or has no vector, is told instead."""
    ids = [entry.trajectory_id for entry in bank.entries()]
    failures = _without_vector(bank, ids)
    _count(line, len(ids) + len(failures))
    _tick(line, len(failures), len(failures))
    with whole_folder(out) as partial:
        for name in ids:
            problem = _export_one(bank, name, partial / _TRAJECTORIES / name)
            failures += [Failure(name, problem)] if problem else []
            _tick(line, 1, 1 if problem else 0)
        written = set(ids) - {failure.name for failure in failures}
        _export_vectors(bank, written, partial)
        if catalogue := bank.folder.catalogue():
            BankFolder(partial).extend_catalogue(catalogue)
        manifest = ExportManifest(identity=bank.manifest.embedder, width=bank.manifest.width)
        write_whole(partial / _MANIFEST, dump_record(manifest))
    return Exported(len(written), tuple(failures))


def _without_vector(bank: Bank, ids: Sequence[str]) -> list[Failure]:
    path = bank.folder.path
    reason = f"It has no vector; make one with: focusmem bank reembed {path} --embedder FOLDER"
    return [Failure(name, reason) for name in bank.folder.trajectory_ids() if name not in set(ids)]


def _export_one(bank: Bank, name: str, folder: Path) -> str | None:
    try:
        stored = bank.load(name)
        pictures = dict(stored.screenshots)
    except UserError as error:
        return str(error)
    save_trajectory(folder, stored.trajectory, pictures)
    return None


def _export_vectors(bank: Bank, wanted: set[str], folder: Path) -> None:
    names: list[str] = []
    header = {"descr": "<f4", "fortran_order": False, "shape": (len(wanted), bank.manifest.width)}
    with (folder / _VECTORS).open("xb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in bank.vectors.scan(["trajectory_id", "vector"]):
            is_wanted = np.array([name in wanted for name in block["trajectory_id"]], dtype=np.bool_)
            file.write(block["vector"][is_wanted].astype("<f4").tobytes())
            names += block["trajectory_id"][is_wanted].tolist()
    if len(names) != len(wanted):
        raise StorageError(f"The bank {bank.folder.path} changed while it was exported; try again.")
    write_whole(folder / _IDS, "".join(f"{name}\n" for name in names).encode())


# In


def import_bank(path: Path, source: Path, embedder: Embedder | None = None, *, line: Progress | None = None) -> Added:
    """Add what was exported, or any folder of trajectories, to the bank at `path`, which is made if there is none.

    An export brings its vectors. They are used where the bank's are of the same embedder; otherwise, and for plain
    trajectories, an embedder is needed.
    """
    if not (source / _MANIFEST).exists():
        folders = find_trajectories(source)
        return _import_folders(
            path, folders, _needed(embedder, f"{source} is not an export: it brings no vectors"), line
        )
    manifest = parse_record(
        ExportManifest, read_plain_file(source / _MANIFEST, MAX_DOCUMENT_BYTES), str(source / _MANIFEST)
    )
    names, vectors_ND = _read_vectors(source, manifest)
    catalogue = BankFolder(source).catalogue()
    maker: Identified = embedder or manifest
    bank = Bank.open(path) if (path / "bank.json").exists() else Bank.create(path, maker)
    if bank.manifest.embedder != manifest.identity:
        why = f"The vectors in {source} are of another embedder than those of the bank {path}"
        model = _needed(embedder, why)
        bank.check_embedder(model.identity)
        bank.extend_catalogue(catalogue)
        return _import_folders(path, [source / _TRAJECTORIES / name for name in names], model, line)
    bank.extend_catalogue(catalogue)
    _count(line, len(names))
    report = Added()
    for places in in_batches(range(len(names))):
        done = _import_batch(bank, source, [names[place] for place in places], vectors_ND[places[0] : places[-1] + 1])
        report += done
        _tick(line, len(places), len(done.failures))
    return report


def _import_folders(path: Path, folders: Sequence[Path], embedder: Embedder, line: Progress | None) -> Added:
    _count(line, len(folders))
    return add_folders(Bank.create(path, embedder), folders, embedder, line=line)


def _import_batch(bank: Bank, source: Path, names: Sequence[str], vectors_ND: Vectors) -> Added:
    good: list[tuple[StoredTrajectory, Vectors]] = []
    report = Added()
    for name, vector_D in zip(names, np.array(vectors_ND), strict=True):
        items, failures = load_each([source / _TRAJECTORIES / name])
        problem = _problem(items, name, vector_D)
        good += [(item, vector_D) for item in items if not problem]
        report += Added(failures=(Failure(name, problem),) if problem else failures)
    if not good:
        return report
    return report + bank.add_vectors(
        [item for item, _ in good], np.stack([one for _, one in good]), bank.manifest.embedder
    )


def _problem(items: Sequence[StoredTrajectory], name: str, vector_D: Vectors) -> str | None:
    if any(item.trajectory.trajectory_id != name for item in items):
        return f"The folder {name} of the export holds a trajectory of another id."
    if items and not are_unit(vector_D[None]).all():
        return f"The vector of {name} in the export is damaged: its length is not one."
    return None


def _read_vectors(source: Path, manifest: ExportManifest) -> tuple[list[str], Vectors]:
    names = read_plain_file(source / _IDS, _MAX_IDS_BYTES).decode(errors="replace").splitlines()
    strange = next((name for name in names if not is_safe_name(name)), None)
    if strange is not None:
        raise RecordError(f"{source / _IDS} names {strange!r}, which cannot be the id of a trajectory.")
    try:
        vectors_ND = np.load(source / _VECTORS, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise StorageError(f"Could not read {source / _VECTORS}: {error}.") from error
    if vectors_ND.shape != (len(names), manifest.width) or vectors_ND.dtype != np.float32:
        raise RecordError(f"{source / _VECTORS} does not hold {len(names)} rows of {manifest.width} float32 numbers.")
    return names, vectors_ND


def _needed(embedder: Embedder | None, why: str) -> Embedder:
    if embedder is None:
        raise StorageError(f"{why}, so that they have to be made; give an embedder with --embedder FOLDER.")
    return embedder


def _count(line: Progress | None, total: int) -> None:
    if line is not None:
        line.total = total


def _tick(line: Progress | None, num: int, num_failed: int) -> None:
    if line is not None:
        line.step(num - num_failed)
        line.step(num_failed, failed=True)
