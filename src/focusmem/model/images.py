"""Prepares the patches that the vision tower reads from a picture, with Pillow and numpy only.

The result equals the library's own slow image processor bit for bit, and does not change with whether
torchvision is installed (its resizing differs).
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from pydantic import PositiveInt
from torch import Tensor

from focusmem.errors import ConfigError
from focusmem.settings import checked_dataclass

_MAX_ASPECT_RATIO = 200


@checked_dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """A backbone's image preparation. The defaults are those of the published Qwen3-VL checkpoints."""

    patch_size: PositiveInt = 16
    """Side of a square patch, in pixels."""
    merge_size: PositiveInt = 2
    """Patches per side that the tower merges into one token."""
    temporal_patch_size: PositiveInt = 2
    """How often a still picture is repeated, because the tower reads short clips."""
    min_pixels: PositiveInt = 256 * 256
    """Smaller pictures are enlarged to this area."""
    max_pixels: int = 4096 * 4096
    """Larger pictures are shrunk to this area."""
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)

    def __post_init__(self) -> None:
        if self.min_pixels > self.max_pixels:
            raise ConfigError(f"ImageConfig.min_pixels is {self.min_pixels}, above max_pixels, {self.max_pixels}.")

    @property
    def pixels_per_token(self) -> int:
        """Side of the square of pixels behind one visual token."""
        return self.patch_size * self.merge_size


@dataclass(frozen=True)
class Patches:
    values_PF: npt.NDArray[np.float32]
    """P patches in the tower's order (2x2 neighbours together), F flattened channels, frames and pixels."""
    grid: tuple[int, int]
    """Rows and columns of patches."""


def fitted_size(height: int, width: int, config: ImageConfig) -> tuple[int, int]:
    """The nearest size that is a whole number of tokens and within the pixel limits."""
    if max(height, width) > _MAX_ASPECT_RATIO * min(height, width):
        raise ConfigError(
            f"A picture of {width}x{height} pixels is too narrow: one side may be at most "
            f"{_MAX_ASPECT_RATIO} times the other."
        )
    side = config.pixels_per_token
    fitted_h, fitted_w = round(height / side) * side, round(width / side) * side
    if fitted_h * fitted_w > config.max_pixels:
        shrink = math.sqrt(height * width / config.max_pixels)
        fitted_h = max(side, math.floor(height / shrink / side) * side)
        fitted_w = max(side, math.floor(width / shrink / side) * side)
    elif fitted_h * fitted_w < config.min_pixels:
        grow = math.sqrt(config.min_pixels / (height * width))
        fitted_h = math.ceil(height * grow / side) * side
        fitted_w = math.ceil(width * grow / side) * side
    return fitted_h, fitted_w


def prepare_image(image: Image.Image, config: ImageConfig) -> Patches:
    """Resize, normalise and cut one picture into patches."""
    pixels_HWC = fitted_pixels(image, config)
    values_PF = cut_patches(torch.from_numpy(pixels_HWC)[None], config)
    height, width, _ = pixels_HWC.shape
    return Patches(values_PF.numpy(), (height // config.patch_size, width // config.patch_size))


def fitted_pixels(image: Image.Image, config: ImageConfig) -> npt.NDArray[np.uint8]:
    """Bytes of red, green and blue, (H, W, 3), in a size that is a whole number of tokens."""
    height, width = fitted_size(image.height, image.width, config)
    rgb = image.convert("RGB")
    if rgb.size != (width, height):
        rgb = rgb.resize((width, height), resample=Image.Resampling.BICUBIC)
    return np.array(rgb)


def cut_patches(pixels_NHWC: Tensor, config: ImageConfig) -> Tensor:
    """Normalised patches (P, F) of pictures of one size, one picture after another. They are made on the device of the
    pixels: bytes are a quarter of the size to copy, and a GPU converts many pictures at once.
    """
    # A byte has 256 values, so a look-up table normalises.
    table_CV = torch.from_numpy(_normalised_bytes(config)).to(pixels_NHWC.device)
    indices_NHWC = pixels_NHWC.int()
    normalised = torch.stack([table_CV[channel][indices_NHWC[..., channel]] for channel in range(3)], dim=1)
    patch, merge, frames = config.patch_size, config.merge_size, config.temporal_patch_size
    num, _, height, width = normalised.shape
    rows, columns = height // patch, width // patch
    blocks = normalised.view(num, 3, rows // merge, merge, patch, columns // merge, merge, patch)
    ordered = blocks.permute(0, 2, 5, 3, 6, 1, 4, 7)  # picture, block row, block column, row, column, channel, y, x
    repeated = ordered[:, :, :, :, :, :, None].expand(*ordered.shape[:6], frames, patch, patch)
    return repeated.reshape(num * rows * columns, -1)


def _normalised_bytes(config: ImageConfig) -> npt.NDArray[np.float32]:
    unit_V = (np.arange(256, dtype=np.float64) * (1 / 255)).astype(np.float32)
    mean_C1 = np.array(config.mean, dtype=np.float32)[:, None]
    std_C1 = np.array(config.std, dtype=np.float32)[:, None]
    table: npt.NDArray[np.float32] = (unit_V[None] - mean_C1) / std_C1
    return table
