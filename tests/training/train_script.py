"""Trains toy stages from the command line, for tests that need a process of its own: to kill it, or to have two."""

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from focusmem.training.batch import ListedBatches, TrainingBatch
from focusmem.training.stage_a import train_stage_a
from focusmem.training.stage_b import train_stage_b
from training.samples import make_data, make_loop, make_memory_policy, open_gate


def train_both(
    folder: Path,
    *,
    num_steps: int = 3,
    dropout: float = 0.0,
    opens_gate: bool = False,
    lesson_of: int | None = None,
    **loop,
) -> None:
    """Stage A, then stage B, going on in `folder` where it was stopped. With `lesson_of`, only this item is taught."""
    data, config = make_data(num_steps), make_loop(**{"save_every_steps": 2, **loop})
    if lesson_of is not None:
        data = ListedBatches([_taught_about(batch, lesson_of) for batch in data.batches])
    policy = make_memory_policy(dropout=dropout)
    if opens_gate:
        open_gate(policy)
    memory = train_stage_a(policy, data, folder / "a", loop=config).memory
    train_stage_b(make_memory_policy(dropout=dropout), data, folder / "b", start=memory, loop=config)


def _taught_about(batch: TrainingBatch, number: int) -> TrainingBatch:
    items = [item if at == number else replace(item, lesson=None) for at, item in enumerate(batch.items)]
    return replace(batch, items=tuple(items))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--num-steps", type=int, default=3)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--opens-gate", action="store_true")
    parser.add_argument("--num-passes", type=int, default=1)
    parser.add_argument("--lesson-of", type=int)
    torch.set_num_threads(1)
    train_both(**vars(parser.parse_args()))
