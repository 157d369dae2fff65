import threading

import numpy as np
import pytest

from agent.decisions import make_decision
from banks import WordEmbedder, make_many, make_stored
from factories import make_screenshot
from focusmem.agent.bank_retriever import BankRetriever
from focusmem.bank import Bank, Query
from focusmem.errors import ConfigError, StorageError
from focusmem.schemas import LeftOut, Observation

OUTCOMES = ("success", "failure", "error", "not_judged")


class CountingEmbedder(WordEmbedder):
    """Notes the moments it was given, call by call."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def embed_queries(self, moments):
        self.calls.append(list(moments))
        return super().embed_queries(moments)


@pytest.fixture
def embedder():
    return CountingEmbedder()


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    bank = Bank.create(tmp_path_factory.mktemp("retriever") / "bank", WordEmbedder())
    items = make_many(6)
    items += [make_stored(10 + number, outcome=outcome) for number, outcome in enumerate(OUTCOMES)]
    bank.add(items, WordEmbedder())
    return bank


def at(number=0, *, instruction="Where is the thingzz made?", screen=0, **changes):
    decision = make_decision(number, **changes)
    task = decision.task.model_copy(update={"instruction": instruction})
    seen = Observation(make_screenshot(900 + screen), "", "", ())
    return type(decision)(task, decision.episode_id, seen, decision.steps, decision.screenshots, decision.is_guarded)


def names(search):
    return [one.hit.trajectory_id for one in search.found]


def test_it_finds_what_the_bank_finds_each_with_its_trajectory(bank, embedder):
    retriever = BankRetriever(bank, embedder)
    one, other = at(), at(1, instruction="How much is the lamp?")
    for decision, search in zip((one, other), retriever.find([one, other], 3), strict=True):
        vector = WordEmbedder().vector(decision.task.instruction)
        hits = bank.search(vector, Query.of(decision.task), 3)
        assert tuple(found.hit for found in search.found) == hits.hits
        assert search.num_removed == {}
        for found in search.found:
            assert found.stored.trajectory == bank.load(found.hit.trajectory_id).trajectory
    assert retriever.identity == embedder.identity
    assert retriever.find([], 3) == []


def test_equal_moments_are_embedded_once(bank, embedder):
    retriever = BankRetriever(bank, embedder)
    retriever.find([at(), at(), at(screen=1)], 2)
    assert [len(call) for call in embedder.calls] == [2]
    first, second = (names(search) for search in retriever.find([at(screen=1), at(screen=2)], 2))
    assert [len(call) for call in embedder.calls] == [2, 1]
    assert first == second
    retriever.find([at(num_steps=2), at(num_steps=3), at(num_steps=3)], 2)
    assert [len(call) for call in embedder.calls] == [2, 1, 2]
    retriever.find([at(screen=2)], 2)
    assert len(embedder.calls) == 3


def test_many_moments_are_forgotten_the_oldest_first(bank, embedder, monkeypatch):
    monkeypatch.setattr("focusmem.agent.bank_retriever._NUM_QUERIES_KEPT", 3)
    retriever = BankRetriever(bank, embedder)
    decisions = [at(screen=screen) for screen in range(5)]
    together = retriever.find(decisions, 2)
    assert [names(search) for search in together] == [names(retriever.find([one], 2)[0]) for one in decisions]
    assert [len(call) for call in embedder.calls] == [5, *[1] * 5]
    retriever.find(decisions[2:], 2)
    assert len(embedder.calls) == 6


def test_only_the_wanted_outcomes_are_found(bank, embedder):
    everything = BankRetriever(bank, embedder).find([at()], 20)[0]
    assert {one.stored.trajectory.outcome for one in everything.found} == set(OUTCOMES)
    for outcomes in (("success",), ("failure", "error")):
        [search] = BankRetriever(bank, embedder, outcomes=outcomes).find([at()], 20)
        expected = [name for name in names(everything) if bank.load(name).trajectory.outcome in outcomes]
        assert names(search) == expected != []


def test_only_trusted_sources_are_found_as_long_as_they_are_trusted(tmp_path, embedder):
    bank = Bank.create(tmp_path / "bank", embedder)
    bank.add([make_stored(number, source=("ours", "theirs")[number % 2]) for number in range(6)], embedder)
    with pytest.raises(ConfigError, match="focusmem bank trust"):
        BankRetriever(bank, embedder, only_trusted=True)
    bank.trust(["ours"])
    retriever = BankRetriever(bank, embedder, only_trusted=True)
    [search] = retriever.find([at()], 9)
    assert [one.stored.trajectory.source for one in search.found] == ["ours"] * 3
    Bank.open(tmp_path / "bank").trust(["theirs"])
    [search] = retriever.find([at()], 9)
    assert [one.stored.trajectory.source for one in search.found] == ["theirs"] * 3
    assert len(BankRetriever(bank, embedder).find([at()], 9)[0].found) == 6


def test_a_search_tells_what_did_not_fit_into_its_query(bank):
    class Small(WordEmbedder):
        def left_out_of_query(self, moment):
            return LeftOut(num_frames=max(0, len(moment.digests) - 3))

    retriever = BankRetriever(bank, Small())
    for _ in range(2):  # embedded, then known
        searches = retriever.find([at(num_steps=2), at(num_steps=5)], 1)
        assert [search.left_out for search in searches] == [None, LeftOut(num_frames=1)]


def test_what_could_give_the_task_away_is_removed_and_counted(bank, embedder):
    retriever = BankRetriever(bank, embedder)
    stored = make_stored(1)
    task = make_decision().task.model_copy(
        update={"instruction": "Where is the thingba made?", "annotations": stored.trajectory.annotations}
    )
    seen = make_decision().seen
    guarded, free = retriever.find(
        [type(make_decision())(task, "a", seen), type(make_decision())(task, "b", seen, is_guarded=False)], 20
    )
    assert "trajectory-1" not in names(guarded)
    assert guarded.num_removed == {"instance": 1, "template": 1}
    assert guarded.removed.ids("instance") == ("trajectory-1",)
    assert names(free)[0] == "trajectory-1"
    assert free.num_removed == {}


def test_a_trajectory_is_read_once_and_outlives_the_bank(tmp_path, embedder):
    bank = Bank.create(tmp_path / "bank", embedder)
    bank.add(make_many(2), embedder)
    retriever = BankRetriever(bank, embedder)
    [search] = retriever.find([at()], 2)
    for path in bank.folder.path.rglob("*.png"):
        path.unlink()
    [again] = retriever.find([at()], 2)
    assert [one.stored for one in again.found] == [one.stored for one in search.found]
    stored = retriever.load("trajectory-0")
    assert set(stored.screenshots) == {step.screenshot.sha256 for step in stored.trajectory.steps}
    with pytest.raises(StorageError):
        BankRetriever(bank, embedder).load("trajectory-0")


def test_few_trajectories_are_kept(bank, embedder, monkeypatch):
    monkeypatch.setattr("focusmem.agent.bank_retriever._NUM_TRAJECTORIES_KEPT", 2)
    retriever = BankRetriever(bank, embedder)
    kept = {number: retriever.load(f"trajectory-{number}") for number in range(3)}
    assert retriever.load("trajectory-2") is kept[2]
    assert retriever.load("trajectory-1") is kept[1]
    assert retriever.load("trajectory-0") is not kept[0]


def test_threads_may_search_at_once(bank, monkeypatch):
    monkeypatch.setattr("focusmem.agent.bank_retriever._NUM_QUERIES_KEPT", 2)
    monkeypatch.setattr("focusmem.agent.bank_retriever._NUM_TRAJECTORIES_KEPT", 2)
    retriever = BankRetriever(bank, WordEmbedder())
    decisions = [at(number, instruction=f"Where is thing {number} made?") for number in range(6)]
    expected = [names(search) for search in retriever.find(decisions, 3)]
    found = {}

    def work(thread):
        found[thread] = [[names(search) for search in retriever.find(decisions, 3)] for _ in range(5)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [expected] * 5 for number in range(4)}


def test_what_does_not_belong_together_is_refused(bank, embedder):
    with pytest.raises(StorageError, match="words-2"):
        BankRetriever(bank, WordEmbedder("words-2"))
    with pytest.raises(ConfigError, match="asked for 0 trajectories"):
        BankRetriever(bank, embedder).find([at()], 0)


def test_an_embedder_of_another_width_is_noticed(bank):
    class Narrow(WordEmbedder):
        def embed_queries(self, moments):
            return np.ones((len(moments), 3), dtype=np.float32)

    with pytest.raises(ConfigError, match="3 numbers wide"):
        BankRetriever(bank, Narrow()).find([at()], 1)
