"""The recipe for memories in the laboratory: learning rates and batches for a small policy."""

from dataclasses import replace

from focusmem.lab.memory.drills import Drills
from focusmem.lab.memory.stream import COURSE, StreamConfig
from focusmem.lab.memory.training import LabTraining
from focusmem.lab.memory.variants import variant as named
from focusmem.training.config import READOUT_TIMES, LoopConfig


def lab(variant: str) -> LabTraining:
    """Settings for a memory from scratch: a course of short drills, then whole episodes, then stage B, then the gate
    alone.
    """
    loop = LoopConfig(
        learning_rate=2e-4,
        num_steps=4000,
        packs_rows=None,
        stores_half=True,
        max_group_tokens=262_144,
        num_workers=6,
        save_every_steps=250,
    )
    return LabTraining(
        variant=named(variant),
        loop_a=loop,
        loop_b=replace(
            loop, learning_rate=1e-4, gate_rate_times=10.0, readout_rate_times=READOUT_TIMES, num_steps=1000
        ),
        gate=replace(
            loop, learning_rate=3e-3, num_steps=400, betas=(0.9, 0.98), max_gradient_norm=0.3, warmup_share=0.05
        ),
        stream=StreamConfig(drills=Drills(num_numbers=32, num_ways=32), course=COURSE),
    )
