"""Which sources a search uses: all, or only those that the bank trusts.

The gate judges whether a memory fits the page, not whether its author is honest. Trust therefore depends on the source.
"""

from collections.abc import Iterable

from focusmem.bank.base import SearchableBank
from focusmem.bank.reports import Entry
from focusmem.errors import ConfigError


def sources_to_search(bank: SearchableBank, *, only_trusted: bool) -> tuple[str, ...] | None:
    """The trusted sources, or None for all. Raises an error if only trusted sources are wanted and the bank trusts
    none, because no search could find anything.
    """
    if not only_trusted:
        return None
    trusted = bank.trusted_sources
    if not trusted:
        raise ConfigError(
            "Only trusted sources should be searched, but the bank trusts no source. Name trusted sources with: "
            f"focusmem bank trust BANK SOURCE. {_describe(bank.entries())}"
        )
    return trusted


def check_sources(name: str, sources: Iterable[str], entries: Iterable[Entry]) -> None:
    """Raises ConfigError if the bank `name` has no trajectory from one of the sources."""
    listed = list(entries)
    known = {entry.source for entry in listed}
    for source in sources:
        if source not in known:
            raise ConfigError(f"The bank {name} has no trajectory from {source!r}. {_describe(listed)}")


def _describe(entries: Iterable[Entry]) -> str:
    sources = sorted({entry.source for entry in entries})
    return f"Its trajectories are from: {', '.join(map(repr, sources))}." if sources else "It has no trajectories."
