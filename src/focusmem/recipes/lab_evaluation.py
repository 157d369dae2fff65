"""An evaluation in the laboratory from names and folders alone, in one process or shared out over several.

A policy this small leaves a GPU idle while Python thinks; several processes, each with its own copy, keep it busier.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt
import torch

from focusmem.agent.memory import AgentMemory
from focusmem.bank.embedder import Embedder
from focusmem.errors import ConfigError, FocusmemError
from focusmem.evaluation.run_store import RunStore
from focusmem.files import cache_folder
from focusmem.lab.evaluate import EvaluateConfig, Evaluation, MemoryKind, summarise
from focusmem.lab.memory.embedder import load_embedder
from focusmem.lab.memory.recall import LabBank, LabRecall, Retrieval
from focusmem.lab.memory.variants import VARIANTS, agent_memory
from focusmem.lab.policy.policy import load_policy
from focusmem.lab.shipped import SHIPPED_MEMORIES, Weights
from focusmem.lab.world.experts import expert_rollouts
from focusmem.lab.world.rollout import Rollout
from focusmem.lab.world.tasks import LabTask
from focusmem.lab.world.world import World
from focusmem.progress import Progress
from focusmem.schemas import Task
from focusmem.worker_processes import worker_processes

_LOOK_S = 0.5


def memory_kind(name: str) -> MemoryKind:
    """What kind of memory a name stands for: itself where nothing is trained, latent where it is a variant's."""
    if name in VARIANTS:
        return "latent"
    for kind in get_args(MemoryKind):
        if kind == name != "latent":
            return cast(MemoryKind, kind)
    raw = ", ".join(kind for kind in get_args(MemoryKind) if kind != "latent")
    raise ConfigError(f"There is no memory '{name}'; choose one of {raw}, or a trained one: {', '.join(VARIANTS)}.")


@dataclass(frozen=True, kw_only=True)
class BankChoice:
    """What trajectories are found in: all that experts left on the evaluation sites, some of it, or a bank on disk."""

    folder: Path | None = None
    num_sites: int | None = None
    """So many sites, the first ones, as `focusmem lab bank --sites` writes them to disk."""

    def __post_init__(self) -> None:
        if self.folder is not None and self.num_sites is not None:
            raise ConfigError("A bank on disk and a number of sites were given; choose one of them.")
        if self.num_sites is not None and self.num_sites < 1:
            raise ConfigError(f"The bank has {self.num_sites} sites; it must have at least one.")

    @property
    def words(self) -> str | None:
        if self.folder is not None:
            return str(self.folder)
        return None if self.num_sites is None else f"the first {self.num_sites} sites"

    def sites(self, world_seed: int) -> tuple[str, ...] | None:
        """Those of which the bank holds something; None where that is not asked, and tasks come from everywhere."""
        if self.folder is not None:
            from focusmem.bank.store import Bank  # needs a vector store, which not every machine has

            return tuple(Bank.open(self.folder).sites())
        if self.num_sites is None:
            return None
        rollouts = expert_rollouts(World(world_seed), "e", num_sites=self.num_sites)
        return tuple(sorted({one.task.site_id for one in rollouts}))

    def recall(self, embedder: Embedder, world_seed: int, known: "KnownBank | None" = None) -> Retrieval:
        if self.folder is not None:
            from focusmem.bank.store import Bank
            from focusmem.lab.memory.bank_recall import BankRecall

            return BankRecall(Bank.open(self.folder), embedder)
        if known is not None:
            return LabRecall.of(LabBank(World(world_seed), "e", rollouts=known.rollouts), embedder, known.vectors_ND)
        bank = LabBank(World(world_seed), "e", num_sites=self.num_sites)
        return LabRecall.build(bank, embedder, kept=cache_folder() / "lab-bank")


@dataclass(frozen=True)
class KnownBank:
    """What one process has found out about a bank, for others to go by."""

    rollouts: tuple[Rollout, ...]
    vectors_ND: npt.NDArray[np.float32]

    @classmethod
    def of(cls, recall: Retrieval | None) -> "KnownBank | None":
        """None where there is nothing to find out: no bank, or one on disk."""
        return cls(tuple(recall.bank.rollouts), recall.index.vectors_ND) if isinstance(recall, LabRecall) else None


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan:
    """All that a process needs to know to take its part."""

    config: EvaluateConfig
    folder: Path
    policy: Path | None = None
    """None: the shipped one."""
    checkpoint: Path | None = None
    """A trained memory; None: the shipped one where there is one."""
    embedder: Path | None = None
    """None: the shipped policy's, where trajectories have to be found."""
    bank: BankChoice = BankChoice()
    device: str = "cpu"
    command: tuple[str, ...] = ()
    """The line that was typed, word by word; none where it was not a command."""

    def __post_init__(self) -> None:
        if self.checkpoint is not None and self.config.memory != "latent":
            raise ConfigError(
                f"checkpoint is {self.checkpoint}, but the memory '{self.config.method}' is not a trained one; leave "
                f"it out, or choose one of {', '.join(VARIANTS)}."
            )

    def build(self, known: KnownBank | None = None) -> Evaluation:
        """Everything loaded."""
        config, embedder, checkpoint = self.config, self.embedder, self.checkpoint
        policy = load_policy(Weights().policy if self.policy is None else self.policy, self.device)
        if self.policy is None and config.needs_recall:  # what ships was trained for the shipped policy alone
            embedder = embedder or Weights().embedder
            checkpoint = checkpoint or (Weights().memory(config.method) if config.method in SHIPPED_MEMORIES else None)
        memory: AgentMemory | None = None
        if config.memory == "latent":  # before the bank, which may take minutes
            if checkpoint is None:
                raise ConfigError(
                    f"The memory '{config.method}' needs a checkpoint: what `focusmem lab train {config.method} --out "
                    f"RUN` leaves in RUN. Only {' and '.join(SHIPPED_MEMORIES)} ship, for the shipped policy."
                )
            memory = agent_memory(policy, checkpoint, config.method)
        recall: Retrieval | None = None
        if embedder is not None and config.needs_recall:
            recall = self.bank.recall(load_embedder(policy, embedder), config.world_seed, known)
        return Evaluation(policy, config, self.folder, memory=memory, recall=recall, command=self.command)


def evaluate(plan: EvaluationPlan, *, num_processes: int = 1) -> dict[str, Any]:
    """Run what is not yet in the plan's folder, and sum up all of it."""
    if num_processes < 1:
        raise ConfigError(f"num_processes is {num_processes}; it must be at least 1.")
    evaluation = plan.build()
    if num_processes == 1:
        evaluation.run()
    else:
        with evaluation.on_record():
            _share_out(plan, evaluation, num_processes)
    return summarise(plan.folder)


def _share_out(plan: EvaluationPlan, evaluation: Evaluation, num_processes: int) -> None:
    """Processes that take a part each; episodes are counted as they appear on disk."""
    tasks = evaluation.tasks()
    parts = [tasks[number::num_processes] for number in range(num_processes)]
    with worker_processes(
        partial(_take_part, plan, KnownBank.of(evaluation.recall), parts), num_processes
    ) as processes:
        _watch(evaluation.store, [one.task for one in tasks], processes, note=plan.config.method)
    num_failed = sum(process.exitcode != 0 for process in processes)
    if num_failed:
        raise FocusmemError(
            f"{num_failed} of {num_processes} processes stopped early; their messages are above. "
            f"What is finished is in {plan.folder}, and the same line goes on from there."
        )


def _watch(store: RunStore, tasks: Sequence[Task], processes: Sequence[BaseProcess], *, note: str) -> None:
    left = [task for task in tasks if not store.is_done(task)]
    with Progress("evaluate", total=len(tasks), start=len(tasks) - len(left)) as line:
        are_at_work = True
        while are_at_work:
            wait([process.sentinel for process in processes if process.is_alive()], timeout=_LOOK_S)
            are_at_work = any(process.is_alive() for process in processes)  # before looking, so that nothing is missed
            done = [task for task in left if store.is_done(task)]
            left = [task for task in left if task not in done]
            for episode in store.episodes([task.task_id for task in done]):
                line.step(failed=episode.outcome == "error", note=note)


def _take_part(plan: EvaluationPlan, known: KnownBank | None, parts: Sequence[Sequence[LabTask]], number: int) -> None:
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // len(parts)))
    plan.build(known).run_part(parts[number])
