"""Trains a memory on stored trajectories as in the paper: both stages, then the gate's threshold.

`PAPER` holds the paper's configuration; `paper_lab` is the same with the laboratory's policy and embedder.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from focusmem.data.config import DataConfig
from focusmem.data.decisions import TrajectoryDecisions
from focusmem.data.finding import FoundForTrajectory
from focusmem.data.preparation import Prepared
from focusmem.errors import ConfigError, TrainingError
from focusmem.lab.memory.embedder import READS_LESS, is_update
from focusmem.lab.memory.variants import with_lab_sizes
from focusmem.lab.policy.texts import PROMPTS as LAB_PROMPTS
from focusmem.lab.shipped import Weights
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import ERRORS_NOTE, Checkpoint
from focusmem.schemas import Task
from focusmem.settings import checked_dataclass, to_plain
from focusmem.suites.task_file import TaskSuite
from focusmem.training.batch import TrainingBatch
from focusmem.training.config import READOUT_TIMES
from focusmem.training.deadline import Deadline
from focusmem.training.departures import Origin
from focusmem.training.processes import join_team
from focusmem.training.record import begin_record, end_record
from focusmem.training.threshold import PAPER_THRESHOLDS, set_threshold
from focusmem.training.trajectory_batches import BatchingConfig, TrajectoryBatches
from focusmem.training.variants import MemoryTraining, paper_training, train_stages

_LAB: Final = "lab"
"""The policy, the embedder and the bank that ship."""
_VALIDATION_BATCH: Final = 8
_Threshold = Annotated[float, Field(gt=0, lt=1)]


@checked_dataclass(frozen=True, kw_only=True)
class TrajectoryTraining(MemoryTraining):
    """Everything that decides what a memory learns from stored trajectories, and how."""

    recipe: str = "paper"
    """The recipe that the settings began with. The memory's card names the recipe and all departures from the paper."""
    policy: str = "qwen3-vl-8b"
    """The frozen policy: a folder, a hub id, a short name, `lab` (ships) or `toy` (random weights)."""
    embedder: str = "Qwen/Qwen3-VL-Embedding-2B"
    """The embedder that the bank is searched with: a folder, a hub id, `lab` (ships) or `toy`."""
    device: str = "cuda"
    """cuda or cpu. With several processes on cuda, each takes the GPU that the launcher gives it."""
    data: DataConfig = field(default_factory=DataConfig)
    evaluation: tuple[Path, ...] = ()
    """Files of tasks for a later evaluation. Trajectories that could give one of them away are left out."""
    batching: BatchingConfig = field(default_factory=BatchingConfig)
    thresholds: Annotated[tuple[_Threshold, ...], Field(min_length=1)] | None = PAPER_THRESHOLDS
    """Candidates for the gate's threshold, as trusts. The choice is the candidate that makes the actions of validation
    trajectories likeliest. None allows any value. Without validation trajectories the threshold stays as it is."""

    def shipped_data(self) -> DataConfig:
        """The data settings, with `lab` replaced by the shipped parts."""
        data = self.data
        if data.bank == Path(_LAB):
            data = replace(data, bank=Weights().bank)
        return replace(data, prompts=LAB_PROMPTS) if self.policy == _LAB and data.prompts is None else data

    def evaluation_tasks(self) -> list[Task]:
        """The tasks of the files, each twice: with the id that a run gives it, and with the id in the file."""
        tasks = [task for path in self.evaluation for task in TaskSuite.from_file(path).tasks]
        return tasks + [task.model_copy(update={"task_id": task.task_id.partition("/")[2]}) for task in tasks]


def paper(variant: str) -> TrajectoryTraining:
    """The paper's settings."""
    own = paper_training(variant)
    loop_a, loop_b = (replace(loop, recomputes_blocks=None, num_workers=4) for loop in (own.loop_a, own.loop_b))
    return TrajectoryTraining(variant=own.variant, loop_a=loop_a, loop_b=loop_b)


def paper_lab(variant: str) -> TrajectoryTraining:
    """The paper's settings, literally, for the laboratory's policy: only sizes and models differ, and what the embedder
    reads."""
    own = paper(variant)
    memory = with_lab_sizes(own.variant.memory)
    return replace(
        own,
        recipe="paper-lab",
        variant=replace(own.variant, memory=memory),
        policy=_LAB,
        embedder=_LAB,
        data=replace(own.data, bank=Path(_LAB)),
    )


def focusmem(variant: str) -> TrajectoryTraining:
    """The paper's settings with a readout that can learn to choose: its state keeps the instruction apart, and its
    learning rate is higher than that of the other parts."""
    own = paper(variant)
    memory = replace(own.variant.memory, state_source="joined")
    return replace(
        own,
        recipe="focusmem",
        variant=replace(own.variant, memory=memory),
        loop_b=replace(own.loop_b, readout_rate_times=READOUT_TIMES),
    )


PAPER: Final = paper("full")
"""The paper's configuration. A card lists every setting that differs from it."""
RECIPES: Final[Mapping[str, Callable[[str], TrajectoryTraining]]] = {
    "paper": paper,
    "paper-lab": paper_lab,
    "focusmem": focusmem,
}


def recipe(name: str, variant: str) -> TrajectoryTraining:
    if name not in RECIPES:
        raise ConfigError(f"There is no training recipe '{name}'; choose one of {', '.join(RECIPES)}.")
    return RECIPES[name](variant)


def train_on_trajectories(
    policy: Backbone,
    training: TrajectoryTraining,
    prepared: Prepared,
    folder: Path,
    *,
    command: Sequence[str] = (),
) -> Path | None:
    """Trains both stages of a variant, or resumes them, and sets the gate's threshold; returns the finished memory.

    `prepared` was made from `training.shipped_data()`. If torchrun or `accelerate launch` has started several
    processes, each works on its share of every batch.
    """
    check_taught(training, prepared)
    deadline, variant, data = Deadline(training.max_minutes), training.variant, training.shipped_data()
    begin_record(folder, training, seed=training.loop_a.seed, device=str(policy.device), command=command)

    def decisions(found: Sequence[FoundForTrajectory], negative_share: float) -> TrajectoryDecisions:
        return TrajectoryDecisions(found, replace(data, negative_share=negative_share), prepared.sites)

    plain = decisions(prepared.found, 0.0)
    if training.learns_content:
        plain = replace(plain, lessons=prepared.lessons(policy, data))
    misled = decisions(prepared.found, data.negative_share if variant.trains_gate else 0.0)
    seen = decisions(prepared.validation, misled.config.negative_share)
    data_b = TrajectoryBatches(misled, training.batching, _held_out(seen, training.loop_b.num_held_out))
    memory = train_stages(
        training, policy, TrajectoryBatches(plain, training.batching), data_b,
        folder, deadline=deadline, notes=card_notes(training),
    )  # fmt: skip
    if memory is None or not join_team(policy.device).is_first:
        return memory
    stored = Checkpoint.open(memory)
    if variant.is_gated and prepared.validation and "threshold" not in stored.notes:
        held_out = decisions(prepared.validation, 0.0)
        num = sum(held_out.num_decisions(trajectory) for trajectory in range(held_out.num_trajectories))
        batches = TrajectoryBatches(held_out, BatchingConfig(num_decisions=min(num, _VALIDATION_BATCH)))
        set_threshold(
            stored.build(policy), memory, batches, is_dynamic=variant.is_dynamic, candidates=training.thresholds
        )
    end_record(folder)
    return memory


def _held_out(validation: TrajectoryDecisions, num_decisions: int) -> TrainingBatch | None:
    """Decisions of validation trajectories, for the vital signs; None if there are none."""
    num = sum(validation.num_decisions(trajectory) for trajectory in range(validation.num_trajectories))
    return (
        TrajectoryBatches(validation, BatchingConfig(num_decisions=min(num, num_decisions))).batch(0) if num else None
    )


def check_taught(training: TrajectoryTraining, prepared: Prepared) -> None:
    """Raises TrainingError if the teacher has just failed to give a single functional answer that can be learnt."""
    taught = prepared.taught
    needs_answers = training.learns_content and training.variant.stage_a.functional_weight > 0
    if taught is None or not needs_answers or taught.num_targets or not taught.discarded:
        return
    reasons = ", ".join(f"{reason} {num}" for reason, num in taught.reasons.most_common())
    raise TrainingError(
        f"The policy gave {taught.discarded.total()} functional answers, and none of them can be learnt ({reasons}). "
        "Use a policy that follows such instructions, ask in other words (the texts in `questions` of the folder in "
        "--set data.prompts=FOLDER), or train without functional answers (--set variant.stage_a.functional_weight=0)."
    )


def card_notes(training: TrajectoryTraining) -> dict[str, Any]:
    """What a memory's card says about its training: the recipe, all departures from the paper, and its prompts."""
    start = None if training.start is None else Checkpoint.open(training.start)
    is_labs = training.embedder == _LAB or is_update(Path(training.embedder))
    origin = Origin(training.recipe, to_plain(paper(training.variant.name)), [READS_LESS] if is_labs else [])
    return origin.departures(to_plain(training), start).notes() | {ERRORS_NOTE: training.data.shows_errors}
