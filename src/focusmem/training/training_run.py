"""One run of a stage in its folder: begin or resume, learn from a batch, report, save, end."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from focusmem.errors import CheckpointError, ConfigError, RecordError, StorageError, TrainingError
from focusmem.files import remove_folder, write_whole
from focusmem.model.calibration import calibrate
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.policy import MemoryPolicy
from focusmem.schemas import Environment, dump_record
from focusmem.schemas.environment import collect_environment
from focusmem.seeds import derive_seed
from focusmem.settings import differences, to_plain
from focusmem.training.batch import TrainingData
from focusmem.training.config import LoopConfig
from focusmem.training.loader import prepared_batches
from focusmem.training.metrics import Metrics, StepReport
from focusmem.training.objective import Objective
from focusmem.training.pathway import Look
from focusmem.training.plots import plot_run
from focusmem.training.prepared import Needs, Prepared, Preparer
from focusmem.training.processes import Team
from focusmem.training.run_states import RunStates, clear_leftovers
from focusmem.training.schedule import learning_rate_at
from focusmem.training.stage import CONTENT_LOSSES, LOSS_NAMES, Passage, Stage, divisors_of
from focusmem.training.vital_signs import VITAL_SIGNS_NOTE, HeldOut, VitalSigns

FREE_FIELDS = frozenset({"num_workers", "save_every_steps", "log_every_steps", "max_minutes"})
"""Settings that may differ when a run is resumed; all others must be the same."""


class TrainingRun:
    """The state of a run is the weights, the optimizer, `step`, whether norms still wait for their calibration, and
    which decisions are held out. A save holds exactly this state.
    """

    def __init__(
        self,
        policy: MemoryPolicy,
        stage: Stage,
        config: LoopConfig,
        folder: Path,
        *,
        team: Team,
        num_steps: int,
        look: Look | None,
        data_digest: str | None = None,
        held_out: HeldOut | None = None,
    ) -> None:
        self.policy, self.stage, self.config, self.folder, self.team = policy, stage, config, folder, team
        self.num_steps, self.step, self.is_late = num_steps, 0, False
        self.data_digest, self.held_out = data_digest, held_out
        self.device = policy.backbone.device
        self.objective = Objective(policy, stage, config, look)
        self.optimizer = _optimizer(self.objective, config, self.device)
        self.metrics, self.states = Metrics(folder / "metrics.jsonl"), RunStates(folder / "states")
        self.memory, self.unfinished = folder / "memory", folder / "unfinished"
        self._taught: set[str] = set()
        self._awaits_calibration = bool(stage.fresh_norms(policy))
        self._held_out_share = None if held_out is None else self._whole(held_out)

    @property
    def is_over(self) -> bool:
        return self.is_late or self.step == self.num_steps

    # Begin, or resume

    def begin(self) -> None:
        """Load the newest save of the folder, or make the first one."""
        stored = self.states.newest()
        self._taught = set() if stored is None else self.metrics.losses_until(stored.step)
        self.team.wait()  # no process writes before all processes have looked for a save
        if stored is not None:
            self._check_same(stored.card)
            tensors = stored.tensors(self.device)
            own = self.policy.trained_state()
            for name, tensor in own.items():
                tensor.copy_(tensors["weights"][name])
            self.optimizer.load_state_dict(tensors["optimizer"])
            self.step, self._awaits_calibration = stored.step, stored.card["awaits_calibration"]
        if self.config.recomputes_blocks:
            for backbone in {self.policy.backbone, self.policy.encoder.backbone}:
                backbone.checkpoint_gradients()
        self._module: torch.nn.Module = self.objective
        if self.team.size > 1:
            self._module = DistributedDataParallel(self.objective, gradient_as_bucket_view=True)
        if self.team.is_first:
            self.states.clear_partial()
            for place in (self.memory, self.unfinished):
                clear_leftovers(place)
            self._write_description()
            self.metrics.cut_after(self.step)
            self.save()

    def batches(self, data: TrainingData) -> Iterator[tuple[list[Prepared], float]]:
        """Yields this process's shares of each remaining batch."""
        num_passes = self.config.num_passes
        return prepared_batches(
            data,
            Preparer(self.policy, self.stage.needs),
            range(self.step, self.num_steps),
            shares=range(self.team.rank * num_passes, (self.team.rank + 1) * num_passes),
            num_shares=self.team.size * num_passes,
            num_workers=self.config.num_workers,
            device=self.device,
        )

    def _whole(self, held_out: HeldOut) -> Prepared:
        """All held-out decisions in one share: neighbours are sought within a share, and vital signs must not depend on
        the number of processes."""
        [share] = Preparer(self.policy, Needs(negatives=self.stage.is_gated)).shares(held_out.batch, [0], 1)
        return share

    # One step

    def learn(self, shares: Sequence[Prepared], waited_s: float, *, is_late: bool) -> StepReport:
        """Move the weights once. A non-finite loss or gradient stops the run before the optimizer steps."""
        if self._awaits_calibration:
            self._calibrate(shares)
        counts = self._counts(shares)
        self._check_taught(counts)
        divisors = divisors_of(self.stage, counts)
        self.optimizer.zero_grad(set_to_none=True)
        sums, passage = self._add_gradients(shares, divisors)
        gradients = [parameter.grad for parameter in self.objective.parameters() if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        others = [*passage, sum(share.num_tokens for share in shares), is_late]
        totals = self.team.total(torch.cat([sums, sums.new_tensor(others)]))
        *numbers, gradient_norm = torch.cat(
            [totals, norm[None].double()]
        ).tolist()  # the only wait for the GPU in a step
        losses = {
            name: numbers[place] / divisors[name]
            for place, name in enumerate(LOSS_NAMES)
            if self._weight(name) and counts[name]
        }
        self._check_finite(losses, gradient_norm)
        torch.nn.utils.clip_grads_with_norm_(self.objective.parameters(), self.config.max_gradient_norm, norm)
        rate = self._move()
        losses["total"] = sum(self._weight(name) * value for name, value in losses.items())
        *kept, num_tokens, num_late = map(round, numbers[len(LOSS_NAMES) :])
        self.is_late = num_late > 0
        return StepReport(
            self.step, losses, gradient_norm, rate, Passage(*kept), num_tokens, waited_s, self._vital_signs()
        )

    def _calibrate(self, shares: Sequence[Prepared]) -> None:
        """Calibrates the norms of parts that begin to learn, equally in all processes, with the first batch that has
        items in any process. Until then these parts get no gradient.
        """
        while norms := self.stage.fresh_norms(self.policy):
            sums = []
            for number, share in enumerate(shares):
                self._generator(number)  # for dropout
                sums.append(self.objective.norm_moments(share))
            if not calibrate(norms, self.team.total(torch.stack(sums).sum(dim=0))):
                return
        self._awaits_calibration = False

    def _is_reported(self, step: int) -> bool:
        """Whether a line of metrics is due after this step."""
        return step % self.config.log_every_steps == 0 or step == self.num_steps

    def _vital_signs(self) -> VitalSigns | None:
        """The vital signs with the weights after the step; measured only if a line is due."""
        if self._held_out_share is None or not self._is_reported(self.step):
            return None
        # Every process measures the same; the mean makes sure that all of them stop, or none.
        return VitalSigns.of(self.team.total(self.objective.vital_sums(self._held_out_share)) / self.team.size)

    def check_vital_signs(self, report: StepReport) -> None:
        """Stops a run whose readout has run away: within the first tenth of its steps, the query change exceeds the
        base queries too many times over."""
        signs, limit = report.vital_signs, self.config.max_query_change
        is_early = self.step <= max(self.num_steps // 10, self.config.log_every_steps)
        if signs is None or signs.query_change is None or limit is None or not is_early:
            return
        if "readout" in self.stage.trained_parts and not signs.query_change <= limit:
            raise TrainingError(
                f"At step {self.step} of {self.num_steps}, the readout changes the queries by {signs.query_change:.1f} "
                f"times their own size; beyond {limit:g} times, attention saturates and the readout does not recover. "
                "Begin again in another folder with a lower LoopConfig.readout_rate_times (now "
                f"{self.config.readout_rate_times:g}) or a lower learning rate. If the base queries begin small on "
                "purpose, raise LoopConfig.max_query_change."
            )

    def _counts(self, shares: Sequence[Prepared]) -> dict[str, float]:
        """The number of tokens or blocks that each loss is a sum over, in all processes together."""
        own = [sum(share.counts[name] for share in shares) for name in LOSS_NAMES]
        counts = torch.tensor(own, dtype=torch.float64)
        if self.team.size > 1:
            counts = self.team.total(counts.to(self.device))
        return dict(zip(LOSS_NAMES, counts.tolist(), strict=True))

    def _check_taught(self, counts: Mapping[str, float]) -> None:
        """Stops the run at the first report if a content loss has had no target so far, because such a loss would be
        left out silently. A single batch may have no targets.
        """
        self._taught |= {name for name, num in counts.items() if num}
        step = self.step + 1
        if not self._is_reported(step):
            return
        missing = [name for name in CONTENT_LOSSES if self._weight(name) and name not in self._taught]
        if missing:
            raise RecordError(
                f"Up to step {step}, {' and '.join(f'the {name} loss' for name in missing)} had nothing to learn from. "
                "Make the lessons with Teacher.prepare and let the data read them with LessonStore.read. Where it "
                "does, the teacher spoke about none of these items, or all its answers were discarded "
                f"(LessonStore.discarded says why). Or set {' and '.join(f'{one}_weight' for one in missing)} to 0."
            )

    def _add_gradients(
        self, shares: Sequence[Prepared], divisors: Mapping[str, float]
    ) -> tuple[torch.Tensor, tuple[int, ...]]:
        """Adds the gradients of all shares. Returns the sum of each loss, and the gate's decisions, for the shares of
        this process.
        """
        # DDP takes the mean over processes, but the sum is needed.
        scales = {name: self._weight(name) * self.team.size / divisors[name] for name in LOSS_NAMES}
        sums = torch.zeros(len(LOSS_NAMES), dtype=torch.float64, device=self.device)
        passages = [astuple(Passage())]
        for number, share in enumerate(shares):
            with self._exchange(is_last=number == len(shares) - 1):
                total, losses = self._module(share, scales, self._generator(number))
                total.backward()
            for name, value in losses.sums.items():
                sums[LOSS_NAMES.index(name)] += value.detach()
            passages.append(astuple(losses.passage))
        return sums, tuple(map(sum, zip(*passages, strict=True)))

    def _exchange(self, *, is_last: bool) -> AbstractContextManager[None]:
        """Processes exchange gradients once, when all passes have added theirs."""
        if isinstance(self._module, DistributedDataParallel) and not is_last:
            return self._module.no_sync()
        return nullcontext()

    def _weight(self, name: str) -> float:
        return self.stage.weights.get(name, 0.0)

    def _generator(self, number: int) -> torch.Generator:
        """The random numbers of one share of this step, for dropout and for the gate."""
        share = self.team.rank * self.config.num_passes + number
        torch.manual_seed(derive_seed(self.config.seed, "dropout", self.step, share))
        generator = torch.Generator(self.device)
        return generator.manual_seed(derive_seed(self.config.seed, "gate", self.step, share))

    def _check_finite(self, losses: Mapping[str, float], gradient_norm: float) -> None:
        wrong = [f"the {name} loss is {value}" for name, value in losses.items() if not math.isfinite(value)]
        if not wrong and not math.isfinite(gradient_norm):
            named = self.objective.parts.named_parameters()
            first = next((name for name, one in named if one.grad is not None and not one.grad.isfinite().all()), "?")
            wrong = [f"the gradient norm is {gradient_norm} (first in {first})"]
        if wrong:
            raise TrainingError(
                f"At step {self.step + 1}, {' and '.join(wrong)}. This step changed nothing; the last good save is in "
                f"{self.states.folder}. Look at batch {self.step}, or begin again with a lower learning rate."
            )

    def _move(self) -> float:
        rate = learning_rate_at(
            self.step,
            num_steps=self.num_steps,
            peak=self.config.learning_rate,
            warmup_share=self.config.warmup_share,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("times", 1.0)
        self.optimizer.step()
        self.step += 1
        return rate

    # Reports and saves

    def record(self, report: StepReport) -> None:
        """Records a step, and saves when a save is due."""
        if not self.team.is_first:
            return
        self.metrics.add(report)
        is_due = self.step % self.config.save_every_steps == 0
        if is_due or self.step % self.config.log_every_steps == 0:
            self.metrics.write(self.device)
        if is_due:
            self.save()

    def save(self) -> None:
        """Saves the state, and plots of the run so far."""
        card = {
            "config": self.settings(),
            "policy_backbone": asdict(self.policy.backbone.identity()),
            "encoder_backbone": asdict(self.policy.encoder.backbone.identity()),
            "awaits_calibration": self._awaits_calibration,
            "held_out": None if self.held_out is None else self.held_out.batch.digest,
        }
        tensors = {"weights": self.policy.trained_state(), "optimizer": self.optimizer.state_dict()}
        if self.states.save(self.step, tensors, card):
            plot_run(self.folder, title=self.stage.name)

    def end(self) -> None:
        """Saves the state. A finished run writes its memory. A run that is out of time writes the memory that it has so
        far.
        """
        if self.team.is_first:
            self.metrics.write(self.device)
            self.save()
            is_finished = self.step == self.num_steps
            if not (is_finished and self._has_memory()):
                notes = {"stage": self.stage.name, "num_steps": self.step, "config": self.settings()}
                notes |= self._vital_notes()
                place, half = self.memory if is_finished else self.unfinished, self.config.stores_half
                Checkpoint.save(self.policy, place, notes=notes, replace=True, is_half=half)
            if is_finished:
                remove_folder(self.unfinished)
        self.team.wait()

    def _vital_notes(self) -> dict[str, Any]:
        """The last vital signs, for the card."""
        signs = self.metrics.vital_signs_until(self.step)
        if signs is None or self.held_out is None:
            return {}
        return {VITAL_SIGNS_NOTE: signs | {"is_learnt_from": self.held_out.is_learnt_from}}

    def _has_memory(self) -> bool:
        """Whether exactly this memory is stored and undamaged. It is then kept, because a threshold may have been
        chosen for it since.
        """
        try:
            return Checkpoint.open(self.memory).holds(self.policy, is_half=self.config.stores_half)
        except (CheckpointError, ConfigError, StorageError):
            return False

    def settings(self) -> dict[str, Any]:
        """Every setting of the run, defaults included, as plain values."""
        return {
            "stage": {"name": self.stage.name, **self.stage.settings()},
            "loop": to_plain(self.config) | {"num_steps": self.num_steps},
            "memory": to_plain(self.policy.config),
            "data": {"digest": self.data_digest},
        }

    def _check_same(self, card: Mapping[str, Any]) -> None:
        """Refuses to resume with other settings or another backbone."""
        changed = differences(card["config"], self.settings(), free=FREE_FIELDS)
        if changed:
            name, (before, now) = next(iter(changed.items()))
            raise CheckpointError(
                f"The run in {self.folder} has {name} = {before}, but this one asks for {now}. "
                "Resume it with the same settings, or train in another folder."
            )
        if self.held_out is not None and card["held_out"] != self.held_out.batch.digest:
            raise CheckpointError(
                f"The run in {self.folder} was begun with other held-out decisions. Resume it with the same data, or "
                "train in another folder."
            )
        for use, backbone in (("policy", self.policy.backbone), ("encoder", self.policy.encoder.backbone)):
            stored, own = card[f"{use}_backbone"], asdict(backbone.identity())
            if any(stored[part] != own[part] for part in ("architecture", "weights")):
                raise CheckpointError(
                    f"The run in {self.folder} was begun with the {use} backbone '{stored['name']}', and "
                    f"'{own['name']}' is another one. Resume with the very same backbone."
                )

    def _write_description(self) -> None:
        environment = training_environment(self.config.seed, self.device)
        write_whole(self.folder / "config.json", json.dumps(self.settings(), indent=2).encode())
        write_whole(self.folder / "environment.json", dump_record(environment))


def training_environment(seed: int, device: torch.device) -> Environment:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return collect_environment({"training": seed}, {"accelerator": name})


def _optimizer(objective: Objective, config: LoopConfig, device: torch.device) -> torch.optim.Optimizer:
    alike: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
    for name, one in objective.parts.named_parameters():
        times = {"gate": config.gate_rate_times, "readout": config.readout_rate_times}.get(name.partition(".")[0], 1.0)
        alike.setdefault((times, config.weight_decay if one.ndim > 1 else 0.0), []).append(one)
    groups = [{"params": own, "times": times, "weight_decay": decay} for (times, decay), own in alike.items()]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas, fused=device.type == "cuda")
