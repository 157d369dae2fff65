import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from focusmem.errors import ConfigError
from focusmem.model.images import ImageConfig, fitted_size, prepare_image


def library_processor(config: ImageConfig) -> Qwen2VLImageProcessorPil:
    return Qwen2VLImageProcessorPil(
        patch_size=config.patch_size,
        merge_size=config.merge_size,
        temporal_patch_size=config.temporal_patch_size,
        size={"shortest_edge": config.min_pixels, "longest_edge": config.max_pixels},
        image_mean=list(config.mean),
        image_std=list(config.std),
    )


def noise(width: int, height: int, mode: str = "RGB") -> Image.Image:
    pixels = np.random.default_rng(width * height).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


@settings(max_examples=25)
@given(width=st.integers(8, 400), height=st.integers(8, 400), mode=st.sampled_from(["RGB", "L", "RGBA", "P"]))
def test_equals_the_librarys_slow_processor(width, height, mode):
    config = ImageConfig(min_pixels=64 * 64, max_pixels=256 * 256)
    image = noise(width, height, mode)
    theirs = library_processor(config)(images=[image], return_tensors="np")
    ours = prepare_image(image, config)
    assert (1, *ours.grid) == tuple(theirs["image_grid_thw"][0])
    assert ours.values_PF.dtype == np.float32
    np.testing.assert_array_equal(ours.values_PF, theirs["pixel_values"])


def test_published_settings_on_a_full_screenshot():
    config = ImageConfig()
    theirs = library_processor(config)(images=[noise(1280, 720)], return_tensors="np")
    ours = prepare_image(noise(1280, 720), config)
    assert ours.grid == (44, 80)  # 1280x704, so 880 tokens
    np.testing.assert_array_equal(ours.values_PF, theirs["pixel_values"])


def test_other_mean_and_std_per_channel():
    config = ImageConfig(mean=(0.48, 0.45, 0.40), std=(0.26, 0.25, 0.27))
    theirs = library_processor(config)(images=[noise(300, 200)], return_tensors="np")
    np.testing.assert_array_equal(prepare_image(noise(300, 200), config).values_PF, theirs["pixel_values"])


def test_a_sliver_is_refused():
    with pytest.raises(ConfigError, match="too narrow"):
        fitted_size(1, 500, ImageConfig())


def test_limits_that_cannot_hold_are_refused():
    with pytest.raises(ConfigError, match="min_pixels"):
        ImageConfig(min_pixels=100, max_pixels=10)
