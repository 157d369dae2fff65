"""All settings of a run as one record, and the named recipes that fill it."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import date
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from focusmem.agent.formats.base import FormatName
from focusmem.agent.fronts.latent import MemoryUse
from focusmem.browser.base import BrowserLimits
from focusmem.browser.opening import GROUNDER_OPTIONS
from focusmem.clients.options import EndpointOptions, Prices
from focusmem.errors import ConfigError
from focusmem.evaluation.runner import RunnerConfig
from focusmem.lab.memory.misled import LabMisleading
from focusmem.lab.suite import LabSuiteConfig
from focusmem.model.evidence_cache import CacheConfig
from focusmem.model.generation import GenerationConfig
from focusmem.recipes.run_judge import JudgeSettings
from focusmem.schemas import Outcome, Run
from focusmem.settings import checked_dataclass, from_plain

LAB: Final = "lab"
"""The suite, the policy, the embedder and the wording that ship."""
LAB_ENTRIES: Final = "lab-entries"
LAB_SUITES: Final = (LAB, LAB_ENTRIES)
"""The suites of the laboratory."""

_Count = Annotated[int, Field(ge=1)]


@checked_dataclass(frozen=True, kw_only=True)
class SuiteSettings:
    name: str = LAB
    """A suite that `focusmem suites list` names, a file of tasks (.jsonl), or the address of a page."""
    instruction: str | None = None
    """What to do on the page; only with an address."""
    max_steps: _Count | None = None
    """The step budget of every task; None keeps the suite's own."""
    lab: LabSuiteConfig = LabSuiteConfig()
    """Which tasks of the laboratory's suites."""
    num_attempts: _Count = 1
    """Attempts at each task."""
    data: str | None = None
    """The file or folder of a benchmark whose data you have; `focusmem suites show NAME` says where to get it."""
    ids: str | None = None
    """A file with the ids of the tasks to attempt, one in each line; None takes all."""
    revision: str | None = None
    """The revision of the data; None stands for the digest of its files."""
    dates_from: date | None = None
    """Dates in WebVoyager's tasks on Booking and Google Flights are moved by whole weeks, so that the earliest falls on
    this day or up to six days after it; None leaves them.
    """
    hosts: Mapping[str, str] | None = None
    """Hosts of a benchmark that are served elsewhere, such as {"localhost:7770": "http://shop.example:7770"}."""
    shop: str | None = None
    """The address of the OneStopMarket of mmina-shopping; None is the benchmark's own, http://localhost:7770."""
    wikipedia: str | None = None
    """The encyclopedia of mmina-wikipedia: the address before a page's path on a Kiwix server, or a ZIM file."""
    allowed_hosts: tuple[str, ...] | None = None
    """Hosts that tasks may visit beside their own, `*` for every public one; None takes the suite's own."""
    presses_enter: bool | None = None
    """Whether `type` presses Enter after the text; None takes the suite's own rule."""
    seed: Annotated[int, Field(ge=0)] | None = None
    """The seed of MiniWoB++'s problems; None is 0."""


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
    """Whether prompts say which actions failed, and why. None means as in the memory's training, and yes if there is no
    trained memory."""
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
    """The folder of a bank or of an exported bank, or `lab` for the bank that ships. With None, a run in the laboratory
    searches all trajectories of its experts. Elsewhere it searches the shipped bank, if the policy is the shipped one.
    """
    lab_bank_sites: _Count | None = None
    """Search only trajectories of this number of laboratory sites, counted from the first."""
    lab_misleading: LabMisleading = LabMisleading()
    """Misleading trajectories beside the experts' ones, or in place of every hit."""
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
    return "lab" if suite in LAB_SUITES else "web"
