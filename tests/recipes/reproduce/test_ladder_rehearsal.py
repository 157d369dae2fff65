"""The whole ladder at toy size, and a stage that is carried to another folder in the middle."""

import json
import shutil
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from focusmem.model.checkpoint import Checkpoint
from focusmem.recipes.reproduce.ladder import LADDER_NOTE, Ladder, make_ladder
from focusmem.recipes.reproduce.ladder_settings import tiny
from focusmem.recipes.reproduce.ladder_table import write_results
from focusmem.recipes.reproduce.packing import MOST_PARTS, PART_BYTES, pack, unpack
from focusmem.recipes.reproduce.plan import Limit, Plan
from focusmem.recipes.reproduce.side_by_side import carry_out

pytestmark = pytest.mark.slow

OUT = Path("ladder")
SETTINGS = replace(tiny(), seeds=(1,))


@pytest.fixture(scope="module")
def foundation(tmp_path_factory):
    """A folder with a policy and the experts' episodes."""
    place = tmp_path_factory.mktemp("foundation")
    for name in ("policy", "experts"):
        carry_out(partial(make_ladder, SETTINGS, place), only=name)
    return place


def begun_in(place, foundation, monkeypatch):
    shutil.copytree(foundation, place / OUT)
    monkeypatch.chdir(place)


def one_stage():
    """A plan of one stage with two steps, so that it has a middle."""
    ladder = Ladder(SETTINGS, OUT)
    training = SETTINGS.training("action-only", 1)
    loop = replace(training.loop_a, num_steps=2)
    training = replace(training, loop_a=loop, variant=replace(training.variant, stage_b=None))
    return Plan("stage", [ladder._training("stage-a-action-only-1", training, ())], OUT)


def test_a_stage_that_was_carried_in_the_middle_equals_one_that_was_not(foundation, tmp_path, monkeypatch):
    name, weights = "stage-a-action-only-1", "run/stage-a/memory/memory.safetensors"
    begun_in(tmp_path / "whole", foundation, monkeypatch)
    carry_out(one_stage)
    whole = (tmp_path / "whole" / one_stage().place(name) / weights).read_bytes()
    begun_in(tmp_path / "here", foundation, monkeypatch)
    plan = one_stage()
    plan.note(plan.by_name[name], status="begun")
    assert not plan.by_name[name].run(plan.place(name), Limit(time.time() - 1))  # a stage takes at least one step
    pack(plan, tmp_path / "pack")
    begun_in(tmp_path / "there", foundation, monkeypatch)
    unpack(one_stage(), tmp_path / "pack")
    carry_out(one_stage)
    assert (tmp_path / "there" / one_stage().place(name) / weights).read_bytes() == whole


def test_every_unit_of_the_ladder_runs(foundation, tmp_path, monkeypatch):
    begun_in(tmp_path, foundation, monkeypatch)
    make = partial(make_ladder, SETTINGS, OUT)
    plan = carry_out(make)
    assert {plan.status(unit) for unit in plan.units} == {"finished"}
    results = write_results(plan, "tiny")
    assert results["num_finished"] == results["num_units"]
    rows = {row["memory"]: row for row in results["suites"]["lab-entries"]["rows"]}
    assert set(rows) == {"none", "replay", "retrieved", "full", "action-only", "content", "readout", "paper"}
    gains = {(gain["memory"], gain["over"]) for gain in results["suites"]["lab-entries"]["gains"]}
    assert {("full", "action-only"), ("readout", "content"), ("content", "action-only")} <= gains
    assert set(results["gates"]) == {"full-1", "paper-1"}
    card = Checkpoint.open(Ladder(SETTINGS, OUT).acting("full", 1)).notes
    assert card[LADDER_NOTE]["num_steps"] == sum(card[LADDER_NOTE]["num_steps_by_stage"])
    sizes = pack(plan, tmp_path / "pack")
    assert max(sizes.values()) <= MOST_PARTS * PART_BYTES
    assert "experts" not in sizes
    assert json.loads((OUT / "results.json").read_text()) == results
