"""The shared part of the loaders of public benchmarks: rows with their place in a file, subsets by id, moved hosts.

The data sets may not be redistributed, so they are read from the user's copy.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ConfigDict, ValidationError

from focusmem.browser.addresses import ANY_PUBLIC, check_address
from focusmem.errors import ConfigError, FocusmemError, RecordError, StorageError
from focusmem.files import read_plain_file, sha256_hex
from focusmem.schemas import Task
from focusmem.schemas.record import MAX_DOCUMENT_BYTES, Record, describe_problem

_NUM_HEX = 12


class Row(Record):
    """The fields of a row that we read; a benchmark may add others."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


@dataclass(frozen=True)
class Found:
    """A row of a file, unchanged."""

    place: str
    """The file, and the line or the number of the row in it."""
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Source:
    """Where a benchmark's tasks come from, and how they are changed before the policy gets them."""

    data: Path
    """The file or the folder that the user has."""
    ids: Path | None = None
    """A file that lists the ids of the tasks to attempt, one in each line; None uses all tasks."""
    revision: str | None = None
    """The revision of the data set, such as a commit; None uses the digest of the files."""
    dates_from: date | None = None
    """Dates in dated tasks are moved so that the benchmark's earliest date falls on this day or up to six days after
    it. None does not move dates.
    """
    hosts: Mapping[str, str] = field(default_factory=dict)
    """Hosts of the benchmark that are served elsewhere: `localhost:7770` to `http://shop.example:7770`."""
    allowed_hosts: tuple[str, ...] | None = None
    """Hosts that every task may visit in addition to its own; None uses the suite's default."""
    max_steps: int | None = None
    """The step budget of every task; None uses the suite's default."""
    presses_enter: bool | None = None
    """Whether `type` presses Enter; None uses the suite's default."""
    wikipedia: str | None = None
    """For MMInA: the address of a served encyclopedia, or a ZIM file that kiwix-serve serves."""


@dataclass
class Loaded:
    """What a benchmark's files hold."""

    tasks: list[Task] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """One sentence for each row that is not a task, with its place."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Tasks that cannot be attempted, by id, each with its reason."""
    kinds: dict[str, str] = field(default_factory=dict)
    """The group to which reports assign a task, by task id."""
    digest: str = ""
    """The digest of the files that were read."""

    def add(self, found: Sequence[Found], make: Callable[[Found], Task], kind: Callable[[Found], str | None]) -> None:
        """Adds a task for each row. A row that is not a task, or that repeats an id, is refused."""
        places = {task.task_id: "" for task in self.tasks}
        for row in found:
            try:
                task = make(row)
                if task.task_id in places:
                    raise RecordError(f"{row.place}: the task id '{task.task_id}' is used twice.")
            except _LeftOutError as error:
                self.left_out[error.task_id] = str(error)
            except FocusmemError as error:
                self.refused.append(str(error))
            else:
                places[task.task_id] = row.place
                self.tasks.append(task)
                group = kind(row)
                if group is not None:
                    self.kinds[task.task_id] = group


class _LeftOutError(RecordError):
    def __init__(self, task_id: str, reason: str) -> None:
        super().__init__(reason)
        self.task_id = task_id


def leave_out(task_id: str, reason: str) -> RecordError:
    """Raised by a loader if a task cannot be attempted."""
    return _LeftOutError(task_id, reason)


# Reading files


def find_data(data: Path, names: Sequence[str], help_text: str) -> Path:
    """The benchmark's file: `data` itself, or the first file in the folder `data` with one of these names."""
    if data.is_dir():
        for name in names:
            if (data / name).is_file():
                return data / name
        raise StorageError(f"{data} holds no {' or '.join(names)}. {help_text}")
    if not data.is_file():
        raise StorageError(f"There is no {data}. {help_text}")
    return data


def open_file(source: Source, names: Sequence[str], help_text: str) -> tuple[Path, list[Found], Loaded]:
    """The benchmark's file, its rows, and what will be loaded from them."""
    path = find_data(source.data, names, help_text)
    rows, broken = read_rows(path)
    return path, rows, Loaded(refused=broken, digest=digest_of([path]))


def read_rows(path: Path) -> tuple[list[Found], list[str]]:
    """The rows of a JSON-lines file, or of a JSON file that holds a list; and a sentence for each broken line."""
    data = read_plain_file(path, MAX_DOCUMENT_BYTES)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise RecordError(f"{path}, line {line}: the text is not valid UTF-8.") from None
    if path.suffix == ".jsonl":
        return _read_lines(path, text)
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise RecordError(f"{path}, line {error.lineno}: {_json_problem(error)}") from None
    except RecursionError:
        raise RecordError(f"{path} is nested too deeply.") from None
    if not isinstance(document, list):
        raise RecordError(f"{path} should hold a list of tasks, but it holds {_kind(document)}.")
    found, broken = [], []
    for number, values in enumerate(document, start=1):
        place = f"{path}, row {number}"
        if isinstance(values, dict):
            found.append(Found(place, values))
        else:
            broken.append(f"{place}: a task should be a JSON object, but this is {_kind(values)}.")
    return found, broken


def _read_lines(path: Path, text: str) -> tuple[list[Found], list[str]]:
    found, broken = [], []
    for number, line in enumerate(text.split("\n"), start=1):  # `splitlines` would also split at U+2028
        place = f"{path}, line {number}"
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            broken.append(f"{place}: {_json_problem(error)}")
            continue
        except RecursionError:
            broken.append(f"{place} is nested too deeply.")
            continue
        if isinstance(values, dict):
            found.append(Found(place, values))
        else:
            broken.append(f"{place}: a task should be a JSON object, but this is {_kind(values)}.")
    return found, broken


def read_object(path: Path) -> Found:
    """A file that holds one JSON object."""
    try:
        values = json.loads(read_plain_file(path, MAX_DOCUMENT_BYTES))
    except json.JSONDecodeError as error:
        raise RecordError(f"{path}, line {error.lineno}: {_json_problem(error)}") from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"{path} is not JSON that can be read ({type(error).__name__}).") from None
    if not isinstance(values, dict):
        raise RecordError(f"{path} should hold one JSON object, but it holds {_kind(values)}.")
    return Found(str(path), values)


def row_as(cls: type[Row], found: Found) -> Any:
    """The row as a record of this class. Fields that are missing or have another type are named with their place."""
    try:
        return cls.model_validate_json(json.dumps(found.values))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
    except ValueError:  # NaN or half a surrogate pair
        raise RecordError(f"{found.place}: the row contains text or numbers that JSON cannot hold.") from None
    name = ".".join(map(str, problem["loc"])) or "the row"
    raise RecordError(f"{found.place}: {name} {describe_problem(problem)}.")


def _json_problem(error: json.JSONDecodeError) -> str:
    advice = ""
    if "escape" in error.msg:
        advice = " A backslash in JSON is written twice; correct the file, or take a revision in which it is corrected."
    return f"not valid JSON at column {error.colno} ({error.msg}).{advice}"


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def digest_of(files: Sequence[Path]) -> str:
    """One digest of several files, by name and content."""
    parts = (f"{path.name} {sha256_hex(read_plain_file(path, MAX_DOCUMENT_BYTES))}\n" for path in sorted(files))
    return sha256_hex("".join(parts).encode())


# What is done to tasks


def start_address(url: str, place: str) -> str:
    """Checks that a browser may open a start page, and adds the path that a bare host lacks."""
    split = urlsplit(url) if url.isprintable() else None
    problem = None if split is None else check_address(url, (split.netloc.lower(), ANY_PUBLIC))
    if split is None or not split.netloc or problem is not None:
        raise RecordError(f"{place}: the start page {url[:100]!r} is not an address that can be opened.")
    return url if split.path or split.query or split.fragment else f"{url}/"


def site_of(url: str) -> str:
    """The site of a page, as banks name it: its host without `www.`."""
    return (urlsplit(url).hostname or "").removeprefix("www.")


def moved(text: str, hosts: Mapping[str, str]) -> str:
    """Returns a text or an address with hosts replaced. If the new host has no scheme, the original scheme is kept."""
    for old, new in hosts.items():
        pattern = re.compile(rf"(?P<scheme>https?://)?(?<![\w.-]){re.escape(old)}(?![\w-]|:\d|\.\w)")
        text = pattern.sub(lambda found, new=new: _put_in(found["scheme"], new), text)  # type: ignore[misc]
    return text


def _put_in(scheme: str | None, new: str) -> str:
    if "://" in new:
        return new.removesuffix("/")
    return f"{scheme or ''}{new}"


def check_hosts(hosts: Mapping[str, str]) -> None:
    for old, new in hosts.items():
        if "/" in old or not urlsplit(new if "://" in new else f"http://{new}").netloc:
            raise ConfigError(
                f"suite.hosts maps {old!r} to {new!r}; write a host and where it is served, such as "
                '{"localhost:7770": "http://shop.example:7770"}.'
            )


def chosen(tasks: Sequence[Task], ids: Path | None, suite: str, same: Callable[[str], str] = str) -> list[Task]:
    """The tasks that a file of ids names, in the benchmark's order. `same` maps different ids of one task to the same
    id.
    """
    if ids is None:
        return list(tasks)
    wanted: dict[str, int] = {}
    for number, line in enumerate(read_plain_file(ids, MAX_DOCUMENT_BYTES).decode().splitlines(), start=1):
        name = line.partition("#")[0].strip().removeprefix(f"{suite}/")
        if name:
            wanted.setdefault(same(name), number)
    known = {same(task.task_id.removeprefix(f"{suite}/")) for task in tasks}
    for name, number in wanted.items():
        if name not in known:
            raise ConfigError(f"{ids}, line {number}: the data has no task '{name}' that can be attempted.")
    if not wanted:
        raise ConfigError(f"{ids} names no task; write one id in each line.")
    return [task for task in tasks if same(task.task_id.removeprefix(f"{suite}/")) in wanted]


def shown_revision(source: Source, loaded: Loaded) -> str:
    return source.revision or f"files {loaded.digest[:_NUM_HEX]}"


def live_task(task_id: str, instruction: str, address: str, place: str, **values: Any) -> Task:
    """A task on the live web, where `type` presses Enter and every public site may be visited."""
    url = start_address(address, place)
    return Task(
        task_id=task_id,
        instruction=instruction,
        start_url=url,
        site=site_of(url),
        allowed_sites=(ANY_PUBLIC,),
        presses_enter=True,
        **values,
    )


def files_in(folder: Path, pattern: str) -> Iterator[Path]:
    """The files of a folder, in the order of the numbers in their names."""
    paths = [path for path in folder.glob(pattern) if path.is_file()]
    return iter(sorted(paths, key=lambda path: ([int(part) for part in re.findall(r"\d+", path.stem)], path.name)))
