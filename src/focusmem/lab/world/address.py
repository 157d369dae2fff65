"""Paths of the world, taken apart."""

from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode


@dataclass(frozen=True)
class Address:
    """A path taken apart."""

    site_id: str
    parts: tuple[str, ...]
    query: dict[str, str]

    @classmethod
    def parse(cls, path: str) -> "Address":
        # Not with urlsplit: it would take a part of some paths for a host and refuse them.
        before, _, after = path.partition("#")[0].partition("?")
        parts = [unquote(part) for part in before.split("/") if part]
        query = dict(parse_qsl(after, keep_blank_values=True))
        return cls(parts[0] if parts else "", tuple(parts[1:]), query)

    def to(self, *parts: str | int, **changes: str | int | None) -> str:
        """The path of another page of the same site, with the state of the visit."""
        kept = {name: value for name, value in self.query.items() if name in ("seen", "put", "says")}
        query = kept | {name: str(value) for name, value in changes.items() if value is not None}
        path = "/".join(quote(str(part)) for part in (self.site_id, *parts))
        return f"/{path}" + (f"?{urlencode(query)}" if query else "")

    @property
    def put_aside(self) -> tuple[int, ...]:
        """The indices on the compare list, each once. Some may belong to no entry."""
        indices = (index_of(one) for one in self.query.get("put", "").split("."))
        return tuple(dict.fromkeys(index for index in indices if index is not None))


def index_of(text: str) -> int | None:
    """A number in the form that our own links use; None for any other text that Python might accept."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else None
