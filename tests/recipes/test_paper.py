"""The paper's configuration, field by field, and what the cards say about departures from it."""

from dataclasses import replace
from pathlib import Path

import pytest

from focusmem.lab.memory.embedder import READS_LESS
from focusmem.lab.memory.training import card_notes as lab_notes
from focusmem.lab.policy.policy import load_policy
from focusmem.lab.shipped import SHIPPED_MEMORIES, Weights
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.gate import logit_of
from focusmem.recipes.lab_training import lab
from focusmem.recipes.training import PAPER, card_notes, focusmem, paper, paper_lab, recipe
from focusmem.settings import flattened, resolved, to_plain
from focusmem.training.departures import ROUNDED, Departures

GIVEN = {
    # The method (Section 3, Appendix A) and Table 5 (trainable parts).
    "variant.name": "full",
    "variant.stage_a.content_weight": 0.25,
    "variant.stage_a.semantic_weight": 0.5,
    "variant.stage_a.functional_weight": 0.5,
    "variant.stage_a.reduction": "sum",
    "variant.stage_b.gate_weight": 0.05,
    "variant.stage_b.reduction": "sum",
    "variant.stage_b.is_dynamic": True,
    "variant.stage_b.is_gated": True,
    "variant.stage_b.keeping": "straight-through",
    "variant.stage_b.labels_reach_blocks": False,
    "variant.stage_b.num_foreign": 0,
    "variant.stage_b.order_weight": 0.0,
    "variant.acts_fixed": False,
    "variant.memory.lora.rank": 64,
    "variant.memory.lora.alpha": 16.0,
    "variant.memory.lora.dropout": 0.05,
    "variant.memory.compressor.num_tokens": 8,
    "variant.memory.compressor.width": None,
    "variant.memory.compressor.num_heads": 16,
    "variant.memory.compressor.num_refinements": 8,
    "variant.memory.compressor.ffn_ratio": 4,
    "variant.memory.compressor.shares_queries": False,
    "variant.memory.readout.hidden_width": 256,
    "variant.memory.gate.threshold_logit": logit_of(0.3),
    "variant.memory.gate.sees_evidence": False,
    # Training (Section 4.1, Appendix F).
    "loop_a.learning_rate": 1e-5,
    "loop_b.learning_rate": 5e-6,
    "batching.num_decisions": 32,
    "thresholds": [0.1, 0.2, 0.3, 0.4, 0.5],
    "policy": "qwen3-vl-8b",
    "embedder": "Qwen/Qwen3-VL-Embedding-2B",
    # Data and prompts (Section 4.1, Appendices B and C).
    "data.outcomes": ["success"],
    "data.bank_outcomes": ["success"],
    "data.min_steps": 8,
    "data.max_steps": 15,
    "data.use.num_episodic": 3,
    "data.use.chunk_events": 4,
    "data.use.num_recent": 3,
    "data.use.is_dynamic": True,
    "data.use.is_gated": True,
    "data.shows_errors": False,
}
"""What the paper says."""
OF_BOTH_LOOPS = {
    "gate_rate_times": 1.0,
    "readout_rate_times": 1.0,
    "warmup_share": 0.1,
    "max_gradient_norm": 1.0,
    "is_bfloat16": True,
}
READINGS = {
    # What the paper leaves open (docs/paper.md).
    "variant.memory.compressor.query_std": 1.0,
    "variant.memory.gate.kind": "mlp",
    "variant.memory.gate.hidden_width": 256,
    "variant.memory.gate.open_at": 0.9,
    "variant.memory.gate.temperature": 2 / 3,
    "variant.memory.gate.stretch": [-0.1, 1.1],
    "variant.memory.gate.evidence_source": "hidden",
    "variant.memory.gate.shares_projection": False,
    "variant.memory.state_source": "embeddings",
    "variant.memory.state_layer": None,
    "data.negative_share": 0.5,
    "data.only_trusted": False,
    "data.validation_share": 0.02,
    "batching.max_per_trajectory": 8,
    "batching.num_epochs": 1,
}
OPEN_IN_BOTH_LOOPS = {"num_steps": None, "weight_decay": 0.01, "betas": [0.9, 0.999]}
ELSEWHERE = {
    # Where, how fast, and with which random numbers.
    "recipe": "paper", "start": None, "max_minutes": None, "device": "cuda", "evaluation": [], "batching.seed": 0,
    "data.trajectories": [], "data.bank": None, "data.prompts": None, "data.seed": 0, "data.use.tells_attention": False,
}  # fmt: skip
ELSEWHERE_IN_BOTH_LOOPS = {
    "seed": 0, "recomputes_blocks": None, "packs_rows": False, "stores_half": False, "num_passes": 1,
    "max_group_tokens": 65_536, "num_workers": 4, "save_every_steps": 500, "log_every_steps": 10, "max_minutes": None,
    "max_query_change": 4.0, "num_held_out": 32,
}  # fmt: skip


@pytest.fixture(scope="module")
def labs_policy():
    return load_policy(Weights().policy, "cpu")


def test_the_papers_configuration_field_by_field():
    of_loops = OF_BOTH_LOOPS | OPEN_IN_BOTH_LOOPS | ELSEWHERE_IN_BOTH_LOOPS
    loops = {f"{loop}.{name}": value for loop in ("loop_a", "loop_b") for name, value in of_loops.items()}
    assert flattened(to_plain(PAPER)) == GIVEN | READINGS | ELSEWHERE | loops
    assert paper("full") == PAPER


@pytest.mark.parametrize(
    "name", ["full", "action-only", "action-only-shared", "readout", "probe-semantic", "dynamic-4"]
)
def test_the_papers_recipes_depart_in_nothing(name):
    """With the laboratory's policy only in what its embedder reads; its sizes and models are told as scale."""
    assert card_notes(paper(name))["departures"] == []
    assert card_notes(paper_lab(name))["departures"] == [READS_LESS]
    assert card_notes(paper(name))["scale"] == []
    scale = {line.partition(" ")[0] for line in card_notes(paper_lab(name))["scale"]}
    assert {"policy", "embedder", "variant.memory.lora.rank"} <= scale
    assert recipe("paper-lab", name).recipe == card_notes(paper_lab(name))["recipe"] == "paper-lab"


def test_our_own_recipe_departs_in_the_readouts_state_and_rate_alone():
    own = card_notes(focusmem("full"))["departures"]
    assert own == [
        "loop_b.readout_rate_times is 3.0 (paper: 1.0)",
        "variant.memory.state_source is joined (paper: embeddings)",
    ]
    assert card_notes(focusmem("action-only"))["departures"] == [], "fixed blocks have neither"


def test_the_literal_recipe_differs_from_the_papers_in_sizes_and_models_alone():
    own, theirs = paper_lab("full"), paper("full")
    memory = own.variant.memory
    sizes = replace(
        memory,
        lora=replace(memory.lora, rank=64),
        compressor=replace(memory.compressor, num_heads=16),
        readout=replace(memory.readout, hidden_width=256),
        gate=replace(memory.gate, hidden_width=256),
    )
    same = replace(own.variant, memory=sizes)
    names = {"recipe": "paper", "policy": theirs.policy, "embedder": theirs.embedder}
    assert replace(own, variant=same, data=replace(own.data, bank=None), **names) == theirs
    assert own.data.bank == Path("lab")


def test_another_setting_of_the_data_is_told():
    changed = replace(PAPER, data=replace(PAPER.data, shows_errors=True, min_steps=1), thresholds=None)
    assert card_notes(changed)["departures"] == [
        "data.min_steps is 1 (paper: 8)",
        "data.shows_errors is true (paper: false)",
        "thresholds is not set (paper: [0.1, 0.2, 0.3, 0.4, 0.5])",
    ]
    assert card_notes(changed)["shows_errors"] is True


@pytest.mark.parametrize("change", ["loop_a.stores_half=true", "loop_b.stores_half=true"])
def test_a_memory_that_is_stored_in_half_is_told(change):
    assert card_notes(resolved(PAPER, assignments=[change]))["departures"] == [ROUNDED]


def test_an_embedder_of_the_laboratory_in_a_folder_reads_less_too():
    changed = replace(PAPER, embedder=str(Weights().embedder))
    assert card_notes(changed)["departures"] == [READS_LESS]


def test_a_card_does_not_say_where_models_and_wording_lie(tmp_path):
    (tmp_path / "own-policy").mkdir()
    places = {"policy": str(tmp_path / "own-policy"), "embedder": "/home/alice/models/own-embedder"}
    notes = card_notes(replace(PAPER, **places, data=replace(PAPER.data, prompts=Path("/home/alice/words"))))
    assert notes["scale"] == [
        "data.prompts is own wording (paper: not set)",
        "embedder is own-embedder (paper: Qwen/Qwen3-VL-Embedding-2B)",
        "policy is own-policy (paper: qwen3-vl-8b)",
    ]


def test_no_folder_of_a_training_is_on_its_card():
    place = Path("/home/alice")
    data = replace(PAPER.data, bank=place, trajectories=(place,), prompts=place)
    changed = replace(PAPER, policy=f"{place}/p", embedder=f"{place}/e", evaluation=(place,), data=data)
    assert "home" not in str(card_notes(changed))


def test_the_laboratorys_recipe_names_what_it_does_besides(labs_policy):
    told = "\n".join(lab_notes(lab("full"), labs_policy)["departures"])
    for words in (
        "stage_a.content_weight is 0.005 (paper: 0.25)",
        "stage_a.reduction is mean (paper: sum)",
        "found by their site",
        "the world supplies the lessons' texts",
        "that memory can help with come first",
        "say which actions failed",
        "a course of short drills",
        "drills besides its episodes",
        "the gate is taught alone",
        "may take any value",
        f"when the memory acts, {READS_LESS}",
        "trajectories of fewer than 8 steps are learnt from too",
        ROUNDED,
    ):
        assert words in told
    actions = "\n".join(lab_notes(lab("action-only"), labs_policy)["departures"])
    assert "found by their site" in actions
    assert "gate" not in actions
    assert "lessons" not in actions


@pytest.mark.parametrize("name", SHIPPED_MEMORIES)
def test_the_cards_that_ship_tell_their_departures(name):
    told = Departures.of(Checkpoint.open(Weights().memory(name)))
    assert told.recipe == "lab"
    lines = "\n".join(told.departures)
    for words in (
        "found by their site",
        "that memory can help with come first",
        "say which actions failed",
        "a course",
        f"when the memory acts, {READS_LESS}",
        "trajectories of fewer than 8 steps are learnt from too",
        ROUNDED,
    ):
        assert words in lines
    assert ("no stage B" in lines) == (name == "action-only")
    assert ("taught alone after stage B" in lines) == (name == "full")


@pytest.mark.parametrize("name", SHIPPED_MEMORIES)
def test_a_new_card_of_the_laboratory_tells_its_models_as_those_that_ship_do(name, labs_policy):
    shipped = Departures.of(Checkpoint.open(Weights().memory(name))).scale
    own = [line for line in lab_notes(lab(name), labs_policy)["scale"] if line.startswith("the ")]
    assert own == [
        "the policy has 20 million parameters and a width of 384 (paper: Qwen3-VL-8B)",
        "the embedder is the policy with a small update (paper: Qwen3-VL-Embedding-2B)",
    ]
    assert set(own) <= set(shipped)
