"""Devices, from the names that users give."""

import torch

from focusmem.errors import ConfigError


def usable_device(name: str) -> torch.device:
    """The device `cpu`, `cuda` or `cuda:1`. Raises ConfigError if this machine does not have it."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"The device is '{name}'; use cpu or cuda.") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"The device is '{name}'; use cpu or cuda.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"The device is '{name}', but torch sees no such GPU here; use --device cpu.")
    return device


def fast_dtype(device: torch.device) -> torch.dtype:
    """The precision in which a policy runs on a device."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def wait_for(device: torch.device) -> None:
    """Waits until all work on the device is done. Calls return before a GPU has finished, so timings need this."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
