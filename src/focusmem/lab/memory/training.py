"""Trains one variant of memory in the laboratory, on episodes that never repeat."""

from dataclasses import replace
from pathlib import Path

from focusmem.lab.memory.decisions import LabDecisions, LabDecisionsConfig, SiteFirst
from focusmem.lab.memory.gate import teach_gate
from focusmem.lab.memory.split_bank import SplitBank
from focusmem.lab.memory.stream import LabStream, StreamConfig
from focusmem.lab.memory.variants import TEACHER, LabTraining, begins_with_stage_a, check_start, train_variant, variant
from focusmem.lab.world.world import World
from focusmem.model.backbone import Backbone
from focusmem.seeds import derive_seed
from focusmem.training.questions import Questions


def train_memory(
    policy: Backbone,
    name: str,
    folder: Path,
    training: LabTraining,
    *,
    stream: StreamConfig | None = None,
    decisions: LabDecisionsConfig | None = None,
    start: Path | None = None,
    world_seed: int = 0,
    bank: SplitBank | None = None,
) -> Path | None:
    """Train a variant on episodes that never come again. Nothing is prepared: trajectories are found by their site,
    and the world answers for the teacher, whose states are worked out in each step. A gate is then taught alone, where
    `training` says so.

    Who trains several variants makes the bank once and gives it to each; its world, split and sites are then those
    that are learnt from.
    """
    if start is not None:  # before the bank, which may take minutes
        check_start(start, name)
    stream = stream or StreamConfig()
    questions = Questions(TEACHER.prompts) if _has_lessons(name, start) else None
    needed = replace(decisions or LabDecisionsConfig(), num_trajectories=stream.num_needed)
    if bank is None:
        bank = SplitBank(World(world_seed), needed.split, num_sites=needed.num_sites)
        if training.stage_a.num_workers:
            bank.roll_out_all(training.stage_a.num_workers)
    else:
        needed = replace(needed, split=bank.split, num_sites=bank.num_sites)

    def source(own: LabDecisionsConfig, told: Questions | None) -> LabDecisions:
        return LabDecisions(bank.world, policy.chat, bank, SiteFirst(bank), own, told=told)

    data_a = LabStream(source(replace(needed, negative_share=0.0), questions), stream)
    misled = needed.negative_share if variant(name).is_gated else 0.0
    # Another seed, so that the second stage sees new episodes as well; what a course teaches was learnt in the first.
    later = replace(needed, negative_share=misled, seed=derive_seed(needed.seed, "stage B"))
    data_b = LabStream(source(later, None), replace(stream, course=()))
    memory = train_variant(name, policy, data_a, data_b, folder, training, start=start)
    if memory is None or training.gate is None or not variant(name).is_gated:
        return memory
    loop, seed = training.in_time(training.gate), derive_seed(needed.seed, "gate")
    return teach_gate(policy, name, folder / "gate", loop, start=memory, bank=bank, seed=seed)


def _has_lessons(name: str, start: Path | None) -> bool:
    """Whether what the teacher says is learnt from."""
    return begins_with_stage_a(name, start) and variant(name).stage_a.content_weight > 0
