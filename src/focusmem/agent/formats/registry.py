"""Foreign formats by name. To add one: a file beside this one, its prompts in a folder, a name in `FormatName`."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from focusmem.agent.formats.base import ActionFormat, FormatName
from focusmem.agent.formats.fara import Fara
from focusmem.agent.formats.molmoweb import MolmoWeb
from focusmem.agent.formats.ui_tars import UiTars
from focusmem.agent.formats.ui_venus import UiVenus

FORMATS: Final[Mapping[FormatName, Callable[..., ActionFormat]]] = {
    "ui-tars-pixels": partial(UiTars, has_pixels=True),
    "ui-tars-thousandths": partial(UiTars, has_pixels=False),
    "ui-venus": UiVenus,
    "molmoweb": MolmoWeb,
    "fara": Fara,
}


def make_format(name: FormatName, prompts: Path | None = None, *, shows_errors: bool = True) -> ActionFormat | None:
    """None for our own format, whose prompt has a place for memory."""
    return None if name == "json" else FORMATS[name](prompts, shows_errors=shows_errors)
