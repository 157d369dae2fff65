"""Makes the vectors of a bank again: with another embedder, or because the table is damaged or incomplete.

The new table is filled beside the old one, so that the bank stays in use. At the end the manifest switches in one step.
Work that was stopped is resumed: trajectories in the new table are not embedded again.
"""

from collections.abc import Collection
from pathlib import Path

from focusmem.bank.embedder import Embedder
from focusmem.bank.embedding import embed_each, in_batches, load_each
from focusmem.bank.reports import Failure, Reembedded
from focusmem.bank.store import TABLE_PREFIX, Bank, table_name
from focusmem.bank.vectors import NUMBERS, OPTIONAL_TEXTS, TEXTS, VectorsError, VectorTable, drop_table, table_names
from focusmem.progress import Progress
from focusmem.schemas import LeftOut

_FRESH = "-fresh"


def reembed(
    path: Path | str, embedder: Embedder, *, is_fresh: bool = False, line: Progress | None = None
) -> Reembedded:
    """Give every trajectory of a bank a vector of this embedder. Open the bank again afterwards.

    With `is_fresh`, vectors of the same embedder are made again as well. The old ones stay in use until all are done.
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
        if name in there and (is_fresh or not _is_readable(bank, name)):
            drop_table(bank.place, name, label)
        return VectorTable.create(bank.place, name, label, embedder.width)


def _is_readable(bank: Bank, name: str) -> bool:
    try:
        table = VectorTable.open(bank.place, name, str(bank.folder.path))
        # All columns: a table of an older version may lack one, and is then begun again.
        for _ in table.scan([*TEXTS, *OPTIONAL_TEXTS, *NUMBERS, "stamp", "sketch", "vector"]):
            pass
    except VectorsError:
        return False
    return True


def _missing(bank: Bank, table: VectorTable, failures: Collection[str]) -> list[str]:
    table.newest_version()
    there = table.contents()
    return [name for name in bank.folder.trajectory_ids() if name not in there and name not in failures]


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
        items, unreadable = load_each(bank.folder.trajectory(name) for name in batch)
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


def _switch(bank: Bank, table: VectorTable, embedder: Embedder) -> int:
    """Make `table` the bank's vectors; returns its number of rows. The caller must hold the lock."""
    on_disk = set(bank.folder.trajectory_ids())
    table.remove([name for name in table.contents() if name not in on_disk])
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
