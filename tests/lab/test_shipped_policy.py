"""What ships is what the code expects, and can do what it was trained for."""

import json
import shutil

import pytest

from focusmem.bank import Query
from focusmem.lab.memory.embedder import load_embedder, moment_of
from focusmem.lab.memory.recall import LabBank, searchable
from focusmem.lab.policy.examination import ExaminationConfig, examine
from focusmem.lab.policy.policy import load_policy
from focusmem.lab.shipped import SHIPPED, Weights
from focusmem.lab.world.rollout import screenshot_of, sensible_rollout
from focusmem.lab.world.tasks import make_task
from focusmem.lab.world.world import World
from focusmem.model.checksums import write_checksums


@pytest.fixture(scope="module")
def policy():
    return load_policy(Weights().policy, "cpu")


def test_it_reads_values_off_the_screen_and_tells_of_records(policy):
    found = examine(policy, ExaminationConfig(num_values=5, num_records=1, seed=3))
    assert found["values_read"]["right_rate"] >= 0.8
    assert found["fields_right"]["right_rate"] >= 0.8


def test_its_embedder_finds_trajectories_of_the_same_site(policy):
    world = World(0)
    bank = LabBank(world, "e", num_sites=4)
    embedder = load_embedder(policy, Weights().embedder)
    recall = searchable(bank, embedder)
    sites = sorted({one.task.site_id for one in bank.rollouts})
    assert len(sites) > 2
    num_right, num_asked = 0, 0
    for site_id in sites:
        kind = "extreme" if world.site(site_id).family == "market" else "fact"
        tasks = (make_task(world, site_id, kind, "evaluation", number) for number in range(20))
        rollout = next(found for found in (sensible_rollout(world, task) for task in tasks) if found)
        moment = moment_of(rollout, 0, lambda step: screenshot_of(world, step))
        [vector] = embedder.embed_queries([moment])
        hits = recall.search(vector, Query.of(rollout.task.task), 1)
        num_right += bank.rollouts[bank.place_of[hits.hits[0].trajectory_id]].task.site_id == site_id
        num_asked += 1
    assert num_right == num_asked


def test_it_is_as_large_as_its_card_says_and_in_shards_that_travel(policy):
    card = json.loads((Weights().policy / "card.json").read_text())
    assert sum(parameter.numel() for parameter in policy.model.parameters()) == card["num_parameters"]
    assert 15e6 < card["num_parameters"] < 25e6
    shards = sorted(Weights().policy.glob("*.safetensors"))
    assert all(path.stat().st_size <= 15e6 for path in shards)
    assert sum(path.stat().st_size for path in shards) <= 40e6
    assert policy.identity().weights == json.loads((Weights().embedder / "card.json").read_text())["policy"]["weights"]
    assert all(parameter.isfinite().all() for parameter in policy.model.parameters())


def test_the_digests_that_ship_are_those_of_its_files(tmp_path):
    shutil.copytree(Weights().policy, tmp_path, dirs_exist_ok=True)
    write_checksums(tmp_path)
    assert (tmp_path / "SHA256SUMS").read_text() == (Weights().policy / "SHA256SUMS").read_text()


def test_no_card_tells_of_folders_elsewhere():
    for path in SHIPPED.rglob("*.json"):
        if path.name == "tokenizer.json":
            continue
        assert not [text for text in _texts(json.loads(path.read_text())) if text.startswith(("/", "~", "."))], path


def _texts(value):
    if isinstance(value, str):
        yield value
    for own in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(own)
