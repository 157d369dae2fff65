"""Opens a bank from its folder, whatever form it has."""

from pathlib import Path

from focusmem.bank.base import StoredBank
from focusmem.bank.export_folder import ExportFolder
from focusmem.bank.folder import BankFolder
from focusmem.bank.numpy_bank import NumpyBank
from focusmem.errors import StorageError


def open_bank(path: Path | str) -> StoredBank:
    """Returns a bank that can be changed, which needs an installed vector store, or an export, which needs none."""
    folder = Path(path)
    if BankFolder(folder).has_manifest():
        from focusmem.bank.store import Bank

        return Bank.open(folder)
    if ExportFolder(folder).is_there():
        return NumpyBank.open(folder)
    raise StorageError(
        f"There is no bank at {path}: it has neither bank.json nor export.json. Make one with: "
        f"focusmem bank add {path} TRAJECTORIES --embedder FOLDER"
    )
