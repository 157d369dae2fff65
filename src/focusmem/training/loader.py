"""Prepared batches in the order of their numbers, drawn by worker processes while the GPU computes."""

import gc
import os
import time
from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import DataLoader, Dataset

from focusmem.errors import UserError
from focusmem.training.batch import TrainingData
from focusmem.training.prepared import Prepared, Preparer


class _Shares(Dataset[list[Prepared] | UserError]):
    def __init__(self, data: TrainingData, preparer: Preparer, shares: Sequence[int], num_shares: int) -> None:
        self.data, self.preparer, self.shares, self.num_shares = data, preparer, shares, num_shares

    def __getitem__(self, number: int) -> list[Prepared] | UserError:
        try:
            return self.preparer.shares(self.data.batch(number), self.shares, self.num_shares)
        except UserError as error:  # passed on, because a worker process would wrap the message in a traceback
            return error


def prepared_batches(
    data: TrainingData,
    preparer: Preparer,
    numbers: range,
    *,
    shares: Sequence[int] = (0,),
    num_shares: int = 1,
    num_workers: int = 0,
    device: torch.device | None = None,
) -> Iterator[tuple[list[Prepared], float]]:
    """Yields these shares of each batch, with the seconds that were spent waiting for them."""
    if num_workers:
        gc.freeze()  # otherwise the garbage collector of every worker would touch, and so copy, all shared objects
    loader = DataLoader(
        _Shares(data, preparer, shares, num_shares),
        batch_size=None,
        sampler=numbers,
        num_workers=num_workers,
        prefetch_factor=2 if num_workers else None,
        pin_memory=device is not None and device.type == "cuda",
        collate_fn=_as_it_is,
        worker_init_fn=_give_way,
        # The data may hold open files and tables; forked workers share them without copying.
        multiprocessing_context="fork" if num_workers else None,
    )
    batches = iter(loader)
    for _ in numbers:
        asked = time.monotonic()
        prepared = next(batches)
        if isinstance(prepared, UserError):
            raise prepared
        yield prepared, time.monotonic() - asked


def _give_way(worker: int) -> None:
    """Lowers a worker's priority, so that the process that feeds the GPU goes first."""
    os.nice(5)


def _as_it_is(prepared: list[Prepared] | UserError) -> list[Prepared] | UserError:
    return prepared
