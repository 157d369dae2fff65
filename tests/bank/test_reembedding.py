import shutil
from pathlib import Path

import lancedb
import pytest

from banks import WordEmbedder, ids_of, make_many, make_stored
from damage import change_record, change_row, damage_manifest, replace_by_link, replace_by_pipe
from focusmem.bank import Bank, Query
from focusmem.bank.reembedding import reembed
from focusmem.bank.vectors import table_names
from focusmem.errors import StorageError

OLD, NEW = WordEmbedder(), WordEmbedder("words-2", width=40)


@pytest.fixture
def path(tmp_path):
    Bank.create(tmp_path / "bank", OLD).add(make_many(20, num_steps=1), OLD)
    return tmp_path / "bank"


def check_all_are_found(path, embedder, num):
    bank = Bank.open(path)
    assert (bank.manifest.embedder, bank.manifest.width) == (embedder.identity, embedder.width)
    assert (bank.stats().num_trajectories, bank.stats().num_without_vector) == (num, 0)
    for name in bank.folder.trajectory_ids():
        instruction = bank.load(name).trajectory.instruction
        assert bank.search(embedder.vector(instruction), None).hits[0].trajectory_id == name
    assert len(table_names(bank.place, "bank")) == 1


def test_another_embedder(path):
    report = reembed(path, NEW)
    assert (report.num_trajectories, report.num_embedded, report.failures) == (20, 20, ())
    check_all_are_found(path, NEW, 20)
    Bank.open(path).add([make_stored(30)], NEW)
    check_all_are_found(path, NEW, 21)
    assert Bank.open(path).search(NEW.vector("x"), Query(task_id="shop/4")).removed.num_removed == 1


def test_a_bank_that_is_open_meanwhile_says_so(path):
    bank = Bank.open(path)
    bank.search(OLD.vector("x"), None)
    reembed(path, NEW)
    for attempt in (
        lambda: bank.search(OLD.vector("x"), None),
        lambda: bank.add([make_stored(30)], OLD),
    ):
        with pytest.raises(StorageError, match=r"made again with another embedder|reembed"):
            attempt()


def test_the_same_embedder_does_nothing_unless_asked(path):
    embedder = WordEmbedder()
    assert reembed(path, embedder).num_embedded == 0
    assert reembed(path, embedder, is_fresh=True).num_embedded == 20
    check_all_are_found(path, OLD, 20)


def test_stopped_it_goes_on_where_it_was(path):
    class Stopping(WordEmbedder):
        def embed_trajectories(self, items):
            if self.num_embedded:
                raise KeyboardInterrupt
            return super().embed_trajectories(items)

    with pytest.raises(KeyboardInterrupt):
        reembed(path, Stopping("words-2", width=40))
    check_all_but_tables_are_old(path)
    report = reembed(path, NEW)
    assert report.num_embedded == 4, "sixteen were done before"
    check_all_are_found(path, NEW, 20)


def test_made_afresh_the_old_vectors_serve_until_the_new_ones_are_done(path):
    class Stopping(WordEmbedder):
        def embed_trajectories(self, items):
            check_all_but_tables_are_old(path)
            if self.num_embedded:
                raise KeyboardInterrupt
            return super().embed_trajectories(items)

    reader = Bank.open(path)
    with pytest.raises(KeyboardInterrupt):
        reembed(path, Stopping(), is_fresh=True)
    check_all_but_tables_are_old(path)
    Bank.open(path).delete(["trajectory-1"])
    report = reembed(path, WordEmbedder(), is_fresh=True)
    assert (report.num_trajectories, report.num_embedded) == (19, 4), "sixteen were done before"
    check_all_are_found(path, OLD, 19)
    assert len(reader.search(OLD.vector("x"), None, 99).hits) == 19


def test_made_afresh_vectors_are_other_ones(path):
    class Better(WordEmbedder):
        def vector(self, text):
            return -super().vector(text)

    reader = Bank.open(path)
    assert reader.search(OLD.vector("x"), None).hits[0].score > 0
    reembed(path, Better(), is_fresh=True)
    text = reader.load("trajectory-2").trajectory.instruction
    for bank in (reader, Bank.open(path)):
        assert bank.search(Better().vector(text), None).hits[0].score == pytest.approx(1, abs=1e-5)


def test_a_vector_that_is_no_number_is_told(path):
    class Odd(WordEmbedder):
        def vector(self, text):
            return super().vector(text) * (float("nan") if "thingda" in text else 1)

    report = reembed(path, Odd("words-2", width=40))
    assert (report.num_trajectories, [one.name for one in report.failures]) == (19, ["trajectory-3"])


def check_all_but_tables_are_old(path):
    bank = Bank.open(path)
    assert bank.manifest.embedder == OLD.identity
    assert len(bank.search(OLD.vector("x"), None, 99).hits) == 20


def test_what_is_added_and_deleted_meanwhile_is_not_forgotten(path):
    class Meddling(WordEmbedder):
        def embed_trajectories(self, items):
            if not self.num_embedded:
                bank = Bank.open(path)
                bank.add(make_many(2, start=50), OLD)
                bank.delete(["trajectory-0", "trajectory-19", items[3].trajectory.trajectory_id])
            return super().embed_trajectories(items)

    report = reembed(path, Meddling("words-2", width=40))
    assert report.failures == ()
    names = Bank.open(path).folder.trajectory_ids()
    assert {"trajectory-50", "trajectory-51"} <= set(names)
    assert "trajectory-0" not in names
    check_all_are_found(path, NEW, len(names))


@pytest.mark.parametrize("is_table_there", [True, False])
def test_it_mends_a_damaged_or_missing_table(path, is_table_there):
    if is_table_there:
        for file in (path / "vectors").rglob("*.lance"):
            if file.is_file():
                file.write_bytes(file.read_bytes()[:50])
    else:
        shutil.rmtree(path / "vectors")
    assert reembed(path, OLD).num_embedded == 20
    check_all_are_found(path, OLD, 20)


def test_it_mends_a_table_that_makes_the_vector_store_panic(path):
    damage_manifest(Bank.open(path))
    assert reembed(path, OLD).num_embedded == 20
    check_all_are_found(path, OLD, 20)


@pytest.mark.hostile
@pytest.mark.parametrize("replace", [replace_by_pipe, replace_by_link])
def test_it_replaces_a_table_with_a_pipe_or_a_link(path, replace):
    replace(min((path / "vectors").glob("*/data/*.lance")))
    assert reembed(path, OLD).num_embedded == 20
    check_all_are_found(path, OLD, 20)


def test_it_mends_a_table_of_which_an_older_version_is_damaged(path):
    """Nothing can be deleted from such a table, because its older versions cannot be dropped."""
    bank = Bank.open(path)
    bank.add([make_stored(20, num_steps=1)], OLD)
    oldest = max((path / "vectors").rglob("*.manifest"))
    oldest.write_bytes(oldest.read_bytes()[:50])
    with pytest.raises(StorageError, match=r"focusmem bank reembed.*The deletion is noted"):
        bank.delete(["trajectory-20"])
    assert reembed(path, OLD).num_embedded == 0
    check_all_are_found(path, OLD, 20)
    assert Bank.open(path).delete(["trajectory-1"]).deleted == ("trajectory-1",)


def test_it_makes_only_damaged_vectors_again(path):
    change_row(Bank.open(path), "trajectory-3", "vector")
    change_row(Bank.open(path), "trajectory-4", "instruction")
    assert reembed(path, OLD).num_embedded == 2
    check_all_are_found(path, OLD, 20)


@pytest.mark.parametrize("embedder", [OLD, NEW])
def test_damage_is_not_taken_for_the_content_of_a_trajectory(path, embedder):
    change_record(path / "trajectories" / "trajectory-3")
    change_row(Bank.open(path), "trajectory-3", "vector")
    report = reembed(path, embedder)
    assert (report.num_trajectories, [Path(one.name).name for one in report.failures]) == (19, ["trajectory-3"])
    assert "focusmem bank add" in report.failures[0].reason
    assert len(Bank.open(path).search(embedder.vector("x"), None, 99).hits) == 19


def test_it_gives_vectors_to_those_that_have_none(path):
    bank = Bank.open(path)
    bank.vectors.remove(["trajectory-3", "trajectory-4"])
    assert bank.stats().num_without_vector == 2
    assert reembed(path, OLD).num_embedded == 2
    check_all_are_found(path, OLD, 20)


def test_what_cannot_be_read_is_told_and_stays(path):
    (path / "trajectories" / "trajectory-5" / "trajectory.json").write_text("{")
    report = reembed(path, NEW)
    assert (report.num_trajectories, report.num_embedded) == (19, 19)
    [failure] = report.failures
    assert failure.name.endswith("trajectory-5")
    assert Bank.open(path).stats().num_without_vector == 1


def test_deletions_left_unfinished_are_finished(path):
    bank = Bank.open(path)
    bank.journal.note_deleting(["trajectory-2"])
    shutil.rmtree(path / "vectors")
    reembed(path, OLD)
    assert sorted(ids_of(make_many(20, num_steps=1))) != Bank.open(path).folder.trajectory_ids()
    check_all_are_found(path, OLD, 19)


def test_a_table_without_one_of_todays_columns_is_made_again(tmp_path):
    bank = Bank.create(tmp_path / "bank", WordEmbedder())
    bank.add(make_many(3), WordEmbedder())
    lancedb.connect(bank.place).open_table(bank.vectors.name).drop_columns(["num_frames_left_out"])
    with pytest.raises(StorageError, match="focusmem bank reembed"):
        Bank.open(tmp_path / "bank").entries()
    assert reembed(tmp_path / "bank", WordEmbedder()).num_embedded == 3
    assert [entry.num_frames_left_out for entry in Bank.open(tmp_path / "bank").entries()] == [1, 1, 1]
