"""Carries a plan between machines in few small files: each unit's newest state, or what it has made.

A pack is a folder: `pack.json`, and for each unit at most `MOST_PARTS` parts of `PART_BYTES`, which together are one
ZIP archive.
"""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from focusmem.errors import ConfigError, StorageError
from focusmem.files import is_safe_name, read_plain_file, remove_folder, sha256_hex, whole_folder, write_whole

if TYPE_CHECKING:
    from focusmem.recipes.reproduce.plan import Plan

PART_BYTES: Final = 16 * 2**20
MOST_PARTS: Final = 3
_CARD = "pack.json"
_LEFT_OUT: Final = frozenset({"unfinished", "recalled", "trajectory"})
"""Folders that nothing needs to go on: a memory so far, and what an episode saw."""
_STATES, _SAVE = "states", "step-"
_OLD_TIME = (1980, 1, 1, 0, 0, 0)


def light_files(folder: Path, is_finished: bool) -> dict[str, bytes]:
    """All files of a unit but hidden ones, pictures, what an episode saw, and every save of a training but its newest.
    Of a finished unit no save is carried.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if not path.is_file() or path.suffix == ".png" or any(part.startswith(".") for part in parts):
            continue
        if _LEFT_OUT & set(parts) or (_STATES in parts and (is_finished or not _is_newest(path))):
            continue
        found["/".join(parts)] = path.read_bytes()
    return found


def _is_newest(path: Path) -> bool:
    """Whether a file belongs to the newest save of its training."""
    save = path.parent
    return save == max(one for one in save.parent.iterdir() if one.name.startswith(_SAVE))


def pack(plan: "Plan", out: Path) -> dict[str, int]:
    """Writes a pack of every unit that has begun. Returns the bytes of each."""
    card: dict[str, Any] = {"plan": plan.name, "out": str(plan.folder), "units": {}}
    with whole_folder(out, replace=(out / _CARD).is_file()) as partial:
        for unit in plan.units:
            record = plan.record(unit)
            if record is None or unit.is_remade:
                continue
            data = _zipped(unit.files(plan.place(unit.name), record["status"] == "finished"))
            parts = [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)]
            if len(parts) > MOST_PARTS:
                raise StorageError(
                    f"The unit {unit.name} takes {len(data)} bytes, more than {MOST_PARTS} files of {PART_BYTES}. Let "
                    "it finish first: what it leaves then is smaller."
                )
            for number, part in enumerate(parts, 1):
                write_whole(partial / unit.name / f"part-{number}", part)
            card["units"][unit.name] = {"num_parts": len(parts), "num_bytes": len(data), "sha256": sha256_hex(data)}
        write_whole(partial / _CARD, json.dumps(card, indent=2).encode())
    return {name: one["num_bytes"] for name, one in card["units"].items()}


def unpack(plan: "Plan", source: Path) -> list[str]:
    """Fills the plan's folder from a pack, and returns the names of its units. Units that the folder already has are
    refused, because either of the two could be the newer one. Folders of settings are compared when a unit goes on, so
    the plan's folder must have the name that it had when it was packed.
    """
    card = _card(source)
    if card["plan"] != plan.name or card["out"] != str(plan.folder):
        raise ConfigError(
            f"{source} is a pack of {card['plan']} in {card['out']}; unpack it with --out {card['out']} (as it is "
            "written there), not into another folder."
        )
    names = [unit.name for unit in plan.units if unit.name in card["units"]]
    strangers = sorted(set(card["units"]) - set(names))
    if strangers:
        raise ConfigError(f"{source} has units that this plan does not have: {', '.join(strangers)}.")
    taken = [name for name in names if plan.record(plan.by_name[name]) is not None]
    if taken:
        raise ConfigError(
            f"{plan.folder} already has {', '.join(taken)}, so {source} is not unpacked into it. Delete those folders "
            "in its folder units, or choose another working directory."
        )
    for name in names:
        _unzip(_data_of(source, name, card["units"][name]), plan.place(name))
    plan.check()
    return names


def _card(source: Path) -> dict[str, Any]:
    try:
        card = json.loads((source / _CARD).read_text(encoding="utf-8"))
        units: dict[str, Any] = card["units"]
        is_usable = all(is_safe_name(name) for name in (*units, card["plan"])) and isinstance(card["out"], str)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{source} is no pack: {_CARD} cannot be read ({error}).") from error
    if not is_usable:
        raise StorageError(f"{source / _CARD} is damaged.")
    return dict(card)


def _data_of(source: Path, name: str, stored: Mapping[str, Any]) -> bytes:
    paths = [source / name / f"part-{number}" for number in range(1, min(MOST_PARTS, stored["num_parts"]) + 1)]
    data = b"".join(read_plain_file(path, PART_BYTES) for path in paths)
    if sha256_hex(data) != stored["sha256"]:
        raise StorageError(
            f"The parts of {name} in {source} are damaged or belong to different packs; copy them again."
        )
    return data


def _zipped(files: Mapping[str, bytes]) -> bytes:
    """Equal files give equal archives."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, date_time=_OLD_TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, files[name])
    return buffer.getvalue()


def _unzip(data: bytes, folder: Path) -> None:
    """Writes the files of an archive into a new folder, whole or not at all."""
    if folder.exists():  # a lock file only: no unit has begun here
        remove_folder(folder)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive, whole_folder(folder) as partial:
            for name in archive.namelist():
                path = PurePosixPath(name)
                if path.is_absolute() or ".." in path.parts or "\\" in name:
                    raise StorageError(f"A pack holds the file name {name!r}, which would leave its folder.")
                write_whole(partial / path, archive.read(name))
    except zipfile.BadZipFile as error:
        raise StorageError(f"A pack of {folder.name} is no archive: {error}.") from error
