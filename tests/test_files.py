import os
import stat
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focusmem.errors import StorageError
from focusmem.files import (
    FolderLock,
    clear_unfinished,
    is_safe_name,
    read_plain_file,
    sha256_hex,
    whole_folder,
    write_whole,
)


def test_a_known_digest():
    assert sha256_hex(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize("name", ["a", "A1", "run-2025.01_x", "x" * 128, "a..b"])
def test_safe_names(name):
    assert is_safe_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".a", "a.", "-a", "_a", "a/b", "a\\b", "a b", "a\n", "\u00e4", "a\0", "x" * 129]
)
def test_unsafe_names(name):
    assert not is_safe_name(name)


@given(st.text(max_size=10))
def test_a_safe_name_is_a_single_component(tmp_path_factory, name):
    if is_safe_name(name):
        folder = tmp_path_factory.getbasetemp()
        assert (folder / name).resolve().parent == folder.resolve()


def test_a_file_is_written_and_replaced(tmp_path):
    path = tmp_path / "deep" / "file.bin"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert [entry.name for entry in path.parent.iterdir()] == ["file.bin"]


def test_others_may_read_what_the_user_lets_them_read(tmp_path):
    mask = os.umask(0o022)
    try:
        write_whole(tmp_path / "file", b"x")
        with whole_folder(tmp_path / "folder"):
            pass
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o755


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch, function):
    path = tmp_path / "file"
    write_whole(path, b"old")

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(StorageError, match="No space left on device"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_writing_below_a_file_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="Could not write"):
        write_whole(tmp_path / "file" / "below", b"x")
    with pytest.raises(StorageError, match="Could not write"), whole_folder(tmp_path / "file" / "below"):
        pass


def test_a_folder_appears_when_it_is_complete(tmp_path):
    with whole_folder(tmp_path / "new") as partial:
        (partial / "a").write_text("1")
        assert not (tmp_path / "new").exists()
    assert (tmp_path / "new" / "a").read_text() == "1"
    assert [entry.name for entry in tmp_path.iterdir()] == ["new"]


def test_a_folder_whose_making_fails_never_appears(tmp_path):
    def interrupted():
        with whole_folder(tmp_path / "new") as partial:
            (partial / "a").write_text("1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_unfinished_folders_of_dead_processes_are_cleared_and_those_of_living_ones_stay(tmp_path):
    code = """
import os, sys
from pathlib import Path
from focusmem.files import whole_folder
with whole_folder(Path(sys.argv[1])) as partial:
    (partial / "half").write_text("half")
    print(flush=True)
    sys.stdin.read()
"""
    begun = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / name)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in ("dead", "alive")
    ]
    for process in begun:
        process.stdout.readline()
    dead, alive = begun
    dead.kill()
    dead.communicate()
    (tmp_path / ".mine.partial").mkdir()
    (tmp_path / ".other.0123456789ab.partial").write_text("a file that is being written")
    clear_unfinished(tmp_path)
    names = sorted(path.name.split(".")[1] for path in tmp_path.iterdir())
    alive.communicate("")
    assert names == ["alive", "mine", "other"]
    assert (tmp_path / "alive" / "half").read_text() == "half"


def test_an_existing_folder_is_replaced_only_on_demand(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "old").write_text("0")
    with pytest.raises(StorageError, match="exists already"), whole_folder(tmp_path / "new"):
        pass
    with whole_folder(tmp_path / "new", replace=True) as partial:
        (partial / "a").write_text("1")
    assert [entry.name for entry in (tmp_path / "new").iterdir()] == ["a"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["new"]


def test_a_link_or_a_file_is_never_replaced_by_a_folder(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    for name in ("link", "dangling", "file"):
        with (
            pytest.raises(StorageError, match="is not a folder"),
            whole_folder(tmp_path / name, replace=True),
        ):
            pass
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["dangling", "file", "link", "real"]


def test_only_ordinary_files_of_a_known_size_are_read(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    assert read_plain_file(tmp_path / "file", 5) == b"12345"
    for name, message in {
        "link": "symbolic link",
        "pipe": "ordinary file",
        ".": "ordinary file",
        "nowhere": "No such file",
        "nul\0": "Could not read",
    }.items():
        with pytest.raises(StorageError, match=message):
            read_plain_file(tmp_path / name, 5)
    with pytest.raises(StorageError, match="too large: at most 4 bytes"):
        read_plain_file(tmp_path / "file", 4)


def test_a_folder_is_held_by_one_process_and_free_again_when_that_dies(tmp_path):
    words = [
        "import sys, pathlib, focusmem.files",
        "lock = focusmem.files.FolderLock(pathlib.Path(sys.argv[1]), 'busy')",
        "lock.take()",
        "print('held', flush=True)",
        "sys.stdin.read()",
    ]
    script = [sys.executable, "-c", "; ".join(words), str(tmp_path)]
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(StorageError, match="busy"):
            FolderLock(tmp_path, "busy").take()
        other.kill()
    with FolderLock(tmp_path, "busy"):
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_folder_that_cannot_be_locked_is_named(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageError, match=r"Could not lock .*file"):
        FolderLock(tmp_path / "file", "busy").take()
