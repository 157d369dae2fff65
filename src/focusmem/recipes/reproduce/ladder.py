"""The laboratory's ladder as a plan: a policy and an embedder that know offices, then memories that are trained with
equal budgets, and their evaluations on the same tasks.

<out>/units/<unit>/    what each unit makes
<out>/results.json     the table of what is there (`ladder_table.py`), also as results.md
"""

import gc
import json
import pickle
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import torch

from focusmem.agent.fronts.latent import MemoryUse
from focusmem.errors import TrainingError
from focusmem.files import write_whole
from focusmem.lab.memory.benefit import measure_benefit
from focusmem.lab.memory.embedder import train_embedder
from focusmem.lab.memory.gate import measure_gate, teach_gate
from focusmem.lab.memory.misled import LabMisleading
from focusmem.lab.memory.split_bank import SplitBank
from focusmem.lab.memory.training import LabTraining, card_notes, train_memory
from focusmem.lab.memory.variants import variant as named
from focusmem.lab.policy.policy import load_policy, new_policy, train_tokenizer
from focusmem.lab.policy.pretrain import lightened, pretrain
from focusmem.lab.shipped import Weights
from focusmem.lab.suite import LabSuiteConfig
from focusmem.lab.world.world import World
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import Checkpoint
from focusmem.recipes.reproduce.ladder_settings import TRAINED, LadderSettings, check_matched
from focusmem.recipes.reproduce.packing import light_files
from focusmem.recipes.reproduce.plan import Limit, Plan, Unit
from focusmem.recipes.run import run
from focusmem.recipes.run_settings import LAB, LAB_ENTRIES, MemorySettings, RunSettings, recipe
from focusmem.seeds import derive_seed
from focusmem.settings import to_plain
from focusmem.training.vital_signs import VITAL_SIGNS_NOTE

NAME: Final = "lab-ladder"
LADDER_NOTE: Final = "ladder"
"""The note on a memory's card that says with which variants it is matched, and in what."""
SIGNS_FILE, GATE_FILE = "signs.json", "gate.json"
NEAR, NEAR_WITHOUT_GATE = "near", "near-without-gate"
"""Runs of lab-entries with three near misses in place of the hits, with the gate and with the gate switched off."""
_TRUNK_OF: Final = {"action-only": "action-only", "content": "content", "readout": "content", "full": "content"}
"""The variant whose stage A each variant goes on from; the paper's has its own."""
_TOY_SIZES: Final[dict[str, dict[str, Any]]] = {
    "text_config": {"num_hidden_layers": 1, "intermediate_size": 64},
    "vision_config": {
        "hidden_size": 64, "intermediate_size": 32, "num_heads": 1, "depth": 3, "deepstack_visual_indexes": [0, 1],
    },
}  # fmt: skip


def make_ladder(settings: LadderSettings, out: Path) -> Plan:
    return Plan(NAME, list(Ladder(settings, out).units()), out)


@dataclass(frozen=True)
class Ladder:
    settings: LadderSettings
    out: Path

    # Places

    def place(self, unit: str) -> Path:
        return self.out / "units" / unit

    @property
    def policy(self) -> Path:
        return self.place("policy") / "policy"

    @property
    def embedder(self) -> Path:
        return self.place("embedder") / "embedder"

    def trunk(self, variant: str, seed: int) -> str:
        return f"stage-a-{_TRUNK_OF.get(variant, variant)}-{seed}"

    def acting(self, variant: str, seed: int) -> Path:
        """The memory that acts: the last stage's."""
        has_gate_stage = named(variant).is_gated and self.settings.training(variant, seed).gate is not None
        return self.memory(f"{'gate' if has_gate_stage else 'stage-b'}-{variant}-{seed}")

    def memory(self, unit: str) -> Path:
        stage = {"stage-a": "stage-a/memory", "stage-b": "stage-b/memory"}
        return (
            self.place(unit) / "run" / next((path for name, path in stage.items() if unit.startswith(name)), "memory")
        )

    # Units, in the order in which they are to be looked at

    def units(self) -> Iterator[Unit]:
        first, *others = self.settings.seeds
        yield from self._foundation()
        for variant in ("full", "action-only"):
            yield from self._rung(variant, first, needs=("policy-reads",))
        yield self._look(first)
        yield self._evaluation("retrieved", (), MemorySettings(name="retrieved"), needs=("embedder", "look"))
        for variant in ("content", "readout", "paper"):
            yield from self._rung(variant, first, needs=("look",))
        for seed in others:
            for variant in ("action-only", "content", "readout", "full"):
                yield from self._rung(variant, seed, needs=("look",))

    def _foundation(self) -> Iterator[Unit]:
        own = self.settings
        yield Unit(
            name="policy", run=self._pretrain, minutes=own.policy.minutes,
            settings=_plain(own.policy), files=_policy_files,
        )  # fmt: skip
        yield Unit(
            name="embedder", needs=("policy",), run=self._embed, minutes=5, num_steps=own.embedder.num_steps,
            settings=_plain(own.embedder), files=_without_save,
        )  # fmt: skip
        bank = own.training("full", own.seeds[0]).decisions
        yield Unit(
            name="experts", run=self._roll_out, minutes=1, is_remade=True,
            settings={"split": bank.split, "num_sites": bank.num_sites},
        )  # fmt: skip
        yield self._evaluation("none", (), MemorySettings(), needs=("policy",))
        raw = MemorySettings(name="replay", shows_history=True)
        yield self._evaluation("replay", (), raw, needs=("policy",), suites=(LAB_ENTRIES,))
        yield Unit(name="policy-reads", needs=("eval-none", "eval-replay"), run=self._check_policy)

    def _rung(self, variant: str, seed: int, *, needs: tuple[str, ...]) -> Iterator[Unit]:
        """The units of a variant and a seed. Variants that share stage A share its unit."""
        training = self.settings.training(variant, seed)
        trunk, branch = self.trunk(variant, seed), f"stage-b-{variant}-{seed}"
        last = f"gate-{variant}-{seed}" if named(variant).is_gated else branch
        needs = ("policy", "experts", *needs)
        is_first_on_trunk = variant == self._first_on(trunk)
        if is_first_on_trunk:
            root = _TRUNK_OF.get(variant, variant)
            alone = self.settings.training(root, seed)
            alone = replace(alone, variant=replace(alone.variant, stage_b=None))
            yield self._training(trunk, alone, needs)
        yield self._training(branch, replace(training, start=self.memory(trunk)), (*needs, trunk))
        if last != branch:
            steps = None if training.gate is None else training.gate.num_steps
            yield Unit(
                name=last, needs=(*needs, branch), run=partial(self._set_gate, training, branch),
                minutes=3 + self._minutes(steps), num_steps=steps, settings=_plain(training),
            )  # fmt: skip
        yield Unit(
            name=f"signs-{variant}-{seed}", needs=(last,), run=partial(self._measure, variant, seed), minutes=1,
            settings=_plain(self.settings.benefit),
        )  # fmt: skip
        memory = MemorySettings(name=variant, checkpoint=str(self.acting(variant, seed)))
        yield self._evaluation(variant, (seed,), memory, needs=("embedder", last))

    def _first_on(self, trunk: str) -> str:
        """The variant that comes first in the plan of those that share a stage A with this seed."""
        seed = trunk.rpartition("-")[2]
        is_first_seed = seed == str(self.settings.seeds[0])
        order = ("full", "action-only", "content", "readout", "paper") if is_first_seed else TRAINED
        return next(variant for variant in order if self.trunk(variant, int(seed)) == trunk)

    def _training(self, name: str, training: LabTraining, needs: tuple[str, ...]) -> Unit:
        """One stage; the gate alone has a unit of its own."""
        steps = (training.loop_a if training.has_stage_a else training.loop_b).num_steps
        training = replace(training, policy=self.policy, gate=None)
        return Unit(
            name=name, needs=needs, run=partial(self._train, name, training), minutes=self._minutes(steps),
            num_steps=steps, settings=_plain(training),
        )  # fmt: skip

    def _evaluation(
        self,
        name: str,
        seed: tuple[int, ...],
        memory: MemorySettings,
        *,
        needs: tuple[str, ...],
        suites: tuple[str, ...] = (LAB_ENTRIES, LAB),
    ) -> Unit:
        runs = {suite: self._run_settings(memory, suite) for suite in suites}
        if memory.checkpoint is not None and named(memory.name).is_gated:
            misled = replace(memory, lab_misleading=LabMisleading(labels=("near",), replaces_hits=True))
            runs[NEAR] = self._run_settings(misled, LAB_ENTRIES)
            use = MemoryUse(is_dynamic=named(memory.name).is_dynamic, is_gated=False)
            runs[NEAR_WITHOUT_GATE] = self._run_settings(replace(misled, use=use), LAB_ENTRIES)
        return Unit(
            name="-".join(map(str, ("eval", name, *seed))), needs=needs, run=partial(self._evaluate, runs),
            minutes=round(len(runs) * self.settings.num_tasks / self.settings.tasks_per_minute, 1),
            settings={label: _plain(one) for label, one in runs.items()},
        )  # fmt: skip

    def _look(self, seed: int) -> Unit:
        needs = [f"{what}-{variant}-{seed}" for variant in ("full", "action-only") for what in ("signs", "eval")]
        return Unit(name="look", needs=tuple(needs), run=partial(self._check_readout, f"signs-full-{seed}"))

    def _minutes(self, steps: int | None) -> float:
        return round((steps or 0) / self.settings.steps_per_minute, 1)

    def _run_settings(self, memory: MemorySettings, suite: str) -> RunSettings:
        own, base = self.settings, recipe(LAB)
        generation = replace(base.policy.generation, max_new_tokens=own.num_new_tokens)
        embedder = str(self.embedder) if memory.name not in ("none", "replay") else None
        return replace(
            base,
            suite=replace(base.suite, name=suite, lab=LabSuiteConfig(num_tasks=own.num_tasks)),
            policy=replace(base.policy, name=str(self.policy), device=own.device, generation=generation),
            memory=replace(memory, embedder=embedder, lab_bank_sites=own.num_bank_sites),
            runner=replace(base.runner, num_parallel=own.num_parallel),
        )

    # What units do

    def _pretrain(self, folder: Path, limit: Limit) -> bool:
        config = self.settings.policy
        start = folder / (config.start or "start")
        if not start.exists():  # inside the unit, so that its settings name no place of this machine
            _copy_start(start, is_toy=self.settings.toy_policy)
        pretrain(replace(config, start=str(start), pause_after=limit.minutes_left), folder)
        card = json.loads((self.policy / "card.json").read_text(encoding="utf-8"))
        return bool(card["trained_s"] >= round(config.minutes * 60, 1))

    def _embed(self, folder: Path, limit: Limit) -> bool:
        policy = _policy(self.policy, self.settings.device)
        save = folder / "state.pt"
        made = train_embedder(policy, self.settings.embedder, self.embedder, save=save, is_late=limit.is_over)
        return made is not None

    def _roll_out(self, folder: Path, limit: Limit) -> bool:
        decisions = self.settings.training("full", self.settings.seeds[0]).decisions
        bank = SplitBank(World(0), decisions.split, num_sites=decisions.num_sites)
        num_workers = self.settings.training("full", self.settings.seeds[0]).loop_a.num_workers
        write_whole(folder / "rollouts.pickle", pickle.dumps(bank.roll_out_all(num_workers)))
        return True

    def _bank(self) -> SplitBank:
        decisions = self.settings.training("full", self.settings.seeds[0]).decisions
        return _bank(self.place("experts") / "rollouts.pickle", decisions.split, decisions.num_sites)

    def _train(self, name: str, training: LabTraining, folder: Path, limit: Limit) -> bool:
        policy = _policy(self.policy, self.settings.device)
        training = replace(training, max_minutes=limit.minutes_left)
        try:
            memory = train_memory(policy, training, folder / "run", bank=self._bank())
        finally:
            _clear()
        if memory is None:
            return False
        assert memory == self.memory(name), "the plan knows where memories are"
        self._sign(memory, training.decisions.seed)
        return True

    def _sign(self, memory: Path, seed: int) -> None:
        """Writes on the card what the variants have in common."""
        matched = check_matched({variant: self.settings.training(variant, seed) for variant in TRAINED})
        Checkpoint.open(memory).with_notes({LADDER_NOTE: matched | {"seed": seed, "scale": self.settings.scale}})

    def _set_gate(self, training: LabTraining, branch: str, folder: Path, limit: Limit) -> bool:
        """Trains the gate alone, if the variant has such a stage, and chooses the threshold on validation sites."""
        policy, config, decisions = _policy(self.policy, self.settings.device), training.gate, training.decisions
        memory: Path | None = self.memory(branch)
        if config is not None:
            assert memory is not None
            notes = card_notes(replace(training, start=memory), policy)
            try:
                memory = teach_gate(
                    policy, training.variant, folder / "run", replace(config, max_minutes=limit.minutes_left),
                    start=memory, bank=self._bank(), seed=derive_seed(decisions.seed, "gate"),
                    near_share=decisions.near_share, notes=notes,
                )  # fmt: skip
            finally:
                _clear()
        if memory is None:
            return False
        self._sign(memory, decisions.seed)
        figures = measure_gate(policy, memory, training.variant.name, self.settings.gate, sets_threshold=True)
        _write(folder / GATE_FILE, figures)
        return True

    def _measure(self, variant: str, seed: int, folder: Path, limit: Limit) -> bool:
        """The vital signs at the end of stage B, and each decision's loss on validation sites."""
        policy = _policy(self.policy, self.settings.device)
        benefit = measure_benefit(policy, self.acting(variant, seed), variant, self.settings.benefit)
        at_end = Checkpoint.open(self.memory(f"stage-b-{variant}-{seed}")).notes.get(VITAL_SIGNS_NOTE)
        _write(folder / SIGNS_FILE, {"at_end_of_stage_b": at_end, "on_validation_sites": benefit})
        return True

    def _evaluate(self, runs: dict[str, RunSettings], folder: Path, limit: Limit) -> bool:
        for label, settings in runs.items():
            results = run(settings, folder / label, is_late=limit.is_over)
            _clear()
            if results["num_missing"]:
                return False
        return True

    # What has to hold before the next units

    def _check_policy(self, folder: Path, limit: Limit) -> bool:
        own = self.settings
        rates = {name: _success(self.place(f"eval-{name}") / LAB_ENTRIES) for name in ("none", "replay")}
        _write(folder / "rates.json", rates)
        if own.has_demands and not (rates["none"] <= own.most_without and rates["replay"] >= own.least_raw):
            raise TrainingError(
                f"The policy wins {rates['none']:.1%} of the new tasks without memory (at most {own.most_without:.0%}) "
                f"and {rates['replay']:.1%} with the right trajectory raw in front (at least {own.least_raw:.0%}). "
                "What it cannot read raw, no memory can tell it: train the policy further before any memory."
            )
        return True

    def _check_readout(self, signs: str, folder: Path, limit: Limit) -> bool:
        stored = json.loads((self.place(signs) / SIGNS_FILE).read_text(encoding="utf-8"))
        readout = stored["on_validation_sites"].get("readout", {})
        if self.settings.has_demands and readout.get("is_inert") is not False:
            raise TrainingError(
                f"The readout of full is inert on validation sites ({readout}); see {self.place(signs) / SIGNS_FILE}. "
                "The other memories would be trained in vain: look at rates, state and course first."
            )
        return True


def _plain(settings: object) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(settings)
    return plain


def _copy_start(start: Path, *, is_toy: bool) -> None:
    if not is_toy:
        shutil.copytree(Weights().policy, start)
        return
    torch.manual_seed(0)
    new_policy(train_tokenizer(World(0), num_episodes=20), seed=0, **_TOY_SIZES).save(start)


def _policy_files(folder: Path, is_finished: bool) -> dict[str, bytes]:
    """The finished policy; or a lightened save, because a whole one is too large."""
    files = {name: data for name, data in light_files(folder, is_finished).items() if not name.startswith("start/")}
    save = files.pop("state.pt", None)
    if is_finished:
        return files
    files = {name: data for name, data in files.items() if not name.startswith("policy/")}
    return files if save is None else files | {"state.pt": lightened(save)}


def _without_save(folder: Path, is_finished: bool) -> dict[str, bytes]:
    files = light_files(folder, is_finished)
    if is_finished:
        files.pop("state.pt", None)
    return files


@lru_cache(maxsize=1)
def _policy(folder: Path, device: str) -> Backbone:
    """One for all units of a process, because the functions that it compiles can then be used again."""
    return load_policy(folder, device)


@lru_cache(maxsize=1)
def _bank(path: Path, split: Any, num_sites: int | None) -> SplitBank:
    bank = SplitBank(World(0), split, num_sites=num_sites)
    bank.take(pickle.loads(path.read_bytes()))
    return bank


def _clear() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _success(folder: Path) -> float:
    rate: float = json.loads((folder / "results.json").read_text(encoding="utf-8"))["success_rate"]
    return rate


def _write(path: Path, figures: object) -> None:
    write_whole(path, json.dumps(figures, indent=2).encode())
