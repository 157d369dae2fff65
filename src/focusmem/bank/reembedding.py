"""Makes the vectors of a bank again: with another embedder, or because the table is damaged or incomplete.

The new table is filled beside the old one, so that the bank stays in use. At the end the manifest switches in one step.
Work that was stopped is resumed: trajectories in the new table are not embedded again.
"""

import logging
from collections.abc import Collection, Sequence
from pathlib import Path

from focusmem.bank.embedder import Embedder
from focusmem.bank.embedding import embed_each, in_batches, load_each
from focusmem.bank.reports import Failure, Reembedded
from focusmem.bank.store import TABLE_PREFIX, Bank, table_name
from focusmem.bank.vectors import VectorsError, VectorTable, drop_table, table_names
from focusmem.errors import StorageError
from focusmem.files import is_safe_name
from focusmem.progress import Progress
from focusmem.schemas import LeftOut, StoredTrajectory

_log = logging.getLogger(__name__)

_FRESH, _COPY = "-fresh", "-copy"


def reembed(
    path: Path | str, embedder: Embedder, *, is_fresh: bool = False, line: Progress | None = None
) -> Reembedded:
    """Give every trajectory of a bank a vector of this embedder. Open the bank again afterwards.

    With `is_fresh`, vectors of the same embedder are made again as well. The old vectors stay in use until all new ones
    are made.
    """
    bank = Bank.open(path)
    table = _table_to_fill(bank, embedder, is_fresh=is_fresh)
    failures: dict[str, Failure] = {}
    left_out: dict[str, LeftOut] = {}
    while True:
        missing = _missing(bank, table, failures)
        if missing:
            left_out |= _fill(bank, table, missing, embedder, failures, line)
            continue
        with bank.folder.locked():
            if _missing(bank, table, failures):  # another process has added some; they come first
                continue
            num_rows = _switch(bank, table, embedder)
            shortened = tuple((name, one) for name, one in left_out.items() if not one.is_nothing)
            return Reembedded(num_rows, len(left_out), tuple(failures.values()), shortened)


def _table_to_fill(bank: Bank, embedder: Embedder, *, is_fresh: bool) -> VectorTable:
    """The embedder's table, which may be partly filled. A damaged one is begun again."""
    name, label = table_name(embedder.identity), str(bank.folder.path)
    with bank.folder.locked():
        there = table_names(bank.place, label)
        is_own = name in there and embedder.identity == bank.manifest.embedder
        if is_fresh and is_own and _is_readable(bank, name):  # it is in use, so the new one is filled beside it
            name, is_fresh = name + _FRESH, False
        is_readable = name not in there or _is_readable(bank, name)
        if not is_readable:
            _log.warning(
                "the table of vectors in the bank %s cannot be read and is made anew; the digests of its trajectories "
                "are lost with it, so damage to the trajectories themselves cannot be detected",
                label,
            )
        if name in there and (is_fresh or not is_readable):
            drop_table(bank.place, name, label)
        elif name in there:
            _renew_if_damaged(bank, name)
        return VectorTable.create(bank.place, name, label, embedder.width)


def _renew_if_damaged(bank: Bank, name: str) -> None:
    """If an older version of a table is damaged but the newest is sound, the rows are moved to a new table."""
    label = str(bank.folder.path)
    table = VectorTable.open(bank.place, name, label)
    try:
        table.forget_versions()
    except StorageError:
        copy = VectorTable.create(bank.place, name + _COPY, label, table.width)
        copy.replace_rows(table)
        drop_table(bank.place, name, label)
        VectorTable.create(bank.place, name, label, table.width).replace_rows(copy)
        drop_table(bank.place, copy.name, label)


def _is_readable(bank: Bank, name: str) -> bool:
    """Whether a table can be read and its rows have distinct ids. Single damaged rows can then be replaced."""
    try:
        table = VectorTable.open(bank.place, name, str(bank.folder.path))
        table.damaged()
        names = table.read(["trajectory_id", "stamp"])["trajectory_id"].tolist()
    except VectorsError:
        return False
    return len(set(names)) == len(names) and all(map(is_safe_name, names))


def _missing(bank: Bank, table: VectorTable, failures: Collection[str]) -> list[str]:
    """The trajectories without a sound row."""
    table.newest_version()
    sound = table.contents().keys() - set(table.damaged())
    return [name for name in bank.folder.trajectory_ids() if name not in sound and name not in failures]


def _digests(bank: Bank, ids: Sequence[str]) -> dict[str, str]:
    """The digests of these trajectories from when they were added, so that damaged trajectories are not embedded. A
    trajectory cannot be compared if the table has lost its digest.
    """
    try:
        bank.vectors.newest_version()
        return bank.vectors.digests(ids)
    except VectorsError:
        return {}


def _fill(
    bank: Bank,
    table: VectorTable,
    ids: list[str],
    embedder: Embedder,
    failures: dict[str, Failure],
    line: Progress | None,
) -> dict[str, LeftOut]:
    """Embed some trajectories and store their vectors; returns what was left out of each, by id."""
    left_out: dict[str, LeftOut] = {}
    if line is not None:
        line.total = line.num_done + len(ids)
    for batch in in_batches(ids):
        items, unreadable = _load(bank, batch)
        items, vectors_ND, refused = embed_each(items, embedder)
        failed = {Path(failure.name).name: failure for failure in (*unreadable, *refused)}
        with bank.folder.locked():
            # A trajectory that was deleted meanwhile must not get its vector back.
            is_there = [bank.folder.trajectory(item.trajectory.trajectory_id).exists() for item in items]
            kept = [item for item, is_kept in zip(items, is_there, strict=True) if is_kept]
            lost = [embedder.left_out_of_trajectory(item) for item in kept]
            if kept:
                table.upsert(bank.make_rows([item.trajectory for item in kept], vectors_ND[is_there], lost))
        failures.update({name: one for name, one in failed.items() if bank.folder.trajectory(name).exists()})
        left_out |= zip([item.trajectory.trajectory_id for item in kept], lost, strict=True)
        if line is not None:
            line.step(len(batch) - len(failed))
            line.step(len(failed), failed=True)
    return left_out


def _load(bank: Bank, ids: Sequence[str]) -> tuple[list[StoredTrajectory], tuple[Failure, ...]]:
    digests = _digests(bank, ids)

    def load(folder: Path) -> StoredTrajectory:
        name = folder.name
        return bank.load_checked(name, digests[name]) if name in digests else bank.folder.load(name)

    return load_each([bank.folder.trajectory(name) for name in ids], load)


def _switch(bank: Bank, table: VectorTable, embedder: Embedder) -> int:
    """Make `table` the bank's vectors; returns its number of rows. The caller must hold the lock."""
    on_disk = set(bank.folder.trajectory_ids())
    damaged = table.damaged()  # rows of trajectories that could not be embedded again
    table.remove([name for name in table.contents() if name not in on_disk or name in damaged])
    num_rows, own = table.num_rows(), table_name(embedder.identity)
    if table.name != own:
        bank.vectors.replace_rows(table)
    update = {"embedder": embedder.identity, "width": embedder.width}
    bank.folder.write_manifest(bank.folder.manifest().model_copy(update=update))
    label = str(bank.folder.path)
    for name in table_names(bank.place, label):
        if name.startswith(TABLE_PREFIX) and name != own:
            drop_table(bank.place, name, label)
    Bank(bank.folder, bank.folder.manifest(), bank.config).finish()
    return num_rows
