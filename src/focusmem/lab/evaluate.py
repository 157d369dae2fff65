"""The laboratory's policy at work: whole episodes on sites it has never seen, many side by side.

none       the prompt alone
notes      a few words about the site in front of it
replay     a demonstration on the same site in front of it, raw: the most telling one, as a perfect retriever finds it
retrieved  what the bank's retriever finds in front of it, raw
latent     the same as latent blocks, together with the expired history; a run says which memory it was
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from focusmem.agent.live_episode import LiveEpisode
from focusmem.agent.memory import AgentMemory
from focusmem.agent.mind import Mind
from focusmem.browser.base import Browser
from focusmem.errors import ConfigError, StorageError
from focusmem.evaluation import metrics
from focusmem.evaluation.run_store import RunStore, run_name
from focusmem.evaluation.runner import Runner, RunnerConfig
from focusmem.lab.memory.recall import Retrieval
from focusmem.lab.minds import Asking, LatentMind, RawMind
from focusmem.lab.world.browsers import BrowserKind, lab_browsers
from focusmem.lab.world.rollout import iter_tasks
from focusmem.lab.world.tasks import LabTask, judge, site_names
from focusmem.lab.world.world import World
from focusmem.model.backbone import Backbone
from focusmem.progress import Progress
from focusmem.schemas import Run, Task, save_trajectory
from focusmem.schemas.environment import collect_environment

MemoryKind = Literal["none", "notes", "replay", "retrieved", "latent"]
MakeBrowser = Callable[[Task], Awaitable[Browser]]
Watch = Callable[[LiveEpisode], None]


def _nobody(episode: LiveEpisode) -> None:
    """Watches."""


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    memory: MemoryKind = "none"
    name: str | None = None
    """What the memory is called in reports; the same as `memory` unless told."""
    num_found: int = 3
    """Trajectories that retrieval may show."""
    num_tasks: int = 400
    seed: int = 0
    num_seeds: int = 1
    """Seeds from `seed` on, with so many tasks each."""
    sites: tuple[str, ...] | None = None
    """Evaluation sites that tasks are drawn from; all of them unless told."""
    bank: str | None = None
    """In words: what trajectories are found in, unless it is all that experts left on the evaluation sites."""
    world_seed: int = 0
    browser: BrowserKind = "raster"
    shows_history: bool = False
    """Give events that left the window back, raw, in front of the prompt."""
    batch_size: int = 16
    """Episodes that go on side by side, each in a browser of its own."""
    max_new_tokens: int = 96
    episode_s: float = 1800.0
    """An episode that takes longer is ended, and counts as an error."""

    @property
    def method(self) -> str:
        return self.name or self.memory

    @property
    def needs_recall(self) -> bool:
        """Whether trajectories are found in a bank."""
        return self.memory in ("latent", "retrieved")

    def __post_init__(self) -> None:
        for name, kind in (("memory", MemoryKind), ("browser", BrowserKind)):
            if getattr(self, name) not in get_args(kind):
                raise ConfigError(f"{name} is '{getattr(self, name)}'; choose one of {', '.join(get_args(kind))}.")
        least = {
            "num_tasks": 1,
            "num_seeds": 1,
            "batch_size": 1,
            "max_new_tokens": 1,
            "num_found": 0,
            "seed": 0,
            "world_seed": 0,
        }
        for name, value in least.items():
            if getattr(self, name) < value:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least {value}.")
        if not self.episode_s > 0:
            raise ConfigError(f"episode_s is {self.episode_s}; it must be above zero.")
        if self.sites is not None:
            self._check_sites(self.sites)

    def _check_sites(self, sites: Sequence[str]) -> None:
        if not sites:
            raise ConfigError("sites is empty, so there is nowhere to draw tasks from; None means all of them.")
        known = site_names("e")
        foreign = [name for name in sites if name not in known]
        if foreign:
            raise ConfigError(
                f"sites holds {foreign[0]!r}, which is no evaluation site; those are {known[0]} to {known[-1]}."
            )


def evaluate(
    policy: Backbone,
    config: EvaluateConfig,
    folder: Path,
    *,
    memory: AgentMemory | None = None,
    recall: Retrieval | None = None,
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
        recall: Retrieval | None = None,
        command: Sequence[str] = (),
    ) -> None:
        """`command` is the line that was typed, word by word; none where it was not a command."""
        self.policy, self.config, self.store = policy, config, RunStore(folder)
        self.command = tuple(command)
        self.recall = recall if config.needs_recall else None
        self.world = World(config.world_seed)
        asking = Asking(shows_history=config.shows_history, max_new_tokens=config.max_new_tokens)
        self.mind: RawMind | LatentMind
        if config.needs_recall and recall is None:
            raise ConfigError(f"Memory '{config.memory}' finds trajectories in a bank; give it an embedder.")
        if config.memory == "latent":
            if memory is None or recall is None:
                raise ConfigError("Latent memory needs a trained memory; give it a checkpoint.")
            self.mind = LatentMind(memory, recall, asking, num_found=config.num_found)
        else:
            self.mind = RawMind(
                policy, config.memory, self.world, asking, recall=self.recall, num_found=config.num_found
            )

    def tasks(self) -> list[LabTask]:
        """What is attempted, drawn by the config's seeds; what several of them draw comes once."""
        return list(self._tasks)

    @cached_property
    def _tasks(self) -> list[LabTask]:
        config = self.config
        found: dict[str, LabTask] = {}
        for seed in range(config.seed, config.seed + config.num_seeds):
            drawn = iter_tasks(self.world, "e", "evaluation", seed, sites=config.sites)
            found |= {one.task.task_id: one for one in islice(drawn, config.num_tasks)}
        return list(found.values())

    def run(self) -> None:
        asyncio.run(self._run_alone())

    async def _run_alone(self) -> None:
        num_done = sum(self.store.is_done(one.task) for one in self.tasks())
        async with AsyncExitStack() as stack:
            make_browser = await lab_browsers(self.world, self.config.browser, stack)
            line = stack.enter_context(Progress("evaluate", total=len(self.tasks()), start=num_done))

            def watch(episode: LiveEpisode) -> None:
                line.step(failed=episode.error is not None, note=self.config.method)

            await self.attempt(make_browser, watch)

    async def attempt(self, make_browser: MakeBrowser, watch: Watch = _nobody, *, mind: Mind | None = None) -> None:
        """All tasks that are not done yet, on record from beginning to end.

        `mind` answers in place of the evaluation's own, for those who want to listen to it. Several evaluations may go
        on in one event loop.
        """
        with self.on_record():
            await self._attempt(self.tasks(), make_browser, watch, mind or self.mind)

    def run_part(self, tasks: Sequence[LabTask]) -> None:
        """Some of the tasks of a run that somebody else has put on record."""

        async def run() -> None:
            async with AsyncExitStack() as stack:
                make_browser = await lab_browsers(self.world, self.config.browser, stack)
                await self._attempt(tasks, make_browser, _nobody, self.mind)

        asyncio.run(run())

    @contextmanager
    def on_record(self) -> Iterator[None]:
        """The run begins here, and ends as finished or failed."""
        run, kinds = self._record(), {one.task.task_id: one.kind for one in self.tasks()}
        self.store.begin(run, kinds, defaults=asdict(EvaluateConfig()))
        try:
            yield
        except Exception as error:
            self.store.end(run, f"{type(error).__name__}: {error}")
            raise
        else:
            self.store.end(run)
        finally:
            self.store.let_go()  # also where it was stopped by Ctrl-C

    async def _attempt(self, tasks: Sequence[LabTask], make_browser: MakeBrowser, watch: Watch, mind: Mind) -> None:
        config = RunnerConfig(
            method=self.config.method,
            source=f"laboratory policy, {self.config.method}",
            num_parallel=self.config.batch_size,
            episode_s=self.config.episode_s,
        )

        def told(episode: LiveEpisode) -> None:
            self._keep_recalled(episode)
            watch(episode)

        await Runner(config, self.store, mind, make_browser, judge, told).run([one.task for one in tasks])

    def _record(self) -> Run:
        values = json.loads(json.dumps(asdict(self.config) | self._identities()))
        name = torch.cuda.get_device_name() if self.policy.device.type == "cuda" else "cpu"
        seeds = {"tasks": self.config.seed, "world": self.config.world_seed}
        return Run(
            run_id=run_name(self.store.folder),
            command=self.command,
            status="running",
            config=values,
            environment=collect_environment(seeds, {"accelerator": name}),
            started_at=datetime.now(UTC),
            num_tasks=len(self.tasks()),
        )

    def _identities(self) -> dict[str, str | None]:
        """Whatever else decides how episodes go."""
        return {
            "policy": self.policy.identity().weights,
            "latent_memory": self.mind.memory.identity() if isinstance(self.mind, LatentMind) else None,
            "embedder": None if self.recall is None else self.recall.embedder.identity,
        }

    def _keep_recalled(self, episode: LiveEpisode) -> None:
        """Trajectories that memory offered, once per run: whoever reads the run wants to see them."""
        names = {item.trajectory_id for notes in episode.notes for item in notes.offered}
        for name in names - {None}:
            place = self.store.folder / "recalled" / str(name)
            if self.recall is not None and not place.exists():
                stored = self.recall.load(str(name))
                try:
                    save_trajectory(place, stored.trajectory, stored.screenshots)
                except StorageError:
                    if not place.exists():  # else another process of this run was faster
                        raise


def summarise(folder: Path) -> dict[str, Any]:
    """The figures of a run, from its files; also of one that is not finished."""
    return metrics.summarise(RunStore(folder))
