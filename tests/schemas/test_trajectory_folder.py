import contextlib
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import make_screenshot, make_trajectory
from focusmem.errors import RecordError, StorageError, UserError
from focusmem.files import sha256_hex
from focusmem.schemas import check_trajectory, dump_record, find_trajectories, load_trajectory, save_trajectory
from schemas.strategies import FAST


@pytest.fixture
def folder(tmp_path):
    """A stored trajectory of three steps."""
    save_trajectory(tmp_path / "one", *make_trajectory())
    return tmp_path / "one"


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones included."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def first_png(folder: Path) -> Path:
    return sorted((folder / "screenshots").iterdir())[0]


def test_what_is_saved_is_loaded(folder):
    trajectory, screenshots = make_trajectory()
    stored = load_trajectory(folder)
    assert stored.trajectory == trajectory
    assert dict(stored.screenshots) == screenshots
    assert check_trajectory(folder) == []


def test_the_layout_can_be_read_without_our_code(folder):
    document = json.loads((folder / "trajectory.json").read_text())
    digests = [step["screenshot"]["sha256"] for step in document["steps"]]
    assert set(content(folder)) == {"trajectory.json", *(f"screenshots/{digest}.png" for digest in digests)}
    for digest in digests:
        assert sha256_hex((folder / f"screenshots/{digest}.png").read_bytes()) == digest


def test_a_screenshot_seen_twice_is_stored_once(tmp_path):
    trajectory, screenshots = make_trajectory(2)
    twice = trajectory.model_copy(update={"steps": trajectory.steps[:1] * 4})
    save_trajectory(tmp_path / "one", twice, screenshots)
    assert len(content(tmp_path / "one")) == 2
    assert load_trajectory(tmp_path / "one").trajectory == twice


def test_saving_again_changes_nothing(folder):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    save_trajectory(folder, *make_trajectory())
    save_trajectory(folder, *make_trajectory(), replace=True)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_other_content_is_kept_unless_it_is_to_be_replaced(folder):
    before = content(folder)
    with pytest.raises(StorageError, match="holds something else"):
        save_trajectory(folder, *make_trajectory(seed=7))
    assert content(folder) == before
    save_trajectory(folder, *make_trajectory(seed=7), replace=True)
    assert load_trajectory(folder).trajectory == make_trajectory(seed=7)[0]
    assert [path.name for path in folder.parent.iterdir()] == ["one"]


def test_a_damaged_copy_counts_as_other_content(folder):
    first_png(folder).write_bytes(b"damaged")
    with pytest.raises(StorageError):
        save_trajectory(folder, *make_trajectory())
    save_trajectory(folder, *make_trajectory(), replace=True)
    assert check_trajectory(folder) == []


def test_an_empty_folder_is_filled(tmp_path):
    save_trajectory(tmp_path, *make_trajectory())
    assert check_trajectory(tmp_path) == []


def test_a_folder_that_is_no_trajectory_is_never_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(StorageError, match="is not a trajectory folder"):
        save_trajectory(tmp_path, *make_trajectory(), replace=True)
    assert content(tmp_path) == {"thesis.tex": b"years of work"}


def test_a_file_in_the_way_is_kept(tmp_path):
    (tmp_path / "one").write_text("a file")
    for replace in (False, True):
        with pytest.raises(StorageError):
            save_trajectory(tmp_path / "one", *make_trajectory(), replace=replace)
    assert (tmp_path / "one").read_text() == "a file"


def test_nothing_is_saved_when_a_screenshot_is_missing(tmp_path):
    trajectory, screenshots = make_trajectory()
    screenshots.popitem()
    with pytest.raises(RecordError, match="which was not given"):
        save_trajectory(tmp_path / "one", trajectory, screenshots)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_saved_when_a_screenshot_is_another_one(tmp_path):
    trajectory, screenshots = make_trajectory()
    screenshots[trajectory.steps[0].screenshot.sha256] = make_screenshot(99)
    with pytest.raises(RecordError, match="has other content"):
        save_trajectory(tmp_path / "one", trajectory, screenshots)
    assert list(tmp_path.iterdir()) == []


def with_other_size(trajectory):
    ref = trajectory.steps[0].screenshot.model_copy(update={"width": 5})
    step = trajectory.steps[0].model_copy(update={"screenshot": ref})
    return trajectory.model_copy(update={"steps": (step, *trajectory.steps[1:])})


def test_nothing_is_saved_when_a_size_differs(tmp_path):
    trajectory, screenshots = make_trajectory()
    with pytest.raises(RecordError, match="is 96x64 pixels large, but the trajectory says 5x64"):
        save_trajectory(tmp_path / "one", with_other_size(trajectory), screenshots)
    assert list(tmp_path.iterdir()) == []


# Interrupted saves.


def fail_at(monkeypatch, function: str, call: int, error: BaseException) -> list[int]:
    """Let one call of an `os` function fail; the returned list counts its calls."""
    real, count = getattr(os, function), [0]

    def failing(*args, **kwargs):
        count[0] += 1
        if count[0] == call:
            raise error
        return real(*args, **kwargs)

    monkeypatch.setattr(os, function, failing)
    return count


def disk_full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("make_error", [disk_full, KeyboardInterrupt])
@pytest.mark.parametrize("function", ["fsync", "replace", "rename", "mkdir", "open"])
def test_an_interrupted_save_leaves_all_or_nothing(tmp_path, function, make_error):
    for call in range(1, 30):
        folder = tmp_path / str(call) / "one"
        folder.parent.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            count = fail_at(patch, function, call, make_error())
            with contextlib.suppress(StorageError, KeyboardInterrupt):
                save_trajectory(folder, *make_trajectory())
        if folder.exists():
            assert check_trajectory(folder) == []
        assert list(folder.parent.iterdir()) == ([folder] if folder.exists() else [])
        if count[0] < call:
            assert call > 1
            return
    pytest.fail("the save never got through")


def test_a_full_disk_leaves_nothing_behind(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, "fsync", 1, disk_full())
        with pytest.raises(StorageError, match="No space left on device"):
            save_trajectory(tmp_path / "one", *make_trajectory())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("function", ["fsync", "replace", "rename"])
def test_an_interrupted_replacement_keeps_the_old_content(folder, function):
    before = content(folder.parent)
    for call in range(1, 30):
        with pytest.MonkeyPatch.context() as patch:
            fail_at(patch, function, call, disk_full())
            try:
                save_trajectory(folder, *make_trajectory(seed=7), replace=True)
            except StorageError:
                assert content(folder.parent) == before
                continue
        break
    assert load_trajectory(folder).trajectory == make_trajectory(seed=7)[0]


def test_a_killed_save_never_shows_half_a_trajectory(tmp_path):
    script = """
import os, sys
from pathlib import Path
from factories import make_trajectory
from focusmem.schemas import save_trajectory
real, count = os.fsync, [0]
def killed(handle):
    count[0] += 1
    if count[0] == 3:
        os._exit(9)
    real(handle)
os.fsync = killed
save_trajectory(Path(sys.argv[1]), *make_trajectory())
"""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    command = [sys.executable, "-c", script, str(tmp_path / "one")]
    assert subprocess.run(command, env={**os.environ, "PYTHONPATH": path}).returncode == 9
    assert not (tmp_path / "one").exists()
    save_trajectory(tmp_path / "one", *make_trajectory())
    assert check_trajectory(tmp_path / "one") == []


# Damage and tricks.


def test_screenshots_are_read_when_they_are_used(folder):
    stored = load_trajectory(folder)
    first = next(iter(stored.screenshots))
    read = stored.screenshots[first]
    for path in (folder / "screenshots").iterdir():
        path.unlink()
    assert stored.screenshots[first] is read
    assert len(stored.screenshots) == 3
    with pytest.raises(StorageError, match="No such file"):
        list(stored.screenshots.values())
    with pytest.raises(KeyError):
        stored.screenshots["../../secret"]


def replace_by_link(path: Path) -> None:
    target = path.rename(path.parent.parent.parent / f"moved-{path.name}")
    path.symlink_to(target)


def tamper(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(bytes(data))


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGE = {
    "no record": (lambda folder: (folder / "trajectory.json").unlink(), "No such file"),
    "record is a folder": (
        lambda folder: ((folder / "trajectory.json").unlink(), (folder / "trajectory.json").mkdir()),
        "should be an ordinary file",
    ),
    "record is cut off": (lambda folder: (folder / "trajectory.json").write_text('{"sch'), "not valid JSON"),
    "record is a link": (lambda folder: replace_by_link(folder / "trajectory.json"), "symbolic link"),
    "record is a pipe": (lambda folder: make_pipe(folder / "trajectory.json"), "ordinary file"),
    "size differs": (
        lambda folder: (folder / "trajectory.json").write_bytes(dump_record(with_other_size(make_trajectory()[0]))),
        "but the trajectory says 5x64",
    ),
    "no screenshot": (lambda folder: first_png(folder).unlink(), "No such file"),
    "tampered pixels": (lambda folder: tamper(first_png(folder)), "does not match its name"),
    "another picture": (
        lambda folder: first_png(folder).write_bytes(make_screenshot(9).png),
        "does not match its name",
    ),
    "screenshot is a link": (lambda folder: replace_by_link(first_png(folder)), "symbolic link"),
    "screenshot is a pipe": (lambda folder: make_pipe(first_png(folder)), "ordinary file"),
    "screenshots is a link": (lambda folder: replace_by_link(folder / "screenshots"), "symbolic link"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_found(folder, damage, message):
    damage(folder)
    assert message in " ".join(check_trajectory(folder))
    with pytest.raises(UserError, match=message):
        list(load_trajectory(folder).screenshots.values())


def test_a_digest_of_something_that_is_no_picture_is_refused(folder):
    path = first_png(folder)
    digest = sha256_hex(b"no picture")
    path.with_name(f"{digest}.png").write_bytes(b"no picture")
    record = folder / "trajectory.json"
    record.write_text(record.read_text().replace(path.stem, digest))
    path.unlink()
    assert ["is not a usable screenshot" in problem for problem in check_trajectory(folder)] == [True]


def test_all_problems_are_told_at_once(folder):
    (folder / "notes.txt").write_text("x")
    (folder / "screenshots" / "thumbs.db").write_text("x")
    (folder / "screenshots" / "link.png").symlink_to("/etc/passwd")
    pngs = sorted((folder / "screenshots").glob("[0-9a-f]" * 64 + ".png"))
    pngs[0].unlink()
    tamper(pngs[1])
    problems = check_trajectory(folder)
    assert len(problems) == 5
    told = " ".join(problems)
    for part in ("'notes.txt'", "'thumbs.db'", "'link.png'", pngs[0].name, pngs[1].name):
        assert part in told


def test_links_are_told_even_when_the_record_is_unreadable(folder):
    (folder / "trajectory.json").write_text("{")
    (folder / "screenshots" / "link.png").symlink_to("/etc/passwd")
    assert len(check_trajectory(folder)) == 2


def test_a_missing_folder_is_a_problem_not_a_crash(tmp_path):
    assert len(check_trajectory(tmp_path / "nowhere")) == 1
    assert len(check_trajectory(tmp_path / "nul\0")) >= 1


@FAST
@given(st.binary(max_size=30))
def test_checking_never_raises(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("any")
    (folder / "trajectory.json").write_bytes(data)
    assert check_trajectory(folder) != []


def test_what_was_only_begun_is_found_too_so_that_it_can_be_counted(tmp_path):
    save_trajectory(tmp_path / "whole", *make_trajectory())
    (tmp_path / "begun" / "screenshots").mkdir(parents=True)
    (tmp_path / "odd" / "trajectory.json").mkdir(parents=True)
    (tmp_path / "screenshots").mkdir()
    assert [path.name for path in find_trajectories(tmp_path)] == ["begun", "odd", "whole"]
    for name in ("begun", "odd"):
        with pytest.raises(UserError):
            load_trajectory(tmp_path / name)
