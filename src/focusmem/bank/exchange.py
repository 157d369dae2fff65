"""Adds trajectories from folders and exports to a bank, and writes exports."""

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from focusmem.bank.base import StoredBank
from focusmem.bank.checksums import damaged_vectors
from focusmem.bank.embedder import Embedder
from focusmem.bank.embedding import in_batches, load_each
from focusmem.bank.export_folder import Block, Contents, ExportFolder, Line
from focusmem.bank.folder import BankFolder
from focusmem.bank.reports import Added, Exported, Failure
from focusmem.bank.sketches import Vectors
from focusmem.bank.sources import find_sources, load_source
from focusmem.bank.store import Bank
from focusmem.errors import ConfigError, StorageError, UserError
from focusmem.files import clear_unfinished
from focusmem.progress import Progress
from focusmem.schemas import StoredTrajectory, content_digest, save_trajectory


def add_folders(
    bank: Bank,
    folders: Sequence[Path],
    embedder: Embedder,
    *,
    outcomes: Collection[str] | None = None,
    source: str | None = None,
    keeps_sources: bool = False,
    line: Progress | None = None,
) -> Added:
    """Add stored trajectories, as `find_sources` finds them. What cannot be read or embedded is left out and reported.

    With `outcomes`, trajectories with other outcomes are skipped. Episodes without a step are skipped as well. `source`
    replaces the source that the records name. A new trajectory that names a source which the bank trusts is otherwise
    left out and reported, unless `keeps_sources` is given.
    """
    report = Added()
    for batch in in_batches(folders):
        items, failures = load_each(batch, load_source)
        wanted = [item for item in items if outcomes is None or item.trajectory.outcome in outcomes]
        num_skipped = len(batch) - len(failures) - len(wanted)
        if source is None and not keeps_sources:
            wanted, claims = _without_claims(bank, wanted)
            failures += claims
        wanted = _from(source, wanted)
        done = Added(failures=failures, num_skipped=num_skipped) + bank.add(wanted, embedder)
        report += done
        _tick(line, len(batch), len(done.failures))
    return report


def _from(source: str | None, items: list[StoredTrajectory]) -> list[StoredTrajectory]:
    """The same trajectories with this source. With None, each keeps the source that it names."""
    if source is None:
        return items
    update = {"source": source}
    return [StoredTrajectory(item.trajectory.model_copy(update=update), item.screenshots) for item in items]


def _without_claims(
    bank: Bank, items: Sequence[StoredTrajectory]
) -> tuple[list[StoredTrajectory], tuple[Failure, ...]]:
    """The trajectories that may keep their source, and a failure for each of the others. A trajectory that the bank
    has already may be added again.
    """
    trusted = bank.trusted_sources
    if not trusted:
        return list(items), ()
    kept, claims = [], []
    for item, is_there in zip(items, bank.has_each([item.trajectory for item in items]), strict=True):
        if item.trajectory.source not in trusted or is_there:
            kept.append(item)
        else:
            reason = _says_claim("It", item.trajectory.source, bank, "it")
            claims.append(Failure(item.trajectory.trajectory_id, reason))
    return kept, tuple(claims)


def _says_claim(what: str, source: str, bank: Bank, them: str) -> str:
    """Whoever wrote a trajectory also wrote its source, so a trusted source needs somebody who vouches for it."""
    return (
        f"{what} names the source {source!r}, which the bank {bank.name} trusts. Record another source for {them} with "
        f"--source NAME, or, if you vouch for {them}, give --keep-sources."
    )


# Export


def export_bank(bank: StoredBank, out: Path, *, line: Progress | None = None) -> Exported:
    """Write a bank as a plain folder, whole or not at all. Unreadable trajectories and missing vectors are reported."""
    remedy = f"make one with: focusmem bank reembed {bank.name} --embedder FOLDER"
    failures = [Failure(name, f"Its vector is damaged; {remedy}") for name in bank.damaged()]
    failures += [Failure(name, f"It has no vector; {remedy}") for name in bank.without_vector()]
    ids = sorted(entry.trajectory_id for entries, _ in bank.blocks() for entry in entries)
    _count(line, len(ids) + len(failures))
    _tick(line, len(failures), len(failures))
    contents: dict[str, str] = {}
    with ExportFolder.new(out) as export:
        for name in ids:
            try:
                contents[name] = _export_one(bank, name, export)
            except _UnusableError as error:
                failures.append(Failure(name, str(error)))
            _tick(line, 1, 0 if name in contents else 1)
        blocks = _only(contents, bank.blocks())
        export.write(
            bank.embedder, bank.width, contents, blocks, bank.catalogue(), trusted_sources=bank.trusted_sources
        )
    return Exported(len(contents), tuple(failures))


class _UnusableError(Exception):
    """A trajectory cannot be read, so it is left out; other errors end the export."""


def _export_one(bank: StoredBank, name: str, export: ExportFolder) -> str:
    """Exports one trajectory, and returns its digest."""
    try:
        stored = bank.load(name)
        pictures = dict(stored.screenshots)
    except UserError as error:
        raise _UnusableError(str(error)) from error
    save_trajectory(export.trajectory(name), stored.trajectory, pictures)
    return content_digest(stored.trajectory)


def _only(wanted: Container[str], blocks: Iterable[Block]) -> Iterator[Block]:
    for entries, vectors_ND in blocks:
        is_wanted = np.array([entry.trajectory_id in wanted for entry in entries], dtype=np.bool_)
        yield [entry for entry in entries if entry.trajectory_id in wanted], vectors_ND[is_wanted]


# Import


def import_bank(
    path: Path,
    origin: Path,
    embedder: Embedder | None = None,
    *,
    source: str | None = None,
    keeps_sources: bool = False,
    line: Progress | None = None,
) -> Added:
    """Add an export, or any folder of trajectories, to the bank at `path`, which is made if there is none.

    The vectors of an export are used if they are of the bank's embedder. Otherwise, and for plain trajectories, an
    embedder is needed.

    `source` replaces the source that the trajectories name. A trajectory that names a source which the existing bank
    trusts is otherwise refused, and nothing is imported, unless `keeps_sources` is given.
    """
    clear_unfinished(origin.absolute().parent)
    takes_named = source is not None or keeps_sources
    export = ExportFolder(origin)
    if not export.is_there():
        folders = find_sources(origin)
        embedder = _needed(embedder, f"{origin} is not an export: it brings no vectors")
        bank = Bank.create(path, embedder)
        if not takes_named:
            _check_not_trusted(bank, _sources_in(folders))
        _count(line, len(folders))
        return add_folders(bank, folders, embedder, source=source, keeps_sources=keeps_sources, line=line)
    contents = export.read()
    has_bank, report = BankFolder(path).has_manifest(), Added()
    if has_bank:  # the bank keeps its trusted sources: an export must not declare its own source trusted
        bank = Bank.open(path)
        if not takes_named:
            _check_not_trusted(bank, (one.source for one in contents.lines))
    else:
        # The export's list names sources that `source` replaces.
        trusted = contents.manifest.trusted_sources if source is None else ()
        bank = Bank.create(path, embedder or contents.manifest, trusted_sources=trusted)
        report = Added(newly_trusted=trusted)
    return report + _import_export(bank, export, contents, embedder, source, line)


def _check_not_trusted(bank: Bank, sources: Iterable[str]) -> None:
    """Raises ConfigError if one of the sources is trusted."""
    trusted = bank.trusted_sources
    claimed = next((source for source in sources if source in trusted), None)
    if claimed is not None:
        raise ConfigError(_says_claim("A trajectory to import", claimed, bank, "all of them"))


def _sources_in(folders: Sequence[Path]) -> Iterator[str]:
    """The sources of those trajectories that can be read."""
    for batch in in_batches(folders):
        yield from (item.trajectory.source for item in load_each(batch, load_source)[0])


def _import_export(
    bank: Bank,
    export: ExportFolder,
    contents: Contents,
    embedder: Embedder | None,
    source: str | None,
    line: Progress | None,
) -> Added:
    has_vectors = bank.manifest.embedder == contents.manifest.identity
    if not has_vectors:
        why = f"The vectors in {export.path} are of another embedder than those of the bank {bank.folder.path}"
        bank.check_embedder(_needed(embedder, why).identity)
    bank.extend_catalogue(contents.catalogue)
    _count(line, len(contents.lines))
    report = Added()
    for rows in in_batches(range(len(contents.lines))):
        vectors_ND = contents.vectors_ND[rows[0] : rows[-1] + 1] if has_vectors else None
        done = _import_batch(bank, export, contents.lines[rows[0] : rows[-1] + 1], vectors_ND, embedder, source)
        report += done
        _tick(line, len(rows), len(done.failures))
    return report


def _import_batch(
    bank: Bank,
    export: ExportFolder,
    lines: Sequence[Line],
    vectors_ND: Vectors | None,
    embedder: Embedder | None,
    source: str | None,
) -> Added:
    """Adds trajectories with these vectors; without them, the embedder makes the vectors."""
    by_name = {line.trajectory_id: (row, line) for row, line in enumerate(lines)}
    failures: tuple[Failure, ...] = ()
    if vectors_ND is not None:
        checks_N = np.array([line.vector_crc32 for line in lines], dtype=np.int64)
        damaged = [lines[int(row)].trajectory_id for row in np.flatnonzero(damaged_vectors(vectors_ND, checks_N))]
        failures = tuple(Failure(name, "Its vector in the export is damaged.") for name in damaged)
        by_name = {name: found for name, found in by_name.items() if name not in damaged}
    folders = [export.trajectory(name) for name in by_name]
    items, unreadable = load_each(folders, lambda folder: export.load(by_name[folder.name][1]))
    items = _from(source, items)
    report = Added(failures=failures + unreadable)
    if not items:
        return report
    if vectors_ND is None:
        return report + bank.add(items, _needed(embedder, "Vectors are missing"))
    rows, known = zip(*(by_name[item.trajectory.trajectory_id] for item in items), strict=True)
    left_out = [line.left_out for line in known]
    return report + bank.add_vectors(items, vectors_ND[list(rows)], bank.manifest.embedder, left_out=left_out)


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
