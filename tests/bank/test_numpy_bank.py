import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from banks import WordEmbedder, ids_of, make_many, make_stored
from focusmem.bank import Bank, Query, RetrievalConfig
from focusmem.bank.exchange import export_bank, import_bank
from focusmem.bank.numpy_bank import NumpyBank
from focusmem.bank.opening import open_bank
from focusmem.errors import ConfigError, RecordError, StorageError
from focusmem.schemas import Annotations

OUTCOMES = ("success", "failure", "error", "not_judged")
THINGS = ("lamp", "mug", "chair")
SOURCES = ("ours", "theirs")

stored_trajectories = st.lists(
    st.builds(
        dict,
        instruction=st.sampled_from([f"How much is the {thing}?" for thing in THINGS] + ["Buy a mug", "Look around"]),
        task_id=st.sampled_from([f"shop/{number}" for number in range(4)]),
        outcome=st.sampled_from(OUTCOMES),
        source=st.sampled_from(SOURCES),
        annotations=st.builds(
            Annotations,
            instance=st.sampled_from([None, *THINGS]),
            template=st.sampled_from([None, "How much is the {}?", "Buy {}"]),
        ),
    ),
    max_size=8,
)
queries = st.none() | st.builds(
    Query,
    task_id=st.sampled_from([None, "shop/1", "shop/9"]),
    instruction=st.sampled_from([None, "How much is the table?", "buy a spoon"]),
    instance=st.sampled_from([None, "Lamp"]),
    template=st.sampled_from([None, "Buy {}"]),
)
searches = st.lists(
    st.tuples(
        queries,
        st.fixed_dictionaries(
            {
                "outcomes": st.none() | st.sets(st.sampled_from(OUTCOMES)),
                "sources": st.none() | st.sets(st.sampled_from(SOURCES)),
            }
        ),
        st.integers(1, 9),
    ),
    min_size=1,
    max_size=6,
)


def told(removed):
    ids = {key: removed.ids(key) for key in removed.num_by_key}
    return removed.num_candidates, removed.num_removed, removed.num_by_key, ids


@settings(max_examples=15)
@given(stored_trajectories, searches, st.sampled_from([[], ["spoon", "mug"]]))
def test_a_numpy_bank_finds_what_the_vector_store_finds(records, asked, catalogue):
    embedder = WordEmbedder(width=24)
    items = [make_stored(number, num_steps=1, **record) for number, record in enumerate(records)]
    with tempfile.TemporaryDirectory() as folder:
        stored = Bank.create(Path(folder) / "bank", embedder, catalogue=catalogue)
        stored.add(items, embedder)
        sketched = Bank.open(Path(folder) / "bank", config=RetrievalConfig(max_exact_bytes=0))
        export_bank(stored, Path(folder) / "export")
        numpy_bank = open_bank(Path(folder) / "export")
        assert isinstance(numpy_bank, NumpyBank)
        assert (numpy_bank.entries(), numpy_bank.sites()) == (stored.entries(), stored.sites())
        for number, (query, among, top) in enumerate(asked):
            vector = embedder.vector(f"mug {number}")
            expected = stored.search(vector, query, top, **among)
            hits = numpy_bank.search(vector, query, top, **among)
            assert hits.hits == expected.hits
            assert hits.is_exact
            assert told(hits.removed) == told(expected.removed)
            roughly = sketched.search(vector, query, top, **among)
            assert [hit.score for hit in roughly.hits] == pytest.approx([hit.score for hit in hits.hits], abs=1e-5)
            assert told(roughly.removed) == told(expected.removed)


@settings(max_examples=25)
@given(stored_trajectories, queries, st.sets(st.sampled_from(OUTCOMES)), st.sets(st.sampled_from(SOURCES)))
def test_a_search_for_outcomes_and_sources_equals_a_bank_of_these_alone(records, query, outcomes, sources):
    embedder = WordEmbedder(width=24)
    items = [make_stored(number, num_steps=1, **record) for number, record in enumerate(records)]
    records = [(item, item.trajectory) for item in items]
    wanted = [item for item, one in records if one.outcome in outcomes and one.source in sources]
    whole, part = (in_memory(own, embedder) for own in (items, wanted))
    vector = embedder.vector("mug")
    found = whole.search(vector, query, 9, outcomes=outcomes, sources=sources)
    expected = part.search(vector, query, 9)
    # A product of other matrices may differ in its last digit.
    assert {hit.trajectory_id: hit.score for hit in found.hits} == pytest.approx(
        {hit.trajectory_id: hit.score for hit in expected.hits}, abs=1e-6
    )
    assert told(found.removed) == told(expected.removed)


def in_memory(items, embedder):
    from focusmem.bank.reports import Entry

    by_id = {item.trajectory.trajectory_id: item for item in items}
    vectors = embedder.embed_trajectories(items) if items else np.empty((0, embedder.width), np.float32)
    entries = [Entry.of(item.trajectory) for item in items]
    return NumpyBank(entries, vectors, by_id.__getitem__, embedder=embedder.identity, name="here")


@pytest.fixture
def embedder():
    return WordEmbedder()


@pytest.fixture
def export(tmp_path, embedder):
    bank = Bank.create(tmp_path / "bank", embedder)
    bank.add(make_many(6), embedder)
    export_bank(bank, tmp_path / "export")
    return tmp_path / "export"


def test_trajectories_come_back_whole(export):
    stored = make_stored(3)
    loaded = open_bank(export).load("trajectory-3")
    assert loaded.trajectory == stored.trajectory
    assert dict(loaded.screenshots) == stored.screenshots
    with pytest.raises(StorageError, match="has no trajectory 'nobody'"):
        open_bank(export).load("nobody")
    with pytest.raises(RecordError, match="cannot be the id"):
        open_bank(export).load("../etc")


def test_statistics_are_those_of_the_bank(export, tmp_path):
    ours, theirs = open_bank(export).stats(), open_bank(tmp_path / "bank").stats()
    assert ours.path == str(export)
    for name in ("embedder", "width", "num_trajectories", "num_steps", "is_exact", "num_by_site", "num_by_outcome"):
        assert getattr(ours, name) == getattr(theirs, name), name


@pytest.mark.parametrize("form", ["bank", "export"])
def test_what_cannot_be_searched_is_refused(export, tmp_path, embedder, form):
    bank = open_bank(tmp_path / form)
    for vector, message in (
        (np.ones(7), "7 numbers wide"),
        (np.zeros(96), "has no direction"),
        (np.full(96, np.inf), "has no direction"),
    ):
        with pytest.raises(ConfigError, match=message):
            bank.search(vector, None)
    with pytest.raises(ConfigError, match="at least 1"):
        bank.search(np.ones(96), None, top=0)
    with pytest.raises(ConfigError, match="outcomes names 'won'; choose among success, failure"):
        bank.search(np.ones(96), None, outcomes=["won"])
    bank.check_embedder(embedder.identity)
    with pytest.raises(StorageError, match=r"another embedder \(words-1, not words-2\).*focusmem bank"):
        bank.check_embedder("words-2")


def test_a_damaged_vector_is_named(export):
    vectors = np.load(export / "vectors.npy")
    vectors[2] *= 2
    np.save(export / "vectors.npy", vectors)
    with pytest.raises(RecordError, match=r"vectors of these .* are damaged: trajectory-\d\."):
        open_bank(export)


def test_an_export_is_not_changed(export, embedder):
    before = sorted(export.rglob("*"))
    for attempt in (
        lambda: Bank.create(export, embedder),
        lambda: Bank.open(export),
        lambda: import_bank(export, export),
    ):
        with pytest.raises(StorageError, match=f"focusmem bank import NEW {export}"):
            attempt()
    assert sorted(export.rglob("*")) == before


def test_a_folder_of_neither_form_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(StorageError, match=r"neither bank.json nor export.json.*focusmem bank add"):
            open_bank(folder)


def test_an_export_needs_no_vector_store(export):
    code = f"""
import sys
sys.modules.update(dict.fromkeys(["lancedb", "pyarrow", "filelock"]))
import numpy as np
from focusmem.bank import Query
from focusmem.bank.opening import open_bank
bank = open_bank({str(export)!r})
hits = bank.search(bank.vectors_ND[0], Query(task_id="shop/1"), 9).hits
print(len(hits), dict(bank.load(hits[0].trajectory_id).screenshots) != {{}})
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["5", "True"]


def test_ids_keep_the_order_of_the_vectors(embedder):
    items = make_many(5)[::-1]
    bank = in_memory(items, embedder)
    assert bank.candidates.ids_N.tolist() == ids_of(items)
    assert [entry.trajectory_id for entry in bank.entries()] == sorted(ids_of(items))
