"""Opens browsers for many episodes, from one `BrowserChoice`."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

from focusmem.browser.base import BrowserLimits
from focusmem.browser.grounder import Grounder
from focusmem.browser.model_grounder import ModelGrounder
from focusmem.clients.openai_chat import ChatConfig, OpenAIChat
from focusmem.clients.options import EndpointOptions
from focusmem.errors import ConfigError, UserError, WorldError

if TYPE_CHECKING:
    from focusmem.browser.chromium import ChromiumBrowser

BrowserKind = Literal["chromium", "raster"]
"""`raster` draws pages without a browser; only the laboratory can do that."""

GROUNDER_KEY: Final = "FOCUSMEM_GROUNDER_KEY"
"""The environment variable that holds the key of a grounding model's endpoint."""

GROUNDER_OPTIONS: Final = EndpointOptions(timeout_s=10.0, num_attempts=3, wait_s=0.5)
"""Shorter than those of a policy, because an action waits for the grounder."""

_GROUNDER_TOKENS: Final = 64


@dataclass(frozen=True, kw_only=True)
class BrowserChoice:
    kind: BrowserKind = "chromium"
    grounder: Grounder | None = None
    """Finds the point that a description means. None compares descriptions with the names on the page."""


class LaunchChromium(Protocol):
    async def __call__(self, hosts: Sequence[str], presses_enter: bool = False) -> "ChromiumBrowser":
        """A browser that may visit these hosts. With `presses_enter`, `type` presses Enter after the text."""


def make_grounder(
    url: str | None, model: str | None = None, options: EndpointOptions = GROUNDER_OPTIONS
) -> Grounder | None:
    """A grounding model behind an OpenAI-compatible endpoint, such as osunlp/UGround-V1-7B at http://localhost:8000/v1.

    Without a URL, elements are found by the names on the page.
    """
    if url is None:
        if model is not None:
            raise ConfigError(f"The grounding model {model} has no endpoint; give its URL with --grounder.")
        return None
    if model is None:
        raise ConfigError(f"The grounding endpoint {url} needs the name of its model; give it with --grounder-model.")
    config = ChatConfig.of(url, model, options, key_variable=GROUNDER_KEY, max_tokens=_GROUNDER_TOKENS)
    return ModelGrounder(OpenAIChat(config))


async def open_chromium(limits: BrowserLimits, choice: BrowserChoice, stack: AsyncExitStack) -> LaunchChromium:
    """A function that launches a Chromium for a list of allowed hosts; all processes end with the stack."""
    from focusmem.browser.chromium import ChromiumBrowser  # needs Playwright, which a bare GPU host lacks
    from focusmem.browser.chromium_process import ChromiumPool

    pool = await stack.enter_async_context(ChromiumPool(max_users=1))

    async def launch(hosts: Sequence[str], presses_enter: bool = False) -> ChromiumBrowser:
        return await ChromiumBrowser.launch(
            limits, hosts, pool=pool, grounder=choice.grounder, presses_enter=presses_enter
        )

    return launch


async def why_no_chromium() -> str | None:
    """Starts Chromium once: None if it works, else the reason as a sentence."""
    try:
        from focusmem.browser.chromium_process import ChromiumPool

        async with ChromiumPool() as pool:
            await pool.process(("localhost",))
    except (UserError, WorldError) as error:
        return str(error)
    return None
