"""The ways to build memory that the paper compares, and their training: one stage after the other, in one folder."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from focusmem.model.backbone import Backbone
from focusmem.model.config import MemoryConfig
from focusmem.model.policy import MemoryPolicy
from focusmem.seeds import derive_seed
from focusmem.training.batch import TrainingData
from focusmem.training.config import LoopConfig
from focusmem.training.pathway import Look
from focusmem.training.stage_a import StageA, StageAConfig, train_stage_a
from focusmem.training.stage_b import StageB, StageBConfig, train_stage_b


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to build memory, as the paper's ablation names them."""

    stage_a: StageAConfig
    stage_b: StageBConfig | None = None
    """None: the fixed blocks of stage A are what acts."""
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    what: str = ""

    @property
    def last_stage(self) -> str:
        """The one that leaves the memory that acts."""
        return StageA.name if self.stage_b is None else StageB.name

    @property
    def is_dynamic(self) -> bool:
        return self.stage_b is not None and self.stage_b.is_dynamic

    @property
    def is_gated(self) -> bool:
        return self.stage_b is not None and self.stage_b.is_gated


def ablation(content: StageAConfig, full: StageBConfig, memory: MemoryConfig) -> dict[str, Variant]:
    """The paper's: from fixed blocks, learnt from actions alone, to all three parts. `full` is the last one's second
    stage."""
    actions = replace(content, content_weight=0.0)
    descriptions, answers = replace(content, functional_weight=0.0), replace(content, semantic_weight=0.0)
    readout = StageBConfig(is_gated=False)
    return {
        "action-only": Variant(stage_a=actions, memory=memory, what="fixed blocks, learnt from actions alone"),
        "semantic": Variant(stage_a=descriptions, memory=memory, what="fixed blocks, and descriptions"),
        "functional": Variant(stage_a=answers, memory=memory, what="fixed blocks, and functional answers"),
        "content": Variant(stage_a=content, memory=memory, what="fixed blocks, descriptions and functional answers"),
        "readout": Variant(stage_a=content, stage_b=readout, memory=memory, what="content, read for the current state"),
        "full": Variant(stage_a=content, stage_b=full, memory=memory, what="content, readout and trust gate"),
    }


def train_stages(
    chosen: Variant,
    backbone: Backbone,
    data_a: TrainingData,
    data_b: TrainingData | None,
    folder: Path,
    *,
    loop_a: Callable[[], LoopConfig],
    loop_b: Callable[[], LoopConfig],
    start: Path | None = None,
    look: Look | None = None,
) -> Path | None:
    """Whatever stages a variant has, going on where a run was stopped; the trained memory's folder when finished.

    With `start`, a memory to begin the last stage with. Loops are asked for when their stage begins, since some of the
    time that they may take has passed by then.
    """
    if start is None or chosen.stage_b is None:
        loop = loop_a()
        policy = _fresh(backbone, chosen.memory, loop.seed)
        start = train_stage_a(
            policy, data_a, folder / "stage-a", start=start, stage=chosen.stage_a, loop=loop, look=look
        ).memory
    if start is None or chosen.stage_b is None:
        return start
    assert data_b is not None, "a variant with a second stage needs its data"
    loop = loop_b()
    policy = _fresh(backbone, chosen.memory, loop.seed)
    return train_stage_b(
        policy, data_b, folder / "stage-b", start=start, stage=chosen.stage_b, loop=loop, look=look
    ).memory


def _fresh(backbone: Backbone, config: MemoryConfig, seed: int) -> MemoryPolicy:
    """An untrained memory, equal for equal seeds."""
    torch.manual_seed(derive_seed(seed, "fresh memory"))
    return MemoryPolicy(backbone, config)
