"""`focusmem demo`: two runs of the laboratory, without and with the memory that ships."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from focusmem.agent.fronts.latent import MemoryUse
from focusmem.bank.opening import open_bank
from focusmem.browser.opening import BrowserKind
from focusmem.evaluation.runner import RunnerConfig
from focusmem.evaluation.watcher import Watcher
from focusmem.files import cache_folder
from focusmem.lab.demo.demo import METHODS, WITH, WITHOUT, Shown, free_folder, make_room, play
from focusmem.lab.shipped import Weights
from focusmem.lab.suite import LabSuite, LabSuiteConfig
from focusmem.model.evidence_cache import CacheConfig
from focusmem.recipes.preparation import prepare
from focusmem.recipes.run import browser_choice, choose_browser, make_run
from focusmem.recipes.run_parts import Parts
from focusmem.recipes.run_settings import BrowserSettings, MemorySettings, RunSettings, SuiteSettings, lab
from focusmem.settings import checked_dataclass, to_plain

_EPISODE_S = 300.0
"""A person is watching, so a hanging episode is ended sooner than in other runs."""


@checked_dataclass(frozen=True, kw_only=True)
class DemoConfig:
    seed: Annotated[int, Field(ge=0)] = 0
    """The seed that tasks are drawn with."""
    num_tasks: Annotated[int, Field(ge=1)] = 3
    browser: Literal["auto", "chromium", "raster"] = "auto"
    max_new_tokens: Annotated[int, Field(ge=1)] = 96


@dataclass(frozen=True)
class Opening:
    """A demonstration that is loaded and about to begin."""

    suite: LabSuite
    browser: BrowserKind
    why_raster: str | None
    """Why Chromium is not used, if `auto` found that it does not start."""


WatchBoth = Callable[[Opening], Callable[[str], Watcher]]
"""Called once before the first step; returns the watcher for each method."""


def demonstrate(
    config: DemoConfig, weights: Weights, folder: Path, watch: WatchBoth, *, command: Sequence[str] = ()
) -> tuple[Opening, Shown]:
    """Makes both runs and writes the page. An earlier demonstration in the folder is replaced."""
    for place in ("policy", "embedder", "bank"):  # a missing part is reported before anything is loaded
        getattr(weights, place)
    weights.memory(WITH)
    with free_folder(folder):
        settings = demo_settings(config, weights)
        suite = LabSuite(settings[WITHOUT].suite.lab)
        with_memory = Parts(settings[WITH], suite, weights)
        parts = {WITHOUT: with_memory.share(settings[WITHOUT]), WITH: with_memory}
        for one in parts.values():
            one.mind()
        kind, why_raster = choose_browser(settings[WITH])
        settings = {method: _in_browser(one, kind) for method, one in settings.items()}
        make_room(folder, to_plain(config))  # last, because nothing can fail to load any more
        runs = {method: make_run(settings[method], parts[method], folder / method, command) for method in METHODS}
        preparations = {method: prepare(parts[method]) for method in METHODS}
        opening = Opening(suite, kind, why_raster)
        return opening, play(runs, preparations, folder, browser_choice(settings[WITH]), watch(opening))


def demo_settings(config: DemoConfig, weights: Weights) -> Mapping[str, RunSettings]:
    """The settings of both runs. Tasks are the first ones that the seed draws on the bank's sites."""
    base = lab()
    drawn = LabSuiteConfig(num_tasks=config.num_tasks, seed=config.seed, sites=tuple(open_bank(weights.bank).sites()))
    base = replace(
        base,
        suite=SuiteSettings(lab=drawn),
        policy=replace(base.policy, generation=replace(base.policy.generation, max_new_tokens=config.max_new_tokens)),
        browser=BrowserSettings(kind=config.browser),
        runner=RunnerConfig(num_parallel=config.num_tasks, episode_s=_EPISODE_S),
    )
    memory = MemorySettings(
        name=WITH,
        bank="lab",
        use=MemoryUse(tells_attention=True),
        cache=CacheConfig(folder=cache_folder() / "evidence"),  # later demonstrations encode these items only once
    )
    return {WITHOUT: base, WITH: replace(base, memory=memory)}


def _in_browser(settings: RunSettings, kind: BrowserKind) -> RunSettings:
    return replace(settings, browser=replace(settings.browser, kind=kind))
