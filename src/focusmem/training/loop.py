"""The one training loop. A stage says what is learnt; the loop steps, reports, saves and resumes.

All random numbers of a step come from the run's seed, the step and the share of the batch, and a batch is determined by
its number. A resumed run therefore equals an uninterrupted one.
"""

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from focusmem.errors import ConfigError
from focusmem.model.policy import MemoryPolicy
from focusmem.progress import Progress
from focusmem.training.batch import TrainingData
from focusmem.training.config import LoopConfig
from focusmem.training.metrics import note
from focusmem.training.objective import in_training
from focusmem.training.pathway import Look
from focusmem.training.processes import join_team
from focusmem.training.stage import Stage
from focusmem.training.training_run import TrainingRun
from focusmem.training.vital_signs import HeldOut


@dataclass(frozen=True)
class TrainingResult:
    folder: Path
    num_steps: int
    """The number of steps so far, over all runs in the folder."""
    is_finished: bool
    """False if the time limit stopped the run. The same call resumes it."""
    losses: Mapping[str, float]
    """The losses of the last step of this run; empty if there was no step left."""
    waiting_rate: float
    """Share of this run's time that was spent waiting for data."""
    memory: Path | None
    """The trained memory's checkpoint, when finished."""


def train(
    policy: MemoryPolicy,
    data: TrainingData,
    stage: Stage,
    config: LoopConfig,
    folder: Path,
    *,
    look: Look | None = None,
) -> TrainingResult:
    """Trains the stage's parts of a policy on its device, or resumes the run in `folder`.

    If torchrun or `accelerate launch` has started several processes, each works on its share of every batch. This seeds
    torch's global random numbers.
    """
    device = policy.backbone.device
    config = config.on(device.type)
    if config.packs_rows:
        _check_packing(policy, config)
    if device.type == "cuda":
        # cuDNN plans its attention anew for every shape, and shapes change with every batch.
        torch.backends.cuda.enable_cudnn_sdp(False)
    team = join_team(device)
    with in_training(policy, stage.trained_parts, packs_rows=bool(config.packs_rows)):
        num_steps = _num_steps(data, config)
        digest = getattr(data, "digest", None)
        held_out = None
        if stage.has_vital_signs:
            held_out = HeldOut.of(data, num_steps=num_steps, num_decisions=config.num_held_out)
        run = TrainingRun(
            policy, stage, config, folder,
            team=team, num_steps=num_steps, look=look, data_digest=digest, held_out=held_out,
        )  # fmt: skip
        run.begin()
        started, waited_s, report = time.monotonic(), 0.0, None
        with Progress(stage.name, num_steps, start=run.step) if team.is_first else nullcontext() as line:
            for shares, waited in run.batches(data):
                report = run.learn(shares, waited, is_late=_is_late(config, started))
                run.record(report)
                run.check_vital_signs(report)
                waited_s += waited
                if line is not None:
                    line.step(note=note(report, device))
                if run.is_over:
                    break
        run.end()
        took_s = max(1e-9, time.monotonic() - started)
    is_finished = run.step == num_steps
    return TrainingResult(
        folder=folder,
        num_steps=run.step,
        is_finished=is_finished,
        losses={} if report is None else report.losses,
        waiting_rate=min(1.0, waited_s / took_s),
        memory=run.memory if is_finished else None,
    )


def _check_packing(policy: MemoryPolicy, config: LoopConfig) -> None:
    """Checks before anything is written: packed rows have no dropout, and their GPU kernel needs bfloat16."""
    dropout = policy.config.lora.dropout
    if dropout > 0:
        raise ConfigError(
            f"LoopConfig.packs_rows is on, but LoraConfig.dropout is {dropout}, and rows laid end to end have none. "
            "Set one of them to 0 or False."
        )
    backbone = policy.backbone
    if backbone.device.type == "cuda" and not config.is_bfloat16 and backbone.dtype == torch.float32:
        raise ConfigError("LoopConfig.packs_rows needs bfloat16 on a GPU; set is_bfloat16, or packs_rows to False.")


def _is_late(config: LoopConfig, started: float) -> bool:
    return config.max_minutes is not None and time.monotonic() - started >= config.max_minutes * 60


def _num_steps(data: TrainingData, config: LoopConfig) -> int:
    num_batches = data.num_batches
    if not num_batches:
        why = getattr(data, "shortage", "the data has no batches. Give it more decisions, or make batches of fewer.")
        raise ConfigError(f"There is nothing to train on: {why}")
    if config.num_steps is not None and config.num_steps > num_batches:
        raise ConfigError(
            f"LoopConfig.num_steps is {config.num_steps}, but the data has {num_batches} batches; "
            "ask for fewer steps, or for more epochs of the data."
        )
    return config.num_steps or num_batches
