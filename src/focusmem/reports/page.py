"""The trace page: one HTML file that holds its style, program, data and pictures, and requests nothing else.

The data is JSON in `<script>` elements that are not executed, and it contains no character that could end its element.
The content policy allows the page's own program and style by their digests, pictures from the file itself, and nothing
else.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from focusmem.errors import ConfigError, StorageError
from focusmem.files import remove_folder, whole_folder, write_whole
from focusmem.reports.page_data import CountFigures, PageData, Watcher, no_figures
from focusmem.schemas import RunFolder

MAX_PAGE_BYTES: Final = 60_000_000
"""Maximum size of a page with its pictures. A larger page keeps its pictures in a folder beside it."""

_PARTS: Final = Path(__file__).parent / "page_parts"
# Each part uses only earlier parts; the last part starts the page.
_PROGRAM: Final = ("elements.js", "pictures.js", "header.js", "memory.js", "step.js", "episode.js", "main.js")
_SLOT: Final = re.compile(r"\{\{([a-z_]+)\}\}")
_PICTURE_NAME: Final = re.compile(r"[0-9a-f]{64}\.webp")


@dataclass(frozen=True, slots=True)
class WrittenPage:
    path: Path
    picture_folder: Path | None
    """The folder of the pictures, if they are not in the page."""
    num_episodes: int
    num_skipped: int
    num_bytes: int
    """Size of the page and the picture folder together."""
    problems: tuple[str, ...]
    """A sentence for each file that could not be read."""


def write_page(
    runs: Sequence[RunFolder],
    path: Path,
    *,
    max_bytes: int = MAX_PAGE_BYTES,
    watch: Watcher = lambda is_read: None,
    labels: Sequence[str] | None = None,
    count_figures: CountFigures = no_figures,
) -> WrittenPage:
    """Writes the page of one run, or of two runs beside each other. An existing page is replaced.

    `watch` is called after each episode. `labels` name the runs; otherwise their methods and folders do.
    `count_figures` computes the figures of a run that is not finished and has none.
    """
    if len(runs) not in (1, 2):
        raise ConfigError(f"A page shows one run, or two runs beside each other, but not {len(runs)}.")
    data = PageData(runs, watch, labels=labels, count_figures=count_figures)
    text = _page(data, picture_folder=None) if data.pictures.num_bytes * 4 / 3 <= max_bytes else None
    folder = path.with_name(f"{path.stem}_pictures")
    _check_ours(folder)
    if text is not None and len(text) <= max_bytes:
        remove_folder(folder)  # left by an older, larger page
        folder_bytes = 0
    else:
        text = _page(data, picture_folder=folder.name)
        folder_bytes = _write_pictures(data, folder)
    write_whole(path, text)
    return WrittenPage(
        path=path,
        picture_folder=folder if folder_bytes else None,
        num_episodes=sum(map(len, data.episodes)),
        num_skipped=data.num_skipped,
        num_bytes=len(text) + folder_bytes,
        problems=tuple(data.problems),
    )


def _page(data: PageData, picture_folder: str | None) -> bytes:
    style = _part("page.css")
    program = "\n".join(map(_part, _PROGRAM))
    title = " and ".join(run["folder"] or run["label"] for run in data.index["runs"])
    slots = {
        "policy": _policy(style, program, has_folder=picture_folder is not None),
        "title": html.escape(title),
        "style": style,
        "index": as_script_text({**data.index, "picture_folder": picture_folder}),
        "program": program,
        "data": "\n".join(_data_elements(data, has_folder=picture_folder is not None)),
    }
    return _SLOT.sub(lambda match: slots[match.group(1)], _part("page.html")).encode()


def _part(name: str) -> str:
    return (_PARTS / name).read_text(encoding="utf-8")


def _policy(style: str, program: str, *, has_folder: bool) -> str:
    """Allows scripts and styles by digest only, so that no markup or event handler in the data can run."""
    pictures = "'self' file: data:" if has_folder else "data:"
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_digest(program)}'",
            f"style-src '{_digest(style)}'",
            f"img-src {pictures}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _data_elements(data: PageData, *, has_folder: bool) -> Iterator[str]:
    for run, episodes in enumerate(data.episodes):
        for place, episode in enumerate(episodes):
            yield _json_element(f"episode-{run}-{place}", episode)
    for place, trajectory in enumerate(data.recalled):
        yield _json_element(f"recalled-{place}", trajectory)
    for digest, picture in data.pictures.files.items():
        content = "" if has_folder else base64.b64encode(picture).decode()
        yield f'<script type="text/plain" id="picture-{digest}">{content}</script>'


def _json_element(name: str, value: Any) -> str:
    return f'<script type="application/json" id="{name}">{as_script_text(value)}</script>'


def as_script_text(value: Any) -> str:
    """JSON without characters that have a meaning in HTML, so that no text in it can end its element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _check_ours(folder: Path) -> None:
    """Refuses to replace or remove a folder that holds anything except pictures of a page."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise StorageError(
            f"{folder} should be the folder of the pictures, but it is a file; choose another name for the page."
        )
    strangers = [entry.name for entry in folder.iterdir() if not _PICTURE_NAME.fullmatch(entry.name)]
    if strangers:
        raise StorageError(
            f"{folder} would be replaced, but it holds {strangers[0]!r}; choose another name for the page."
        )


def _write_pictures(data: PageData, folder: Path) -> int:
    with whole_folder(folder, replace=folder.exists()) as partial:
        for name, picture in data.pictures.named():
            (partial / name).write_bytes(picture)
    return data.pictures.num_bytes
