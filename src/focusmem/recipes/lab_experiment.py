"""Memory trained in the laboratory, from a policy and an embedder to checkpoints: prepared once, then one variant at a
time, each on the same decisions.

A prepared folder holds everything that does not depend on trained weights: what retrieval found, and the teacher's
lessons. Variants may then be trained side by side.
"""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset

from focusmem.errors import ConfigError, StorageError
from focusmem.files import write_whole
from focusmem.lab.corpus import placeholder
from focusmem.lab.embedder import load_embedder
from focusmem.lab.recall import LabBank
from focusmem.lab.world import World
from focusmem.model.backbone import Backbone
from focusmem.recipes.lab_decisions import LabBatches, LabDecisions, LabDecisionsConfig, SiteFirst
from focusmem.recipes.lab_memory import TEACHER, LabTraining, lab_look, train_variant, variant
from focusmem.recipes.lab_recall import StoredRecall, prepare_recall
from focusmem.training.batch import TrainingBatch, TrainingItem
from focusmem.training.teacher import Teacher, lesson_store
from focusmem.training.trajectory_batches import BatchingConfig

_RECALL, _LESSONS, _CONFIG = "recall.json", "lessons", "prepared.json"


@dataclass(frozen=True, kw_only=True)
class ExperimentConfig:
    decisions: LabDecisionsConfig = field(default_factory=LabDecisionsConfig)
    batching: BatchingConfig = field(default_factory=BatchingConfig)
    num_bank_sites: int | None = None
    """Sites whose trajectories are in the bank; None: all of the split."""
    world_seed: int = 0


class _TaughtOnly(Dataset[TrainingBatch]):
    """The items of a source that the teacher speaks about, those of many trajectories to a batch.

    Batches are asked for in order, so worker processes can draw ahead.
    """

    def __init__(self, source: LabDecisions, *, num_workers: int = 0, num_trajectories: int = 40) -> None:
        self.source, self.size = source, num_trajectories
        self.num_batches = -(-source.num_trajectories // num_trajectories)
        self._ahead = iter(
            DataLoader(
                self,
                batch_size=None,
                num_workers=num_workers,
                collate_fn=_as_it_is,
                multiprocessing_context="fork" if num_workers else None,
            )
        )

    def batch(self, number: int) -> TrainingBatch:
        batch: TrainingBatch = next(self._ahead)
        return batch

    def __len__(self) -> int:
        return self.num_batches

    def __getitem__(self, number: int) -> TrainingBatch:
        items: dict[str, TrainingItem] = {}
        for one in range(number * self.size, min((number + 1) * self.size, self.source.num_trajectories)):
            whole = self.source.decisions(one, tuple(range(self.source.num_decisions(one))))
            items |= {item.digest: item for item in whole.items if self.source.is_taught(item)}
        return self.source.drawn(TrainingBatch(items=tuple(items.values()))) if items else TrainingBatch()


def prepare(
    policy: Backbone, embedder: Path | None, config: ExperimentConfig, folder: Path, *, num_workers: int = 0
) -> None:
    """Find and describe whatever the decisions need. Without an embedder, sites are known by name instead."""
    source, bank = _source(policy, config)
    write_whole(folder / _CONFIG, json.dumps(_described(policy, config), indent=2).encode())
    if embedder is not None and not (folder / _RECALL).exists():
        recall = prepare_recall(load_embedder(policy, embedder), source, bank, num_workers=num_workers)
        recall.save(folder / _RECALL)
    source.recall = _recall(folder, bank)
    taught = _TaughtOnly(source, num_workers=num_workers)
    Teacher(policy, folder / _LESSONS, TEACHER, look=lab_look(policy)).prepare(taught)


def train(
    policy: Backbone,
    name: str,
    config: ExperimentConfig,
    prepared: Path,
    folder: Path,
    training: LabTraining,
    *,
    stage_a_memory: Path | None = None,
) -> Path | None:
    """Train a variant on what was prepared; the memory's folder when finished, None when the time was up."""
    try:
        stored = json.loads((prepared / _CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StorageError(f"{prepared} is not prepared: {error}. Run `focusmem lab prepare` first.") from error
    if stored != json.loads(json.dumps(_described(policy, config))):
        raise ConfigError(f"{prepared} was prepared for another policy or other decisions; prepare it again.")
    source, bank = _source(policy, config)
    source.recall = _recall(prepared, bank)
    plain = LabDecisions(source.world, policy.chat, bank, source.recall, replace(config.decisions, negative_share=0.0))
    if variant(name).stage_a.content_weight > 0:
        plain.lessons = lesson_store(prepared / _LESSONS, policy, TEACHER)
    data_a, data_b = (LabBatches(one, config.batching) for one in (plain, source))
    return train_variant(name, policy, data_a, data_b, folder, training, stage_a_memory=stage_a_memory)


def _as_it_is(batch: Any) -> Any:
    return batch


def _source(policy: Backbone, config: ExperimentConfig) -> tuple[LabDecisions, LabBank]:
    world = World(config.world_seed)
    bank = LabBank(world, config.decisions.split, num_sites=config.num_bank_sites, picture=placeholder)
    return LabDecisions(world, policy.chat, bank, SiteFirst(bank), config.decisions), bank


def _recall(folder: Path, bank: LabBank) -> StoredRecall | SiteFirst:
    path = folder / _RECALL
    return StoredRecall.load(path) if path.exists() else SiteFirst(bank)


def _described(policy: Backbone, config: ExperimentConfig) -> dict[str, Any]:
    decisions = asdict(config.decisions)
    return {
        "policy": policy.identity().weights,
        "decisions": decisions,
        "num_bank_sites": config.num_bank_sites,
        "world_seed": config.world_seed,
    }
