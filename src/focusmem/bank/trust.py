"""Which sources a search uses: all, or only those that the bank trusts.

The gate says whether a memory fits the page, not whether its author is honest. So trust goes by provenance.
"""

from collections.abc import Iterable

from focusmem.bank.base import SearchableBank
from focusmem.bank.reports import Entry
from focusmem.errors import ConfigError


def sources_to_search(bank: SearchableBank, *, only_trusted: bool) -> tuple[str, ...] | None:
    """The trusted sources, or None for all. An error if the bank trusts none: a search would never find anything."""
    if not only_trusted:
        return None
    trusted = bank.trusted_sources
    if not trusted:
        raise ConfigError(
            "Only trusted sources are to be searched, but the bank names none. Name some with: focusmem bank trust "
            f"BANK SOURCE. {_describe(bank.entries())}"
        )
    return trusted


def check_sources(name: str, sources: Iterable[str], entries: Iterable[Entry]) -> None:
    """An error if one of the sources has no trajectory in the bank `name`."""
    listed = list(entries)
    known = {entry.source for entry in listed}
    for source in sources:
        if source not in known:
            raise ConfigError(f"The bank {name} has no trajectory from {source!r}. {_describe(listed)}")


def _describe(entries: Iterable[Entry]) -> str:
    sources = sorted({entry.source for entry in entries})
    return f"Its trajectories are from: {', '.join(map(repr, sources))}." if sources else "It has no trajectories."
