from dataclasses import replace

import pytest

from focusmem.errors import BackboneError
from focusmem.model.compressor import CompressorConfig
from focusmem.model.config import PAPER_MEMORY, MemoryConfig
from focusmem.model.description import describe


def test_the_papers_three_counts_exactly():
    description = describe("qwen3-vl-8b", PAPER_MEMORY)
    counts = description["num_parameters"]
    assert counts["lora"] == 174_587_904
    assert counts["compressor"] == 234_995_712
    assert counts["readout"] == 9_478_400
    assert description["num_lora_linears"] == 252


@pytest.mark.parametrize(
    ("name", "total"),
    [("qwen3-vl-2b", 2_127_532_032), ("qwen3-vl-4b", 4_437_815_808), ("qwen3-vl-8b", 8_767_123_696)],
)
def test_published_totals(name, total):
    assert describe(name, PAPER_MEMORY)["num_parameters"]["policy_frozen"] == total


def test_a_smaller_encoder_brings_projections():
    same = describe("qwen3-vl-8b", PAPER_MEMORY)["num_parameters"]
    mixed = describe("qwen3-vl-8b", PAPER_MEMORY, encoder="qwen3-vl-2b")["num_parameters"]
    assert mixed["encoder_frozen_extra"] == 2_127_532_032
    assert mixed["lora"] < same["lora"]
    assert mixed["readout"] == same["readout"] + 2048 * 4096


def test_budget_changes_queries_and_adapter_only():
    small, large = (
        describe("qwen3-vl-8b", replace(PAPER_MEMORY, compressor=CompressorConfig(num_tokens=tokens)))["num_parameters"]
        for tokens in (4, 16)
    )
    assert large["compressor"] - small["compressor"] == 2 * 12 * 4096
    assert large["readout"] - small["readout"] == 12 * 4096 * 257


def test_queries_shared_by_both_roles_save_one_set_of_them():
    shared = replace(PAPER_MEMORY, compressor=CompressorConfig(shares_queries=True))
    counts = describe("qwen3-vl-8b", shared)["num_parameters"]
    assert counts["compressor"] == 234_995_712 - 8 * 4096 == 234_962_944
    assert counts["readout"] == 9_478_400


@pytest.mark.parametrize(("source", "more"), [("summed", 0), ("joined", 3 * 4096 * 4096)])
def test_a_sum_of_calibrated_parts_keeps_the_papers_count_and_a_join_adds_its_map(source, more):
    counts = describe("qwen3-vl-8b", MemoryConfig(state_source=source))["num_parameters"]
    paper = describe("qwen3-vl-8b", PAPER_MEMORY)["num_parameters"]
    assert counts["readout"] == paper["readout"] + more
    assert {name: counts[name] for name in ("lora", "compressor")} == {
        name: paper[name] for name in ("lora", "compressor")
    }


def test_unknown_size():
    with pytest.raises(BackboneError, match="Known sizes"):
        describe("qwen9", MemoryConfig())
