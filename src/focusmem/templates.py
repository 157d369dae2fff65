"""Prompt texts: files with named slots such as {{task}}. Users may replace them with their own folder."""

import json
import re
from pathlib import Path

from focusmem.errors import ConfigError, StorageError
from focusmem.files import sha256_hex

_SLOT = re.compile(r"\{\{([a-z_]+)\}\}")


class Templates:
    """The `.txt` files of one folder, read once. A replacement folder must fill the same slots."""

    def __init__(self, folder: Path, *, slots: dict[str, set[str]], optional: frozenset[str] = frozenset()) -> None:
        """`slots` gives the template names and the slots that each must use; `optional` are slots that may be
        left out.
        """
        self._texts = {}
        for name, wanted in slots.items():
            path = folder / f"{name}.txt"
            try:
                text = path.read_text(encoding="utf-8").removesuffix("\n")
            except (OSError, UnicodeDecodeError) as error:
                raise StorageError(f"Could not read the prompt text {path}: {error}") from error
            found = set(_SLOT.findall(text))
            if found - wanted or wanted - found - optional:
                difference = ", ".join(sorted(found ^ wanted))
                raise ConfigError(f"The prompt text {path} must use the slots {sorted(wanted)}; look at: {difference}.")
            self._texts[name] = text

    @property
    def digest(self) -> str:
        """Equal for equal texts."""
        return sha256_hex(json.dumps(self._texts, sort_keys=True).encode())

    def fill(self, name: str, /, **values: str | int) -> str:
        """A template with its slots filled. Values are inserted unchanged and are not searched for slots."""
        return "".join(text for _, text in self.pieces(name, **values))

    def pieces(self, name: str, /, **values: str | int) -> list[tuple[str | None, str]]:
        """The filled template in pieces, each with the name of its slot; None for the template's own words."""
        texts = _SLOT.split(self._texts[name])  # words and names of slots in turn
        return [(text, str(values[text])) if place % 2 else (None, text) for place, text in enumerate(texts)]
