"""The record of a whole training in its folder: run.json with every setting, and environment.json."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch

from focusmem.errors import ConfigError
from focusmem.files import read_plain_file, write_whole
from focusmem.schemas import Run, dump_record, parse_record
from focusmem.schemas.record import MAX_DOCUMENT_BYTES
from focusmem.schemas.run_folder import ENVIRONMENT_FILE, RUN_FILE, run_name
from focusmem.settings import differences, to_plain
from focusmem.training.training_run import FREE_FIELDS, training_environment


def begin_record(folder: Path, settings: object, *, seed: int, device: str, command: Sequence[str] = ()) -> None:
    """Writes the settings of a training that begins, or refuses to resume one with other settings. Of several processes
    the first does this.
    """
    if not is_first_process():
        return
    run = Run(
        run_id=run_name(folder),
        command=tuple(command),
        status="running",
        config={"settings": to_plain(settings)},
        started_at=datetime.now(UTC),
    )
    path = folder / RUN_FILE
    if path.exists():
        stored = _read(path)
        changed = differences(stored.config, run.config, free={*FREE_FIELDS, "device"})
        if changed:
            name, (before, now) = next(iter(changed.items()))
            raise ConfigError(
                f"The training in {folder} has {name.removeprefix('settings.')} = {before}, but this one asks for "
                f"{now}. Resume it with the same settings, or train in another folder."
            )
        run = run.model_copy(update={"key": stored.key, "started_at": stored.started_at})
    write_whole(path, dump_record(run))
    write_whole(folder / ENVIRONMENT_FILE, dump_record(training_environment(seed, torch.device(device))))


def end_record(folder: Path) -> None:
    """Records that the training is finished."""
    if is_first_process():
        run = _read(folder / RUN_FILE)
        ended = run.model_copy(update={"status": "finished", "finished_at": datetime.now(UTC)})
        write_whole(folder / RUN_FILE, dump_record(ended))


def is_first_process() -> bool:
    """Whether this is the process that writes files, of those that torchrun or accelerate started."""
    return os.environ.get("RANK", "0") == "0"


def _read(path: Path) -> Run:
    return parse_record(Run, read_plain_file(path, MAX_DOCUMENT_BYTES), str(path))
