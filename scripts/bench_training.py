"""Times steps of both stages at the laboratory's size, on made-up records: how long one takes and what it is spent on.

python scripts/bench_training.py --device cuda

Meant for a GPU: a whole batch needs more than 20 GB of memory on a CPU, and minutes per step.
"""

import argparse
import json
import random
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from focusmem.lab.policy.fast_vision import see_all
from focusmem.lab.policy.policy import new_policy, train_tokenizer
from focusmem.lab.world.scene import VIEW_HEIGHT, VIEW_WIDTH
from focusmem.lab.world.world import World
from focusmem.model.backbone import Backbone, VisionFeatures
from focusmem.model.compressor import CompressorConfig
from focusmem.model.config import MemoryConfig
from focusmem.model.lora import LoraConfig
from focusmem.model.policy import MemoryPolicy
from focusmem.schemas import Prompt, Role, Screenshot, Turn
from focusmem.training.batch import Decision, ItemUse, Pixels, TrainingBatch, TrainingItem
from focusmem.training.config import LoopConfig
from focusmem.training.lessons import Description, FunctionalPair, Lesson
from focusmem.training.metrics import read_metrics
from focusmem.training.pathway import Look
from focusmem.training.stage_a import train_stage_a
from focusmem.training.stage_b import train_stage_b

WORDS = "open the list of mugs and look at blue ones under ten with a handle then compare prices".split()


class MadeUpData:
    """Batches of some trajectories with eight decisions each, five episodic and three working items per trajectory."""

    size = (VIEW_HEIGHT, VIEW_WIDTH)

    def __init__(self, num_batches: int, width: int, *, num_trajectories: int = 4) -> None:
        self.num_batches, self.width, self.num_trajectories = num_batches, width, num_trajectories

    def batch(self, number: int) -> TrainingBatch:
        rng = random.Random(number)
        merged = TrainingBatch.merged(self._trajectory(rng) for _ in range(self.num_trajectories))
        turns = [turn for one in (*merged.items, *merged.decisions) for turn in one.prompt]
        digests = {part.digest for turn in turns for part in turn.parts if not isinstance(part, str)}
        pixels = np.random.default_rng(number).integers(256, size=(len(digests), *self.size, 3), dtype=np.uint8)
        return replace(merged, pixels=Pixels(tuple(digests), torch.from_numpy(pixels)))

    def _trajectory(self, rng: random.Random) -> TrainingBatch:
        items = [self._item(rng, "episodic", rng.randrange(6, 15)) for _ in range(5)]
        items += [self._item(rng, "working", 4) for _ in range(3)]
        screens = [self._screen(rng) for _ in range(8)]
        decisions = []
        for at in range(8):
            recent = [self._event(rng, screen) for screen in screens[max(0, at - 3) : at]]
            now = Turn("user", (self._text(rng, 40), screens[at], self._text(rng, 25)))
            uses = [ItemUse(item, rank, rank == 2) for rank, item in enumerate(rng.sample(range(5), 3))]
            uses += [ItemUse(5 + rank, rank) for rank in range(max(0, (at - 1) // 2))]
            decisions.append(Decision(prompt=(*recent, now), reply=self._text(rng, 20), uses=tuple(uses)))
        return TrainingBatch(items=tuple(items), decisions=tuple(decisions))

    def _item(self, rng: random.Random, role: Role, num_events: int) -> TrainingItem:
        events = [self._event(rng, self._screen(rng)) for _ in range(num_events)]
        prompt: Prompt = (Turn("user", (self._text(rng, 15),)), *events)
        ids = tuple(rng.randrange(300, 2000) for _ in range(100))
        description = Description(self._ask(rng), "", ids, torch.randn(len(ids), self.width))
        pairs = tuple(FunctionalPair(self._ask(rng), self._text(rng, 90)) for _ in range(2))
        return TrainingItem(item_id=str(rng.random()), role=role, prompt=prompt, lesson=Lesson(description, pairs))

    def _event(self, rng: random.Random, screen: Screenshot) -> Turn:
        return Turn("user", (screen, self._text(rng, 15)))

    def _ask(self, rng: random.Random) -> Prompt:
        return (Turn("user", (self._text(rng, 8),)),)

    def _screen(self, rng: random.Random) -> Screenshot:
        height, width = self.size
        return Screenshot(png=b"", digest=f"{rng.getrandbits(256):064x}", width=width, height=height)

    def _text(self, rng: random.Random, num_words: int) -> str:
        return " ".join(rng.choices(WORDS, k=num_words))


def looking_with(backbone: Backbone) -> Look:
    """Many pictures of one size at once, as in pretraining."""

    def look(pixels: Pixels) -> dict[str, VisionFeatures]:
        half = torch.autocast(backbone.device.type, torch.bfloat16, enabled=backbone.device.type == "cuda")
        with torch.no_grad(), half:
            main_NVD, deep_LNVD = see_all(backbone.model.model.visual, pixels.pixels_NHWC)
        _, height, width, _ = pixels.pixels_NHWC.shape
        grid = backbone.chat.token_grid(width, height)
        features = [VisionFeatures(main, deep_LNVD[:, index], grid) for index, main in enumerate(main_NVD)]
        return dict(zip(pixels.digests, features, strict=True))

    return look


def make_policy(device: str, dtype: torch.dtype) -> MemoryPolicy:
    torch.manual_seed(0)
    backbone = new_policy(train_tokenizer(World(0), num_episodes=40)).to(device, dtype)
    config = MemoryConfig(lora=LoraConfig(rank=32), compressor=CompressorConfig(num_heads=6))
    return MemoryPolicy(backbone, config)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--trajectories", type=int, default=4, help="per batch, of eight decisions each")
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--group-tokens", type=int, default=65_536)
    parser.add_argument("--float32", action="store_true", help="the frozen policy in float32 instead of bfloat16")
    parser.add_argument("--profile", action="store_true", help="add the share of time in which the GPU is busy")
    arguments = parser.parse_args()
    policy = make_policy(arguments.device, torch.float32 if arguments.float32 else torch.bfloat16)
    data = MadeUpData(arguments.steps, policy.backbone.width, num_trajectories=arguments.trajectories)
    look = looking_with(policy.backbone)
    loop = LoopConfig(
        learning_rate=1e-4,
        num_workers=arguments.workers,
        log_every_steps=5,
        save_every_steps=10**6,
        max_group_tokens=arguments.group_tokens,
    )
    with tempfile.TemporaryDirectory() as folder:
        start = train_stage_a(policy, data, Path(folder) / "a", loop=loop, look=look).memory
        report("stage_a", Path(folder) / "a", arguments.steps)
        assert start is not None
        train_stage_b(policy, data, Path(folder) / "b", start=start, loop=loop, look=look)
        report("stage_b", Path(folder) / "b", arguments.steps)
        if arguments.profile:
            for stage in ("a", "b"):
                profile(stage, policy, data, look, replace(loop, num_steps=6), Path(folder), start)


def report(name: str, folder: Path, num_steps: int) -> None:
    """The middle of the later lines: the first steps warm up."""
    lines = read_metrics(folder / "metrics.jsonl")[2:] or read_metrics(folder / "metrics.jsonl")
    speeds = sorted(line["tokens_per_s"] for line in lines)
    say(
        stage=name,
        num_steps=num_steps,
        tokens_per_s=speeds[len(speeds) // 2],
        waiting_rate=max(line["waiting_rate"] for line in lines),
        gpu_memory_gb=lines[-1]["gpu_memory_gb"],
    )


def say(**values: object) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def profile(
    stage: str, policy: MemoryPolicy, data: MadeUpData, look: Look, loop: LoopConfig, folder: Path, start: Path
) -> None:
    """A few steps under torch's profiler: how long the GPU computed, and on what."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        if stage == "a":
            train_stage_a(policy, data, folder / "profile-a", loop=loop, look=look)
        else:
            train_stage_b(policy, data, folder / "profile-b", start=start, loop=loop, look=look)
    events = profiler.key_averages()
    busy_s = sum(event.self_device_time_total for event in events) / 1e6
    say(stage=f"stage_{stage}", num_steps=loop.num_steps, gpu_busy_s_per_step=busy_s / (loop.num_steps or 1))
    sys.stdout.write(events.table(sort_by="self_device_time_total", row_limit=25, max_name_column_width=60) + "\n")


if __name__ == "__main__":
    main()
