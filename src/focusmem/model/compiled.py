"""Compiles functions of tensors if they run on a GPU. On a CPU, compiling takes longer than it saves."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def compiled_on_gpu(function: Callable[P, R]) -> Callable[P, R]:
    """Compiles a function if the device of its first argument, a tensor, is a GPU."""
    fast = lru_cache(lambda: torch.compile(function, dynamic=True))

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        is_on_gpu = isinstance(args[0], torch.Tensor) and args[0].is_cuda
        return fast()(*args, **kwargs) if is_on_gpu else function(*args, **kwargs)

    return call
