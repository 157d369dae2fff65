"""Checks a whole bank or export and lists what is damaged in it."""

from focusmem.bank.base import StoredBank
from focusmem.bank.reports import Checked, Failure
from focusmem.errors import UserError
from focusmem.progress import Progress


def check_bank(bank: StoredBank, *, line: Progress | None = None) -> Checked:
    """Compares every vector with its checksum, and every trajectory and screenshot with its digest."""
    remedy = f"make one with: focusmem bank reembed {bank.name} --embedder FOLDER"
    damaged, without_vector = bank.damaged(), bank.without_vector()
    failures = [Failure(name, f"Its vector is damaged; {remedy}") for name in damaged]
    failures += [Failure(name, f"It has no vector; {remedy}") for name in without_vector]
    names = {entry.trajectory_id for entries, _ in bank.blocks() for entry in entries} | {*damaged, *without_vector}
    if line is not None:
        line.total = len(names)
    for name in sorted(names):
        problem = _problem(bank, name)
        failures += [Failure(name, problem)] if problem else []
        if line is not None:
            line.step(failed=problem is not None)
    return Checked(len(names), tuple(failures))


def _problem(bank: StoredBank, name: str) -> str | None:
    try:
        dict(bank.load(name).screenshots)
    except UserError as error:
        return str(error)
    return None
