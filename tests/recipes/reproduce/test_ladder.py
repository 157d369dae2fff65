"""The ladder's plan: its order, its equal budgets, what is carried of it, and a rehearsal of all of it at toy size."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from focusmem.cli.main import app
from focusmem.errors import ConfigError
from focusmem.lab.memory.variants import variant
from focusmem.lab.policy.pretrain import lightened
from focusmem.recipes.reproduce.ladder import make_ladder
from focusmem.recipes.reproduce.ladder_settings import MATCHED, TRAINED, check_matched, full
from focusmem.recipes.reproduce.side_by_side import carry_out


def trainings():
    return {name: full().training(name, 1) for name in TRAINED}


def test_the_variants_have_equal_steps_data_batches_and_rates():
    told = check_matched(trainings())
    assert told["num_steps"] == sum(told["num_steps_by_stage"]) == 10_000
    assert set(told["matched_with"]) == set(MATCHED)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda one: replace(one, loop_b=replace(one.loop_b, num_steps=4000)), "loop_b.num_steps is 5000 for"),
        (lambda one: replace(one, loop_a=replace(one.loop_a, learning_rate=1e-4)), "loop_a.learning_rate"),
        (lambda one: replace(one, stream=replace(one.stream, num_episodes=9)), "stream.num_episodes"),
        (lambda one: replace(one, decisions=replace(one.decisions, seed=7)), "decisions.seed"),
        (lambda one: replace(one, variant=replace(one.variant, stage_b=None)), "has no stage B"),
    ],
)
def test_an_unequal_variant_is_refused(change, named):
    made = trainings()
    with pytest.raises(ConfigError, match=named):
        check_matched(made | {"content": change(made["content"])})


def test_the_papers_variant_has_a_single_rate_and_its_own_memory():
    paper = full().training("paper", 1)
    assert paper.loop_b.gate_rate_times == paper.loop_b.readout_rate_times == 1.0
    assert paper.gate is None
    assert variant("paper").memory.state_source == "embeddings"
    assert variant("full").memory.state_source == "joined"


def test_full_and_action_only_come_first_and_further_seeds_last():
    names = [unit.name for unit in make_ladder(full(), Path("runs/ladder")).units]
    order = ["policy", "embedder", "eval-full-1", "eval-action-only-1", "look", "eval-content-1", "eval-readout-1"]
    places = [names.index(name) for name in order]
    assert places == sorted(places)
    assert names.index("eval-paper-1") < min(place for place, name in enumerate(names) if name.endswith("-2"))
    assert {f"eval-{name}-3" for name in MATCHED} <= set(names)
    assert "eval-paper-2" not in names


def test_variants_with_the_same_stage_a_share_it():
    plan = make_ladder(full(), Path("runs/ladder"))
    needs = {unit.name: set(unit.needs) for unit in plan.units}
    for name in ("content", "readout", "full"):
        assert "stage-a-content-2" in needs[f"stage-b-{name}-2"]
    assert "stage-a-action-only-2" in needs["stage-b-action-only-2"]


def test_no_memory_is_trained_before_the_policy_reads_the_new_pages(tmp_path):
    plan = make_ladder(full(), tmp_path)
    for name, rates in (("none", 0.1), ("replay", 0.5)):
        folder = plan.place(f"eval-{name}") / "lab-entries"
        folder.mkdir(parents=True)
        (folder / "results.json").write_text(json.dumps({"success_rate": rates}))
        plan.note(plan.by_name[f"eval-{name}"], status="finished")
    plan.note(plan.by_name["policy"], status="finished")
    with pytest.raises(Exception, match=r"50\.0% with the right trajectory raw in front \(at least 70%\)"):
        carry_out(partial(make_ladder, full(), tmp_path), only="policy-reads")
    assert plan.status(plan.by_name["stage-a-content-1"]) == "waiting"


def test_a_lightened_save_holds_weights_in_half_and_no_moments(tmp_path):
    stored = {"model": {"w": torch.ones(3), "n": torch.tensor(2)}, "head": {}, "optimizers": [{}, {}], "num_steps": 5}
    torch.save(stored, tmp_path / "state.pt")
    (tmp_path / "light.pt").write_bytes(lightened((tmp_path / "state.pt").read_bytes()))
    light = torch.load(tmp_path / "light.pt", weights_only=True)
    assert light["model"]["w"].dtype == torch.bfloat16
    assert light["model"]["n"] == 2
    assert light["optimizers"] is None
    assert light["num_steps"] == 5


def test_the_plan_is_printed_without_making_anything(tmp_path):
    out = tmp_path / "ladder"
    result = CliRunner().invoke(app, ["reproduce", "lab", "ladder", "--out", str(out), "--dry-run", "--json"])
    assert result.exit_code == 0, (result.output, result.exception)
    told = json.loads(result.stdout)
    assert told["minutes_left_estimated"] == pytest.approx(sum(one["minutes_estimated"] for one in told["units"]))
    assert [one["unit"] for one in told["units"] if one["status"] == "ready"] == ["policy", "experts"]
    assert not out.exists()


def test_pack_and_unpack_exclude_each_other(tmp_path):
    words = ["reproduce", "lab", "ladder", "--pack", str(tmp_path / "a"), "--unpack", str(tmp_path / "b")]
    assert isinstance(CliRunner().invoke(app, words).exception, ConfigError)
