"""Many trajectories in and out of a bank: from folders, from exports, and to exports."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from focusmem.bank.base import StoredBank
from focusmem.bank.embedder import Embedder, Identified
from focusmem.bank.embedding import are_unit, in_batches, load_each
from focusmem.bank.export_folder import Block, ExportFolder, ExportManifest
from focusmem.bank.folder import BankFolder
from focusmem.bank.reports import Added, Entry, Exported, Failure
from focusmem.bank.sketches import Vectors
from focusmem.bank.sources import find_sources, load_source
from focusmem.bank.store import Bank
from focusmem.errors import StorageError, UserError
from focusmem.files import whole_folder
from focusmem.progress import Progress
from focusmem.schemas import LeftOut, StoredTrajectory, save_trajectory


def add_folders(
    bank: Bank,
    folders: Sequence[Path],
    embedder: Embedder,
    *,
    outcomes: Collection[str] | None = None,
    source: str | None = None,
    line: Progress | None = None,
) -> Added:
    """Add stored trajectories, as `find_sources` finds them. What cannot be read or embedded is left out and reported.

    With `outcomes`, trajectories with other outcomes are skipped. Episodes without a step are skipped as well. `source`
    replaces the source that the records name.
    """
    report = Added()
    for batch in in_batches(folders):
        items, failures = load_each(batch, load_source)
        wanted = [item for item in items if outcomes is None or item.trajectory.outcome in outcomes]
        num_skipped = len(batch) - len(failures) - len(wanted)
        wanted = wanted if source is None else [_from(source, item) for item in wanted]
        done = Added(failures=failures, num_skipped=num_skipped) + bank.add(wanted, embedder)
        report += done
        _tick(line, len(batch), len(done.failures))
    return report


def _from(source: str, item: StoredTrajectory) -> StoredTrajectory:
    return StoredTrajectory(item.trajectory.model_copy(update={"source": source}), item.screenshots)


# Export


def export_bank(bank: StoredBank, out: Path, *, line: Progress | None = None) -> Exported:
    """Write a bank as a plain folder, whole or not at all. What cannot be read, or has no vector, is reported."""
    ids = [entry.trajectory_id for entry in bank.entries()]
    reason = f"It has no vector; make one with: focusmem bank reembed {bank.name} --embedder FOLDER"
    failures = [Failure(name, reason) for name in bank.without_vector()]
    _count(line, len(ids) + len(failures))
    _tick(line, len(failures), len(failures))
    with whole_folder(out) as partial:
        export = ExportFolder(partial)
        for name in ids:
            problem = _export_one(bank, name, export)
            failures += [Failure(name, problem)] if problem else []
            _tick(line, 1, 1 if problem else 0)
        written = set(ids) - {failure.name for failure in failures}
        manifest = ExportManifest(identity=bank.embedder, width=bank.width, trusted_sources=bank.trusted_sources)
        export.write(manifest, len(written), _only(written, bank.blocks()), bank.catalogue())
    return Exported(len(written), tuple(failures))


def _export_one(bank: StoredBank, name: str, export: ExportFolder) -> str | None:
    try:
        stored = bank.load(name)
        pictures = dict(stored.screenshots)
    except UserError as error:
        return str(error)
    save_trajectory(export.contents.trajectory(name), stored.trajectory, pictures)
    return None


def _only(wanted: set[str], blocks: Iterable[Block]) -> Iterator[Block]:
    for entries, vectors_ND in blocks:
        is_wanted = np.array([entry.trajectory_id in wanted for entry in entries], dtype=np.bool_)
        yield [entry for entry in entries if entry.trajectory_id in wanted], vectors_ND[is_wanted]


# Import


def import_bank(path: Path, source: Path, embedder: Embedder | None = None, *, line: Progress | None = None) -> Added:
    """Add an export, or any folder of trajectories, to the bank at `path`, which is made if there is none.

    The vectors of an export are used if they are of the bank's embedder. Otherwise, and for plain trajectories, an
    embedder is needed.
    """
    export = ExportFolder(source)
    if not export.is_there():
        folders = find_sources(source)
        return _import_folders(
            path, folders, _needed(embedder, f"{source} is not an export: it brings no vectors"), line
        )
    manifest = export.manifest()
    entries, vectors_ND = export.read(manifest)
    names = [entry.trajectory_id for entry in entries]
    catalogue = export.contents.catalogue()
    maker: Identified = embedder or manifest
    # A bank that exists keeps its own trust: an export must not be able to name itself trusted.
    has_bank, trusted = BankFolder(path).has_manifest(), manifest.trusted_sources
    bank = Bank.open(path) if has_bank else Bank.create(path, maker, trusted_sources=trusted)
    if bank.manifest.embedder != manifest.identity:
        why = f"The vectors in {source} are of another embedder than those of the bank {path}"
        model = _needed(embedder, why)
        bank.check_embedder(model.identity)
        bank.extend_catalogue(catalogue)
        return _import_folders(path, [export.contents.trajectory(name) for name in names], model, line)
    bank.extend_catalogue(catalogue)
    _count(line, len(names))
    report = Added()
    for places in in_batches(range(len(names))):
        done = _import_batch(bank, export, entries[places[0] : places[-1] + 1], vectors_ND[places[0] : places[-1] + 1])
        report += done
        _tick(line, len(places), len(done.failures))
    return report


def _import_folders(path: Path, folders: Sequence[Path], embedder: Embedder, line: Progress | None) -> Added:
    _count(line, len(folders))
    return add_folders(Bank.create(path, embedder), folders, embedder, line=line)


def _import_batch(bank: Bank, export: ExportFolder, entries: Sequence[Entry], vectors_ND: Vectors) -> Added:
    good: list[tuple[StoredTrajectory, Vectors, LeftOut]] = []
    report = Added()
    for entry, vector_D in zip(entries, np.array(vectors_ND), strict=True):
        name = entry.trajectory_id
        items, failures = load_each([export.contents.trajectory(name)])
        problem = _problem(items, name, vector_D)
        good += [(item, vector_D, entry.left_out) for item in items if not problem]
        report += Added(failures=(Failure(name, problem),) if problem else failures)
    if not good:
        return report
    sound, vectors, left_out = zip(*good, strict=True)
    return report + bank.add_vectors(sound, np.stack(vectors), bank.manifest.embedder, left_out=left_out)


def _problem(items: Sequence[StoredTrajectory], name: str, vector_D: Vectors) -> str | None:
    if any(item.trajectory.trajectory_id != name for item in items):
        return f"The folder {name} of the export holds a trajectory of another id."
    if items and not are_unit(vector_D[None]).all():
        return f"The vector of {name} in the export is damaged: its length is not one."
    return None


def _needed(embedder: Embedder | None, why: str) -> Embedder:
    if embedder is None:
        raise StorageError(f"{why}, so vectors must be made; give an embedder with --embedder FOLDER.")
    return embedder


def _count(line: Progress | None, total: int) -> None:
    if line is not None:
        line.total = total


def _tick(line: Progress | None, num: int, num_failed: int) -> None:
    if line is not None:
        line.step(num - num_failed)
        line.step(num_failed, failed=True)
