"""What training on stored trajectories learns from: which trajectories, and what the bank has for their decisions."""

from dataclasses import replace

import pytest

from banks import WordEmbedder, make_many, make_stored
from focusmem.bank import Bank, Query
from focusmem.bank.forms import Moment
from focusmem.data.config import DataConfig
from focusmem.data.preparation import load_prepared, prepare
from focusmem.errors import ConfigError, StorageError
from focusmem.model.backbone import Backbone
from focusmem.schemas import Task
from stored_training import OWN, make_data, stored, write


@pytest.fixture(scope="module")
def policy():
    return Backbone.toy(num_layers=2)


@pytest.fixture
def data(tmp_path):
    return make_data(tmp_path)


class Interrupted(WordEmbedder):
    """Stops after some queries, as a person would."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.num_asked = most, 0

    def embed_queries(self, moments):
        self.num_asked += 1
        if self.num_asked > self.most:
            raise KeyboardInterrupt
        return super().embed_queries(moments)


def test_what_is_learnt_from_is_told_with_the_reasons_against_the_rest(policy, data, tmp_path):
    broken, other = tmp_path / "own" / "broken", tmp_path / "other"
    broken.mkdir()
    (broken / "trajectory.json").write_text("{")
    failed, short = stored(20, outcome="failure"), make_stored(21, num_steps=3)
    known, judged = stored(22, task_id=stored(2).trajectory.task_id), stored(23)
    twice = write(other, stored(OWN[0]))
    extra = [write(other / "more", item) for item in (failed, short, known, judged)]
    task = Task(
        task_id="judged", instruction=judged.trajectory.instruction, start_url="", site="",
        annotations=judged.trajectory.annotations,
    )  # fmt: skip
    asked = replace(data, trajectories=(*data.trajectories, broken, twice, *extra))
    chosen = prepare(policy, WordEmbedder, asked, tmp_path / "prepared", evaluation=[task], has_lessons=False).chosen
    assert chosen.trajectory_ids == tuple(f"trajectory-{number}" for number in OWN)
    assert chosen.num_left_out == {"outcome failure": 1, "fewer than 8 steps": 1}
    assert chosen.unusable.keys() == {str(broken), str(twice)}
    assert chosen.removed_by["task"] == ("trajectory-22",)
    assert chosen.removed_by["instance"] == chosen.removed_by["template"] == ("trajectory-23",)
    assert "same task as the bank or an evaluation task 1" in str(chosen)


def test_nothing_to_learn_from_is_an_error_that_tells_why(policy, data, tmp_path):
    with pytest.raises(ConfigError, match="more than 8 steps 6"):
        prepare(policy, WordEmbedder, replace(data, max_steps=8), tmp_path / "prepared")


def test_what_is_found_is_kept_and_searched_for_once(policy, data, tmp_path):
    first = Interrupted(2)
    with pytest.raises(KeyboardInterrupt):
        prepare(policy, lambda: first, data, tmp_path / "prepared", has_lessons=False)
    with pytest.raises(StorageError, match="not prepared completely"):
        load_prepared(policy, data, tmp_path / "prepared")
    second = Interrupted(99)
    prepared = prepare(policy, lambda: second, data, tmp_path / "prepared", has_lessons=False)
    assert second.num_asked == len(OWN) - 2
    bank, embedder = Bank.open(data.bank), WordEmbedder()
    for one in (*prepared.found, *prepared.validation):
        number = int(one.folder.rsplit("-", 1)[1])
        record = stored(number).trajectory
        wanted = bank.search(embedder.embed_queries([Moment(instruction=record.instruction)])[0], Query.of(record)).hits
        for decision in one.decisions:
            assert decision.hits == tuple((hit.trajectory_id, hit.score) for hit in wanted)

    def refused():
        raise AssertionError("the embedder is not needed any more")

    again = prepare(policy, refused, data, tmp_path / "prepared", has_lessons=False)
    assert again.found == prepared.found
    with pytest.raises(ConfigError, match="prepared for another policy, bank or data"):
        prepare(policy, refused, replace(data, min_steps=2), tmp_path / "prepared", has_lessons=False)
    with pytest.raises(ConfigError, match="prepared for another policy, bank or data"):
        load_prepared(policy, replace(data, bank_outcomes=None), tmp_path / "prepared")
    bank.add(make_many(1, start=40), embedder)
    with pytest.raises(ConfigError, match="prepared for another policy, bank or data"):
        load_prepared(policy, data, tmp_path / "prepared")


def test_only_trajectories_with_the_wanted_outcome_are_chosen_and_found(policy, data, tmp_path):
    embedder = WordEmbedder()
    Bank.open(data.bank).add([stored(number, outcome="failure") for number in range(20, 26)], embedder)
    failed = write(tmp_path / "failed", stored(30, outcome="failure"))
    asked = replace(data, trajectories=(*data.trajectories, failed), validation_share=0.0)
    found, of_all = (
        prepare(policy, WordEmbedder, one, tmp_path / name, has_lessons=False)
        for name, one in (("won", asked), ("all", replace(asked, outcomes=None, bank_outcomes=None)))
    )
    assert len(of_all.found) == len(found.found) + 1

    def names(prepared):
        return {name for one in prepared.found for decision in one.decisions for name, _ in decision.hits}

    lost = {f"trajectory-{number}" for number in range(20, 26)}
    assert not names(found) & lost
    assert names(of_all) & lost


def test_a_bank_is_needed(policy, data, tmp_path):
    with pytest.raises(ConfigError, match="There is no bank to search"):
        prepare(policy, WordEmbedder, replace(data, bank=None), tmp_path / "prepared")
    with pytest.raises(ConfigError, match=r"min_steps is 20, above max_steps, 15"):
        DataConfig(min_steps=20)


def test_only_trusted_trajectories_are_found_and_mislead(policy, data, tmp_path):
    bank = Bank.open(data.bank)
    bank.add([stored(number, source="theirs") for number in range(20, 26)], WordEmbedder())
    trusting = replace(data, only_trusted=True)
    with pytest.raises(ConfigError, match="focusmem bank trust"):
        prepare(policy, WordEmbedder, trusting, tmp_path / "prepared", has_lessons=False)
    bank.trust(["factory"])
    prepared = prepare(policy, WordEmbedder, trusting, tmp_path / "prepared", has_lessons=False)
    names = {name for one in prepared.found for decision in one.decisions for name, _ in decision.hits}
    trusted = {entry.trajectory_id for entry in bank.entries() if entry.source == "factory"}
    assert names <= trusted == set(prepared.sites)
    bank.trust(["theirs"])
    with pytest.raises(ConfigError, match="prepared for another policy, bank or data"):
        load_prepared(policy, trusting, tmp_path / "prepared")
