"""focusmem: a compact latent memory for frozen vision-language GUI agents.

`focusmem.Memory` is the way in for other people's agents. It is loaded when it is asked for, so that `import focusmem`
and the command line stay quick.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from focusmem.agent.api import Memory

__version__ = "0.1.0"
__all__ = ["Memory", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "Memory":
        from focusmem.agent.api import Memory

        return Memory
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
