"""The figures of training steps, averaged over a few steps and written as a line of JSON."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from focusmem.errors import StorageError
from focusmem.files import write_whole
from focusmem.training.stage import Passage
from focusmem.training.vital_signs import VITAL_SIGNS_NOTE, VitalSigns


@dataclass(frozen=True)
class StepReport:
    step: int
    """The number of steps so far, including this one."""
    losses: Mapping[str, float]
    """Each loss before its weight is applied, and `total`, the weighted sum."""
    gradient_norm: float
    """The gradient norm before clipping."""
    learning_rate: float
    passage: Passage
    num_tokens: int
    """Tokens that all processes read, without padding."""
    waited_s: float
    """Seconds that were spent waiting for data."""
    vital_signs: VitalSigns | None = None
    """The vital signs after the step; None in stage A, and at steps without a line in the metrics."""


@dataclass
class Metrics:
    """Collects the steps since the last line, and writes lines to a file."""

    path: Path
    _steps: list[StepReport] = field(default_factory=list)
    _since: float = field(default_factory=time.monotonic)

    def cut_after(self, step: int) -> None:
        """Removes lines about steps that a resumed run repeats."""
        lines = [json.dumps(line) for line in read_metrics(self.path) if line["step"] <= step]
        if self.path.exists():
            write_whole(self.path, "".join(f"{line}\n" for line in lines).encode())

    def losses_until(self, step: int) -> set[str]:
        """The losses that had at least one target up to a step."""
        return {name for line in read_metrics(self.path) if line["step"] <= step for name in line["loss"]}

    def vital_signs_until(self, step: int) -> dict[str, Any] | None:
        """The last vital signs up to a step."""
        lines = [line for line in read_metrics(self.path) if line["step"] <= step and VITAL_SIGNS_NOTE in line]
        signs: dict[str, Any] | None = lines[-1][VITAL_SIGNS_NOTE] if lines else None
        return signs

    def add(self, report: StepReport) -> None:
        self._steps.append(report)

    def write(self, device: torch.device) -> None:
        """Writes one line about the steps since the last line."""
        if not self._steps:
            return
        took_s = max(1e-9, time.monotonic() - self._since)
        line = summary(self._steps, took_s) | {"gpu_memory_gb": gpu_memory_gb(device)}
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise StorageError(f"Could not write {self.path}: {error.strerror}.") from error
        self._steps, self._since = [], time.monotonic()


def summary(steps: Sequence[StepReport], took_s: float) -> dict[str, Any]:
    names = dict.fromkeys(name for step in steps for name in step.losses)
    measured = [step.vital_signs for step in steps if step.vital_signs is not None]
    return {
        "step": steps[-1].step,
        "loss": {name: _mean([step.losses[name] for step in steps if name in step.losses]) for name in names},
        "gradient_norm": _mean([step.gradient_norm for step in steps]),
        "learning_rate": steps[-1].learning_rate,
        "passage": {
            "ordinary": _rate(steps, "num_ordinary_kept", "num_ordinary"),
            "negative": _rate(steps, "num_negative_kept", "num_negative"),
        },
        **({VITAL_SIGNS_NOTE: measured[-1].as_plain()} if measured else {}),
        "tokens_per_s": round(sum(step.num_tokens for step in steps) / took_s, 1),
        "waiting_rate": round(min(1.0, sum(step.waited_s for step in steps) / took_s), 4),
    }


def note(report: StepReport, device: torch.device) -> str:
    """A step in a few words, for the progress line."""
    words = [f"{name} {value:.3g}" for name, value in report.losses.items()]
    passage = report.passage
    if passage.num_ordinary:
        words.append(f"passed {passage.num_ordinary_kept}/{passage.num_ordinary}")
    if passage.num_negative:
        words.append(f"misled {passage.num_negative_kept}/{passage.num_negative}")
    if report.vital_signs is not None:
        words.append(_vital_words(report.vital_signs))
    memory_gb = gpu_memory_gb(device)
    return "  ".join(words if memory_gb is None else [*words, f"{memory_gb} GB"])


def _vital_words(signs: VitalSigns) -> str:
    nats = {"own": signs.own_nats, "shuffled": signs.shuffled_nats, "fixed": signs.fixed_nats}
    words = "nats " + ", ".join(f"{value:.3f} {name}" for name, value in nats.items() if value is not None)
    if signs.query_change is not None:
        words = f"query change {signs.query_change:.2g}, {words}"
    return f"{words}, readout inert" if signs.is_inert else words


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a run so far, without a last line that was cut off when the run was killed."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            break
    return lines


def gpu_memory_gb(device: torch.device) -> float | None:
    """The most GPU memory that was allocated at once."""
    return round(torch.cuda.max_memory_allocated(device) / 1e9, 2) if device.type == "cuda" else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _rate(steps: Sequence[StepReport], kept: str, num: str) -> float | None:
    total = sum(getattr(step.passage, num) for step in steps)
    return sum(getattr(step.passage, kept) for step in steps) / total if total else None
