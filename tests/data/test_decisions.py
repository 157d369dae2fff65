"""Decisions of stored trajectories hold what the agent would have had at the same step."""

from dataclasses import replace

import pytest

from banks import WordEmbedder
from focusmem import Memory
from focusmem.agent.fronts.latent import LatentFront
from focusmem.agent.prompt import NUM_RECENT
from focusmem.bank import Bank
from focusmem.data.preparation import prepare
from focusmem.errors import ConfigError
from focusmem.evidence import Serialiser
from focusmem.model.backbone import Backbone
from focusmem.model.evidence_cache import EvidenceCache
from focusmem.model.policy import MemoryPolicy
from focusmem.schemas import Screenshot, Task, action_to_json
from stored_training import OWN, decisions_of, make_data, stored, write
from toys import make_config


@pytest.fixture(scope="module")
def policy():
    return Backbone.toy(num_layers=2)


@pytest.fixture
def data(tmp_path):
    return make_data(tmp_path)


class NotingCache(EvidenceCache):
    """Keeps what it was last asked for."""

    def fetch(self, prompts, *, chunks=()):
        self.asked = list(prompts)
        return super().fetch(prompts, chunks=chunks)


def test_events_that_are_neither_shown_nor_remembered_are_refused(data):
    with pytest.raises(ConfigError, match=r"use\.num_recent is 4"):
        replace(data, use=replace(data.use, num_recent=4))


@pytest.mark.parametrize("num_recent", [3, 2])
def test_decisions_have_what_an_agent_would_have_had(policy, data, tmp_path, num_recent):
    """Prompts, found trajectories and chunks of history are those of `focusmem.Memory`, step by step."""
    data = replace(data, use=replace(data.use, num_recent=num_recent))
    prepared = prepare(policy, WordEmbedder, data, tmp_path / "prepared", has_lessons=False)
    built = MemoryPolicy(policy, make_config()).eval()
    cache = NotingCache(built)
    memory = Memory(
        LatentFront(built, Serialiser(), data.use, cache=cache), bank=Bank.open(data.bank), embedder=WordEmbedder()
    )
    item = stored(OWN[1])
    record = item.trajectory
    task = Task(
        task_id=record.task_id, instruction=record.instruction, start_url="", site=record.site,
        annotations=record.annotations,
    )  # fmt: skip
    [trajectory] = [number for number, one in enumerate(prepared.found) if one.folder == str(data.trajectories[1])]
    source = decisions_of(data, prepared)
    assert source.num_decisions(trajectory) == len(record.steps)
    batch = source.decisions(trajectory, tuple(range(len(record.steps))))
    episode = memory.begin(task)
    for step, learnt in zip(record.steps, batch.decisions, strict=True):
        now = item.screenshots[step.screenshot.sha256]
        prefix = episode.prefix(now)
        assert learnt.prompt == prefix.prompt
        assert learnt.reply == action_to_json(step.action)
        items = [batch.items[use.item] for use in learnt.uses]
        offered = [(one.role, one.rank) for one in prefix.items]
        assert [(item.role, use.rank) for item, use in zip(items, learnt.uses, strict=True)] == offered
        assert [item.prompt for item in items] == cache.asked
        episode.observe(now, step.action)


def test_what_went_wrong_is_shown_but_not_taught(policy, data, tmp_path):
    item = stored(30)
    steps = list(item.trajectory.steps)
    steps[2] = steps[2].model_copy(update={"error": "There is no such button."})
    steps[4] = steps[4].model_copy(update={"action": None, "reply": "Hm.", "error": "No action could be read."})
    mixed = replace(item, trajectory=item.trajectory.model_copy(update={"steps": tuple(steps)}))
    asked = replace(data, trajectories=(write(tmp_path / "mixed", mixed),), validation_share=0.0, shows_errors=True)
    prepared = prepare(policy, WordEmbedder, asked, tmp_path / "prepared", has_lessons=False)
    assert [one.step for one in prepared.found[0].decisions] == [0, 1, 3, 5, 6, 7, 8]
    assert "There is no such button." in text_of(decisions_of(asked, prepared).decisions(0, (3,)).decisions[0].prompt)
    shown, hidden = (
        decisions_of(replace(asked, shows_errors=shows), prepared).decisions(0, (6,)) for shows in (True, False)
    )
    for batch, is_told in ((shown, True), (hidden, False)):
        [decision] = batch.decisions
        chunks = [batch.items[use.item] for use in decision.uses if batch.items[use.item].role == "working"]
        texts = [text_of(one.prompt) for one in (decision, *chunks)]
        assert any("No action could be read." in text for text in texts) == is_told


def text_of(prompt):
    return " ".join(part for turn in prompt for part in turn.parts if isinstance(part, str))


def test_every_item_that_acts_is_taught_growing_chunks_too(policy, data, tmp_path):
    """At each size that a decision uses; that is one more lesson for each decision whose history has expired."""
    prepared = prepare(policy, WordEmbedder, data, tmp_path / "prepared", has_lessons=False)
    source = decisions_of(data, prepared)
    numbers = tuple(range(source.num_decisions(0)))
    taught, batch = source.to_teach(0), source.decisions(0, numbers)
    assert {item.digest for item in taught.items} == {item.digest for item in batch.items}
    chunks = [item for item in taught.items if item.role == "working"]
    sizes = sorted(sum(isinstance(part, Screenshot) for turn in item.prompt for part in turn.parts) for item in chunks)
    assert sizes == [1, 1, 2, 3, 4]
    assert len(chunks) == len(numbers) - 1 - NUM_RECENT


def test_what_misleads_is_of_another_site_and_comes_behind_every_hit(policy, data, tmp_path):
    prepared = prepare(policy, WordEmbedder, data, tmp_path / "prepared", has_lessons=False)
    plain, misled = (decisions_of(data, prepared, negative_share=share) for share in (0.0, 1.0))
    for trajectory, own in enumerate(prepared.found):
        numbers = tuple(range(plain.num_decisions(trajectory)))
        before, after = (source.decisions(trajectory, numbers) for source in (plain, misled))
        for learnt, other in zip(before.decisions, after.decisions, strict=True):
            [wrong] = [use for use in other.uses if use.is_negative]
            name = after.items[wrong.item].item_id
            assert prepared.sites[name] != own.site
            assert wrong.rank == 3
            kept = [(after.items[use.item].digest, use.rank) for use in other.uses if not use.is_negative]
            assert kept == [(before.items[use.item].digest, use.rank) for use in learnt.uses], "no hit is lost"
    half = decisions_of(data, prepared, negative_share=0.5)
    flags = [
        any(use.is_negative for use in one.uses)
        for trajectory in range(half.num_trajectories)
        for one in half.decisions(trajectory, tuple(range(half.num_decisions(trajectory)))).decisions
    ]
    assert 0.2 < sum(flags) / len(flags) < 0.8
