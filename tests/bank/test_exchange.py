import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from banks import WordEmbedder, ids_of, make_many, make_stored
from damage import change_record, change_row
from focusmem.bank import Bank
from focusmem.bank.checking import check_bank
from focusmem.bank.exchange import add_folders, export_bank, import_bank
from focusmem.bank.opening import open_bank
from focusmem.errors import RecordError, StorageError
from focusmem.progress import Progress
from focusmem.schemas import check_trajectory, find_trajectories, save_trajectory


@pytest.fixture
def embedder():
    return WordEmbedder()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A bank and its export, made once; each test gets a copy."""
    folder, embedder = tmp_path_factory.mktemp("made"), WordEmbedder()
    bank = Bank.create(folder / "bank", embedder)
    bank.add(make_many(20, num_steps=1), embedder)
    export_bank(bank, folder / "export")
    return folder


@pytest.fixture
def bank(made, tmp_path):
    return Bank.open(shutil.copytree(made / "bank", tmp_path / "bank"))


@pytest.fixture
def export(made, tmp_path):
    return shutil.copytree(made / "export", tmp_path / "export")


def hits(path, embedder, text="How much is the thingea?"):
    return Bank.open(path).search(embedder.vector(text), None, 9).hits


def ids_in(export):
    return [json.loads(line)["trajectory_id"] for line in (export / "entries.jsonl").read_text().splitlines()]


def test_an_export_can_be_read_without_us(bank, export, embedder):
    names = ids_in(export)
    vectors = np.load(export / "vectors.npy", allow_pickle=False)
    assert sorted(names) == sorted(ids_of(make_many(20, num_steps=1)))
    assert (vectors.shape, vectors.dtype) == ((20, 96), np.float32)
    for name, vector in zip(names, vectors, strict=True):
        assert check_trajectory(export / "trajectories" / name) == []
        np.testing.assert_allclose(vector, embedder.vector(bank.load(name).trajectory.instruction), rtol=1e-6)


def test_out_and_in_again_is_the_same_bank(bank, export, tmp_path, embedder):
    report = import_bank(tmp_path / "copy", export)
    assert (len(report.added), report.failures) == (20, ())
    copy = Bank.open(tmp_path / "copy")
    assert copy.entries() == bank.entries()
    assert hits(tmp_path / "copy", embedder) == hits(bank.folder.path, embedder)
    again = import_bank(tmp_path / "copy", export)
    assert (again.added, len(again.known)) == ((), 20)


def test_the_guards_catalogue_comes_along(bank, tmp_path, embedder):
    Bank.create(bank.folder.path, embedder, catalogue=["Thingaa", "thingba"])
    export_bank(Bank.open(bank.folder.path), tmp_path / "out")
    import_bank(tmp_path / "new", tmp_path / "out")
    Bank.create(tmp_path / "old", embedder, catalogue=["thingca"])
    import_bank(tmp_path / "old", tmp_path / "out")
    other = WordEmbedder("words-2", width=30)
    import_bank(tmp_path / "other", tmp_path / "out", other)
    assert Bank.open(tmp_path / "new").folder.catalogue() == ["Thingaa", "thingba"]
    assert Bank.open(tmp_path / "old").folder.catalogue() == ["Thingaa", "thingba", "thingca"]
    assert Bank.open(tmp_path / "other").folder.catalogue() == ["Thingaa", "thingba"]


def test_an_export_without_a_catalogue_leaves_the_banks_own(export, tmp_path, embedder):
    assert not (export / "catalogue.txt").exists()
    Bank.create(tmp_path / "old", embedder, catalogue=["thingca"])
    assert len(import_bank(tmp_path / "old", export).added) == 20
    assert Bank.open(tmp_path / "old").folder.catalogue() == ["thingca"]


def test_trajectories_without_a_vector_are_named(bank, tmp_path):
    bank.vectors.remove(["trajectory-3"])
    with Progress("export", total=0) as line:
        report = export_bank(bank, tmp_path / "out", line=line)
    assert report.num_trajectories == 19
    [failure] = report.failures
    assert failure.name == "trajectory-3"
    assert f"focusmem bank reembed {bank.folder.path}" in failure.reason
    assert (line.total, line.num_done, line.num_failed) == (20, 20, 1)


def test_an_export_of_an_export_is_the_same(export, tmp_path):
    export_bank(open_bank(export), tmp_path / "again")
    for path in filter(Path.is_file, export.rglob("*")):
        assert (tmp_path / "again" / path.relative_to(export)).read_bytes() == path.read_bytes()


def test_an_export_never_overwrites(bank, export):
    with pytest.raises(StorageError, match="exists already"):
        export_bank(bank, export)


def test_vectors_of_another_embedder_are_made_again(export, tmp_path):
    other = WordEmbedder("words-2", width=30)
    Bank.create(tmp_path / "other", other).add(make_many(2, num_steps=1), other)
    with pytest.raises(StorageError, match=r"another embedder.*--embedder"):
        import_bank(tmp_path / "other", export)
    report = import_bank(tmp_path / "other", export, other)
    assert (len(report.added), len(report.known)) == (18, 2)


def test_an_embedder_decides_for_a_new_bank(export, tmp_path):
    other = WordEmbedder("words-2", width=30)
    import_bank(tmp_path / "new", export, other)
    assert Bank.open(tmp_path / "new").manifest.embedder == "words-2"
    with pytest.raises(StorageError, match="holds vectors of another embedder"):
        import_bank(tmp_path / "new", export, WordEmbedder("words-3"))


def test_plain_trajectories_need_an_embedder(bank, tmp_path, embedder):
    source = bank.folder.path / "trajectories"
    with pytest.raises(StorageError, match=r"brings no vectors.*--embedder"):
        import_bank(tmp_path / "new", source)
    assert len(import_bank(tmp_path / "new", source, embedder).added) == 20


def test_bad_ones_in_the_middle_of_an_import_are_named_and_counted(export, tmp_path, embedder):
    folder = export / "trajectories"
    (folder / "trajectory-3" / "trajectory.json").write_text("{")
    next((folder / "trajectory-7" / "screenshots").iterdir()).write_bytes(b"no picture")
    (folder / "trajectory-9").rename(folder / "elsewhere")
    (folder / "trajectory-11" / "trajectory.json").write_bytes(
        (folder / "trajectory-12" / "trajectory.json").read_bytes()
    )
    vectors = np.load(export / "vectors.npy")
    names = ids_in(export)
    vectors[names.index("trajectory-15")] *= 2
    np.save(export / "vectors.npy", vectors)
    with Progress("import", total=0) as line:
        report = import_bank(tmp_path / "new", export, line=line)
    assert len(report.added) == 15
    reasons = {failure.name.split("/")[-1]: failure.reason for failure in report.failures}
    assert set(reasons) == {f"trajectory-{number}" for number in (3, 7, 9, 11, 15)}
    assert "not valid JSON" in reasons["trajectory-3"]
    assert "has changed since it was stored" in reasons["trajectory-11"]
    assert "vector in the export is damaged" in reasons["trajectory-15"]
    assert (line.total, line.num_done, line.num_failed) == (20, 20, 5)
    assert Bank.open(tmp_path / "new").stats().num_trajectories == 15


def test_folders_of_many_with_a_bad_one(tmp_path, embedder):
    for stored in make_many(40, num_steps=1):
        save_trajectory(tmp_path / "t" / stored.trajectory.trajectory_id, stored.trajectory, stored.screenshots)
    (tmp_path / "t" / "trajectory-20" / "trajectory.json").write_text("[]")
    bank = Bank.create(tmp_path / "bank", embedder)
    report = add_folders(bank, find_trajectories(tmp_path / "t"), embedder)
    assert len(report.added) == 39
    assert [failure.name for failure in report.failures] == [str(tmp_path / "t" / "trajectory-20")]


def test_a_damaged_trajectory_is_left_out_of_an_export(bank, tmp_path):
    (bank.folder.trajectory("trajectory-4") / "trajectory.json").write_text("{")
    report = export_bank(bank, tmp_path / "out")
    assert (report.num_trajectories, [failure.name for failure in report.failures]) == (19, ["trajectory-4"])
    assert len(import_bank(tmp_path / "new", tmp_path / "out").added) == 19


def spoil_ids(export):
    lines = (export / "entries.jsonl").read_text().splitlines()
    lines[7] = json.dumps(json.loads(lines[7]) | {"trajectory_id": "../../etc"})
    (export / "entries.jsonl").write_text("".join(f"{line}\n" for line in lines))


def repeat_an_id(export):
    lines = (export / "entries.jsonl").read_text().splitlines()
    (export / "entries.jsonl").write_text("".join(f"{line}\n" for line in [*lines[:-1], lines[0]]))


def spoil_vectors(export):
    (export / "vectors.npy").write_bytes((export / "vectors.npy").read_bytes()[:500])


def spoil_shape(export):
    np.save(export / "vectors.npy", np.zeros((20, 3), np.float32))


def pickled_vectors(export):
    np.save(export / "vectors.npy", np.array([{}] * 20, dtype=object), allow_pickle=True)


def newer_version(export):
    document = json.loads((export / "export.json").read_text())
    (export / "export.json").write_text(json.dumps(document | {"schema_version": 9}))


def spoil_catalogue(export):
    (export / "catalogue.txt").write_bytes(b"\xff\xfe")


def another_catalogue(export):
    (export / "catalogue.txt").write_text("thingaa\n")


def change_a_text(export):
    text = (export / "entries.jsonl").read_text()
    (export / "entries.jsonl").write_text(text.replace("How much", "How mush", 1))


def append_bytes(export):
    (export / "vectors.npy").write_bytes((export / "vectors.npy").read_bytes() + b"\0" * 4)


def deep_header(export):
    header = b"(" * 9_000
    (export / "vectors.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)


def replaced_by(make, name):
    def spoil(export):
        (export / name).rename(export.parent / "outside")
        make(export / name, export.parent / "outside")

    return spoil


def pipe(path, _):
    os.mkfifo(path)


def folder(path, _):
    path.mkdir()


def link(path, outside):
    path.symlink_to(outside)


SPOILT = {
    **{
        spoil.__name__: spoil
        for spoil in (
            *(spoil_ids, repeat_an_id, spoil_vectors, spoil_shape, pickled_vectors, newer_version, spoil_catalogue),
            *(another_catalogue, change_a_text, append_bytes, deep_header),
        )
    },
    **{
        f"{make.__name__} for {name}": replaced_by(make, name)
        for make in (pipe, folder, link)
        for name in ("vectors.npy", "entries.jsonl", "export.json")
    },
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_spoilt_export_is_refused(export, tmp_path, spoil):
    spoil(export)
    with pytest.raises((RecordError, StorageError)):
        import_bank(tmp_path / "new", export)
    with pytest.raises((RecordError, StorageError)):
        open_bank(export)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("place", "is_same_embedder"),
    [
        ("", True),
        ("/trajectory-3", True),
        ("/trajectory-3", False),
        ("/trajectory-3/screenshots", True),
        ("/trajectory-3/trajectory.json", True),
    ],
)
def test_links_in_an_export_are_not_followed(export, tmp_path, embedder, place, is_same_embedder):
    """Links within the export are refused too, because a copy of a link may have another target."""
    replaced_by(link, f"trajectories{place}")(export)
    other = embedder if is_same_embedder else WordEmbedder("words-2", width=30)
    report = import_bank(tmp_path / "new", export, other)
    names = {Path(failure.name).name for failure in report.failures}
    assert names == ({"trajectory-3"} if place else set(ids_of(make_many(20))))
    assert "symbolic link" in report.failures[0].reason
    with pytest.raises(StorageError, match=r"trajectory-3.*symbolic link"):
        dict(open_bank(export).load("trajectory-3").screenshots)


@pytest.mark.parametrize("name", ["trajectory.json", "screenshots"])
def test_a_pipe_in_an_export_is_not_waited_for(export, tmp_path, name):
    place = export / "trajectories" / "trajectory-3" / name
    place = next(place.iterdir()) if place.is_dir() else place
    place.unlink()
    os.mkfifo(place)
    assert len(import_bank(tmp_path / "new", export).added) == 19


def test_a_damaged_record_in_an_export_is_not_imported(export, tmp_path):
    change_record(export / "trajectories" / "trajectory-3")
    report = import_bank(tmp_path / "new", export)
    assert (len(report.added), [Path(one.name).name for one in report.failures]) == (19, ["trajectory-3"])


def test_what_is_damaged_is_left_out_of_an_export_and_named(bank, tmp_path):
    change_record(bank.folder.trajectory("trajectory-3"))
    change_row(bank, "trajectory-4", "vector")
    change_row(bank, "trajectory-5", "instruction")
    report = export_bank(bank, tmp_path / "out")
    reasons = {failure.name: failure.reason for failure in report.failures}
    assert (report.num_trajectories, sorted(reasons)) == (17, ["trajectory-3", "trajectory-4", "trajectory-5"])
    assert "focusmem bank add" in reasons["trajectory-3"]
    assert "focusmem bank reembed" in reasons["trajectory-4"]
    assert check_bank(open_bank(tmp_path / "out")).failures == ()


def test_what_a_killed_export_left_is_cleared_by_the_next(bank, tmp_path):
    left = tmp_path / ".out.0123456789ab.partial" / "trajectories"
    left.mkdir(parents=True)
    (left / "half").write_text("half")
    export_bank(bank, tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bank", "other"]


def test_what_comes_later_can_be_added_to_what_was_imported(export, tmp_path, embedder):
    import_bank(tmp_path / "new", export)
    Bank.open(tmp_path / "new").add([make_stored(99)], embedder)
    assert Bank.open(tmp_path / "new").stats().num_trajectories == 21
