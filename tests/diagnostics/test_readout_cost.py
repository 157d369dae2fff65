import pytest

from focusmem.diagnostics.readout_cost import WAYS, ReadoutCostConfig, measure_readout
from focusmem.errors import ConfigError


def test_all_ways_are_timed_and_read_the_same():
    config = ReadoutCostConfig(width=64, episodic_tokens=300, working_tokens=100, num_repeats=2)
    figures = measure_readout(config)
    assert set(figures["median_s"]) == set(WAYS)
    assert all(seconds > 0 for seconds in figures["median_s"].values())
    assert all(cosine > 0.9999 for cosine in figures["cosine_to_naive"].values())
    assert figures["speedup_over_naive"]["naive"] == 1.0


def test_bytes_are_those_of_the_arithmetic():
    figures = measure_readout(ReadoutCostConfig(width=64, episodic_tokens=30, working_tokens=10, num_repeats=1))
    keys_values, block = 2 * 3 * 40 * 64, (2 + 8) * 64 * 64
    assert figures["num_bytes_cached_must_read"] == 4 * (8 * (keys_values + block) + 64 * 64)


@pytest.mark.slow
def test_cached_is_four_times_faster_than_naive_on_a_cpu():
    figures = measure_readout(ReadoutCostConfig(width=384, num_repeats=3))
    assert figures["speedup_over_naive"]["cached"] >= 4


@pytest.mark.gpu
def test_cached_is_eight_times_faster_than_naive_and_near_its_floor_on_a_gpu():
    figures = measure_readout(ReadoutCostConfig(width=4096, device="cuda", dtype="bfloat16", num_repeats=20))
    assert figures["speedup_over_naive"]["cached"] >= 8
    assert figures["cached_over_floor"] <= 2.5


@pytest.mark.parametrize(
    "values", [{"dtype": "int3"}, {"width": 0}, {"num_repeats": 0}, {"device": "gpu"}, {"device": "mps"}]
)
def test_a_wrong_setting_is_named(values):
    with pytest.raises(ConfigError, match=next(iter(values))):
        measure_readout(ReadoutCostConfig(**values))
