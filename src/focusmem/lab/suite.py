"""The laboratory as a suite: evaluation tasks drawn by a seed, seen in Chromium or drawn without a browser."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import islice
from typing import Annotated, Final

from pydantic import Field

from focusmem.browser.base import Browser
from focusmem.browser.opening import BrowserChoice, open_chromium
from focusmem.browser.served_browser import ServedBrowser
from focusmem.errors import ConfigError
from focusmem.judges.exact_answer import ExactAnswer
from focusmem.lab.world.raster_browser import RasterBrowser
from focusmem.lab.world.rollout import iter_tasks
from focusmem.lab.world.session import ORIGIN
from focusmem.lab.world.tasks import ENTRIES_SUITE, SUITE, LabTask, Split, site_names
from focusmem.lab.world.world import World
from focusmem.schemas import Task
from focusmem.settings import checked_dataclass
from focusmem.suites.base import MakeBrowser

SPLITS_EVALUATED: Final[dict[str, Split]] = {SUITE: "e", ENTRIES_SUITE: "eo"}
"""The sites that each suite of the laboratory draws its tasks from."""

_Seed = Annotated[int, Field(ge=0)]


@checked_dataclass(frozen=True, kw_only=True)
class LabSuiteConfig:
    num_tasks: Annotated[int, Field(ge=1)] = 400
    """Tasks for each seed."""
    seed: _Seed = 0
    """The first seed that tasks are drawn with."""
    num_seeds: Annotated[int, Field(ge=1)] = 1
    """How many seeds, from `seed` on. A task that several of them draw is attempted once."""
    sites: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Evaluation sites that tasks are drawn from; None means all of them."""
    world_seed: _Seed = 0
    """Which world: equal seeds give equal sites."""


class LabSuite:
    judge = ExactAnswer()
    revision: str | None = None
    left_out: Mapping[str, str] = {}

    def __init__(self, config: LabSuiteConfig | None = None, *, name: str = SUITE) -> None:
        """`name` chooses the sites: `lab` has markets and encyclopedias, `lab-entries` has offices."""
        self.name, self.split = name, SPLITS_EVALUATED[name]
        self.config = config or LabSuiteConfig()
        _check_sites(self.config, self.split)
        self.world = World(self.config.world_seed)
        self.lab_tasks = _drawn(self.world, self.split, self.config)
        self.tasks: Sequence[Task] = [one.task for one in self.lab_tasks]
        self._kinds = {one.task.task_id: one.kind for one in self.lab_tasks}

    def kind_of(self, task: Task) -> str:
        return self._kinds[task.task_id]

    async def open_browsers(self, choice: BrowserChoice, stack: AsyncExitStack) -> MakeBrowser:
        if choice.kind == "raster":

            async def raster(task: Task) -> Browser:
                return RasterBrowser(self.world)

            return raster
        # Imported here, because the raster needs neither a server nor its fonts.
        from focusmem.lab.world.server import LAB_LIMITS, LabServer

        server = stack.enter_context(LabServer(self.world))
        launch = await open_chromium(LAB_LIMITS, choice, stack)

        async def chromium(task: Task) -> Browser:
            return ServedBrowser(await launch([server.host]), shown=ORIGIN, served=server.url.removesuffix("/"))

        return chromium


def _check_sites(config: LabSuiteConfig, split: Split) -> None:
    known = site_names(split)
    strangers = [name for name in config.sites or () if name not in known]
    if strangers:
        raise ConfigError(
            f"LabSuiteConfig.sites names {strangers[0]!r}, which is not an evaluation site of this suite; "
            f"those are {known[0]} to {known[-1]}."
        )


def _drawn(world: World, split: Split, config: LabSuiteConfig) -> list[LabTask]:
    tasks: dict[str, LabTask] = {}
    for seed in range(config.seed, config.seed + config.num_seeds):
        drawn = iter_tasks(world, split, "evaluation", seed, sites=config.sites)
        tasks |= {one.task.task_id: one for one in islice(drawn, config.num_tasks)}
    return list(tasks.values())
