"""Everything on disk that a stopped run needs to resume: one folder per save, each written whole under its own name."""

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from focusmem.errors import CheckpointError, StorageError
from focusmem.files import whole_folder, write_whole

_SCHEMA_VERSION = 3
_TENSORS, _CARD, _PREFIX = "state.pt", "state.json", "step-"


@dataclass(frozen=True)
class StoredState:
    folder: Path
    step: int
    """The number of steps so far."""
    card: Mapping[str, Any]

    def tensors(self, device: torch.device) -> dict[str, Any]:
        path = self.folder / _TENSORS
        if _sha256_of(path) != self.card.get("sha256"):
            raise CheckpointError(
                f"{path} is damaged: its checksum is not the one on its card. "
                f"Delete {self.folder} to resume from the save before it."
            )
        try:
            stored: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        except (OSError, RuntimeError, pickle.UnpicklingError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}.") from error
        return stored


class RunStates:
    """The newest saves of a run. An older save is removed only when a newer one is whole."""

    def __init__(self, folder: Path, *, num_kept: int = 2) -> None:
        self.folder, self.num_kept = folder, num_kept

    def save(self, step: int, tensors: Mapping[str, Any], card: Mapping[str, Any]) -> bool:
        """Returns False if this step is saved already."""
        place = self.folder / f"{_PREFIX}{step:08d}"
        if place.exists():
            return False
        with whole_folder(place) as partial:
            _write_tensors(partial / _TENSORS, tensors)
            full = {"schema_version": _SCHEMA_VERSION, "step": step, "sha256": _sha256_of(partial / _TENSORS), **card}
            write_whole(partial / _CARD, json.dumps(full, indent=2, allow_nan=False).encode())
        for old in self._places()[: -self.num_kept]:
            shutil.rmtree(old, ignore_errors=True)
        return True

    def clear_partial(self) -> None:
        """Removes what a killed run had begun to write."""
        for partial in self.folder.glob(f".{_PREFIX}*.partial"):
            shutil.rmtree(partial, ignore_errors=True)

    def newest(self) -> StoredState | None:
        places = self._places()
        if not places:
            return None
        path = places[-1] / _CARD
        try:
            card = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{path} cannot be read: {error}. Delete {places[-1]} to resume from the save before it."
            ) from error
        if not isinstance(card, dict) or card.get("schema_version") != _SCHEMA_VERSION:
            raise CheckpointError(f"{path} was written by another version of focusmem; resume with that one.")
        return StoredState(places[-1], int(card["step"]), card)

    def _places(self) -> list[Path]:
        return sorted(self.folder.glob(f"{_PREFIX}*")) if self.folder.is_dir() else []


def clear_leftovers(place: Path) -> None:
    """Removes what `whole_folder` and `remove_folder` leave beside a folder if they are killed."""
    for suffix in ("partial", "old"):
        for left in place.parent.glob(f".{place.name}.{'[0-9a-f]' * 12}.{suffix}"):
            shutil.rmtree(left, ignore_errors=True)


def _write_tensors(path: Path, tensors: Mapping[str, Any]) -> None:
    try:
        with path.open("wb") as file:
            torch.save(dict(tensors), file)
            file.flush()
            os.fsync(file.fileno())
    except RuntimeError as error:  # the library raises this if a disk is full
        raise StorageError(f"Could not write {path.name} of a save: {str(error).splitlines()[0]}") from error


def _sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(2**24):
                digest.update(piece)
    except OSError as error:
        raise StorageError(f"Could not read {path}: {error.strerror}.") from error
    return digest.hexdigest()
