"""Trains several of the laboratory's memories on one GPU, side by side in lanes: each lane is a process that compiles
once and then trains one memory after another, some of which wait for what another lane leaves.

python scripts/train_side_by_side.py PLAN.json --out RUN [--device cuda]

A plan names lanes, and the memories that each of them trains in turn:

{"lanes": {
  "one": [{"name": "action-only", "variant": "action-only", "steps": 1800, "rate": 3e-4, "workers": 8}],
  "two": [{"name": "content", "variant": "content", "steps": 1800, "rate": 3e-4, "workers": 8,
           "changes": ["stage_a.content_weight=0.02"]},
          {"name": "full", "variant": "full", "start": "content", "steps": 400, "rate": 2e-4}],
  "three": [{"name": "readout", "variant": "readout", "start": "content", "steps": 400, "rate": 2e-4}]
}}

`scripts/lab_memories.json` is the plan of the laboratory's own memories, `scripts/lab_memories_more.json` goes on from
an action-only one that has learnt, and `scripts/lab_memories_small.json` makes memories of one and two tokens per block
from the one that ships; each ends after 21 minutes at the latest.
`start` is another memory of the plan, or a folder. `until` (minutes since the plan began) ends a training that is late.
Every other key is that of `Job`. RUN/NAME-memory is what a training has left, RUN/LANE.log what a lane says; the same
call goes on where it was stopped. On a GPU that several processes share, NVIDIA's MPS lets them compute at once.
"""

import argparse
import gc
import json
import os
import pickle
import subprocess
import sys
import time
import traceback
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from focusmem.errors import TrainingError
from focusmem.files import write_whole
from focusmem.lab.memory.decisions import LabDecisionsConfig
from focusmem.lab.memory.drills import Drills
from focusmem.lab.memory.gate import teach_gate
from focusmem.lab.memory.split_bank import SplitBank
from focusmem.lab.memory.stream import COURSE, StreamConfig
from focusmem.lab.memory.training import GATE_ALONE, LabTraining, train_memory
from focusmem.lab.memory.variants import variant
from focusmem.lab.policy.policy import load_policy
from focusmem.lab.shipped import Weights
from focusmem.lab.world.world import World
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import Checkpoint
from focusmem.settings import resolved
from focusmem.training.config import READOUT_TIMES, LoopConfig
from focusmem.training.departures import ROUNDED, Departures
from focusmem.training.variants import Variant

_POLL_S = 0.5
_FAILED = "-failed"
_ROLLOUTS = "rollouts.pickle"
"""The experts' trajectories of all sites, made once for all lanes."""
_COMPILED_BY = "full"
_HIDDEN_STATE = ("memory.state_source=hidden", "memory.state_layer=2", "memory.gate.shares_projection=false")
"""This variant's two stages, with this state, need every function that is compiled."""


@dataclass(frozen=True, kw_only=True)
class Job:
    name: str
    variant: str
    steps: int
    """Of the stage that is trained: the second, where the variant has one and begins with `start`."""
    rate: float
    start: str | None = None
    until: float | None = None
    episodes: int = 6
    drills: int = 32
    has_course: bool = False
    """Whether short drills come first, from easy to hard."""
    teaches_gate: bool = False
    """Whether the gate alone learns, after all else has."""
    workers: int = 4
    warmup: float = 0.05
    seed: int = 0
    gate_rate: float = 10.0
    changes: tuple[str, ...] = ()
    """Settings of the variant, such as stage_a.content_weight=0.02. With fewer tokens per block than `start` has, the
    first ones learn on."""
    betas: tuple[float, float] = (0.9, 0.98)
    max_gradient_norm: float = 0.3

    @property
    def chosen(self) -> Variant:
        return resolved(variant(self.variant), assignments=self.changes)


@dataclass(frozen=True)
class Lane:
    policy: Backbone
    bank: SplitBank
    out: Path
    began: float

    def say(self, text: str) -> None:
        sys.stdout.write(f"[{time.time() - self.began:7.1f} s] {text}\n")
        sys.stdout.flush()

    def memory(self, name: str) -> Path:
        return self.out / f"{name}-memory"

    def failure(self, name: str) -> Path:
        """There where a training ended with an error, so that nobody waits for it."""
        return self.out / f"{name}{_FAILED}"

    def compile(self) -> None:
        """One small step of both stages, and one of the gate alone, into folders that nobody reads."""
        job = Job(name=f"warm-{os.getpid()}", variant=_COMPILED_BY, steps=1, rate=1e-5, episodes=2, drills=2)
        left = self.train(replace(job, changes=_HIDDEN_STATE))
        self.train(replace(job, start=str(left), teaches_gate=True))

    def work(self, job: Job) -> None:
        if self.memory(job.name).exists():
            return
        start = job.start
        if job.start is not None and not Path(job.start).is_dir():
            while not self.memory(job.start).exists():
                if self.failure(job.start).exists():
                    raise TrainingError(f"{job.name} was to begin with {job.start}, which failed.")
                time.sleep(_POLL_S)
            start = str(self.memory(job.start))
        self.say(f"{job.name} begins")
        finished = self.train(replace(job, start=start))
        stages = sorted((self.out / job.name).glob("*/unfinished"))
        left = finished or (stages[-1] if stages else None)
        if left is not None:
            Checkpoint.open(left).with_notes({"variant": job.variant, "job": asdict(job)})
            self.memory(job.name).symlink_to(left.resolve())
        self.say(f"{job.name} ended{'' if finished else ', unfinished'}: {left}")

    def train(self, job: Job) -> Path | None:
        loop = LoopConfig(
            learning_rate=job.rate, num_steps=job.steps, warmup_share=job.warmup, num_workers=job.workers,
            betas=job.betas, max_gradient_norm=job.max_gradient_norm, seed=job.seed, save_every_steps=1000,
            packs_rows=None, stores_half=True, max_group_tokens=262_144,
        )  # fmt: skip
        left_minutes = None if job.until is None else max(0.05, job.until - (time.time() - self.began) / 60)
        if job.teaches_gate:
            assert job.start is not None, "what stage B left"
            before = Departures.of(Checkpoint.open(Path(job.start)))
            told = replace(before, departures=tuple(dict.fromkeys((*before.departures, GATE_ALONE, ROUNDED))))
            return teach_gate(
                self.policy, job.chosen, self.out / job.name / "gate", replace(loop, max_minutes=left_minutes),
                start=Path(job.start), bank=self.bank, seed=job.seed, notes=told.notes(),
            )  # fmt: skip
        training = LabTraining(
            variant=job.chosen,
            loop_a=loop,
            loop_b=replace(loop, gate_rate_times=job.gate_rate, readout_rate_times=READOUT_TIMES),
            start=None if job.start is None else Path(job.start),
            max_minutes=left_minutes,
            stream=StreamConfig(
                num_episodes=job.episodes,
                drills=Drills(num_numbers=job.drills, num_ways=job.drills),
                course=COURSE if job.has_course else (),
            ),
            decisions=LabDecisionsConfig(seed=job.seed),
            device=str(self.policy.device),
        )
        try:
            return train_memory(self.policy, training, self.out / job.name, bank=self.bank)
        finally:
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def run_lane(name: str, plan: dict[str, Any], out: Path, device: str, began: float) -> int:
    jobs = [Job(**one) for one in plan["lanes"][name]]
    first = jobs[0].start
    is_kept_waiting = first is not None and not Path(first).is_dir()
    if is_kept_waiting:  # those that need not wait have the machine for themselves until they step
        while not list(out.glob(f"{first}/stage-*/metrics.jsonl")) and not (out / f"{first}{_FAILED}").exists():
            time.sleep(_POLL_S)
    bank = _bank(plan)
    bank.take(pickle.loads((out / _ROLLOUTS).read_bytes()))
    lane = Lane(load_policy(Weights().policy, device), bank, out, began)
    if is_kept_waiting and device.startswith("cuda"):
        lane.compile()
    num_failed = 0
    for job in jobs:
        try:
            lane.work(job)
        except Exception:  # the others may still be trained
            traceback.print_exc()
            lane.say(f"{job.name} failed")
            lane.failure(job.name).touch()
            num_failed += 1
    return num_failed


def _bank(plan: dict[str, Any]) -> SplitBank:
    return SplitBank(World(0), "m", num_sites=plan.get("num_sites"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--lane", help=argparse.SUPPRESS)
    parser.add_argument("--began", type=float, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    plan, began = json.loads(given.plan.read_text()), given.began or time.time()
    if given.lane:
        return run_lane(given.lane, plan, given.out, given.device, began)
    described = {name: [asdict(Job(**one)) for one in jobs] for name, jobs in plan["lanes"].items()}
    given.out.mkdir(parents=True, exist_ok=True)
    write_whole(given.out / "plan.json", json.dumps(described, indent=2).encode())
    for failure in given.out.glob(f"*{_FAILED}"):
        failure.unlink()
    if not (given.out / _ROLLOUTS).exists():
        made = _bank(plan).roll_out_all(os.cpu_count() or 1)
        write_whole(given.out / _ROLLOUTS, pickle.dumps(made))
    lanes = {}
    for name in described:
        command = [sys.executable, __file__, str(given.plan), "--out", str(given.out), "--device", given.device]
        with (given.out / f"{name}.log").open("w") as log:
            lanes[name] = subprocess.Popen(
                [*command, "--lane", name, "--began", str(began)], stdout=log, stderr=subprocess.STDOUT
            )
    failed = []
    while lanes:
        for name, lane in list(lanes.items()):
            if lane.poll() is None:
                continue
            del lanes[name]
            if lane.returncode:
                failed.append(name)
                sys.stderr.write(f"Lane {name} failed; see {given.out / f'{name}.log'}.\n")
                for job in described[name]:  # one that was killed could not say so itself
                    if not (given.out / f"{job['name']}-memory").exists():
                        (given.out / f"{job['name']}{_FAILED}").touch()
        time.sleep(_POLL_S)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
