import pytest

from focusmem.model.checkpoint import Checkpoint
from focusmem.settings import resolved, to_plain
from focusmem.training.departures import ROUNDED, Departures, Origin
from focusmem.training.variants import paper_training
from training.samples import make_memory_policy


def departures_of(*changes, name="full", start=None, named=()):
    paper = paper_training(name)
    origin = Origin("own", to_plain(paper), named)
    return origin.departures(to_plain(resolved(paper, assignments=changes)), start)


def test_the_papers_settings_depart_in_nothing():
    assert departures_of() == Departures("own", (), ())


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("variant.stage_a.content_weight=0.1", "variant.stage_a.content_weight is 0.1 (paper: 0.25)"),
        ("variant.stage_a.reduction=mean", "variant.stage_a.reduction is mean (paper: sum)"),
        ("variant.stage_b.num_foreign=3", "variant.stage_b.num_foreign is 3 (paper: 0)"),
        ("variant.memory.compressor.query_std=0.5", "variant.memory.compressor.query_std is 0.5 (paper: 1.0)"),
        ("variant.memory.gate.sees_evidence=true", "variant.memory.gate.sees_evidence is true (paper: false)"),
        ("loop_b.gate_rate_times=10", "loop_b.gate_rate_times is 10.0 (paper: 1.0)"),
    ],
)
def test_every_other_setting_is_told_with_the_papers(change, line):
    assert departures_of(change) == Departures("own", (line,), ())


@pytest.mark.parametrize("change", ["variant.memory.lora.rank=8", "variant.memory.compressor.num_heads=4"])
def test_sizes_are_told_apart_as_scale(change):
    told = departures_of(change)
    assert told.departures == ()
    assert [line.partition(" ")[0] for line in told.scale] == [change.partition("=")[0]]


@pytest.mark.parametrize("change", ["loop_a.num_workers=9", "loop_b.seed=4", "max_minutes=3", "loop_a.num_passes=2"])
def test_what_changes_nothing_but_speed_or_draws_is_no_departure(change):
    assert departures_of(change) == Departures("own", (), ())


def test_parts_that_a_variant_does_not_have_are_not_told_of():
    changes = ("variant.memory.gate.sees_evidence=true", "variant.memory.readout.hidden_width=3")
    assert departures_of(*changes, name="action-only") == Departures("own", (), ())


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        (["loop_a.stores_half=true"], [ROUNDED]),
        (["loop_b.stores_half=true"], [ROUNDED]),
        (["loop_a.stores_half=true", "start=elsewhere"], []),
    ],
)
def test_weights_that_a_trained_stage_rounds_are_told(changes, lines):
    assert list(departures_of(*changes).departures) == lines


@pytest.mark.parametrize("name", ["full", "probe-content", "action-only"])
def test_weights_that_the_gates_own_training_rounds_are_told(name):
    """That training comes only after a stage B whose gate acts."""
    settings = to_plain(paper_training(name))
    settings["gate"] = settings["loop_b"] | {"stores_half": True}
    told = Origin("own", to_plain(paper_training(name))).departures(settings)
    assert told.departures == ((ROUNDED,) if name == "full" else ())


@pytest.mark.parametrize(
    ("policy", "shown"),
    [
        ("Qwen/Qwen3-VL-4B", "Qwen/Qwen3-VL-4B"),
        ("lab", "lab"),
        ("/home/alice/models/own", "own"),
        ("../models/own/", "own"),
        ("here/own", "own"),
    ],
)
def test_of_a_models_folder_only_the_name_is_told(policy, shown, tmp_path, monkeypatch):
    (tmp_path / "here" / "own").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    paper = to_plain(paper_training("full"))
    told = Origin("own", paper | {"policy": "qwen3-vl-8b"}).departures(paper | {"policy": policy})
    assert told.scale == (f"policy is {shown} (paper: qwen3-vl-8b)",)


def test_named_sizes_come_before_those_that_are_settings():
    paper = paper_training("full")
    smaller = to_plain(resolved(paper, assignments=["variant.memory.lora.rank=8"]))
    told = Origin("own", to_plain(paper), scale=["a small policy"]).departures(smaller)
    assert told.scale == ("a small policy", "variant.memory.lora.rank is 8 (paper: 64)")


def test_a_stage_that_is_missing_is_one_departure():
    told = departures_of("variant.stage_b=null", "loop_b.learning_rate=1", name="action-only")
    assert told.departures == ("there is no stage B: the fixed blocks of stage A act",)


def test_what_a_training_begins_with_brings_its_own(tmp_path):
    policy = make_memory_policy()
    before = Departures("other", ("a course came first",), ())
    stored = Checkpoint.save(policy, tmp_path / "memory", notes=before.notes())
    told = departures_of("variant.stage_b.num_foreign=3", start=stored, named=("drills in every batch",))
    assert told.departures[0] == "a course came first"
    assert told.departures[-1] == "drills in every batch"
    assert len(told.departures) == 3
    assert Departures.of(Checkpoint.open(tmp_path / "memory")) == before


def test_a_card_that_does_not_say_has_no_recipe(tmp_path):
    Checkpoint.save(make_memory_policy(), tmp_path / "memory")
    assert Departures.of(Checkpoint.open(tmp_path / "memory")).recipe is None
