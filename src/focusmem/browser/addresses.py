"""Decides which addresses may be opened: http and https addresses on the sites of an allow-list, in unambiguous
spelling.

Browsers accept malformed addresses (backslashes, line breaks, full-width letters, numbers as hosts) and read some of
them differently from Python. An address that two parsers could read differently is refused, so that the browser opens
exactly the address that was checked.
"""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from focusmem.errors import ConfigError

MAX_LENGTH: Final = 20_000
ANY_PUBLIC: Final = "*"
"""An entry of an allow-list that allows every host with a public name, on the default ports. Names without a dot, names
of local networks and IP addresses are not public. A public name may still resolve to a private address; this is not
checked here.
"""

LOCAL_ENDINGS: Final = ("localhost", "local", "internal", "lan", "home", "corp", "intranet", "home.arpa", "test")
"""Top-level names that are used inside local networks, or are reserved for tests."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?"
_HOST: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*|\[::1\]")
_ALLOWED: Final = re.compile(rf"(?P<host>{_HOST.pattern})(?::(?P<port>[1-9][0-9]{{0,4}}))?")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?![0-9])")


def check_allowed(allowed: Sequence[str]) -> tuple[str, ...]:
    """Returns the entries of an allow-list after checking that each is a host, a host and a port, or `*`."""
    for entry in allowed:
        if entry == ANY_PUBLIC:
            continue
        if not isinstance(entry, str) or _ALLOWED.fullmatch(entry) is None:
            raise ConfigError(
                f"The allow-list contains {entry!r}; an entry is a host in small letters, such as shop.example, "
                "a host and its port, such as 127.0.0.1:8000, or '*' for every public site."
            )
    return tuple(dict.fromkeys(allowed))


def full_address(text: str, current: str) -> str:
    """Resolves an address that a policy wrote: a path belongs to the page's own site, anything else stays as it is."""
    try:
        return urljoin(current, text) if text.startswith("/") else text
    except ValueError:  # not an address; `check_address` reports this
        return text


def check_address(url: str, allowed: Sequence[str]) -> str | None:
    """Says why an address may not be opened, as a sentence for the policy. Returns None if it may be opened.

    An entry of the allow-list allows its host and, unless the host is an IP address, all its subdomains: on the port
    that the entry names, or on the default ports.
    """
    if url == "about:blank":
        return None
    trick = _trick(url)
    if trick is not None:
        return f"The address {trick}; write it plainly, such as https://shop.example/list."
    if _SCHEME.match(url) is None:
        return "The address has no scheme; write it whole, such as https://shop.example/list."
    split = urlsplit(url)
    if split.scheme not in _DEFAULT_PORTS:
        return f"Addresses that begin with {split.scheme}: cannot be opened, only http: and https:."
    return _check_site(split, allowed)


def is_numeric(host: str) -> bool:
    """Whether a host is an IP address, which has no subdomains."""
    return host.startswith("[") or host.rpartition(".")[2].isdigit()


def _trick(url: str) -> str | None:
    """The reason why an address is ambiguous, as the end of a sentence; None if it is not ambiguous."""
    if len(url) > MAX_LENGTH:
        return f"has {len(url)} characters, more than the {MAX_LENGTH} allowed"
    if not url.isprintable() or " " in url:
        return "contains spaces or invisible characters"
    if "\\" in re.split(r"[?#]", url, maxsplit=1)[0]:
        return "contains a backslash"
    try:
        split = urlsplit(url)
        if split.port == 0:  # reading `port` also raises ValueError for a port that is not a number
            return "names port zero"
    except ValueError:
        return "cannot be read"
    return "contains a user name" if "@" in split.netloc else None


def _check_site(split: SplitResult, allowed: Sequence[str]) -> str | None:
    # `split.hostname` is not used, because it drops brackets and everything after a percent sign.
    host = split.netloc.lower().removesuffix(":" if split.port is None else f":{split.port}")
    if _HOST.fullmatch(host) is None:
        return "The address names no site, or names it in a way that is not accepted."
    port = split.port or _DEFAULT_PORTS[split.scheme]
    if any(_matches(host, port, split.scheme, entry) for entry in allowed):
        return None
    where = host if port == _DEFAULT_PORTS[split.scheme] else f"{host}:{port}"
    places = ["public sites" if entry == ANY_PUBLIC else entry for entry in allowed]
    return f"The site {where} does not belong to this task; stay on {', '.join(places) or 'the page'}."


def is_public(host: str) -> bool:
    """Whether a host has a name that belongs to the public web, as far as a name can tell."""
    is_local = any(host == ending or host.endswith(f".{ending}") for ending in LOCAL_ENDINGS)
    return "." in host and not is_numeric(host) and not is_local


def _matches(host: str, port: int, scheme: str, entry: str) -> bool:
    if entry == ANY_PUBLIC:
        return is_public(host) and port == _DEFAULT_PORTS[scheme]
    found = _ALLOWED.fullmatch(entry)
    if found is None:
        return False
    own_port = int(found["port"]) if found["port"] else _DEFAULT_PORTS[scheme]
    is_same_host = host == found["host"] or (not is_numeric(found["host"]) and host.endswith("." + found["host"]))
    return is_same_host and port == own_port
