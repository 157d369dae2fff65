"""The processes that train together, as torchrun or accelerate started them. A single process is a team of one."""

import atexit
import os
from dataclasses import dataclass

import torch
from torch import Tensor, distributed


@dataclass(frozen=True)
class Team:
    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def total(self, numbers: Tensor) -> Tensor:
        """The sum over all processes, in each of them."""
        if self.size > 1:
            distributed.all_reduce(numbers)
        return numbers

    def wait(self) -> None:
        """Waits until all processes are here."""
        if self.size > 1:
            distributed.barrier()


def join_team(device: torch.device) -> Team:
    """Joins the processes that the launcher's environment names, until this process ends."""
    if not distributed.is_initialized():
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return Team()
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        # Only when this process ends: a group that is joined again may find the addresses of the first group.
        atexit.register(distributed.destroy_process_group)
    return Team(distributed.get_rank(), distributed.get_world_size())


def own_device() -> torch.device:
    """The GPU that the launcher assigned to this process, or the CPU if there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device
