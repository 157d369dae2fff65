"""The file SHA256SUMS beside a backbone's files. It holds their digests in the form that `sha256sum --check` reads."""

import hashlib
from pathlib import Path
from typing import Final

from focusmem.errors import BackboneError, StorageError
from focusmem.files import write_whole

CHECKSUMS: Final = "SHA256SUMS"
_PARTS: Final = ("*config.json", "tokenizer.json", "*.safetensors", "*.safetensors.index.json")
"""The files that a backbone is loaded from. Other files, such as a card, may change at any time."""


def write_checksums(folder: Path) -> None:
    lines = [f"{_digest(path)}  {path.name}\n" for path in _parts(folder)]
    write_whole(folder / CHECKSUMS, "".join(lines).encode())


def check_checksums(folder: Path) -> None:
    """Read every file once and compare its digest. A folder without SHA256SUMS, such as one from a hub, is accepted."""
    if not (folder / CHECKSUMS).exists():
        return
    try:
        lines = (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise StorageError(f"Could not read {folder / CHECKSUMS}: {error}") from error
    digests = {name.strip().removeprefix("*"): digest for digest, _, name in (line.partition(" ") for line in lines)}
    for path in _parts(folder):
        if digests.get(path.name) != _digest(path):
            raise BackboneError(
                f"{path} is damaged: its digest is not the one in {CHECKSUMS} beside it. Copy the file again (what "
                f"ships with focusmem: install focusmem again), or delete {CHECKSUMS} if you changed the file yourself."
            )


def _parts(folder: Path) -> list[Path]:
    return sorted({path for pattern in _PARTS for path in folder.glob(pattern)})


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StorageError(f"Could not read {path}: {error.strerror}.") from error
