"""Sizes of the laboratory's ladder: `full` for one GPU, `tiny` for a rehearsal on a CPU whose figures mean nothing."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Final

from pydantic import Field, PositiveFloat, PositiveInt

from focusmem.errors import ConfigError
from focusmem.lab.memory.benefit import BenefitConfig
from focusmem.lab.memory.drills import Drills
from focusmem.lab.memory.embedder import EmbedderTrainingConfig
from focusmem.lab.memory.entry_drills import EntryDrills
from focusmem.lab.memory.gate import GateMeasurement
from focusmem.lab.memory.training import LabTraining
from focusmem.lab.memory.variants import PAPER
from focusmem.lab.policy.pretrain import PretrainConfig
from focusmem.model.compressor import CompressorConfig
from focusmem.model.lora import LoraConfig
from focusmem.recipes.lab_training import recipe
from focusmem.settings import checked_dataclass, differences, to_plain

MATCHED: Final = ("action-only", "content", "readout", "full")
"""The variants that the paper calls matched."""
TRAINED: Final = (*MATCHED, PAPER)
_OWN: Final = ("variant", "gate", "start", "policy")
"""Parts of a training that belong to its variant or place, and are not compared."""
_SINGLE_RATE: Final = ("loop_b.gate_rate_times", "loop_b.readout_rate_times")
"""What differs for the paper's variant, which has a single rate."""


@checked_dataclass(frozen=True, kw_only=True)
class LadderSettings:
    scale: str = "full"
    seeds: tuple[int, ...] = (1, 2, 3)
    """The first seed is that of the first two rungs; the others come last."""
    policy: PretrainConfig
    """Its `start` is a folder in the unit's own."""
    toy_policy: bool = False
    """Whether to continue an untrained toy instead of the policy that ships."""
    embedder: EmbedderTrainingConfig
    benefit: BenefitConfig
    gate: GateMeasurement
    num_tasks: PositiveInt = 400
    num_parallel: PositiveInt = 100
    """Episodes at the same time in one evaluation."""
    num_new_tokens: PositiveInt = 96
    num_bank_sites: PositiveInt | None = None
    """Evaluation sites whose trajectories are searched; None is all."""
    has_demands: bool = True
    """Whether the policy has to read the new pages before a memory is trained, and the first readout has to be active
    before the others are trained."""
    most_without: Annotated[float, Field(ge=0, le=1)] = 0.25
    """The policy's success on the new tasks without memory is at most this."""
    least_raw: Annotated[float, Field(ge=0, le=1)] = 0.70
    """Its success with the right trajectory and the history raw in front is at least this."""
    steps_per_minute: PositiveFloat = 225.0
    """For the estimates of the plan: steps of one training beside three others on one H200."""
    tasks_per_minute: PositiveFloat = 130.0
    """Likewise, episodes of one evaluation."""

    @property
    def device(self) -> str:
        return self.policy.device

    def training(self, variant: str, seed: int) -> LabTraining:
        """Both stages of a variant."""
        full = recipe("lab-entries", variant)
        full = replace(full, device=self.device, decisions=replace(full.decisions, seed=seed))
        loops = {name: _seeded(getattr(full, name), seed) for name in ("loop_a", "loop_b", "gate")}
        full = replace(full, **loops)
        return _tiny(full) if self.toy_policy else full


def _seeded(loop: Any, seed: int) -> Any:
    return None if loop is None else replace(loop, seed=seed)


def check_matched(trainings: Mapping[str, LabTraining]) -> dict[str, Any]:
    """Refuses variants that differ in steps, data, batches or rates; returns what cards say about it. The paper's
    variant has a single rate in stage B. The gate alone may learn on afterwards, with all other parts frozen.
    """
    first_name, first = next(iter(trainings.items()))
    for name, training in trainings.items():
        if training.variant.stage_b is None:
            raise ConfigError(f"The variant {name} has no stage B, so that it gets fewer steps than {first_name}.")
        free = _SINGLE_RATE if name == PAPER else ()
        changed = differences(_compared(first), _compared(training), free=free)
        if changed:
            setting, (one, other) = next(iter(changed.items()))
            raise ConfigError(
                f"The ladder compares variants with equal steps, data, batches and rates, but {setting} is {one} for "
                f"{first_name} and {other} for {name}."
            )
    steps = [first.loop_a.num_steps, first.loop_b.num_steps]
    if None in steps:
        raise ConfigError("The ladder's variants need loop_a.num_steps and loop_b.num_steps.")
    return {
        "num_steps": sum(step or 0 for step in steps),
        "num_steps_by_stage": steps,
        "matched_with": [name for name in trainings if name in MATCHED],
        "equal": "steps, data, batches and learning rates; only variants with a gate also get misleading items, and "
        "their gate alone learns on afterwards",
    }


def _compared(training: LabTraining) -> dict[str, Any]:
    return {name: value for name, value in to_plain(training).items() if name not in _OWN}


def full() -> LadderSettings:
    return LadderSettings(
        policy=PretrainConfig(offices=True, start="start", num_workers=8),
        embedder=EmbedderTrainingConfig(office_share=0.5, num_workers=8),
        benefit=BenefitConfig(split="vo"),
        gate=GateMeasurement(offices=True),
    )


def tiny() -> LadderSettings:
    return LadderSettings(
        scale="tiny",
        seeds=(1, 2),
        policy=PretrainConfig(
            offices=True, start="start", minutes=0.02, max_tokens=2000, num_workers=0, device="cpu", warmup_steps=1,
        ),
        toy_policy=True,
        embedder=EmbedderTrainingConfig(num_steps=2, num_pairs=2, num_workers=0, office_share=0.5, num_sites=20),
        benefit=BenefitConfig(split="vo", num_episodes=4, num_workers=0),
        gate=GateMeasurement(offices=True, num_trajectories=8, num_learnt=8, num_probe_steps=2, num_workers=0),
        num_tasks=2,
        num_parallel=2,
        num_new_tokens=4,
        num_bank_sites=2,
        has_demands=False,
    )  # fmt: skip


SCALES: Final = {"full": full, "tiny": tiny}


def settings_for(scale: str) -> LadderSettings:
    if scale not in SCALES:
        raise ConfigError(f"There is no scale '{scale}'; choose {' or '.join(SCALES)}.")
    return SCALES[scale]()


def _tiny(training: LabTraining) -> LabTraining:
    """The same training in few small steps."""
    few: dict[str, Any] = {"num_workers": 0, "save_every_steps": 1, "log_every_steps": 1, "num_held_out": 4}
    memory = replace(
        training.variant.memory,
        lora=LoraConfig(rank=2, dropout=0.0),
        compressor=CompressorConfig(num_tokens=4, num_heads=2, num_refinements=1),
    )
    drills = Drills(entries=EntryDrills(num=2, num_asked=2, how=("told",), sizes=(2,)))
    return replace(
        training,
        variant=replace(training.variant, memory=memory),
        loop_a=replace(training.loop_a, num_steps=1, **few),
        loop_b=replace(training.loop_b, num_steps=1, max_query_change=None, **few),
        gate=None if training.gate is None else replace(training.gate, num_steps=1, **few),
        stream=replace(training.stream, num_episodes=1, num_decisions=2, num_tries=1, drills=drills, course=()),
        later_course=(),
        decisions=replace(training.decisions, num_sites=6),
    )
