"""The laboratory's encyclopedias as a ZIM file, the format of offline Wikipedia, for any Kiwix server.

The facts are the facts of the sites. The pages are plain articles without a site's hidden conventions, and Kiwix's own
search finds them.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

from focusmem.errors import ConfigError, MissingPackageError, StorageError
from focusmem.lab.world.pages import FACT_NAMES
from focusmem.lab.world.site import Entry, Site
from focusmem.lab.world.tasks import site_names
from focusmem.lab.world.world import World

LANDING: Final = "User:The_other_Kiwix_guy/Landing"
"""The start page of MMInA's and WebArena's tasks about an encyclopedia."""
HOME: Final = "Main_Page"
_DATE: Final = "2026-01-01"
"""A fixed date, so that equal worlds give equal metadata."""


@dataclass(frozen=True)
class Article:
    path: str
    title: str
    html: str


def encyclopedias(world: World, num_sites: int) -> list[Site]:
    """The first evaluation sites that are encyclopedias."""
    sites = (world.site(name) for name in site_names("e"))
    found = [site for site in sites if site.family == "encyclopedia"]
    if num_sites > len(found):
        raise ConfigError(f"There are {len(found)} encyclopedias, fewer than {num_sites}.")
    return found[:num_sites]


def articles(sites: list[Site], book: str) -> Iterator[Article]:
    """All articles, and a home page with a search field and a link to each article."""
    links = []
    for site in sites:
        for entry in site.entries:
            path = path_of(entry)
            links.append(f'<li><a href="{path}">{escape(entry.name)}</a></li>')
            yield Article(path, entry.name, _article(site, entry))
    search = (
        f'<form action="/search"><input type="hidden" name="content" value="{escape(book)}">'
        '<input name="pattern" aria-label="Search the encyclopedia"><button>Search</button></form>'
    )
    yield Article(HOME, "Encyclopedia", _page("Encyclopedia", f"{search}<ul>{''.join(links)}</ul>"))


def path_of(entry: Entry) -> str:
    return entry.name.replace(" ", "_")


def _article(site: Site, entry: Entry) -> str:
    rows = "".join(
        f"<tr><th>{escape(FACT_NAMES.get(name, name.capitalize()))}</th><td>{escape(value)}</td></tr>"
        for name, value in entry.facts.items()
    )
    opening = f"<p>{escape(entry.name)} is a {escape(entry.category.lower())} in {escape(site.name)}.</p>"
    return _page(entry.name, f'{opening}<table>{rows}</table><p><a href="{HOME}">All articles</a></p>')


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title></head>'
        f"<body><h1>{escape(title)}</h1>{body}</body></html>"
    )


def write_zim(world: World, out: Path, *, num_sites: int = 4) -> int:
    """Writes the file, and returns the number of articles in it."""
    writer = _writer()
    if out.suffix != ".zim":
        raise ConfigError(f"{out} should end in .zim; Kiwix serves a book under the name of its file.")
    if out.exists():
        raise StorageError(f"{out} exists already; delete it first or choose another name.")
    # By path, because two sites may have an entry of the same name.
    made = {article.path: article for article in articles(encyclopedias(world, num_sites), out.stem)}
    with tempfile.TemporaryDirectory(dir=_folder(out)) as folder:
        partial = Path(folder) / out.name
        with writer.Creator(partial).config_indexing(True, "eng") as creator:
            creator.set_mainpath(HOME)
            for name, value in _metadata(out.stem).items():
                creator.add_metadata(name, value)
            for article in made.values():
                creator.add_item(_item(writer, article))
            creator.add_redirection(LANDING, "Encyclopedia", HOME, {writer.Hint.FRONT_ARTICLE: False})
        partial.rename(out)
    return len(made)


def _folder(out: Path) -> Path:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"Could not write {out}: {error.strerror}.") from error
    return out.parent


def _metadata(name: str) -> dict[str, str]:
    return {
        "Name": name,
        "Title": "The laboratory's encyclopedia",
        "Creator": "focusmem",
        "Publisher": "focusmem",
        "Date": _DATE,
        "Description": "Invented places with invented facts",
        "Language": "eng",
    }


def _item(writer: Any, article: Article) -> Any:
    class _Item(writer.Item):  # type: ignore[misc]  # libzim asks for objects of its own class
        def get_path(self) -> str:
            return article.path

        def get_title(self) -> str:
            return article.title

        def get_mimetype(self) -> str:
            return "text/html"

        def get_contentprovider(self) -> Any:
            return writer.StringProvider(article.html)

        def get_hints(self) -> dict[Any, bool]:
            return {writer.Hint.FRONT_ARTICLE: True}

    return _Item()


def _writer() -> Any:
    try:
        from libzim import writer
    except ImportError:
        raise MissingPackageError("libzim") from None
    return writer
