"""Pictures of batches: placeholders first, then drawn by worker processes while a GPU computes. Episodes are made in
the same way.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

from focusmem.files import sha256_hex
from focusmem.lab.world.rollout import RolloutStep
from focusmem.lab.world.scene import VIEW_HEIGHT, VIEW_WIDTH
from focusmem.lab.world.session import PageSession
from focusmem.lab.world.world import World
from focusmem.schemas import Screenshot

BatchT = TypeVar("BatchT")


def placeholder(step: RolloutStep) -> Screenshot:
    """A placeholder for a screenshot whose pixels are drawn later. Its digest identifies the view."""
    digest = sha256_hex(repr((step.path, step.scroll, step.typed)).encode())
    return Screenshot(png=b"", digest=digest, width=VIEW_WIDTH, height=VIEW_HEIGHT)


def pixels_of(world: World, step: RolloutStep) -> npt.NDArray[np.uint8]:
    """The view of a step, as bytes of red, green and blue."""
    return np.asarray(PageSession(world, step.path, scroll=step.scroll, typed=step.typed).image())


def all_pixels_of(world: World, steps: Collection[RolloutStep]) -> npt.NDArray[np.uint8]:
    """The views of many steps in one array, so that hundreds of pictures are copied only once."""
    drawn_NHWC = np.empty((len(steps), VIEW_HEIGHT, VIEW_WIDTH, 3), dtype=np.uint8)
    for place, step in enumerate(steps):
        drawn_NHWC[place] = pixels_of(world, step)
    return drawn_NHWC


def drawn_ahead(data: Dataset[BatchT], num_workers: int, *, num_ahead: int = 2) -> Iterator[BatchT]:
    """Yields the batches of a dataset in order. Each worker prepares a few batches in advance."""
    yield from DataLoader(
        data,
        batch_size=None,
        num_workers=num_workers,
        prefetch_factor=num_ahead if num_workers else None,
        pin_memory=torch.cuda.is_available(),
        collate_fn=_as_it_is,
        # Forked workers share objects that were made before, such as a bank.
        multiprocessing_context="fork" if num_workers else None,
    )


def made_side_by_side(make: Callable[[int], BatchT], num: int, num_workers: int) -> list[BatchT]:
    """Returns `make(0)`, `make(1)` and so on, computed by worker processes. It is used for episodes, which are slow to
    roll out.
    """
    return list(drawn_ahead(_Made(make, num), num_workers, num_ahead=8))


class _Made(Dataset[BatchT]):
    def __init__(self, make: Callable[[int], BatchT], num: int) -> None:
        self.make, self.num = make, num

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, number: int) -> BatchT:
        if number >= self.num:
            raise IndexError(number)
        return self.make(number)


def _as_it_is(batch: Any) -> Any:
    return batch
