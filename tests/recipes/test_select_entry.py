import json
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from focusmem.cli.main import app
from focusmem.model.backbone import Backbone
from focusmem.model.config import MemoryConfig
from focusmem.model.inputs import PARTS
from focusmem.recipes.select_entry import Entries, SelectConfig, WordlessPolicy, measure_selection
from focusmem.schemas import Turn
from focusmem.training.batch import TrainingBatch
from focusmem.training.metrics import read_metrics
from toys import make_config

TOY = SelectConfig(policy="toy", num_words=2, num_items=2, num_asked=2, num_steps=2, num_tested=2, num_threads=1)


def names_of(batch):
    words = " ".join(item.prompt[0].parts[0].removeprefix("Codes: ") for item in batch.items).replace(",", "").split()
    return [word for word in words if word.isalpha()]


def test_a_decision_asks_for_one_of_the_entries_and_its_code_is_the_reply():
    config = SelectConfig()
    batch = Entries(config).batch(5)
    for decision in batch.decisions:
        [use] = decision.uses
        listed = batch.items[use.item].prompt[0].parts[0]
        _, instruction, words = decision.prompt[0].parts
        name = instruction.removesuffix(".").rpartition(" ")[2]
        code = json.loads(decision.reply)["arguments"]["answer"]
        assert f"{name} {code}" in listed
        assert len(words.split()) == config.num_words
    assert {len(names_of(TrainingBatch(items=(item,)))) for item in batch.items} <= {1, 2, 4}
    assert Entries(config).batch(5) == batch != Entries(config).batch(6)


def test_the_names_of_a_test_are_never_learnt_from():
    data = Entries(SelectConfig())
    learnt = {name for number in range(40) for name in names_of(data.batch(number))}
    tested = {name for batch in (data.held_out, data.test("test", 24)) for name in names_of(batch)}
    assert len(learnt) > 500
    assert len(tested) > 80
    assert not learnt & tested


@torch.no_grad()
def test_the_policy_is_asked_without_the_words_that_the_state_averages():
    torch.manual_seed(0)
    policy = WordlessPolicy(Backbone.toy(), make_config(state_source="embeddings")).eval()
    [decision, *_] = Entries(SelectConfig(num_words=3)).batch(0).decisions
    [row] = policy.embed([decision.prompt], [decision.reply])
    plain = (Turn("user", decision.prompt[0].parts[:2]),)
    [wanted] = policy.embed([plain], [decision.reply])
    [asked] = policy.inject([row], None)
    assert torch.equal(asked.embeds_SD, wanted.embeds_SD)
    assert torch.equal(asked.positions_3S, wanted.positions_3S)
    assert (asked.target_ids, asked.next_position) == (wanted.target_ids, wanted.next_position)
    assert row.part_counts[PARTS.index("text")] > wanted.part_counts[PARTS.index("text")]
    torch.testing.assert_close(policy.state([row])[0], row.embeds_SD[: row.num_context].mean(dim=0))


def test_a_resumed_benchmark_ends_with_the_figures_of_one_that_never_stopped(tmp_path):
    whole = measure_selection(TOY, tmp_path / "whole")
    first = measure_selection(replace(TOY, max_minutes=1e-9), tmp_path / "parts")
    assert not first["is_finished"]
    assert [first[name]["num_steps"] for name in ("state", "mean")] == [1, 1]
    second = measure_selection(TOY, tmp_path / "parts")
    assert second["is_finished"]
    assert second == whole
    assert {"own", "shuffled", "fixed", "mean_state"} <= whole.keys()
    sources = [
        json.loads((tmp_path / "whole" / name / "config.json").read_text())["memory"]["state_source"]
        for name in ("state", "mean")
    ]
    assert sources == [MemoryConfig().state_source, "embeddings"]


def test_the_command_shows_the_figures(tmp_path):
    small = [
        f"--set={name}={value}"
        for name, value in (("policy", "toy"), ("num_items", 2), ("num_tested", 2), ("has_mean_state", "false"))
    ]
    words = ["bench", "select", "--steps", "1", "--words", "2", "--threads", "1", *small]
    places = ["--folder", str(tmp_path / "run"), "--out", str(tmp_path / "figures.json")]
    shown = CliRunner().invoke(app, [*words, *places], catch_exceptions=False).stdout
    assert "one of 4 entries" in shown
    told = json.loads(CliRunner().invoke(app, [*words, *places, "--json"], catch_exceptions=False).stdout)
    assert told == json.loads((tmp_path / "figures.json").read_text())
    assert 0 <= told["own"] <= 1


@pytest.mark.slow
def test_a_readout_learns_to_choose(tmp_path):
    """With two entries, whose names alone tell which code is wanted."""
    config = SelectConfig(num_entries=2, has_mean_state=False, num_steps=900)
    figures = measure_selection(config, tmp_path)
    assert figures["own"] > 2 * figures["shuffled"]
    assert figures["own"] > figures["shuffled"] + 0.2
    signs = read_metrics(tmp_path / "state" / "metrics.jsonl")[-1]["vital_signs"]
    assert not signs["is_inert"]
    assert signs["own_nats"] < min(signs["shuffled_nats"], signs["fixed_nats"])
