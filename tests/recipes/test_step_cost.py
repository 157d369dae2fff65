import pytest
import torch

from focusmem.recipes.step_cost import PARTS, StepCostConfig, measure_step


@pytest.mark.slow  # a whole episode of the shipped policy, twice
def test_memory_adds_its_own_parts_and_no_look(tmp_path, monkeypatch):
    monkeypatch.setenv("FOCUSMEM_CACHE", str(tmp_path))
    num_threads = torch.get_num_threads()
    try:
        figures = measure_step(StepCostConfig(num_tasks=1, num_rounds=1))
    finally:
        torch.set_num_threads(num_threads)
    none, full = figures["floor_s"]["none"], figures["floor_s"]["full"]
    assert tuple(none) == PARTS
    assert {part for part in PARTS if none[part] == 0 < full[part]} == {"retrieve", "encode", "read"}
    assert full["look"] == pytest.approx(none["look"]), "each screenshot is looked at once, with memory too"
    assert full["prefill"] > none["prefill"] > 0
