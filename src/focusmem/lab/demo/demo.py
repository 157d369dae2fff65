"""A demonstration: a few tasks of the laboratory, without and with memory at the same time, for a person to watch.

Tasks are the first ones that a seed draws, in evaluation wordings, over the sites that the bank holds a trajectory of.
Whether one of these trajectories shows what a task needs is left to chance, as it is in an evaluation.
"""

import asyncio
import json
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from focusmem.agent.live_episode import LiveEpisode
from focusmem.agent.mind import Mind, Reply, Seen
from focusmem.bank.store import Bank
from focusmem.browser.base import Browser
from focusmem.errors import ConfigError, PolicyError, StorageError, UserError, WorldError
from focusmem.evaluation.metrics import summarise
from focusmem.evaluation.runner import outcome_of
from focusmem.files import FolderLock, remove_folder, write_whole
from focusmem.lab.evaluate import EvaluateConfig, Evaluation
from focusmem.lab.memory.bank_recall import BankRecall
from focusmem.lab.memory.embedder import load_embedder
from focusmem.lab.memory.variants import agent_memory
from focusmem.lab.policy.policy import load_policy
from focusmem.lab.shipped import Weights
from focusmem.lab.world.browsers import BrowserKind, lab_browsers
from focusmem.lab.world.tasks import LabTask, judge
from focusmem.reports import RunFolder, WrittenPage, write_page
from focusmem.schemas import Outcome, Task, parse_action
from focusmem.schemas.action import AnyAction

WITHOUT, WITH = "none", "full"
METHODS = (WITHOUT, WITH)
"""As the runs, and so their folders, are called."""
LABELS = {WITHOUT: "Without memory", WITH: "With memory"}
"""As people call them."""
_EPISODE_S = 300.0
"""Somebody is watching: what hangs is given up sooner than in an evaluation."""

_MARK, _PAGE = "demo.json", "page.html"

BrowserChoice = Literal["auto", "chromium", "raster"]


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    seed: int = 0
    """Which tasks."""
    num_tasks: int = 3
    browser: BrowserChoice = "auto"
    """`auto` is Chromium where there is one, the raster otherwise."""
    max_new_tokens: int = 96

    def __post_init__(self) -> None:
        if self.browser not in get_args(BrowserChoice):
            raise ConfigError(f"browser is '{self.browser}'; choose one of {', '.join(get_args(BrowserChoice))}.")
        if self.num_tasks < 1:
            raise ConfigError(f"num_tasks is {self.num_tasks}; it must be at least 1.")


@dataclass
class Lane:
    """One task under one method, as far as it has come."""

    number: int
    """Of the task, from one."""
    task: LabTask
    method: str
    num_steps: int = 0
    action: AnyAction | None = None
    """The last one; None also where the last reply could not be read."""
    outcome: Outcome | None = None
    """None while it goes on."""


@dataclass(frozen=True)
class Shown:
    """What is left of a demonstration: two run folders and a page."""

    folder: Path
    tasks: Sequence[LabTask]
    browser: BrowserKind
    why_raster: str | None
    """Why it was not Chromium, where that would have been preferred."""
    page: WrittenPage


class Audience:
    """Whoever watches. Told from several threads, of one thing at a time; this one only listens."""

    def begin(self, lanes: Sequence[Lane], browser: BrowserKind, why_raster: str | None) -> None:
        """Everything is loaded, and it begins."""

    def see(self, lane: Lane) -> None:
        """A lane has come further."""


def demonstrate(
    config: DemoConfig,
    weights: Weights,
    folder: Path,
    audience: Audience | None = None,
    *,
    command: Sequence[str] = (),
) -> Shown:
    """Run, and write the page. An earlier demonstration in the folder is replaced; `command` is kept with the runs."""
    # Asked for first, so that whatever is missing is said before anything is loaded.
    places = weights.policy, weights.embedder, weights.memory(WITH), weights.bank
    _check_free(folder)
    busy = f"Another demonstration goes on in {folder}; wait for its end, or choose another --out."
    with FolderLock(folder, busy):
        return _demonstrate(config, places, folder, audience or Audience(), command)


def _demonstrate(
    config: DemoConfig,
    places: tuple[Path, Path, Path, Path],
    folder: Path,
    audience: Audience,
    command: Sequence[str],
) -> Shown:
    policy = load_policy(places[0])
    memory = agent_memory(policy, places[2], WITH, tells_attention=True)
    recall = BankRecall(Bank.open(places[3]), load_embedder(policy, places[1]))
    basis = EvaluateConfig(
        num_tasks=config.num_tasks,
        seed=config.seed,
        sites=tuple(recall.bank.sites()),
        batch_size=config.num_tasks,
        max_new_tokens=config.max_new_tokens,
        episode_s=_EPISODE_S,
    )

    def evaluations(browser: BrowserKind) -> list[Evaluation]:
        without = replace(basis, memory="none", name=WITHOUT, browser=browser)
        with_memory = replace(basis, memory="latent", name=WITH, browser=browser)
        made = [
            Evaluation(policy, without, folder / WITHOUT, command=command),
            Evaluation(policy, with_memory, folder / WITH, memory=memory, recall=recall, command=command),
        ]
        _make_room(folder, config)  # only now, since nothing is left to be loaded
        return made

    side_by_side = _SideBySide(evaluations, audience)
    browser, why_raster = asyncio.run(side_by_side.run(config.browser))
    for evaluation in side_by_side.evaluations:
        summarise(evaluation.store)
    runs = [RunFolder.open(folder / method) for method in METHODS]
    page = write_page(runs, folder / _PAGE, labels=[LABELS[method].lower() for method in METHODS])
    return Shown(folder, side_by_side.evaluations[0].tasks(), browser, why_raster, page)


class _SideBySide:
    """Evaluations of the same tasks that share an event loop, a browser pool and the policy."""

    def __init__(self, evaluations: Callable[[BrowserKind], list[Evaluation]], audience: Audience) -> None:
        self._make, self._audience = evaluations, audience
        self._turn, self._telling = threading.Lock(), threading.Lock()
        self.evaluations: list[Evaluation] = []
        self._lanes: dict[tuple[str, str], Lane] = {}

    async def run(self, choice: BrowserChoice) -> tuple[BrowserKind, str | None]:
        async with AsyncExitStack() as stack:
            kind, why_raster = await choose_browser(choice)
            self.evaluations = self._make(kind)
            make_browser = await lab_browsers(self.evaluations[0].world, kind, stack)
            self._lanes = {
                (one.task.task_id, method): Lane(number, one, method)
                for number, one in enumerate(self.evaluations[0].tasks(), start=1)
                for method in METHODS
            }
            self._audience.begin(list(self._lanes.values()), kind, why_raster)
            try:
                async with asyncio.TaskGroup() as group:
                    for evaluation in self.evaluations:
                        group.create_task(self._attempt(evaluation, make_browser))
            except BaseExceptionGroup as problems:
                raise problems.exceptions[0] from None  # the first is what stopped the other
        return kind, why_raster

    async def _attempt(self, evaluation: Evaluation, make_browser: Callable[[Task], Awaitable[Browser]]) -> None:
        method = evaluation.config.method

        def ended(episode: LiveEpisode) -> None:
            with self._telling:
                lane = self._lanes[episode.task.task_id, method]
                lane.num_steps, lane.outcome = len(episode.steps), outcome_of(episode, judge)
                self._audience.see(lane)

        def said(episode: LiveEpisode, text: str) -> None:
            with self._telling:
                lane = self._lanes[episode.task.task_id, method]
                lane.num_steps, lane.action = len(episode.steps) + 1, _read(text)
                self._audience.see(lane)

        await evaluation.attempt(make_browser, ended, mind=_InTurn(evaluation.mind, self._turn, said))


class _InTurn:
    """A mind that shares the policy, and the processor's few cores, with others: they answer one after the other."""

    def __init__(self, mind: Mind, turn: threading.Lock, said: Callable[[LiveEpisode, str], None]) -> None:
        self._mind, self._turn, self._said = mind, turn, said

    def ask(self, seen: Sequence[Seen]) -> list[Reply]:
        with self._turn:
            replies = self._mind.ask(seen)
            for (episode, _), reply in zip(seen, replies, strict=True):
                self._said(episode, reply.text)
        return replies

    def forget(self, task: Task) -> None:
        self._mind.forget(task)


async def choose_browser(choice: BrowserChoice) -> tuple[BrowserKind, str | None]:
    """The browser to use and, where `auto` has to do with the raster, why. Chromium is tried before it is chosen."""
    if choice == "raster":
        return choice, None
    try:
        from focusmem.browser.chromium_process import ChromiumPool

        async with ChromiumPool() as pool:
            await pool.process(("localhost",))
    except (UserError, WorldError) as error:
        if choice == "chromium":
            raise
        return "raster", str(error)
    return "chromium", None


def _read(text: str) -> AnyAction | None:
    try:
        return parse_action(text)
    except PolicyError:
        return None


def _check_free(folder: Path) -> None:
    """Only what bears a demonstration's mark is replaced: runs and pages of the same names may be anybody's."""
    if (folder / _MARK).is_file():
        return
    for name in (*METHODS, _PAGE):
        if os.path.lexists(folder / name):
            raise StorageError(
                f"{folder / name} exists and is no demonstration's, since there is no {_MARK} beside it; it is not "
                "replaced. Choose another --out."
            )


def _make_room(folder: Path, config: DemoConfig) -> None:
    """Remove the earlier demonstration; the mark comes first, and so survives a removal that is cut off."""
    _check_free(folder)
    write_whole(folder / _MARK, json.dumps(asdict(config), indent=2).encode())
    for name in (*METHODS, _PAGE):
        remove_folder(folder / name)
