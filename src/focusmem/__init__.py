"""focusmem: a compact latent memory for frozen vision-language GUI agents.

`focusmem.Memory` adds memory to any agent. It is imported on first use, so that `import focusmem` and the command line
start fast.
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
