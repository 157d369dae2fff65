"""Writers that die, disks that fill, two writers at once: real processes wherever that is possible."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from banks import WordEmbedder, ids_of, make_many, make_stored
from clocks import PATIENT_S
from focusmem.bank import Bank, RetrievalConfig, store
from focusmem.bank.vectors import VectorTable, rows_to_bytes
from focusmem.errors import StorageError
from focusmem.schemas import LeftOut, check_trajectory

TESTS = Path(__file__).parents[1]


def process(code: str, path: Path, *words: object) -> subprocess.Popen[str]:
    """Another Python that runs some lines about the bank at `path`."""
    head = f"import sys; sys.path.insert(0, {str(TESTS)!r})\nfrom banks import *\nfrom focusmem.bank import *\n"
    head += "from pathlib import Path\nembedder = WordEmbedder()\npath = Path(sys.argv[1])\n"
    source = str(Path(store.__file__).parents[2])
    return subprocess.Popen(
        [sys.executable, "-c", head + code, str(path), *map(str, words)],
        env={**os.environ, "PYTHONPATH": source},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(running: subprocess.Popen[str]) -> str:
    out, err = running.communicate(timeout=PATIENT_S)
    assert running.returncode == 0, err
    return out


@pytest.fixture
def path(tmp_path):
    embedder = WordEmbedder()
    Bank.create(tmp_path / "bank", embedder).add(make_many(3), embedder)
    return tmp_path / "bank"


def check_is_sound(path, expected):
    """Every trajectory is whole, has one vector and is found; nothing else is there."""
    bank, embedder = Bank.open(path), WordEmbedder()
    names = [entry.trajectory_id for entry in bank.entries()]
    assert names == sorted(expected)
    assert bank.folder.trajectory_ids() == sorted(expected)
    assert bank.stats().num_without_vector == 0
    assert bank.journal.is_empty()
    for name in names:
        assert check_trajectory(bank.folder.trajectory(name)) == []
        stored = bank.load(name)
        assert bank.search(embedder.vector(stored.trajectory.instruction), None).hits[0].trajectory_id == name
    hidden = [one for one in (path / "trajectories").iterdir() if one.name.startswith(".")]
    assert hidden == []


# Two writers


def test_two_processes_add_at_once(path):
    code = """
start = int(sys.argv[2])
for number in range(start, start + 12, 3):
    Bank.open(path).add(make_many(3, start=number), embedder)
"""
    both = [process(code, path, start) for start in (3, 9)]  # 9 to 14 are added by both of them
    for one in both:
        finish(one)
    check_is_sound(path, ids_of(make_many(21)))


def test_two_processes_make_the_same_bank(tmp_path):
    code = "Bank.create(path, embedder).add(make_many(2, start=int(sys.argv[2])), embedder)"
    for one in [process(code, tmp_path / "bank", start) for start in (0, 1)]:
        finish(one)
    check_is_sound(tmp_path / "bank", ids_of(make_many(3)))


@pytest.mark.parametrize("config", [RetrievalConfig(), RetrievalConfig(max_exact_bytes=0)])
def test_one_adds_while_another_deletes_and_a_third_searches(path, config):
    adding = "for n in range(3, 15, 2):\n    Bank.open(path).add(make_many(2, start=n), embedder)"
    deleting = """
import time
bank, left = Bank.open(path), {f"trajectory-{n}" for n in range(3, 15, 2)}
end = time.monotonic() + 600
while left and time.monotonic() < end:
    left -= set(bank.delete(sorted(left)).deleted)
"""
    writers = [process(adding, path), process(deleting, path)]
    bank, embedder = Bank.open(path, config=config), WordEmbedder()
    while any(one.poll() is None for one in writers):
        assert len(bank.search(embedder.vector("How much is it?"), None).hits) == 3
    for one in writers:
        finish(one)
    check_is_sound(path, ids_of(make_many(3)) + [f"trajectory-{n}" for n in range(4, 15, 2)])


# Writers that die


def test_a_process_that_is_killed_while_it_adds_loses_nothing_that_was_told(path):
    code = """
bank = Bank.open(path)
for number in range(3, 400):
    bank.add([make_stored(number)], embedder)
    print(number, flush=True)
"""
    running = process(code, path)
    assert running.stdout is not None
    told = [int(running.stdout.readline()) for _ in range(6)]
    time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    rest, _ = running.communicate()
    told += [int(line) for line in rest.splitlines()]
    Bank.open(path).add([make_stored(999)], WordEmbedder())  # heals, if there is anything to heal
    names = Bank.open(path).folder.trajectory_ids()
    assert {f"trajectory-{number}" for number in told} <= set(names)
    check_is_sound(path, names)


def die_in(place: str, what: str) -> str:
    """Python code: the process ends at once when it comes to this place, as if it had been killed."""
    return f"""
import os
import focusmem.bank.store as store
from focusmem.bank.vectors import VectorTable, rows_to_bytes
real = {place}
calls = []
def dying(*args, **kwargs):
    calls.append(1)
    if {what}:
        os._exit(9)
    return real(*args, **kwargs)
{place} = dying
"""


@pytest.mark.parametrize(
    ("place", "what", "num_added", "next_step"),
    [
        ("store.save_trajectory", "len(calls) == 1", 0, "open"),
        ("store.save_trajectory", "len(calls) == 3", 2, "add"),
        ("VectorTable.upsert", "True", 4, "open"),
        ("VectorTable.upsert", "True", 4, "add"),
        ("VectorTable.tidy", "True", 4, "open"),
    ],
)
def test_a_writer_that_dies_while_adding(path, place, what, num_added, next_step):
    running = process(die_in(place, what) + "Bank.open(path).add(make_many(4, start=3), embedder)", path)
    running.communicate()
    assert running.returncode == 9
    if next_step == "add":
        Bank.open(path).add([make_stored(0)], WordEmbedder())
    check_is_sound(path, ids_of(make_many(3 + num_added)))
    Bank.open(path).add(make_many(7), WordEmbedder())
    check_is_sound(path, ids_of(make_many(7)))


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("VectorTable.remove", "True"),
        ("store.remove_folder", "len(calls) == 1"),
        ("store.remove_folder", "len(calls) == 2"),
        ("VectorTable.purge", "True"),
    ],
)
def test_a_writer_that_dies_while_deleting(path, place, what):
    running = process(die_in(place, what) + "Bank.open(path).delete(['trajectory-0', 'trajectory-1'])", path)
    running.communicate()
    assert running.returncode == 9
    check_is_sound(path, ["trajectory-2"])


def test_a_half_written_folder_is_cleared_away(path):
    code = """
import os
import focusmem.schemas.trajectory_folder as folder
real = folder.write_whole
folder.write_whole = lambda path, data: os._exit(9) if path.name == "trajectory.json" else real(path, data)
Bank.open(path).add([make_stored(3)], embedder)
"""
    process(code, path).communicate()
    assert any(one.name.startswith(".trajectory-3") for one in (path / "trajectories").iterdir())
    check_is_sound(path, ids_of(make_many(3)))


def of_another_width():
    other = WordEmbedder(width=7)
    return other.embed_trajectories([make_stored(8)])


def changed_rows(bank, change):
    rows = bank.make_rows([make_stored(8).trajectory], WordEmbedder().vector("x")[None], [LeftOut()])
    return rows_to_bytes(change(rows))


DAMAGED_NOTES = {
    "junk.add": lambda bank: b"[1, junk",
    "junk.delete": lambda bank: b"[1, junk",
    "deep.delete": lambda bank: b"[" * 100_000,
    "no-list.delete": lambda bank: b'{"trajectory-1": 1}',
    "foreign.add": lambda bank: changed_rows(bank, lambda rows: rows.rename_columns(["x", *rows.column_names[1:]])),
    "less.add": lambda bank: changed_rows(bank, lambda rows: rows.drop_columns(["site"])),
    "more.add": lambda bank: changed_rows(bank, lambda rows: rows.append_column("more", rows["site"])),
    "width.add": lambda bank: rows_to_bytes(
        bank.make_rows([make_stored(8).trajectory], of_another_width(), [LeftOut()])
    ),
}


@pytest.mark.parametrize("name", DAMAGED_NOTES)
def test_a_note_that_cannot_be_used_is_set_aside_and_named(path, caplog, name):
    note = path / "journal" / name
    note.parent.mkdir(exist_ok=True)
    note.write_bytes(DAMAGED_NOTES[name](Bank.open(path)))
    bank = Bank.open(path)
    assert f"{note}.set-aside" in caplog.text
    assert bank.add([make_stored(3)], WordEmbedder()).added == ("trajectory-3",)
    assert (path / "journal" / f"{name}.set-aside").exists()
    check_is_sound(path, ids_of(make_many(4)))
    bank.delete(["trajectory-3"])
    assert list((path / "journal").iterdir()) == [], "a note may hold vectors of what is deleted"


def test_a_folder_among_the_notes_stops_nobody(path, tmp_path):
    outside = tmp_path / "outside" / "kept"
    outside.mkdir(parents=True)
    bank = Bank.open(path)
    for _ in range(2):
        folder = path / "journal" / "ffff.delete"
        (folder / "inner").mkdir(parents=True)
        (folder / "link").symlink_to(outside.parent)
        Bank.open(path)
    (path / "journal" / "link.set-aside").symlink_to(outside.parent)
    assert len(list((path / "journal").glob("ffff.delete*.set-aside"))) == 2
    assert bank.delete(["trajectory-1"]).deleted == ("trajectory-1",)
    assert list((path / "journal").iterdir()) == []
    assert outside.exists()


def test_what_cannot_be_removed_from_the_journal_is_named(path, caplog, monkeypatch):
    stuck = path / "journal" / "ffff.delete.set-aside"
    stuck.mkdir(parents=True)
    monkeypatch.setattr("shutil.rmtree", fail_to_remove)
    Bank.open(path).journal.remove_set_aside()
    assert str(stuck) in caplog.text


def fail_to_remove(path):
    raise PermissionError(13, "Permission denied", str(path))


def test_a_pipe_among_the_notes_is_not_waited_for(path):
    (path / "journal").mkdir(exist_ok=True)
    os.mkfifo(path / "journal" / "a.add")
    check_is_sound(path, ids_of(make_many(3)))


def test_notes_cannot_lead_out_of_the_bank(path, tmp_path):
    (tmp_path / "precious").mkdir()
    (path / "journal").mkdir(exist_ok=True)
    (path / "journal" / "a.delete").write_text('["../../precious", "trajectory-1", 7, null]')
    Bank.open(path)
    assert (tmp_path / "precious").is_dir()


def test_an_unfinished_bank_that_cannot_be_written_can_still_be_read(path, monkeypatch, caplog):
    Bank.open(path).journal.note_deleting(["trajectory-1"])

    def full(*_):
        raise StorageError("Could not write: No space left on device.")

    monkeypatch.setattr(VectorTable, "remove", full)
    bank = Bank.open(path)
    assert len(bank.search(WordEmbedder().vector("x"), None).hits) == 3
    assert "left for the next writer" in caplog.text


# Full disks


def test_a_disk_that_fills_while_vectors_are_written(path):
    """Real failing writes: the process may write no file larger than a few blocks."""
    code = """
import resource, signal
from focusmem.errors import StorageError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
bank = Bank.open(path)
big = WordEmbedder(width=96)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    bank.add(make_many(16, start=3), big)
except StorageError as error:
    print(error)
"""
    for limit in (100, 2_000, 12_000):
        said = finish(process(code, path, limit))
        assert said.startswith("Could not write"), limit
        check_is_sound(path, ids_of(make_many(3)))


@pytest.mark.parametrize("place", ["files", "vectors", "note"])
def test_a_full_disk_is_an_error_and_the_bank_is_as_before(path, monkeypatch, place):
    bank, embedder = Bank.open(path), WordEmbedder()
    if place == "vectors":
        table = bank.vectors._table

        def failing_merge(*_):
            raise RuntimeError("lance error: LanceError(IO): No space left on device (os error 28), /rust/place.rs:1:2")

        monkeypatch.setattr(type(table), "merge_insert", failing_merge)
    else:
        real = os.fsync
        calls = []

        def failing_sync(handle):
            calls.append(handle)
            if len(calls) >= (1 if place == "note" else 8):
                raise OSError(errno.ENOSPC, "No space left on device")
            real(handle)

        monkeypatch.setattr(os, "fsync", failing_sync)
    with pytest.raises(StorageError, match="No space left on device") as caught:
        bank.add(make_many(4, start=3), embedder)
    assert "place.rs" not in str(caught.value)
    monkeypatch.undo()
    check_is_sound(path, ids_of(make_many(3)))
    bank.add(make_many(4, start=3), embedder)
    check_is_sound(path, ids_of(make_many(7)))


def failing_once(monkeypatch, method):
    real = getattr(VectorTable, method)

    def full(table, *words):
        def failing(*_, **__):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(type(table._table), "delete" if method == "remove" else "add", failing)
        real(table, *words)

    monkeypatch.setattr(VectorTable, method, full)


def test_a_disk_that_fills_while_something_is_deleted(path):
    """Real failing writes: what is said about the trajectory is what happens to it."""
    code = """
import resource, signal
from focusmem.errors import StorageError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
bank = Bank.open(path)
bank.vectors.num_rows()
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    bank.delete([sys.argv[3]])
except StorageError as error:
    print(error)
"""
    left = ids_of(make_many(3))
    for limit in (0, 100, 500, 1_000, 2_000):
        said = finish(process(code, path, limit, left[-1]))
        assert said.startswith("Could not write"), limit
        if "untouched" not in said:
            assert "the next time the bank is opened" in said
            left = left[:-1]
        check_is_sound(path, left)
        Bank.open(path).add(make_many(3), WordEmbedder())
        left = ids_of(make_many(3))


def test_a_deletion_for_which_there_is_no_room_is_taken_back(path, monkeypatch, caplog):
    bank = Bank.open(path)
    failing_once(monkeypatch, "remove")
    with pytest.raises(StorageError, match=r"No space left on device.*What was there before is untouched"):
        bank.delete(["trajectory-1"])
    monkeypatch.undo()
    assert bank.journal.is_empty()
    check_is_sound(path, ids_of(make_many(3)))
    assert caplog.text == ""
    assert bank.delete(["trajectory-1"]).deleted == ("trajectory-1",)


def test_a_deletion_that_ran_out_of_room_midway_says_what_will_happen(path, monkeypatch):
    bank = Bank.open(path)
    failing_once(monkeypatch, "purge")
    with pytest.raises(StorageError, match="No space left on device") as caught:
        bank.delete(["trajectory-1"])
    assert "untouched" not in str(caught.value)
    assert "the next time the bank is opened" in str(caught.value)
    monkeypatch.undo()
    check_is_sound(path, ["trajectory-0", "trajectory-2"])


def test_a_busy_bank_is_an_error_after_a_while(path):
    bank = Bank.open(path)
    with (
        bank.folder.locked(),
        pytest.raises(StorageError, match="Another process has been writing"),
        Bank.open(path).folder.locked(timeout_s=0.05),
    ):
        pass


def test_rows_that_got_in_although_writing_them_failed_are_removed(path, monkeypatch):
    """As when the answer of a network drive is lost."""
    bank, embedder = Bank.open(path), WordEmbedder()
    real = VectorTable.upsert

    def writing_then_failing(table, rows):
        real(table, rows)
        raise StorageError("Could not write: the connection was lost.")

    monkeypatch.setattr(VectorTable, "upsert", writing_then_failing)
    with pytest.raises(StorageError, match="connection was lost"):
        bank.add(make_many(2, start=3), embedder)
    monkeypatch.undo()
    check_is_sound(path, ids_of(make_many(3)))
