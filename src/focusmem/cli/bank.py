"""`focusmem bank`: keep trajectories and find the useful ones."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focusmem.cli.bank_encode import encode
from focusmem.cli.bank_output import shortening, show_entry, show_hits, tell, tell_added, tell_shortened
from focusmem.cli.output import print_json, print_table, printable
from focusmem.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from focusmem.bank.base import StoredBank
    from focusmem.bank.embedder import QwenEmbedder
    from focusmem.schemas import StoredTrajectory

app = typer.Typer(no_args_is_help=True)

_LAB = "lab"
"""The name of the bank and the embedder that ship."""
_GUARD = "Leakage guard"

BankPath = Annotated[Path, typer.Argument(metavar="BANK", help="The bank's folder.")]
AnyBank = Annotated[
    Path, typer.Argument(metavar="BANK", help="The folder of a bank or of an export, or lab for the one that ships.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
EmbedderName = Annotated[
    str,
    typer.Option(
        "--embedder",
        help="A checkpoint's folder, its hub id, lab (the laboratory's, which ships), or toy (random weights).",
    ),
]
Device = Annotated[str, typer.Option(help="cpu, or cuda.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="A setting of the embedder, such as max_key_frames=4; repeatable.")
]
NewSource = Annotated[
    str | None, typer.Option(help="Record this source instead of the source that each trajectory names.")
]
KeepSources = Annotated[
    bool, typer.Option("--keep-sources", help="Also take trajectories that name a source which the bank trusts.")
]


@app.callback()
def _group() -> None:
    pass


@app.command()
def add(
    bank: BankPath,
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Runs, trajectory folders, or folders that hold many of them."),
    ],
    embedder: EmbedderName,
    any_outcome: Annotated[
        bool, typer.Option("--any-outcome", help="Add failures, errors and unjudged attempts as well.")
    ] = False,
    device: Device = "cpu",
    settings: Settings = None,
    catalogue: Annotated[
        Path | None,
        typer.Option(help="A file of names, one per line. The bank stores them, and its leakage guard ignores them."),
    ] = None,
    source: NewSource = None,
    keep_sources: KeepSources = False,
    vectors: Annotated[
        str | None,
        typer.Option(help="For a new bank: where to keep its vectors (a folder, or s3://...)."),
    ] = None,
    json: AsJson = False,
) -> None:
    """focusmem bank add my-bank runs/my-run my-trajectories/ --embedder toy

    Add the successful trajectories of runs and folders to a bank. A new bank is made if there is none. From a run, its
    episodes are added, but not the trajectories that memory offered in it. Adding a trajectory again changes nothing.

    A trajectory that cannot be read is left out and named; the exit code is then 1. A new trajectory that names a
    source which the bank trusts is also left out, unless you give --source or --keep-sources.
    """
    from focusmem.bank import Bank
    from focusmem.bank.exchange import add_folders
    from focusmem.bank.sources import find_sources
    from focusmem.progress import Progress

    _check_source(source, keeps_sources=keep_sources)
    folders = [folder for path in paths for folder in find_sources(path)]
    names = None if catalogue is None else _lines(catalogue)
    model = load_embedder(embedder, settings, device)
    store = Bank.create(bank, model, vectors=vectors, catalogue=names)
    with Progress("add", total=len(folders)) as line:
        outcomes = None if any_outcome else ["success"]
        report = add_folders(
            store, folders, model, outcomes=outcomes, source=source, keeps_sources=keep_sources, line=line
        )
    tell_added(report, bank, json=json)


@app.command(name="list")
def list_(
    bank: AnyBank,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of trajectories; default: all.")] = None,
    json: AsJson = False,
) -> None:
    """focusmem bank list lab --limit 20

    List the trajectories of a bank by id.
    """
    entries = _open(bank).entries()
    shown = entries[:limit]
    if json:
        plain = [entry.model_dump(mode="json") for entry in shown]
        print_json({"num_trajectories": len(entries), "trajectories": plain})
        return
    for entry in shown:
        typer.echo(printable(f"{entry.trajectory_id}  {entry.outcome}  {entry.num_steps} steps  {entry.instruction}"))
    typer.echo(f"{len(shown)} of {len(entries)} trajectories.")


@app.command()
def show(
    bank: AnyBank,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Trajectories, by id.")],
    json: AsJson = False,
) -> None:
    """focusmem bank show lab e-0.yesno.bank.2

    Show what a bank records about trajectories: task, outcome, source, whether the source is trusted, and how much of
    each the embedder did not read.
    """
    store = _open(bank)
    entries = {entry.trajectory_id: entry for entry in store.entries()}
    missing = [name for name in ids if name not in entries]
    if missing:
        raise UserError(f"{bank} has no trajectory {missing[0]!r}; list them with: focusmem bank list {bank}")
    trusted = store.trusted_sources
    is_trusted = {name: entries[name].source in trusted for name in ids}
    if json:
        shown = [{**entries[name].model_dump(mode="json"), "is_trusted": is_trusted[name]} for name in ids]
        print_json({"trajectories": shown})
        return
    for name in ids:
        show_entry(entries[name], is_trusted=is_trusted[name])


@app.command()
def trust(
    bank: AnyBank,
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="SOURCE...", help="Sources, as `focusmem bank stats` lists them.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="From now on trust no source.")] = False,
    json: AsJson = False,
) -> None:
    """focusmem bank trust my-bank "my shop" demonstrations

    Name the sources that a bank trusts. The new list replaces the old list; without a source, the list is shown. With
    --trusted-sources, `focusmem run`, `focusmem train` and `focusmem bank search` search only trajectories from these
    sources.

    A trajectory cannot prove its source, because its author also wrote the source. `focusmem bank add` and `focusmem
    bank import` therefore refuse new trajectories that name a trusted source. `--source NAME` records another source;
    `--keep-sources` says that you vouch for the sources that they name.
    """
    from focusmem.bank import Bank

    if sources and none:
        raise UserError("Name the sources to trust, or give --none to trust no source, but not both.")
    if sources or none:
        store = Bank.open(bank)
        store.trust(sources or ())
        trusted = store.trusted_sources
    else:
        trusted = _open(bank).trusted_sources
    if json:
        print_json({"path": str(bank), "trusted_sources": list(trusted)})
    else:
        typer.echo(printable(f"{bank} trusts: {', '.join(trusted) or 'no source'}."))


@app.command()
def search(
    bank: AnyBank,
    text: Annotated[str, typer.Argument(help="The task's instruction.")],
    embedder: EmbedderName,
    screenshot: Annotated[Path | None, typer.Option(help="The current screen, as a PNG file.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of hits.")] = 3,
    outcome: Annotated[
        list[str] | None, typer.Option(help="Only trajectories with this outcome, such as success; repeatable.")
    ] = None,
    trusted_sources: Annotated[
        bool, typer.Option("--trusted-sources", help="Only trajectories from sources that the bank trusts.")
    ] = False,
    task_id: Annotated[str | None, typer.Option(help="The task's id.", rich_help_panel=_GUARD)] = None,
    instance: Annotated[
        str | None, typer.Option(help="The concrete object that the task is about.", rich_help_panel=_GUARD)
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(help="The wording of the task with its particulars replaced by slots.", rich_help_panel=_GUARD),
    ] = None,
    guard: Annotated[
        bool, typer.Option(help="Leave out trajectories that could give the task away.", rich_help_panel=_GUARD)
    ] = True,
    device: Device = "cpu",
    settings: Settings = None,
    json: AsJson = False,
) -> None:
    """focusmem bank search lab "How much is the blue mug?" --embedder lab

    Find the most similar trajectories, as an agent with this task would find them. Trajectories of the same task,
    instance or template are left out unless --no-guard is given.
    """
    from focusmem.bank import Query
    from focusmem.bank.forms import Moment
    from focusmem.bank.trust import sources_to_search

    _check_text(text)
    store = _open(bank)
    model = load_embedder(embedder, settings, device)
    store.check_embedder(model.identity)
    sources = sources_to_search(store, only_trusted=trusted_sources)
    query = Query(task_id=task_id, instruction=text, instance=instance, template=template)
    moment = Moment(instruction=text, screenshot=None if screenshot is None else _picture(screenshot))
    vector_D = model.embed_queries([moment])[0]
    show_hits(store.search(vector_D, query if guard else None, top, outcomes=outcome, sources=sources), json=json)


@app.command()
def delete(
    bank: BankPath,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Trajectories, by id.")],
    cache: Annotated[
        Path | None, typer.Option(help="A folder of encoded evidence, from which these trajectories are removed too.")
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            help="A folder with the prompt wording that was used to encode them, if it is not a built-in wording."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """focusmem bank delete my-bank trajectory-17 trajectory-18 --cache my-cache/

    Remove trajectories permanently: their vectors, their files and, with --cache, the evidence that was encoded from
    them.

    The exit code is 1 if one of them is not in the bank.
    """
    from dataclasses import asdict

    from focusmem.bank import Bank

    done = Bank.open(bank).delete(ids, on_delete=None if cache is None else _forgetter(cache, prompts))
    if json:
        print_json(asdict(done))
    else:
        typer.echo(f"{len(done.deleted)} deleted.")
        for name in done.missing:
            typer.echo(f"{bank} has no trajectory {printable(repr(name))}.")
    if done.missing:
        raise typer.Exit(1)


@app.command()
def stats(bank: AnyBank, json: AsJson = False) -> None:
    """focusmem bank stats lab

    Show the size of a bank, the sources of its trajectories, and the embedder that made its vectors.
    """
    from dataclasses import asdict

    found = asdict(_open(bank).stats())
    if json:
        print_json(found)
        return
    found["trusted_sources"] = printable(", ".join(found["trusted_sources"])) or "none"
    rows = [(name, str(value)) for name, value in found.items() if not isinstance(value, dict)]
    groups = [(name, value) for name, value in found.items() if isinstance(value, dict)]
    rows += [(f"{name}: {printable(key)}", str(num)) for name, group in groups for key, num in group.items()]
    print_table("bank", ("what", "how much"), rows)
    if found["num_without_vector"]:
        typer.echo(f"Some have no vector and are never found; run: focusmem bank reembed {bank} --embedder FOLDER")


@app.command()
def check(bank: AnyBank, json: AsJson = False) -> None:
    """focusmem bank check lab

    Compare every vector, trajectory and screenshot with its stored checksum. List what is damaged and how to mend it.

    The exit code is 1 if something is damaged.
    """
    from focusmem.bank.checking import check_bank
    from focusmem.progress import Progress

    store = _open(bank)
    with Progress("check", total=0) as line:
        report = check_bank(store, line=line)
    tell({"num_trajectories": report.num_trajectories, "path": str(bank)}, report.failures, json=json, verb="damaged")


@app.command()
def export(
    bank: AnyBank,
    out: Annotated[Path, typer.Argument(help="A new folder.")],
    json: AsJson = False,
) -> None:
    """focusmem bank export my-bank my-export/

    Write a bank as a plain folder of JSON, PNG and one NumPy file. It is searched without a vector store, and
    `focusmem bank import` reads it.
    """
    from focusmem.bank.exchange import export_bank
    from focusmem.progress import Progress

    store = _open(bank)
    with Progress("export", total=0) as line:
        report = export_bank(store, out, line=line)
    tell({"num_exported": report.num_trajectories, "path": str(out)}, report.failures, json=json)


@app.command(name="import")
def import_(
    bank: BankPath,
    origin: Annotated[Path, typer.Argument(metavar="FROM", help="An export, or any folder of trajectories.")],
    embedder: Annotated[
        str | None, typer.Option(help="Needed if the source has no vectors, or vectors of another embedder.")
    ] = None,
    device: Device = "cpu",
    settings: Settings = None,
    source: NewSource = None,
    keep_sources: KeepSources = False,
    json: AsJson = False,
) -> None:
    """focusmem bank import my-bank my-export/

    Add an export with its vectors to a bank. A new bank is made if there is none. No model is needed.

    If a trajectory names a source that the bank trusts, nothing is imported unless you give --source or --keep-sources.

    A trajectory that cannot be read is left out and named; the exit code is then 1.
    """
    from focusmem.bank.exchange import import_bank
    from focusmem.progress import Progress

    _check_source(source, keeps_sources=keep_sources)
    model = None if embedder is None else load_embedder(embedder, settings, device)
    with Progress("import", total=0) as line:
        report = import_bank(bank, origin, model, source=source, keeps_sources=keep_sources, line=line)
    tell_added(report, bank, json=json)


@app.command()
def reembed(
    bank: BankPath,
    embedder: EmbedderName,
    device: Device = "cpu",
    settings: Settings = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Also replace existing vectors of this embedder.")] = False,
    json: AsJson = False,
) -> None:
    """focusmem bank reembed my-bank --embedder toy

    Make all vectors of a bank again, with another embedder or because they are damaged. The same command resumes after
    a stop. The bank uses its old vectors until all new ones are made.
    """
    from focusmem.bank.reembedding import reembed as reembed_bank
    from focusmem.progress import Progress

    model = load_embedder(embedder, settings, device)
    with Progress("reembed", total=0) as line:
        report = reembed_bank(bank, model, is_fresh=fresh, line=line)
    figures = {
        "num_trajectories": report.num_trajectories,
        "num_embedded": report.num_embedded,
        "embedder": model.identity,
        **shortening(report.shortened),
    }
    if not json:
        tell_shortened(report.shortened, bank)
    tell(figures, report.failures, json=json)


app.command()(encode)


# Shared by the commands


def _open(bank: Path) -> "StoredBank":
    from focusmem.bank import open_bank
    from focusmem.lab.shipped import Weights

    return open_bank(Weights().bank if str(bank) == _LAB and not bank.exists() else bank)


def load_embedder(source: str, settings: list[str] | None, device: str) -> "QwenEmbedder":
    """The embedder that `--embedder` names."""
    from focusmem.bank.embedder import EmbedderConfig, QwenEmbedder
    from focusmem.lab.memory.embedder import is_update
    from focusmem.lab.memory.embedder import load_embedder as load_update
    from focusmem.lab.policy.policy import load_policy
    from focusmem.lab.shipped import Weights
    from focusmem.model.devices import usable_device
    from focusmem.settings import resolved

    usable_device(device)
    if source == _LAB or is_update(Path(source)):
        if settings:
            raise UserError("The laboratory's embedders have fixed settings; leave out --set.")
        folder = Weights().embedder if source == _LAB else Path(source)
        return load_update(load_policy(Weights().policy, device), folder)
    return QwenEmbedder.load(source, resolved(EmbedderConfig(), assignments=settings or []), device=device)


def _check_source(source: str | None, *, keeps_sources: bool) -> None:
    if source is None:
        return
    _check_text(source)
    if not source.strip():
        raise UserError("--source is empty; give a name, or leave the option out.")
    if keeps_sources:
        raise UserError("--source replaces the sources and --keep-sources keeps them; give one of the two.")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"The text is not valid UTF-8 (at character {error.start}).") from error


def _forgetter(cache: Path, prompts: Path | None) -> "Callable[[StoredTrajectory], None]":
    """Returns a function that removes a trajectory's entries from a cache, for every checkpoint. It looks for entries
    in our wording, in the laboratory's wording, and in the wording of a given folder.

    An entry's name depends on everything that the encoder reads, so the entry can be found only if the wording is
    known.
    """
    from focusmem.evidence import Serialiser, episodic_items
    from focusmem.lab.policy.texts import Texts
    from focusmem.model.evidence_cache import forget_on_disk

    if not cache.is_dir():
        raise UserError(f"{cache} is not a folder, so it holds no cached evidence. Give a cache folder with --cache.")
    wordings = []
    for shows_errors in (True, False):
        wordings += [Serialiser(shows_errors=shows_errors), Texts.load(shows_errors=shows_errors).serialise]
        wordings += [] if prompts is None else [Serialiser(prompts, shows_errors=shows_errors)]

    def forget(stored: "StoredTrajectory") -> None:
        [item] = episodic_items([(stored.trajectory, 0.0)])
        for serialise in wordings:
            forget_on_disk(cache, serialise(item, stored.screenshots))

    return forget


def _picture(path: Path) -> Any:
    from focusmem.files import read_plain_file
    from focusmem.schemas import Screenshot
    from focusmem.schemas.screenshot import MAX_PNG_BYTES

    return Screenshot.from_png(read_plain_file(path, MAX_PNG_BYTES))


def _lines(path: Path) -> list[str]:
    from focusmem.files import read_plain_file
    from focusmem.schemas.record import MAX_DOCUMENT_BYTES

    return read_plain_file(path, MAX_DOCUMENT_BYTES).decode(errors="replace").splitlines()
