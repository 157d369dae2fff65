"""The laboratory's policy at work: whole episodes on sites it has never seen, many side by side.

none       the prompt alone
notes      a few words about the site in front of it
replay     a demonstration on the same site in front of it, raw: the most telling one, as a perfect retriever finds it
retrieved  what the bank's retriever finds in front of it, raw
latent     the same as latent blocks, together with the expired history; a run says which memory it was
"""

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from focusmem.agent.memory import AgentMemory
from focusmem.browser.base import Browser
from focusmem.errors import ConfigError
from focusmem.files import write_whole
from focusmem.intervals import wilson_interval
from focusmem.lab.episodes import LabEpisode
from focusmem.lab.minds import Asking, LatentMind, RawMind
from focusmem.lab.raster_browser import RasterBrowser
from focusmem.lab.recall import LabRecall
from focusmem.lab.rollout import iter_tasks
from focusmem.lab.session import ORIGIN
from focusmem.lab.tasks import LabTask
from focusmem.lab.world import World
from focusmem.model.backbone import Backbone
from focusmem.progress import Progress
from focusmem.schemas import Episode, Run, Screenshot, dump_record, parse_record, save_trajectory
from focusmem.schemas.environment import collect_environment

MemoryKind = Literal["none", "notes", "replay", "retrieved", "latent"]
BrowserKind = Literal["raster", "chromium"]


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    memory: MemoryKind = "none"
    name: str | None = None
    """What the memory is called in reports; the same as `memory` unless told."""
    num_found: int = 3
    """Trajectories that retrieval may show."""
    num_tasks: int = 400
    seed: int = 0
    world_seed: int = 0
    browser: BrowserKind = "raster"
    shows_history: bool = False
    """Give events that left the window back, raw, in front of the prompt."""
    batch_size: int = 16
    """Episodes that go on side by side."""
    max_new_tokens: int = 96

    @property
    def method(self) -> str:
        return self.name or self.memory

    def __post_init__(self) -> None:
        for name, kind in (("memory", MemoryKind), ("browser", BrowserKind)):
            if getattr(self, name) not in get_args(kind):
                raise ConfigError(f"{name} is '{getattr(self, name)}'; choose one of {', '.join(get_args(kind))}.")
        if self.num_tasks < 1:
            raise ConfigError(f"num_tasks is {self.num_tasks}; it must be at least 1.")


def evaluate(
    policy: Backbone,
    config: EvaluateConfig,
    folder: Path,
    *,
    memory: AgentMemory | None = None,
    recall: LabRecall | None = None,
) -> dict[str, Any]:
    """Run what is not yet in `folder`, and sum up all of it.

    `recall` finds trajectories where the config says that they are retrieved, `memory` turns them into blocks.
    """
    Evaluation(policy, config, folder, memory=memory, recall=recall).run()
    return summarise(folder)


class Evaluation:
    def __init__(
        self,
        policy: Backbone,
        config: EvaluateConfig,
        folder: Path,
        *,
        memory: AgentMemory | None = None,
        recall: LabRecall | None = None,
    ) -> None:
        self.policy, self.config, self.folder = policy, config, folder
        self.recall = recall if config.memory in ("latent", "retrieved") else None
        self.world = World(config.world_seed)
        asking = Asking(shows_history=config.shows_history, max_new_tokens=config.max_new_tokens)
        self.mind: RawMind | LatentMind
        if config.memory in ("latent", "retrieved") and recall is None:
            raise ConfigError(f"Memory '{config.memory}' finds trajectories in a bank; give it an embedder.")
        if config.memory == "latent":
            if memory is None or recall is None:
                raise ConfigError("Latent memory needs a trained memory; give it a checkpoint.")
            self.mind = LatentMind(memory, recall, asking, num_found=config.num_found)
        else:
            self.mind = RawMind(
                policy, config.memory, self.world, asking, recall=self.recall, num_found=config.num_found
            )

    def run(self) -> None:
        self._begin()
        drawn = iter_tasks(self.world, "e", "evaluation", self.config.seed)
        tasks = [next(drawn) for _ in range(self.config.num_tasks)]
        write_whole(
            self.folder / "tasks.json",
            json.dumps([{"task_id": one.task.task_id, "kind": one.kind} for one in tasks], indent=1).encode(),
        )
        left = [task for task in tasks if not (self._place(task) / "episode.json").exists()]
        with Progress("evaluate", total=len(tasks), start=len(tasks) - len(left)) as line:
            asyncio.run(self._run_all(left, line))

    async def _run_all(self, tasks: Sequence[LabTask], line: Progress) -> None:
        async with AsyncExitStack() as stack:
            make_browser = await self._browsers(stack)
            for start in range(0, len(tasks), self.config.batch_size):
                together = tasks[start : start + self.config.batch_size]
                episodes = [LabEpisode(task, await make_browser()) for task in together]
                await self._run_together(episodes)
                for episode in episodes:
                    self._store(episode)
                    line.step(failed=episode.error is not None, note=self.config.method)

    async def _browsers(self, stack: AsyncExitStack) -> Any:
        if self.config.browser == "raster":

            async def raster() -> Browser:
                return RasterBrowser(self.world)

            self._origin = ORIGIN
            return raster
        from focusmem.browser.chromium import ChromiumBrowser
        from focusmem.browser.chromium_process import ChromiumPool
        from focusmem.lab.server import LAB_LIMITS, LabServer

        server = stack.enter_context(LabServer(self.world))
        pool = await stack.enter_async_context(ChromiumPool())
        self._origin = server.url.rstrip("/")

        async def chromium() -> Browser:
            return await ChromiumBrowser.launch(LAB_LIMITS, [server.host], pool=pool)

        return chromium

    async def _run_together(self, episodes: Sequence[LabEpisode]) -> None:
        """All episodes in step: look, ask the policy once for all of them, act."""
        try:
            for episode in episodes:
                with episode.keeping_errors():
                    await episode.browser.open(f"{self._origin}/{episode.task.site_id}/")
            while any(not episode.is_over for episode in episodes):
                await self._step(episodes)
        finally:
            for episode in episodes:
                await episode.browser.close()

    async def _step(self, episodes: Sequence[LabEpisode]) -> None:
        started = time.perf_counter()
        seen: list[tuple[LabEpisode, Screenshot]] = []
        for episode in episodes:
            if not episode.is_over:
                with episode.keeping_errors():
                    seen.append((episode, (await episode.browser.observe()).screenshot))
        observe_s = (time.perf_counter() - started) / max(1, len(seen))
        replies = self.mind.ask(seen) if seen else []
        for (episode, screenshot), reply in zip(seen, replies, strict=True):
            started = time.perf_counter()
            with episode.keeping_errors():
                await episode.act(screenshot, reply.text, reply.notes)
                parts = {"observe": observe_s, "act": time.perf_counter() - started}
                episode.add_seconds(reply.notes.seconds | parts)

    # Files

    def _begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "config.json"
        values = json.loads(json.dumps(asdict(self.config) | self._identities()))
        if config.exists() and json.loads(config.read_text()) != values:
            raise ConfigError(
                f"{self.folder} holds a run with another config, policy, memory or embedder; choose another --out, "
                "or delete it."
            )
        write_whole(config, json.dumps(values, indent=2).encode())
        name = torch.cuda.get_device_name() if self.policy.device.type == "cuda" else "cpu"
        run = Run(
            run_id=self.folder.name,
            command=("focusmem", "lab", "evaluate"),
            status="running",
            config=values,
            environment=collect_environment(
                {"tasks": self.config.seed, "world": self.config.world_seed}, {"accelerator": name}
            ),
            started_at=datetime.now(UTC),
            num_tasks=self.config.num_tasks,
        )
        write_whole(self.folder / "run.json", dump_record(run))

    def _identities(self) -> dict[str, str | None]:
        """Whatever else decides how episodes go."""
        return {
            "policy": self.policy.identity().weights,
            "latent_memory": self.mind.memory.identity() if isinstance(self.mind, LatentMind) else None,
            "embedder": None if self.recall is None else self.recall.embedder.identity,
        }

    def _place(self, task: LabTask) -> Path:
        return self.folder / "episodes" / task.task.task_id

    def _store(self, episode: LabEpisode) -> None:
        self._store_recalled(episode)
        episode.store(self._place(episode.task), self.config.method)
        self.mind.forget(episode.task)

    def _store_recalled(self, episode: LabEpisode) -> None:
        """Trajectories that memory offered, once per run: whoever reads the run wants to see them."""
        names = {item.trajectory_id for notes in episode.notes for item in notes.offered}
        for name in names - {None}:
            place = self.folder / "recalled" / str(name)
            if self.recall is not None and not place.exists():
                stored = self.recall.bank.trajectories[self.recall.bank.place_of[str(name)]]
                save_trajectory(place, stored.trajectory, stored.screenshots)


def summarise(folder: Path) -> dict[str, Any]:
    """The figures of a run, from its files; also of one that is not finished."""
    config = json.loads((folder / "config.json").read_text())
    kind_of = {one["task_id"]: one["kind"] for one in json.loads((folder / "tasks.json").read_text())}
    paths = [folder / "episodes" / task_id / "episode.json" for task_id in kind_of]
    episodes = [parse_record(Episode, path.read_bytes(), str(path)) for path in paths if path.exists()]
    judged = [one for one in episodes if one.outcome != "error"]
    notes = [note for one in judged for note in one.notes]
    items = [item for note in notes for item in note.offered]
    num_steps, num_tasks = max(1, len(notes)), max(1, len(judged))
    wins = sum(one.outcome == "success" for one in judged)
    results = {
        "memory": config["name"] or config["memory"],
        "num_tasks": len(judged),
        "num_errors": len(episodes) - len(judged),
        "num_missing": len(kind_of) - len(episodes),
        "success_rate": wins / num_tasks,
        "success_interval": list(wilson_interval(wins, len(judged))),
        "hit_max_rate": sum(one.answer is None for one in judged) / num_tasks,
        "unreadable_rate": sum(not note.is_readable for note in notes) / num_steps,
        "repeat_rate": sum(note.is_repeat for note in notes) / num_steps,
        "mean_steps": len(notes) / num_tasks,
        "mean_step_s": sum(one.seconds for one in judged) / num_steps,
        "mean_prompt_tokens": sum(note.num_prompt_tokens for note in notes) / num_steps,
        "mean_memory_tokens": sum(note.num_memory_tokens for note in notes) / num_steps,
        "accepted_rate": sum(item.is_accepted for item in items) / len(items) if items else None,
        "by_kind": _by_kind([(kind_of[one.task.task_id], one.outcome == "success") for one in judged]),
    }
    write_whole(folder / "results.json", json.dumps(results, indent=2).encode())
    return results


def _by_kind(won: Sequence[tuple[str, bool]]) -> dict[str, dict[str, float]]:
    kinds = sorted({kind for kind, _ in won})
    own = {kind: [is_won for name, is_won in won if name == kind] for kind in kinds}
    return {kind: {"num_tasks": len(own[kind]), "success_rate": sum(own[kind]) / len(own[kind])} for kind in kinds}
