"""Writes files whole or not at all, and checks that names stay inside their folder."""

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from focusmem.errors import StorageError

_SAFE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9_-])?")
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{12}\.partial", re.DOTALL)


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def cache_folder() -> Path:
    """The folder that keeps expensive results for later runs. It may be deleted at any time."""
    if own := os.environ.get("FOCUSMEM_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "focusmem"


def is_safe_name(name: str) -> bool:
    """Whether a name can be one path component: no separators, no dot at either end, not too long."""
    return _SAFE_NAME.fullmatch(name) is not None


# With O_NONBLOCK, opening a pipe does not wait for a writer. Not every system has all of these flags.
_READ_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))


@contextlib.contextmanager
def open_plain_file(path: Path) -> Iterator[IO[bytes]]:
    """Open an ordinary file for reading. Links, pipes and devices are refused at once, without waiting."""
    try:
        kind = path.lstat()
        if not stat.S_ISREG(kind.st_mode):
            what = "a symbolic link" if stat.S_ISLNK(kind.st_mode) else "a folder or a device"
            raise StorageError(f"{path} should be an ordinary file, but it is {what}.")
        with os.fdopen(os.open(path, _READ_FLAGS), "rb") as file:
            yield file
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
        raise StorageError(f"Could not read {path}: {_reason(error)}.") from error


def read_plain_file(path: Path, max_bytes: int) -> bytes:
    """The content of an ordinary file. A file of more than `max_bytes` is refused."""
    with open_plain_file(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise StorageError(f"{path} is too large: at most {max_bytes} bytes are read.")
    return data


def check_not_linked(folder: Path) -> None:
    """Raise StorageError if the folder is a symbolic link."""
    try:
        is_linked = folder.is_symlink()
    except (OSError, ValueError) as error:
        raise StorageError(f"Could not read {folder}: {_reason(error)}.") from error
    if is_linked:
        raise StorageError(f"{folder} should be a folder, but it is a symbolic link.")


def write_whole(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step: readers see the old file or the new one, never a part."""
    partial = _beside(path, "partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise _could_not_write(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a folder to fill; it takes its final name only when the block ends without an error.

    The unfinished folder is locked until then. `clear_unfinished` can therefore tell it from a folder that a killed
    process left.
    """
    if os.path.lexists(path):
        if not replace:
            raise StorageError(f"{path} exists already; delete it first or choose another name.")
        if path.is_symlink() or not path.is_dir():
            raise StorageError(f"{path} is not a folder, so it is not replaced by one.")
    begun, partial = _beside(path, "begun"), _beside(path, "partial")
    with contextlib.ExitStack() as held:
        try:
            begun.mkdir(parents=True)
            held.enter_context(_locked_folder(begun))
            begun.rename(partial)  # only after locking, because other processes remove unlocked folders with such names
            yield partial
            _sync_folder(partial)
            _swap_in(partial, path)
            _sync_folder(path.parent)
        except OSError as error:
            raise _could_not_write(path, error) from error
        finally:
            for left in (begun, partial):
                shutil.rmtree(left, ignore_errors=True)


def clear_unfinished(parent: Path) -> None:
    """Remove the unfinished folders of `whole_folder` in `parent` whose process has died. Folders of living processes
    are locked and stay.
    """
    with contextlib.suppress(OSError):  # a leftover that cannot be removed does no harm
        for path in parent.iterdir():
            if _UNFINISHED.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                with _locked_folder(path) as is_mine:
                    if is_mine:
                        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _locked_folder(folder: Path) -> Iterator[bool]:
    """Lock the folder itself, because a lock file would become a part of it. Yields False if another process holds the
    lock, or if the system cannot lock folders (Windows, some network drives).
    """
    if sys.platform == "win32":
        yield False
        return
    import fcntl

    try:
        handle = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        yield False
        return
    try:
        is_mine = True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            is_mine = False
        yield is_mine
    finally:
        os.close(handle)


def remove_folder(path: Path) -> None:
    """Remove a folder and its contents. If it is a link, remove only the link. The folder is renamed first, so that its
    name is free at once, and then deleted.
    """
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            return
        old = _beside(path, "old")
        path.rename(old)
        _sync_folder(path.parent)
        shutil.rmtree(old)
    except OSError as error:
        raise StorageError(f"Could not remove {path}: {_reason(error)}.") from error


class FolderLock:
    """Allows one process at a time in a folder, with a hidden lock file that stays there. The lock of a dead process is
    released.

    `busy` is the error message for other processes while the lock is held.
    """

    def __init__(self, folder: Path, busy: str) -> None:
        self.path, self.busy = folder / ".lock", busy
        self._file: IO[bytes] | None = None

    def take(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = self.path.open("ab")
        except OSError as error:
            raise StorageError(f"Could not lock {self.path.parent}: {_reason(error)}.") from error
        try:
            _lock(file)
        except BlockingIOError:
            file.close()
            raise StorageError(self.busy) from None
        except OSError as error:
            file.close()
            raise StorageError(f"Could not lock {self.path.parent}: {_reason(error)}.") from error
        self._file = file

    def let_go(self) -> None:
        """Release the lock; does nothing if it is not held."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let_go()


def _lock(file: IO[bytes]) -> None:
    """Lock an open file. Raises BlockingIOError if another process holds the lock; closing the file releases it."""
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except PermissionError as error:  # raised by Windows for a held lock
            raise BlockingIOError from error
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _swap_in(partial: Path, path: Path) -> None:
    """Give a finished folder its name. An older folder of that name is moved away first, and moved back if
    this fails.
    """
    if not os.path.lexists(path):
        partial.rename(path)
        return
    old = _beside(path, "old")
    path.rename(old)
    try:
        partial.rename(path)
    except OSError:
        old.rename(path)
        raise
    # The new folder is in place, so a remainder of the old one is not an error.
    shutil.rmtree(old, ignore_errors=True)


def _beside(path: Path, suffix: str) -> Path:
    """A new hidden name in the same folder, so that a rename never crosses file systems."""
    return path.absolute().with_name(f".{path.name}.{secrets.token_hex(6)}.{suffix}")


def _sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, if the system can do that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _could_not_write(path: Path, error: OSError) -> StorageError:
    return StorageError(f"Could not write {path}: {_reason(error)}. What was there before is untouched.")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
