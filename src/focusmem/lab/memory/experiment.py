"""Memory trained in the laboratory, from a policy and an embedder to checkpoints: prepared once, then one variant at a
time, each on the same decisions.

A prepared folder holds everything that does not depend on trained weights: what retrieval found, which decisions need
memory, and the teacher's lessons. Variants may then be trained side by side.
"""

import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from focusmem.errors import ConfigError, StorageError
from focusmem.files import write_whole
from focusmem.lab.memory.decisions import LabBatches, LabDecisions, LabDecisionsConfig, SiteFirst
from focusmem.lab.memory.embedder import load_embedder
from focusmem.lab.memory.gate import teach_gate
from focusmem.lab.memory.need import Surprise, surprise_of
from focusmem.lab.memory.pictures import lab_look, see_beforehand
from focusmem.lab.memory.recall import LabBank
from focusmem.lab.memory.split_bank import SplitBank
from focusmem.lab.memory.stored_recall import StoredRecall, prepare_recall
from focusmem.lab.memory.stream import LabStream, StreamConfig
from focusmem.lab.memory.variants import TEACHER, LabTraining, begins_with_stage_a, check_start, train_variant, variant
from focusmem.lab.policy.drawing import drawn_ahead, placeholder
from focusmem.lab.world.world import World
from focusmem.model.backbone import Backbone
from focusmem.seeds import derive_seed
from focusmem.training.batch import TrainingBatch, TrainingItem
from focusmem.training.lessons import LessonStore
from focusmem.training.pathway import Look
from focusmem.training.questions import Questions
from focusmem.training.teacher import Teacher, lesson_store
from focusmem.training.trajectory_batches import BatchingConfig, TrajectoryBatches

_RECALL, _SURPRISE, _LESSONS = "recall.json", "surprise.json", "lessons"
_CONFIG, _DONE = "prepared.json", "done.txt"


@dataclass(frozen=True, kw_only=True)
class ExperimentConfig:
    decisions: LabDecisionsConfig = field(default_factory=LabDecisionsConfig)
    batching: BatchingConfig = field(default_factory=BatchingConfig)
    hard_times: int = 4
    """How often a decision that needs memory comes for each time that another comes."""
    hard_nats: float = 0.7
    """A decision needs memory where the policy alone gives the expert's action less than about an even chance."""
    world_seed: int = 0

    def __post_init__(self) -> None:
        if self.hard_times < 1:
            raise ConfigError(f"ExperimentConfig.hard_times is {self.hard_times}; it must be at least 1.")
        if not 0 <= self.hard_nats < math.inf:
            raise ConfigError(f"ExperimentConfig.hard_nats is {self.hard_nats}; it must be zero or more, and finite.")


class _TaughtOnly(Dataset[TrainingBatch]):
    """The items of a source that the teacher has yet to speak about, those of several trajectories to a batch.

    Batches are asked for in order, so worker processes can draw ahead. A batch holds hundreds of pictures; few are
    drawn ahead.
    """

    def __init__(
        self, source: LabDecisions, store: LessonStore, *, num_workers: int = 0, num_trajectories: int = 16
    ) -> None:
        self.source, self.store, self.size = source, store, num_trajectories
        self.num_batches = -(-source.num_trajectories // num_trajectories)
        self._ahead = drawn_ahead(self, num_workers, num_ahead=1)

    def batch(self, number: int) -> TrainingBatch:
        return next(self._ahead)

    def __len__(self) -> int:
        return self.num_batches

    def __getitem__(self, number: int) -> TrainingBatch:
        items: dict[str, TrainingItem] = {}
        for one in range(number * self.size, min((number + 1) * self.size, self.source.num_trajectories)):
            whole = self.source.decisions(one, tuple(range(self.source.num_decisions(one))))
            items |= {item.digest: item for item in whole.items if self.source.is_taught(item)}
        missing = [
            self.source.with_guesses(item) for digest, item in items.items() if self.store.discarded(digest) is None
        ]
        return self.source.drawn(TrainingBatch(items=tuple(missing))) if missing else TrainingBatch()


def prepare(
    policy: Backbone,
    embedder: Path | None,
    config: ExperimentConfig,
    folder: Path,
    *,
    has_lessons: bool = True,
    num_workers: int = 0,
) -> None:
    """Find and describe whatever the decisions need. Without an embedder, sites are known by name instead.

    Without lessons it is far quicker, and enough for the second stage and for variants that learn from actions alone.
    """
    bank = _bank(config, num_workers)
    source = _plain(policy, config, bank)
    source.roll_out_all(num_workers)
    found = None if embedder is None else load_embedder(policy, embedder)
    described = _described(policy, config, None if found is None else found.identity)
    if (folder / _CONFIG).exists() and _stored(folder) != described:
        raise ConfigError(f"{folder} was prepared for something else; choose another folder, or delete it.")
    write_whole(folder / _CONFIG, json.dumps(described, indent=2).encode())
    if found is not None and not (folder / _RECALL).exists():
        prepare_recall(found, source, bank, num_workers=num_workers).save(folder / _RECALL)
    source.recall = _recall(folder, bank)
    if not (folder / _SURPRISE).exists():
        surprise_of(policy, source, num_workers=num_workers).save(folder / _SURPRISE)
    if has_lessons:
        teacher = Teacher(policy, folder / _LESSONS, TEACHER, look=lab_look(policy))
        teacher.prepare(_TaughtOnly(source, teacher.store, num_workers=num_workers))
        write_whole(folder / _DONE, b"Everything is there.\n")


def train(
    policy: Backbone,
    name: str,
    config: ExperimentConfig,
    prepared: Path,
    folder: Path,
    training: LabTraining,
    *,
    start: Path | None = None,
    sees_beforehand: bool = False,
) -> Path | None:
    """Train a variant on what was prepared; the memory's folder when finished, None when the time was up.

    With `sees_beforehand` every picture is drawn and seen before training begins, and kept where the policy is (some 7
    GB of a GPU's memory for 1,500 episodes): worker processes then need not draw, which is most of their work.
    """
    if start is not None:
        check_start(start, name)
    has_lessons = _has_lessons(name, start)
    if not (prepared / _SURPRISE).exists() or (has_lessons and not (prepared / _DONE).exists()):
        raise StorageError(f"{prepared} is not prepared, or not to the end. Run `focusmem lab prepare` first.")
    stored = _stored(prepared)
    if stored != _described(policy, config, stored.get("embedder")):
        raise ConfigError(f"{prepared} was prepared for another policy or other decisions; prepare it again.")
    num_workers = training.stage_a.num_workers
    bank = _bank(config, num_workers)
    plain = _plain(policy, config, bank)
    plain.roll_out_all(num_workers)
    plain.recall = _recall(prepared, bank)
    # The same episodes, with misleading items put in: only a gate has a use for these.
    misled = LabDecisions(plain.world, policy.chat, bank, plain.recall, config.decisions)
    misled.share_episodes(plain)
    if has_lessons:
        plain.lessons = lesson_store(prepared / _LESSONS, policy, TEACHER)
    repeats = Surprise.load(prepared / _SURPRISE).repeats(config.hard_times, above=config.hard_nats)
    batches = TrajectoryBatches if sees_beforehand else LabBatches
    data_a = batches(plain, config.batching, repeats)
    data_b = batches(misled, config.batching, repeats) if variant(name).is_gated else data_a
    look: Look | None = None
    if sees_beforehand:
        look = see_beforehand(policy, bank.world, plain.views(), num_workers=num_workers)
    return train_variant(name, policy, data_a, data_b, folder, training, start=start, look=look)


def train_on_stream(
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


def _bank(config: ExperimentConfig, num_workers: int) -> LabBank:
    return LabBank(
        World(config.world_seed),
        config.decisions.split,
        num_sites=config.decisions.num_sites,
        picture=placeholder,
        num_workers=num_workers,
    )


def _plain(policy: Backbone, config: ExperimentConfig, bank: LabBank) -> LabDecisions:
    """The decisions as memory finds them, with nothing put in to mislead: what stage A and the teacher see."""
    decisions = replace(config.decisions, negative_share=0.0)
    return LabDecisions(bank.world, policy.chat, bank, SiteFirst(bank), decisions)


def _recall(folder: Path, bank: LabBank) -> StoredRecall | SiteFirst:
    path = folder / _RECALL
    return StoredRecall.load(path) if path.exists() else SiteFirst(bank)


def _stored(folder: Path) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StorageError(f"Could not read {folder / _CONFIG}: {error}") from error
    return stored


def _described(policy: Backbone, config: ExperimentConfig, embedder: str | None) -> dict[str, Any]:
    return {
        "policy": policy.identity().weights,
        "embedder": embedder,
        "decisions": asdict(config.decisions),
        "world_seed": config.world_seed,
    }
