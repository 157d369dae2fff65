"""A trajectory on disk: `trajectory.json` beside a folder of screenshots, each named after its content.

    <folder>/trajectory.json
    <folder>/screenshots/<sha256>.png

No name found in the JSON becomes a path, except digests that have passed the record's own check.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from focusmem.errors import RecordError, StorageError, UserError
from focusmem.files import check_not_linked, read_plain_file, sha256_hex, whole_folder, write_whole
from focusmem.schemas.record import MAX_DOCUMENT_BYTES, dump_record, parse_record
from focusmem.schemas.screenshot import MAX_PNG_BYTES, Screenshot, ScreenshotRef
from focusmem.schemas.trajectory import Trajectory

TRAJECTORY_FILE = "trajectory.json"
SCREENSHOT_FOLDER = "screenshots"


class StoredScreenshots(Mapping[str, Screenshot]):
    """Screenshots by digest, read from disk and verified when they are first asked for."""

    def __init__(self, folder: Path, refs: Mapping[str, ScreenshotRef]) -> None:
        self._folder, self._refs = folder, refs
        self._read: dict[str, Screenshot] = {}

    def __getitem__(self, digest: str) -> Screenshot:
        if digest not in self._read:
            self._read[digest] = _read_screenshot(self._folder, self._refs[digest])
        return self._read[digest]

    def __iter__(self) -> Iterator[str]:
        return iter(self._refs)

    def __len__(self) -> int:
        return len(self._refs)


@dataclass(frozen=True, slots=True)
class StoredTrajectory:
    trajectory: Trajectory
    screenshots: Mapping[str, Screenshot]
    """By digest. There may be more than the trajectory refers to."""


def save_trajectory(
    folder: Path, trajectory: Trajectory, screenshots: Mapping[str, Screenshot], *, replace: bool = False
) -> None:
    """Write a trajectory whole or not at all; saving the same content again changes nothing.

    `screenshots` are looked up by digest, and may hold more than the trajectory refers to.
    """
    files = {f"{SCREENSHOT_FOLDER}/{ref.sha256}.png": _png_for(ref, screenshots) for ref in _refs(trajectory)}
    files[TRAJECTORY_FILE] = dump_record(trajectory)
    exists = os.path.lexists(folder)
    if exists and _holds_exactly(folder, files):
        return
    if exists:
        _check_replaceable(folder, replace=replace)
    with whole_folder(folder, replace=exists) as partial:
        for name, data in files.items():
            write_whole(partial / name, data)


def load_trajectory(folder: Path, digest: str | None = None) -> StoredTrajectory:
    """Read the record now and the screenshots when they are used. A record that does not match `digest` is refused."""
    path = folder / TRAJECTORY_FILE
    data = read_plain_file(path, MAX_DOCUMENT_BYTES)
    trajectory = parse_record(Trajectory, data, str(path))
    # The bytes are compared first, because writing the record again takes longer than reading it.
    if digest is not None and digest not in (sha256_hex(data), content_digest(trajectory)):
        raise RecordError(f"{path} has changed since it was stored.")
    refs = {ref.sha256: ref for ref in _refs(trajectory)}
    return StoredTrajectory(trajectory, StoredScreenshots(folder, refs))


def content_digest(trajectory: Trajectory) -> str:
    """A digest that is equal for equal trajectories. Screenshots are represented by their digests."""
    return sha256_hex(dump_record(trajectory))


def is_intact(folder: Path, digest: str) -> bool:
    """Whether a folder holds the trajectory with this digest and all of its screenshots. Pictures are not decoded."""
    try:
        refs = _refs(load_trajectory(folder, digest).trajectory)
        check_not_linked(folder / SCREENSHOT_FOLDER)
        return all(sha256_hex(read_plain_file(_place_of(folder, ref), MAX_PNG_BYTES)) == ref.sha256 for ref in refs)
    except UserError:
        return False


def find_trajectories(path: Path) -> list[Path]:
    """The trajectory folders at or below a path, which may also be a `trajectory.json`. Raises an error if there are
    none.
    """
    if path.name == TRAJECTORY_FILE and os.path.lexists(path) and not path.is_dir():
        return [path.parent]
    if not path.exists():
        raise StorageError(f"{path} does not exist.")
    if not path.is_dir():
        raise StorageError(f"{path} is neither a folder nor a {TRAJECTORY_FILE}.")
    found = []
    for folder, subfolders, files in os.walk(path):
        # Incomplete trajectories are included, so that the caller can report and count them.
        if TRAJECTORY_FILE in (*files, *subfolders) or subfolders == [SCREENSHOT_FOLDER]:
            found.append(Path(folder))
            subfolders.clear()
        # Hidden folders are unfinished or replaced trajectories.
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
    if not found:
        raise StorageError(f"{path} holds no trajectory: there is no {TRAJECTORY_FILE} in it or below it.")
    return found


def check_trajectory(folder: Path) -> list[str]:
    """Everything that is wrong with a stored trajectory, a sentence for each; never raises for bad data."""
    problems = []
    refs = None
    try:
        refs = _refs(load_trajectory(folder).trajectory)
    except UserError as error:
        problems.append(str(error))
    try:
        problems += _stray_problems(folder, {TRAJECTORY_FILE, SCREENSHOT_FOLDER})
        problems += _screenshot_problems(folder, refs)
    except OSError as error:
        problems.append(f"Could not look into {folder}: {error.strerror}.")
    return problems


def check_screenshots(stored: StoredTrajectory) -> None:
    """Raise an error if a screenshot that a trajectory refers to is missing, damaged or different."""
    for ref in _refs(stored.trajectory):
        _png_for(ref, stored.screenshots)


def _refs(trajectory: Trajectory) -> list[ScreenshotRef]:
    """The references to all screenshots, each once, in order of appearance."""
    closing = () if trajectory.closing is None else (trajectory.closing.screenshot,)
    return list(dict.fromkeys((*(step.screenshot for step in trajectory.steps), *closing)))


def _png_for(ref: ScreenshotRef, screenshots: Mapping[str, Screenshot]) -> bytes:
    screenshot = screenshots.get(ref.sha256)
    if screenshot is None:
        raise RecordError(f"The trajectory refers to screenshot {ref.sha256}, which was not given.")
    if sha256_hex(screenshot.png) != ref.sha256:
        raise RecordError(f"The screenshot given as {ref.sha256} has other content.")
    _check_size(screenshot, ref, f"Screenshot {ref.sha256}")
    return screenshot.png


def _read_screenshot(folder: Path, ref: ScreenshotRef) -> Screenshot:
    check_not_linked(folder / SCREENSHOT_FOLDER)
    path = _place_of(folder, ref)
    data = read_plain_file(path, MAX_PNG_BYTES)
    if sha256_hex(data) != ref.sha256:
        raise RecordError(f"{path} has changed: its content does not match its name.")
    try:
        screenshot = Screenshot.from_png(data)
    except RecordError as error:
        raise RecordError(f"{path} is not a usable screenshot. {error}") from error
    _check_size(screenshot, ref, str(path))
    return screenshot


def _place_of(folder: Path, ref: ScreenshotRef) -> Path:
    return folder / SCREENSHOT_FOLDER / f"{ref.sha256}.png"


def _check_size(screenshot: Screenshot, ref: ScreenshotRef, what: str) -> None:
    if screenshot.ref() != ref:
        found, expected = f"{screenshot.width}x{screenshot.height}", f"{ref.width}x{ref.height}"
        raise RecordError(f"{what} is {found} pixels large, but the trajectory says {expected}.")


def _holds_exactly(folder: Path, files: Mapping[str, bytes]) -> bool:
    try:
        entries = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
        if {path.relative_to(folder).as_posix() for path in entries} != set(files):
            return False
        return all(read_plain_file(folder / name, len(data)) == data for name, data in files.items())
    except (OSError, StorageError):
        return False


def _check_replaceable(folder: Path, *, replace: bool) -> None:
    """Raises an error if a folder must not be replaced. An empty folder may be filled; a folder without a trajectory is
    never deleted.
    """
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if not replace:
        raise StorageError(f"{folder} holds something else; choose another folder, or ask to replace it.")
    if not (folder / TRAJECTORY_FILE).exists():
        raise StorageError(f"{folder} exists and is not a trajectory folder, so it is not replaced.")


def _screenshot_problems(folder: Path, refs: list[ScreenshotRef] | None) -> list[str]:
    """`refs` is None if the record could not be read; then only symbolic links can be recognised as wrong."""
    try:
        check_not_linked(folder / SCREENSHOT_FOLDER)
    except UserError as error:
        return [str(error)]
    problems = []
    for ref in refs or ():
        try:
            _read_screenshot(folder, ref)
        except UserError as error:
            problems.append(str(error))
    expected = None if refs is None else {f"{ref.sha256}.png" for ref in refs}
    return problems + _stray_problems(folder / SCREENSHOT_FOLDER, expected)


def _stray_problems(folder: Path, expected: set[str] | None) -> list[str]:
    if not folder.is_dir():
        return []  # missing screenshots are reported elsewhere
    strays = [
        path.name
        for path in sorted(folder.iterdir())
        if (path.is_symlink() if expected is None else path.name not in expected)
    ]
    return [f"{folder} contains {name!r}, which does not belong there." for name in strays]
