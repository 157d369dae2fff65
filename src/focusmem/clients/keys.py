"""Keys of endpoints. They are read only from the environment, and removed from every text that a server sends."""

import base64
import json
import os
from typing import Any, Final
from urllib.parse import quote

from focusmem.errors import ConfigError

_SHOWN: Final = "[key]"
_MIN_LENGTH: Final = 8
"""Shorter keys could not be removed from texts, because they also occur in ordinary words."""


class Key:
    """An endpoint's key, or no key. Its value appears in no message and not in its repr."""

    def __init__(self, variable: str | None) -> None:
        """`variable` is the environment variable that holds the key."""
        self.value = None if variable is None else _value(variable)
        self._forms = _written_forms(self.value) if self.value else ()

    def removed_from(self, text: str) -> str:
        """Returns the text with every copy of the key replaced, including escaped copies."""
        for form in self._forms:
            text = text.replace(form, _SHOWN)
        return text

    def removed_from_all(self, document: Any) -> Any:
        """Returns the JSON document without the key, in values and in names."""
        if isinstance(document, str):
            return self.removed_from(document)
        if isinstance(document, list):
            return [self.removed_from_all(one) for one in document]
        if isinstance(document, dict):
            return {self.removed_from(name): self.removed_from_all(one) for name, one in document.items()}
        return document

    def __repr__(self) -> str:
        return "Key(set)" if self.value else "Key(none)"


def is_set(variable: str) -> bool:
    return bool(os.environ.get(variable, "").strip())


def _value(variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(f"The environment variable {variable} should hold the endpoint's key, but it is empty.")
    if len(key) < _MIN_LENGTH:
        raise ConfigError(
            f"The key in {variable} has fewer than {_MIN_LENGTH} characters, so it could not be kept out of records; "
            "use a longer one, or unset the variable if the endpoint needs none."
        )
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"The key in {variable} holds characters that no HTTP header can carry.")
    return key


def _written_forms(key: str) -> tuple[str, ...]:
    """The forms in which a text may contain the key, the longest first."""
    forms = {key, json.dumps(key)[1:-1], quote(key, safe=""), base64.b64encode(key.encode()).decode()}
    return tuple(sorted(forms, key=len, reverse=True))
