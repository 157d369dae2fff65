"""Everything that decides how a run goes, as one record, and the named recipes that fill it."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from focusmem.agent.formats.base import FormatName
from focusmem.agent.fronts.latent import MemoryUse
from focusmem.browser.base import BrowserLimits
from focusmem.browser.opening import GROUNDER_OPTIONS
from focusmem.clients.options import EndpointOptions, Prices
from focusmem.errors import ConfigError
from focusmem.evaluation.runner import RunnerConfig
from focusmem.lab.suite import LabSuiteConfig
from focusmem.model.evidence_cache import CacheConfig
from focusmem.model.generation import GenerationConfig
from focusmem.recipes.run_judge import JudgeSettings
from focusmem.schemas import Outcome, Run
from focusmem.settings import checked_dataclass, from_plain

LAB: Final = "lab"
"""The suite, the policy, the embedder and the wording that ship."""

_Count = Annotated[int, Field(ge=1)]


@checked_dataclass(frozen=True, kw_only=True)
class SuiteSettings:
    name: str = LAB
    """`lab`, a file of tasks (.jsonl), or the address of a page."""
    instruction: str | None = None
    """What to do on the page; only with an address."""
    max_steps: _Count | None = None
    """The step budget of every task; None keeps the suite's own."""
    lab: LabSuiteConfig = LabSuiteConfig()
    """Which tasks of the laboratory."""
    num_attempts: _Count = 1
    """Attempts at each task."""


@checked_dataclass(frozen=True, kw_only=True)
class PolicySettings:
    name: str = LAB
    """`lab`, a folder, a hub id, or the URL of a chat endpoint such as http://localhost:8000/v1."""
    model: str | None = None
    """The model's name at the endpoint, such as Qwen/Qwen3-VL-8B-Instruct; only with a URL."""
    format: FormatName = "json"
    """How the model writes actions: `json` is ours, with elements in words; the others are those of agents that were
    trained on their own prompts and point with coordinates. They have no place for memory.
    """
    endpoint: EndpointOptions = EndpointOptions()
    """Limits and prices of an endpoint, and where its replies are kept; without a folder, in the run's."""
    device: str = "cpu"
    """cpu, cuda, or cuda:1."""
    prompts: str | None = None
    """The wording of prompts: `lab`, or a folder with `agent` and `evidence`; with another format, a folder with that
    format's texts. None uses the policy's own.
    """
    shows_errors: bool | None = None
    """Whether prompts say which actions failed, and why. None: as in the memory's training; without a memory, yes."""
    generation: GenerationConfig = GenerationConfig()
    """How replies are decoded."""
    seed: Annotated[int, Field(ge=0)] = 0
    """The seed of a policy that samples."""


@checked_dataclass(frozen=True, kw_only=True)
class MemorySettings:
    name: str = "none"
    """Which front, or which trained memory."""
    checkpoint: str | None = None
    """The folder of a trained memory; None uses the one that ships, if there is one."""
    bank: str | None = None
    """The folder of a bank or of an exported bank, or `lab` for the bank that ships. None: in the laboratory, all
    trajectories of its experts; elsewhere the shipped bank, if the policy is the shipped one.
    """
    lab_bank_sites: _Count | None = None
    """Search only trajectories of this many laboratory sites, the first ones."""
    embedder: str | None = None
    """`lab`, a folder or a hub id; None uses the policy's own, if there is one."""
    outcomes: tuple[Outcome, ...] | None = ("success",)
    """Search only trajectories with these outcomes, as the paper does; None searches all."""
    only_trusted: bool = False
    """Whether only the sources that the bank trusts are searched."""
    num_found: Annotated[int, Field(ge=0)] = 3
    """Maximum number of trajectories for a decision."""
    shows_history: bool = False
    """Whether events that have left the prompt are shown raw before it."""
    use: MemoryUse | None = None
    """Which parts of a latent memory act; None selects the trained ones."""
    cache: CacheConfig = CacheConfig()
    """Where encoded evidence is kept, and in which precision."""
    encodes_bank: bool = True
    """Whether a latent memory encodes its bank before the first episode. Without a cache folder, only as many
    trajectories are encoded as fit in memory; each of the others is encoded when a search first finds it.
    """


@checked_dataclass(frozen=True, kw_only=True)
class BrowserSettings:
    kind: Literal["auto", "chromium", "raster"] = "chromium"
    """`raster` draws the laboratory's pages without a browser; `auto` uses it only if Chromium does not start."""
    grounder: str | None = None
    """The URL of a grounding model's endpoint, such as http://localhost:8000/v1; None uses the names on the page."""
    grounder_model: str | None = None
    """The grounding model's name there, such as osunlp/UGround-V1-7B."""
    grounder_endpoint: EndpointOptions = GROUNDER_OPTIONS
    """Limits and prices of that endpoint, and where its replies are kept."""
    limits: BrowserLimits | None = None
    """Viewport and time limits; None uses the suite's own."""


@checked_dataclass(frozen=True, kw_only=True)
class RunSettings:
    suite: SuiteSettings = SuiteSettings()
    policy: PolicySettings = PolicySettings()
    memory: MemorySettings = MemorySettings()
    browser: BrowserSettings = BrowserSettings()
    judge: JudgeSettings = JudgeSettings()
    runner: RunnerConfig = RunnerConfig()
    num_processes: _Count = 1
    """Processes that share the tasks, each with its own policy; this keeps a GPU busier if the policy is small."""


_OF_ENDPOINTS = tuple(
    f"{endpoint}.{name}"
    for endpoint in ("policy.endpoint", "browser.grounder_endpoint", "judge.endpoint")
    for name in (
        *(field.name for field in fields(EndpointOptions) if field.name != "extra"),
        *(f"prices.{field.name}" for field in fields(Prices)),
    )
)
"""All options of an endpoint but further fields of its requests, which may change its replies."""

SPEED_ONLY: Final = (
    "runner",
    "num_processes",
    "policy.device",
    "judge.url",
    "judge.num_together",
    "memory.encodes_bank",
    "memory.cache.folder",
    "memory.cache.memory_limit_bytes",
    "memory.cache.growing_limit_bytes",
    *_OF_ENDPOINTS,
)
"""Settings that change only the speed of a run, or what it costs; they may differ when the run is resumed."""


def lab() -> RunSettings:
    """The laboratory: short replies, pages drawn without a browser."""
    return RunSettings(
        policy=PolicySettings(generation=GenerationConfig(max_new_tokens=96)),
        browser=BrowserSettings(kind="raster"),
    )


def web() -> RunSettings:
    """Real pages in Chromium, with the paper's settings."""
    return RunSettings()


RECIPES: Final[Mapping[str, Any]] = {"lab": lab, "web": web}


def recipe(name: str) -> RunSettings:
    if name not in RECIPES:
        raise ConfigError(f"There is no recipe '{name}'; choose one of {', '.join(RECIPES)}.")
    settings: RunSettings = RECIPES[name]()
    return settings


def settings_of(run: Run) -> RunSettings:
    """The settings that a run was made with."""
    if "settings" not in run.config:
        raise ConfigError(f"The run '{run.run_id}' has no settings on record, so it was not made by `focusmem run`.")
    return from_plain(RunSettings, run.config["settings"])


def recipe_for(suite: str) -> str:
    """The recipe that fits a suite."""
    return "lab" if suite == LAB else "web"
