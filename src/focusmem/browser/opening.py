"""Opens browsers for many episodes, from one `BrowserChoice`."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

from focusmem.browser.base import BrowserLimits
from focusmem.browser.grounder import Grounder
from focusmem.browser.model_grounder import ModelGrounder
from focusmem.clients.openai_chat import ChatConfig, OpenAIChat
from focusmem.errors import UserError, WorldError

if TYPE_CHECKING:
    from focusmem.browser.chromium import ChromiumBrowser

BrowserKind = Literal["chromium", "raster"]
"""`raster` draws pages without a browser; only the laboratory can do that."""

GROUNDER_KEY: Final = "FOCUSMEM_GROUNDER_KEY"
"""The environment variable that holds the key of a grounding model's endpoint."""

_GROUNDER_TOKENS: Final = 64
_GROUNDER_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class BrowserChoice:
    kind: BrowserKind = "chromium"
    grounder: Grounder | None = None
    """Finds the point that a description means; None uses the names on the page."""


class LaunchChromium(Protocol):
    async def __call__(self, hosts: Sequence[str], presses_enter: bool = False) -> "ChromiumBrowser":
        """A browser that may visit these hosts. With `presses_enter`, `type` presses Enter after the text."""


def make_grounder(address: str | None) -> Grounder | None:
    """A grounding model behind an OpenAI-compatible endpoint, such as http://localhost:8000/v1#osunlp/UGround-V1-7B.

    Without an address, elements are found by the names on the page.
    """
    if address is None:
        return None
    config = ChatConfig.of(
        address, key_variable=GROUNDER_KEY, max_tokens=_GROUNDER_TOKENS, timeout_s=_GROUNDER_TIMEOUT_S
    )
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
