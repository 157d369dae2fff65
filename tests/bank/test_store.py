import json
import logging
import re
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from banks import WordEmbedder, ids_of, make_many, make_stored
from damage import (
    bytes_in_table,
    change_record,
    change_row,
    change_screenshot,
    cut_record,
    damage_manifest,
    flip,
    lose_record,
    lose_screenshot,
    replace_by_link,
    replace_by_pipe,
)
from factories import make_screenshot
from focusmem.bank import Bank, Query, RetrievalConfig
from focusmem.bank.checking import check_bank
from focusmem.bank.exchange import export_bank
from focusmem.errors import ConfigError, MissingPackageError, RecordError, StorageError
from focusmem.schemas import Annotations, StoredTrajectory, check_trajectory

SKETCHES = RetrievalConfig(max_exact_bytes=0)


@pytest.fixture
def embedder():
    return WordEmbedder()


@pytest.fixture
def bank(tmp_path, embedder):
    bank = Bank.create(tmp_path / "bank", embedder)
    bank.add(make_many(8), embedder)
    return bank


def found(bank, text, query=None, top=3, embedder=None):
    hits = bank.search((embedder or WordEmbedder()).vector(text), query, top).hits
    return [hit.trajectory_id for hit in hits]


def files_of(bank):
    return sorted(path.relative_to(bank.folder.path) for path in bank.folder.path.rglob("*") if path.is_file())


# Adding and reading


def test_what_is_added_comes_back_whole(bank):
    stored = make_stored(3)
    loaded = bank.load("trajectory-3")
    assert loaded.trajectory == stored.trajectory
    assert dict(loaded.screenshots) == stored.screenshots
    assert check_trajectory(bank.folder.trajectory("trajectory-3")) == []


def test_entries_and_stats(bank, embedder):
    assert [entry.trajectory_id for entry in bank.entries()] == sorted(ids_of(make_many(8)))
    first = bank.entries()[0]
    assert (first.task_id, first.num_steps, first.outcome) == ("shop/0", 2, "success")
    stats = bank.stats()
    assert (stats.num_trajectories, stats.num_steps, stats.num_without_vector) == (8, 16, 0)
    assert (stats.embedder, stats.num_by_outcome) == (embedder.identity, {"success": 8})


def test_adding_again_changes_nothing_and_embeds_nothing(bank, embedder):
    before, num_embedded, version = files_of(bank), embedder.num_embedded, bank.vectors.newest_version()
    report = bank.add(make_many(8), embedder)
    assert (report.added, len(report.known), report.failures) == ((), 8, ())
    assert (files_of(bank), embedder.num_embedded) == (before, num_embedded)
    assert bank.vectors.newest_version() == version


def test_the_same_trajectory_twice_in_one_call(tmp_path, embedder):
    bank = Bank.create(tmp_path / "bank", embedder)
    report = bank.add([make_stored(0), make_stored(0)], embedder)
    assert (report.added, report.known) == (("trajectory-0",), ("trajectory-0",))
    assert bank.vectors.num_rows() == 1


def test_another_trajectory_under_a_known_id_is_refused(bank, embedder):
    other = make_stored(3, instruction="Something else")
    report = bank.add([other, make_stored(9)], embedder)
    assert report.added == ("trajectory-9",)
    [failure] = report.failures
    assert failure.name == "trajectory-3"
    assert f"focusmem bank delete {bank.folder.path} trajectory-3" in failure.reason
    assert bank.load("trajectory-3").trajectory == make_stored(3).trajectory


def test_what_cannot_be_read_or_embedded_is_left_out_and_told(bank, embedder):
    bare = StoredTrajectory(make_stored(11).trajectory, {})
    swapped = make_stored(12)
    swapped = StoredTrajectory(swapped.trajectory, dict.fromkeys(swapped.screenshots, make_screenshot(999)))
    odd = make_stored(13, instruction="unembeddable")
    report = bank.add([make_stored(10), bare, swapped, odd, make_stored(14)], embedder)
    assert report.added == ("trajectory-10", "trajectory-14")
    assert [failure.name for failure in report.failures] == ["trajectory-11", "trajectory-12", "trajectory-13"]
    assert "was not given" in report.failures[0].reason
    assert "other content" in report.failures[1].reason
    assert report.failures[2].reason == "This trajectory cannot be embedded."


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0, 3.0])
def test_a_vector_that_points_nowhere_fails_alone(bank, bad):
    class Odd(WordEmbedder):
        def vector(self, text):
            return super().vector(text) * np.float32(bad if "odd" in text else 1)

    with np.errstate(invalid="ignore"):
        report = bank.add([make_stored(10), make_stored(11, instruction="odd"), make_stored(12)], Odd())
    assert report.added == ("trajectory-10", "trajectory-12")
    [failure] = report.failures
    assert failure.name == "trajectory-11"
    assert "vector" in failure.reason


def test_files_that_were_lost_can_be_added_again(bank, embedder):
    shutil.rmtree(bank.folder.trajectory("trajectory-3"))
    other = bank.add([make_stored(3, instruction="Something else")], embedder)
    assert [failure.name for failure in other.failures] == ["trajectory-3"]
    report = bank.add(make_many(8), embedder)
    assert (report.added, len(report.known)) == (("trajectory-3",), 7)
    assert check_trajectory(bank.folder.trajectory("trajectory-3")) == []
    assert (bank.vectors.num_rows(), bank.stats().num_without_vector) == (8, 0)
    assert bank.add(make_many(8), embedder).added == ()


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (np.ones((1, 5)), "the bank needs 1x96"),
        (np.ones((1, 96)), "length one"),
        (np.full((1, 96), np.nan), "length one"),
        (np.zeros((1, 96)), "length one"),
    ],
)
def test_bad_vectors_are_refused(bank, embedder, vectors, message):
    with pytest.raises(ConfigError, match=message):
        bank.add_vectors([make_stored(20)], vectors, embedder.identity)
    assert bank.vectors.num_rows() == 8


def test_vectors_of_another_embedder_are_refused(bank):
    other = WordEmbedder("words-2")
    for attempt in (
        lambda: bank.add([make_stored(20)], other),
        lambda: bank.add_vectors([make_stored(20)], other.vector("x")[None], other.identity),
        lambda: Bank.create(bank.folder.path, other),
    ):
        with pytest.raises(StorageError, match=r"another embedder \(words-1, not words-2\).*focusmem bank reembed"):
            attempt()


# Searching


@pytest.mark.parametrize("config", [RetrievalConfig(), SKETCHES])
def test_the_nearest_come_first(bank, config):
    bank = Bank.open(bank.folder.path, config=config)
    result = bank.search(WordEmbedder().vector("How much is the thingfa?"), None, 4)
    assert [hit.trajectory_id for hit in result.hits][:2] == ["trajectory-5", "trajectory-0"]
    assert [hit.rank for hit in result.hits] == [0, 1, 2, 3]
    scores = [hit.score for hit in result.hits]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(1, abs=1e-5)
    assert result.is_exact == (config is not SKETCHES)


@pytest.mark.parametrize("config", [RetrievalConfig(), SKETCHES])
def test_the_guard_comes_before_the_ranking(bank, config):
    bank = Bank.open(bank.folder.path, config=config)
    text = "How much is the thingfa?"
    query = Query(task_id="shop/0", instance="Thingfa")
    result = bank.search(WordEmbedder().vector(text), query, 3)
    names = [hit.trajectory_id for hit in result.hits]
    assert len(names) == 3, "three of what remains, not what remains of three"
    assert not {"trajectory-0", "trajectory-5"} & set(names)
    assert result.removed.ids("task") == ("trajectory-0",)
    assert result.removed.ids("instance") == ("trajectory-5",)
    assert (result.removed.num_candidates, result.removed.num_removed) == (8, 2)


def test_a_template_removes_its_whole_kind(tmp_path, embedder):
    bank = Bank.create(tmp_path / "bank", embedder)
    asked = ("How much is the Zebra?", "how much is the Mug", "How heavy is the Mug?", "How much is it?")
    bank.add([make_stored(n, instruction=text, annotations=Annotations()) for n, text in enumerate(asked)], embedder)
    result = bank.search(embedder.vector("x"), Query(instruction="How much is the Lamp?"), 8)
    assert result.removed.ids("template") == ("trajectory-0", "trajectory-1")
    assert {hit.trajectory_id for hit in result.hits} == {"trajectory-2", "trajectory-3"}


def test_fewer_are_found_when_fewer_remain(bank):
    assert len(found(bank, "thing", top=50)) == 8
    assert len(found(bank, "thing", Query(task_id="shop/1"), top=50)) == 7


def test_an_empty_bank_finds_nothing(tmp_path, embedder):
    for config in (RetrievalConfig(), SKETCHES):
        bank = Bank.create(tmp_path / "bank", embedder, config=config)
        assert bank.search(embedder.vector("x"), Query(task_id="a")).hits == ()
        assert bank.entries() == []


@pytest.mark.parametrize("config", [RetrievalConfig(), SKETCHES])
def test_searches_follow_what_others_add_and_delete(bank, embedder, config):
    reader = Bank.open(bank.folder.path, config=config)
    text = "How much is the thingza?"
    assert "trajectory-25" not in found(reader, text)
    bank.add([make_stored(25)], embedder)
    assert found(reader, text)[0] == "trajectory-25"
    bank.delete(["trajectory-25", "trajectory-1"])
    assert "trajectory-25" not in found(reader, text)
    bank.add(make_many(6, start=30), embedder)
    names = found(reader, text, top=99)
    assert sorted(names) == sorted(entry.trajectory_id for entry in bank.entries())
    for number in (0, 7, 33):
        stored = make_stored(number)
        assert found(reader, stored.trajectory.instruction)[0] == stored.trajectory.trajectory_id


def test_an_incremental_refresh_equals_a_fresh_start(bank, embedder):
    reader = Bank.open(bank.folder.path)
    for number in range(5):
        found(reader, "anything")
        bank.add(make_many(3, start=40 + 3 * number), embedder)
        bank.delete([f"trajectory-{40 + 3 * number}", f"trajectory-{number}"])
    for text in ("How much is the thingob?", "colours", "Buy"):
        query = Query(task_id="shop/41", instance="thingpb")
        vector = embedder.vector(text)
        followed, fresh = reader.search(vector, query, 9), Bank.open(bank.folder.path).search(vector, query, 9)
        assert {hit.trajectory_id: hit.score for hit in followed.hits} == pytest.approx(
            {hit.trajectory_id: hit.score for hit in fresh.hits}
        )
        assert set(followed.removed.ids("task")) == set(fresh.removed.ids("task"))


def test_whether_the_bank_changed_is_asked_as_often_as_configured(bank, embedder):
    reader = Bank.open(bank.folder.path, config=RetrievalConfig(refresh_s=1000))
    assert len(found(reader, "x", top=99)) == 8
    bank.add([make_stored(25)], embedder)
    assert len(found(reader, "x", top=99)) == 8


@pytest.mark.parametrize(
    ("vector", "message"),
    [(np.ones(7), "7 numbers wide"), (np.zeros(96), "has no direction"), (np.full(96, np.inf), "has no direction")],
)
def test_bad_queries_are_refused(bank, vector, message):
    with pytest.raises(ConfigError, match=message):
        bank.search(vector, None)
    with pytest.raises(ConfigError, match="at least 1"):
        bank.search(np.ones(96), None, top=0)


def test_the_catalogue_is_kept_and_reaches_stored_rows(bank, embedder):
    """Rows that were written under other rules get their keys anew."""
    bank.add([make_stored(50, instruction="what does thingone cost", annotations=Annotations())], embedder)
    query = Query(instruction="What does thingtwo cost?")
    vector = embedder.vector("what does thingone cost")
    assert bank.search(vector, query).removed.num_removed == 0
    for config in (RetrievalConfig(), SKETCHES):
        widened = Bank.create(bank.folder.path, embedder, catalogue=["Thingone", "thingtwo"], config=config)
        assert widened.search(vector, query).removed.ids("template") == ("trajectory-50",)
    assert Bank.open(bank.folder.path).search(vector, query).removed.num_removed == 1
    assert widened.stats().num_catalogue_names == 2


def test_vectors_may_lie_elsewhere(tmp_path, embedder):
    for place in (str(tmp_path / "elsewhere"), f"file://{tmp_path}/address"):
        bank = Bank.create(tmp_path / f"bank{len(place)}", embedder, vectors=place)
        bank.add(make_many(2), embedder)
        assert not (bank.folder.path / "vectors").exists()
        assert len(found(Bank.open(bank.folder.path), "x")) == 2


def test_a_plain_folder_for_vectors_is_meant_from_here(tmp_path, embedder, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    bank = Bank.create(tmp_path / "bank", embedder, vectors="vecs")
    bank.add(make_many(2), embedder)
    assert bank.manifest.vectors == str(tmp_path / "here" / "vecs")
    assert (tmp_path / "here" / "vecs").is_dir()
    assert not (tmp_path / "bank" / "vecs").exists()
    Bank.create(tmp_path / "bank", embedder, vectors="vecs")
    monkeypatch.chdir(tmp_path)
    assert len(found(Bank.open("bank"), "x")) == 2
    with pytest.raises(StorageError, match="cannot be moved"):
        Bank.create("bank", embedder, vectors="vecs")


def test_a_plain_folder_in_the_manifest_lies_in_the_bank(tmp_path, embedder):
    """As banks that were made earlier say it."""
    bank = Bank.create(tmp_path / "bank", embedder, vectors=str(tmp_path / "bank" / "vecs"))
    bank.folder.write_manifest(bank.manifest.model_copy(update={"vectors": "vecs"}))
    assert Bank.create(tmp_path / "bank", embedder, vectors="vecs").place == str(tmp_path / "bank" / "vecs")


# Deleting


def test_deleting_removes_rows_files_and_bytes(bank, embedder):
    stored = make_stored(3)
    needle = embedder.vector(stored.trajectory.instruction).tobytes()

    def holds_vector():
        return [path for path in bank.folder.path.rglob("*") if path.is_file() and needle in path.read_bytes()]

    assert holds_vector()
    assert bank.delete(["trajectory-3"]).deleted == ("trajectory-3",)
    assert holds_vector() == [], "not even in files of older versions"
    assert "trajectory-3" not in found(bank, stored.trajectory.instruction, top=99)
    assert not any("trajectory-3" in str(path) for path in files_of(bank))
    with pytest.raises(StorageError, match="has no trajectory 'trajectory-3'"):
        bank.load("trajectory-3")


def test_deleting_tells_others_before_anything_is_gone(bank):
    told = []

    def on_delete(stored):
        told.append((stored.trajectory.trajectory_id, len(stored.screenshots), found(bank, "x", top=99)))

    bank.delete(["trajectory-2", "trajectory-6"], on_delete=on_delete)
    assert [entry[:2] for entry in told] == [("trajectory-2", 2), ("trajectory-6", 2)]
    assert "trajectory-6" in told[1][2]


def test_deleting_what_is_not_there_is_told(bank):
    done = bank.delete(["nobody", "trajectory-1", "trajectory-1"])
    assert (done.deleted, done.missing) == (("trajectory-1",), ("nobody",))
    assert bank.delete(["trajectory-1"]).missing == ("trajectory-1",)


def test_deleting_all_leaves_a_bank_that_works(bank, embedder):
    bank.delete(ids_of(make_many(8)))
    assert found(bank, "x") == []
    bank.add(make_many(2), embedder)
    assert len(found(bank, "x")) == 2


def test_a_damaged_trajectory_can_be_deleted(bank, caplog):
    (bank.folder.trajectory("trajectory-1") / "trajectory.json").write_text("{")
    with caplog.at_level(logging.WARNING):
        assert bank.delete(["trajectory-1"], on_delete=lambda stored: None).deleted == ("trajectory-1",)
    assert "cannot be found" in caplog.text


# Damage

RECORDS = (change_record, cut_record, lose_record)
SCREENSHOTS = (change_screenshot, lose_screenshot)


@pytest.mark.parametrize("damage", [*RECORDS, *SCREENSHOTS])
def test_a_damaged_trajectory_is_not_loaded(bank, damage):
    damage(bank.folder.trajectory("trajectory-1"))
    with pytest.raises(StorageError, match=r"trajectory-1 .*is damaged.*focusmem bank add .* focusmem bank delete"):
        dict(bank.load("trajectory-1").screenshots)


@pytest.mark.parametrize("damage", [*RECORDS, *SCREENSHOTS])
def test_adding_a_sound_copy_mends_a_damaged_trajectory(bank, embedder, damage):
    damage(bank.folder.trajectory("trajectory-1"))
    report = bank.add(make_many(8), embedder)
    assert (report.added, len(report.known), report.failures) == (("trajectory-1",), 7, ())
    assert dict(Bank.open(bank.folder.path).load("trajectory-1").screenshots) == make_stored(1).screenshots
    assert check_trajectory(bank.folder.trajectory("trajectory-1")) == []
    assert bank.add(make_many(8), embedder).added == ()


def test_a_damaged_copy_does_not_replace_a_sound_one(bank, embedder, tmp_path):
    change_record(bank.folder.trajectory("trajectory-1"))
    damaged = bank.folder.load("trajectory-1")
    bank.add([make_stored(1)], embedder)
    [failure] = bank.add([damaged], embedder).failures
    assert (failure.name, "has another trajectory" in failure.reason) == ("trajectory-1", True)
    assert bank.load("trajectory-1").trajectory == make_stored(1).trajectory


def test_a_record_that_was_only_written_differently_is_sound(bank):
    path = bank.folder.trajectory("trajectory-1") / "trajectory.json"
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert bank.load("trajectory-1").trajectory == make_stored(1).trajectory


def test_a_trajectory_that_others_delete_and_add_again_is_loaded_as_it_is_now(bank, embedder):
    reader = Bank.open(bank.folder.path)
    reader.load("trajectory-1")
    other = make_stored(1, instruction="Something else")
    bank.delete(["trajectory-1"])
    bank.add([other], embedder)
    assert reader.load("trajectory-1").trajectory == other.trajectory


@pytest.mark.parametrize("config", [RetrievalConfig(), SKETCHES])
@pytest.mark.parametrize("column", ["vector", "sketch", "guard", "task_key", "wording_key", "outcome"])
def test_no_search_uses_a_damaged_row(bank, embedder, config, column):
    change_row(bank, "trajectory-1", column)
    with pytest.raises(StorageError, match=r"changed: trajectory-1\. .*focusmem bank reembed"):
        found(Bank.open(bank.folder.path, config=config), "x", top=99)


@pytest.mark.parametrize("column", ["instruction", "content", "site", "num_steps", "source"])
def test_no_list_shows_a_damaged_row(bank, column):
    change_row(bank, "trajectory-1", column)
    with pytest.raises(StorageError, match=r"changed: trajectory-1\. .*focusmem bank reembed"):
        bank.entries()


@pytest.mark.parametrize("config", [RetrievalConfig(), SKETCHES])
def test_flipped_bits_of_a_vector_on_disk_are_seen(bank, embedder, config):
    """Signs, exponents and the last digits: those keep the vector's length."""
    place, start = bytes_in_table(bank, embedder.vector(make_stored(3).trajectory.instruction).tobytes())
    for bit in (0, 9, 22, 30, 31, 96 * 32 - 1):
        flip(place, start + bit // 8, bit % 8)
        with pytest.raises(StorageError, match=r"changed: trajectory-3\. "):
            found(Bank.open(bank.folder.path, config=config), "x", top=99)
        flip(place, start + bit // 8, bit % 8)
    assert len(found(Bank.open(bank.folder.path, config=config), "x", top=99)) == 8


def test_a_damaged_row_that_follows_is_not_used_either(bank, embedder):
    reader = Bank.open(bank.folder.path)
    assert len(found(reader, "x", top=99)) == 8
    bank.add([make_stored(9)], embedder)
    change_row(bank, "trajectory-9", "vector")
    with pytest.raises(StorageError, match=r"changed: trajectory-9\. "):
        found(reader, "x")


@pytest.mark.parametrize("column", ["vector", "sketch", "instruction", "content", "guard"])
def test_adding_again_mends_a_damaged_row(bank, embedder, column):
    change_row(bank, "trajectory-1", column)
    assert bank.add(make_many(8), embedder).added == ("trajectory-1",)
    assert len(found(Bank.open(bank.folder.path), "x", top=99)) == len(bank.entries()) == 8
    assert bank.damaged() == []


def test_a_panic_of_the_vector_store_is_an_error_that_says_what_to_do(bank, embedder):
    damage_manifest(bank)
    bank = Bank.open(bank.folder.path)
    for attempt in (bank.entries, lambda: found(bank, "x"), lambda: bank.add([make_stored(9)], embedder)):
        with pytest.raises(StorageError, match=r"missing or damaged.*focusmem bank reembed"):
            attempt()


@pytest.mark.hostile
@pytest.mark.parametrize("replace", [replace_by_pipe, replace_by_link])
@pytest.mark.parametrize("pattern", ["*/data/*.lance", "*/_versions/*.manifest", "*/_transactions/*"])
def test_only_ordinary_files_of_a_table_are_opened(bank, embedder, tmp_path, pattern, replace):
    """LanceDB would wait for the other end of a pipe for ever, and would follow a link."""
    path = min((bank.folder.path / "vectors").glob(pattern))
    replace(path)
    attempts = [
        *(Bank.stats, Bank.entries, lambda bank: bank.load("trajectory-1"), lambda bank: found(bank, "x")),
        *(check_bank, lambda bank: export_bank(bank, tmp_path / "out"), lambda bank: bank.add(make_many(1), embedder)),
    ]
    for attempt in attempts:
        with pytest.raises(StorageError, match=f"{re.escape(str(path))} should be an ordinary file.*bank reembed"):
            attempt(Bank.open(bank.folder.path))


def test_a_damaged_manifest_says_what_to_do(bank):
    (bank.folder.path / "bank.json").write_text("{")
    with pytest.raises(RecordError, match=r"focusmem bank import NEW .*trajectories --embedder"):
        Bank.open(bank.folder.path)


# Hostile and unlucky things


@pytest.mark.parametrize("name", ["../../etc", "a/b", "", ".", "..", "a\0b", "x" * 300, "' OR 1=1 --"])
def test_names_cannot_leave_the_folder(bank, name):
    for attempt in (bank.load, lambda name: bank.delete([name])):
        with pytest.raises(RecordError, match="cannot be the id"):
            attempt(name)
    assert bank.vectors.num_rows() == 8


def test_strange_texts_are_kept_as_they_are(bank, embedder):
    text = "'); DROP TABLE vectors; -- \u202e \U0001f600 {{task}} %s"
    stored = make_stored(60, instruction=text, task_id=text, site="'", source='"')
    assert bank.add([stored], embedder).added == ("trajectory-60",)
    entry = next(entry for entry in bank.entries() if entry.trajectory_id == "trajectory-60")
    assert (entry.instruction, entry.task_id, entry.site) == (text, text, "'")
    assert bank.search(embedder.vector(text), Query(task_id=text)).removed.ids("task") == ("trajectory-60",)


def test_a_link_in_place_of_a_trajectory_is_not_followed(bank, embedder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    (bank.folder.path / "trajectories" / "trajectory-70").symlink_to(outside)
    report = bank.add([make_stored(70)], embedder)
    assert [failure.name for failure in report.failures] == ["trajectory-70"]
    bank.delete(["trajectory-70"])
    assert (outside / "precious").read_text() == "x"


def test_a_folder_with_another_trajectory_inside_is_refused(bank):
    bank.folder.trajectory("trajectory-1").rename(bank.folder.trajectory("impostor"))
    with pytest.raises(RecordError, match="under another name"):
        bank.load("impostor")


def test_no_bank_and_a_bank_of_a_newer_version(tmp_path, bank):
    with pytest.raises(StorageError, match=r"There is no bank at .*focusmem bank add"):
        Bank.open(tmp_path / "nowhere")
    path = bank.folder.path / "bank.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 2}))
    with pytest.raises(RecordError, match="has schema_version 2, but this focusmem reads 1; update focusmem"):
        Bank.open(bank.folder.path)


def test_a_folder_of_trajectories_is_not_taken_for_a_new_bank(bank, embedder):
    (bank.folder.path / "bank.json").unlink()
    with pytest.raises(StorageError, match="lost its manifest"):
        Bank.create(bank.folder.path, embedder)


def damage_by_deleting(folder):
    for path in sorted(folder.rglob("*.lance"), reverse=True):
        if path.is_file():
            path.unlink()


def damage_by_cutting(folder):
    for path in folder.rglob("*.lance"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:100])


def damage_the_list_of_versions(folder):
    for path in folder.rglob("*.manifest"):
        path.write_bytes(b"xx")


def remove_the_table(folder):
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "damage", [damage_by_deleting, damage_by_cutting, damage_the_list_of_versions, remove_the_table]
)
def test_a_damaged_or_missing_table_says_what_to_do(bank, embedder, damage):
    damage(bank.folder.path / "vectors")
    bank = Bank.open(bank.folder.path)
    for attempt in (
        lambda: found(bank, "x"),
        bank.entries,
        lambda: bank.add([make_stored(80)], embedder),
        lambda: bank.delete(["trajectory-1"]),
    ):
        with pytest.raises(StorageError, match=r"missing or damaged.*focusmem bank reembed"):
            attempt()
    assert bank.folder.load("trajectory-1").trajectory == make_stored(1).trajectory, "trajectories are still there"


def test_lancedb_that_is_not_installed_is_named(bank, monkeypatch):
    monkeypatch.setitem(sys.modules, "lancedb", None)
    with pytest.raises(MissingPackageError, match=r"pip install lancedb"):
        Bank.open(bank.folder.path).entries()


def test_vectors_are_not_moved_silently(bank, embedder, tmp_path):
    with pytest.raises(StorageError, match="lie at vectors and cannot be moved"):
        Bank.create(bank.folder.path, embedder, vectors=str(tmp_path / "elsewhere"))


@pytest.mark.parametrize("config", [RetrievalConfig(), SKETCHES])
def test_threads_may_share_a_bank(bank, embedder, config):
    shared = Bank.open(bank.folder.path, config=config)
    stays = {f"trajectory-{number}" for number in range(8)}
    is_over = threading.Event()

    def keep_searching(number):
        num_searches = 0
        while not is_over.is_set():
            text = make_stored(number).trajectory.instruction
            assert found(shared, text)[0] == f"trajectory-{number}"
            num_searches += 1
        return num_searches

    def write():
        try:
            for number in range(30, 36):
                shared.add([make_stored(number, num_steps=1)], embedder)
                shared.delete([f"trajectory-{number}"])
        finally:
            is_over.set()

    with ThreadPoolExecutor(4) as pool:
        searches = [pool.submit(keep_searching, number) for number in range(3)]
        pool.submit(write).result()
        assert all(search.result() for search in searches)
    assert {entry.trajectory_id for entry in shared.entries()} == stays
