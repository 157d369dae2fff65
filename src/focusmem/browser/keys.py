"""The keys a policy can press: a closed list, so that none of its text reaches the browser unchecked."""

from typing import Final

_MODIFIERS: Final = {
    "control": "Control",
    "ctrl": "Control",
    "shift": "Shift",
    "alt": "Alt",
    "option": "Alt",
    "meta": "Meta",
    "command": "Meta",
    "cmd": "Meta",
}
_NAMED: Final = {
    "enter": "Enter",
    "return": "Enter",
    "tab": "Tab",
    "escape": "Escape",
    "esc": "Escape",
    "space": "Space",
    "spacebar": "Space",
    "backspace": "Backspace",
    "delete": "Delete",
    "del": "Delete",
    "home": "Home",
    "end": "End",
    "pageup": "PageUp",
    "pagedown": "PageDown",
    "arrowup": "ArrowUp",
    "arrowdown": "ArrowDown",
    "arrowleft": "ArrowLeft",
    "arrowright": "ArrowRight",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "left": "ArrowLeft",
    "right": "ArrowRight",
}


def read_key(text: str) -> str | None:
    """The key or combination in its canonical spelling, such as `Control+a`; None if there is no such key."""
    *held, key = _parts(text.strip())
    modifiers = [_MODIFIERS.get(part.strip().lower()) for part in held]
    name = _key_name(key.strip(), modifiers)
    if name is None or None in modifiers or len(set(modifiers)) < len(modifiers):
        return None
    return "+".join([*(modifier for modifier in modifiers if modifier), name])


def unknown_key(text: str) -> str:
    return f"There is no key {text[:40]!r}; press one such as Enter, Escape, Backspace, PageDown or Control+A."


def _parts(text: str) -> list[str]:
    if text == "+" or text.endswith("++"):  # the key is the plus sign itself
        return [*text[:-2].split("+"), "+"] if len(text) > 2 else ["+"]
    return text.split("+")


def _key_name(key: str, modifiers: list[str | None]) -> str | None:
    if len(key) == 1 and key.isascii() and key.isprintable() and key != " ":
        # For the browser, an upper-case letter includes Shift and a lower-case letter excludes it.
        if "Shift" in modifiers:
            return key.upper()
        return key.lower() if modifiers else key
    return _NAMED.get(key.lower().replace(" ", "").replace("_", "").replace("-", ""))
