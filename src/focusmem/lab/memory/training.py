"""Trains one variant of memory in the laboratory, on episodes that never repeat."""

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

from focusmem.lab.memory.decisions import LabDecisions, LabDecisionsConfig, SiteFirst
from focusmem.lab.memory.embedder import READS_LESS
from focusmem.lab.memory.gate import teach_gate
from focusmem.lab.memory.pictures import lab_look
from focusmem.lab.memory.split_bank import SplitBank
from focusmem.lab.memory.stream import LabStream, Phase, StreamConfig
from focusmem.lab.memory.variants import check_start
from focusmem.lab.policy.texts import PROMPTS
from focusmem.lab.world.world import World
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import Checkpoint
from focusmem.seeds import derive_seed
from focusmem.settings import checked_dataclass, to_plain
from focusmem.training.config import LoopConfig
from focusmem.training.deadline import Deadline
from focusmem.training.departures import Origin
from focusmem.training.questions import Questions
from focusmem.training.record import begin_record, end_record
from focusmem.training.variants import PAPER_VARIANTS, MemoryTraining, paper_training, train_stages

LAB_QUESTIONS: Final = PROMPTS / "questions"
"""The folder with the wording of the teacher's questions."""
GATE_ALONE: Final = "the gate is taught alone after stage B, with labels"
"""The sentence on a card for this departure from the paper."""


@checked_dataclass(frozen=True, kw_only=True)
class LabTraining(MemoryTraining):
    """All settings of a training in the laboratory, including those of its data."""

    gate: LoopConfig | None = None
    """The settings of the last stage, which trains the gate alone, if the variant has a gate. None leaves this stage
    out."""
    stream: StreamConfig = field(default_factory=StreamConfig)
    later_course: tuple[Phase, ...] = ()
    """The phases that come first in stage B, where the readout learns."""
    decisions: LabDecisionsConfig = field(default_factory=LabDecisionsConfig)
    policy: Path | None = None
    """The policy's folder. None uses the shipped policy."""
    device: str = "cuda"
    """cuda or cpu. Of several processes on cuda, each takes the GPU that the launcher gives it."""
    world_seed: int = 0


def train_memory(
    policy: Backbone,
    training: LabTraining,
    folder: Path,
    *,
    bank: SplitBank | None = None,
    command: Sequence[str] = (),
) -> Path | None:
    """Trains a variant, or resumes its training. Returns the memory's folder, or None if the training is not finished.
    Nothing is prepared: trajectories are found by their site, the world gives the teacher's answers, and the teacher's
    states are computed in each step.

    If several variants are trained, `bank` can be made once and given to each; the training then uses the world, the
    split and the sites of this bank.
    """
    deadline, variant = Deadline(training.max_minutes), training.variant
    if training.start is not None:  # before the bank, which may take minutes
        check_start(training.start, variant)
    begin_record(folder, training, seed=training.decisions.seed, device=str(policy.device), command=command)
    decisions, stream = replace(training.decisions, num_trajectories=training.stream.num_needed), training.stream
    if bank is None:
        bank = SplitBank(World(training.world_seed), decisions.split, num_sites=decisions.num_sites)
        if training.loop_a.num_workers:
            bank.roll_out_all(training.loop_a.num_workers)
    else:
        decisions = replace(decisions, split=bank.split, num_sites=bank.num_sites)

    def source(config: LabDecisionsConfig, questions: Questions | None) -> LabDecisions:
        return LabDecisions(bank.world, policy.chat, bank, SiteFirst(bank), config, told=questions)

    questions = Questions(LAB_QUESTIONS) if training.learns_content else None
    data_a = LabStream(source(replace(decisions, negative_share=0.0), questions), stream)
    misled = decisions.negative_share if variant.trains_gate else 0.0
    # Another seed, so that the second stage sees new episodes.
    later = replace(decisions, negative_share=misled, seed=derive_seed(decisions.seed, "stage B"))
    data_b = LabStream(source(later, None), replace(stream, course=training.later_course))
    notes = card_notes(training, policy)
    memory = train_stages(
        training, policy, data_a, data_b, folder, deadline=deadline, look=lab_look(policy), notes=notes
    )
    if memory is not None and training.gate is not None and variant.is_gated:
        loop, seed = deadline.limit(training.gate), derive_seed(decisions.seed, "gate")
        near = decisions.near_share
        memory = teach_gate(
            policy, variant, folder / "gate", loop, start=memory, bank=bank, seed=seed, near_share=near, notes=notes
        )
    if memory is not None:
        end_record(folder)
    return memory


def card_notes(training: LabTraining, policy: Backbone) -> dict[str, Any]:
    """What a memory's card says about its training: the recipe, all departures from the paper, and the scale."""
    start = None if training.start is None else Checkpoint.open(training.start)
    name = training.variant.name
    # Variants that only the laboratory has are compared with the paper's full memory.
    like = paper_training(name if name in PAPER_VARIANTS else "full")
    origin = Origin("lab", to_plain(like), list(_named_departures(training)), list(_models(policy)))
    return origin.departures(to_plain(training), start).notes()


def _named_departures(training: LabTraining) -> Iterator[str]:
    """Departures that are not settings of the paper, as sentences."""
    stream, variant = training.stream, training.variant
    yield "trajectories are found by their site, not by the embedder at every step"
    yield f"when the memory acts, {READS_LESS}"
    yield "trajectories of fewer than 8 steps are learnt from too"
    if training.learns_content:
        yield "the world supplies the lessons' texts; the frozen policy does not decode them"
    yield "episodes and decisions that memory can help with come first"
    yield "prompts say which actions failed"
    yield f"a step has at most {stream.num_episodes * stream.num_decisions} decisions, and drills (paper: 32 decisions)"
    if stream.course and training.has_stage_a:
        yield "a course of short drills comes before whole episodes"
    if training.later_course and variant.stage_b is not None:
        yield "stage B begins with a course of short drills too"
    if stream.drills.num_numbers or stream.drills.num_ways or stream.drills.entries.num:
        yield "every step has drills besides its episodes"
    if training.gate is not None and variant.is_gated:
        yield GATE_ALONE
    if variant.is_gated:
        yield "the gate's threshold may take any value (paper: one of 0.1 to 0.5)"


def _models(policy: Backbone) -> Iterator[str]:
    """The policy and the embedder, as sentences."""
    millions = sum(parameter.numel() for parameter in policy.model.parameters()) / 1e6
    size = round(millions) if millions >= 1 else round(millions, 2)
    yield f"the policy has {size} million parameters and a width of {policy.width} (paper: Qwen3-VL-8B)"
    yield "the embedder is the policy with a small update (paper: Qwen3-VL-Embedding-2B)"
