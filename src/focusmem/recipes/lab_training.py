"""The recipe for memories in the laboratory: learning rates and batches for a small policy."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from focusmem.errors import ConfigError
from focusmem.lab.memory.decisions import LabDecisionsConfig
from focusmem.lab.memory.drills import Drills
from focusmem.lab.memory.stream import COURSE, ENTRY_COURSE, ENTRY_DRILLS, StreamConfig
from focusmem.lab.memory.training import LabTraining
from focusmem.lab.memory.variants import PAPER
from focusmem.lab.memory.variants import variant as named
from focusmem.training.config import READOUT_TIMES, LoopConfig


def recipe(suite: str, variant: str) -> LabTraining:
    if suite not in RECIPES:
        raise ConfigError(f"There is no suite '{suite}' in the laboratory; choose {' or '.join(RECIPES)}.")
    return RECIPES[suite](variant)


def lab_entries(variant: str) -> LabTraining:
    """The same for offices. Their course goes from entries in words to entries in trajectories, in both stages: a
    readout learns to choose only if it meets few entries, in words, first.
    """
    base = lab(variant)
    if variant == PAPER:  # a single rate in each stage, and no stage for the gate alone
        base = replace(base, loop_b=replace(base.loop_b, gate_rate_times=1.0, readout_rate_times=1.0), gate=None)
    return replace(
        base,
        loop_a=replace(base.loop_a, num_steps=5000),
        loop_b=replace(base.loop_b, learning_rate=2e-4, num_steps=5000),
        stream=StreamConfig(drills=ENTRY_DRILLS, course=ENTRY_COURSE),
        later_course=ENTRY_COURSE,
        decisions=LabDecisionsConfig(split="mo", near_share=0.5),
    )


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


RECIPES: Final[Mapping[str, Callable[[str], LabTraining]]] = {"lab": lab, "lab-entries": lab_entries}
"""By the suite of the laboratory that a memory is trained for."""
