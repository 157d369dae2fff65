import io

import numpy as np
from PIL import Image

from factories import make_screenshot
from focusmem.reports.pictures import LOSSLESS_BYTES, MAX_SIDE, small_picture


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data), formats=["WEBP"])


def test_small_pictures_stay_exact():
    screenshot = make_screenshot(3)
    assert np.array_equal(opened(small_picture(screenshot.image())).convert("RGB"), screenshot.image())


def test_large_ones_are_scaled_down():
    assert opened(small_picture(Image.new("RGB", (2 * MAX_SIDE, 1000)))).size == (MAX_SIDE, 500)


def test_photographs_lose_a_little():
    noise = Image.fromarray(np.random.default_rng(0).integers(256, size=(300, 300, 3), dtype=np.uint8))
    data = small_picture(noise)
    assert len(data) > LOSSLESS_BYTES / 4
    assert not np.array_equal(opened(data).convert("RGB"), noise)
