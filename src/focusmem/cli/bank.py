"""`focusmem bank`: keep trajectories and find the useful ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focusmem.cli.output import print_json, print_table, printable
from focusmem.errors import UserError

if TYPE_CHECKING:
    from focusmem.bank.embedder import QwenEmbedder
    from focusmem.bank.reports import Added, Failure
    from focusmem.bank.retrieval import Hits
    from focusmem.schemas import StoredTrajectory

app = typer.Typer(no_args_is_help=True)

_LAB = "lab"
"""The embedder that ships."""

BankPath = Annotated[Path, typer.Argument(metavar="BANK", help="The bank's folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
EmbedderName = Annotated[
    str,
    typer.Option(
        "--embedder",
        help="Folder of a checkpoint, its hub id, lab (the laboratory's, which ships), or toy (random weights, to try "
        "it out).",
    ),
]
Device = Annotated[str, typer.Option(help="cpu, or cuda.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="A field of the embedder's config, as max_key_frames=4; repeatable.")
]


@app.callback()
def _group() -> None:
    pass


@app.command()
def add(
    bank: BankPath,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Trajectory folders, or folders of many.")],
    embedder: EmbedderName,
    device: Device = "cpu",
    settings: Settings = None,
    catalogue: Annotated[
        Path | None, typer.Option(help="Names the leakage guard should make slots of, one in a line; kept in the bank.")
    ] = None,
    vectors: Annotated[
        str | None,
        typer.Option(
            help="For a new bank: where its vectors go, if not into it (a folder, seen from here, or s3://...)."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """focusmem bank add my-bank my-trajectories/ --embedder toy

    Add stored trajectories to a bank, which is made if there is none. Adding the same ones again changes nothing.

    A trajectory that cannot be read is left out and named; the exit code is then 1.
    """
    from focusmem.bank import Bank
    from focusmem.bank.exchange import add_folders
    from focusmem.progress import Progress
    from focusmem.schemas import find_trajectories

    folders = [folder for path in paths for folder in find_trajectories(path)]
    names = None if catalogue is None else _lines(catalogue)
    model = load_embedder(embedder, settings, device)
    store = Bank.create(bank, model, vectors=vectors, catalogue=names)
    with Progress("add", total=len(folders)) as line:
        report = add_folders(store, folders, model, line=line)
    _tell_added(report, model, bank, json=json)


@app.command(name="list")
def list_(
    bank: BankPath,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many; default: all.")] = None,
    json: AsJson = False,
) -> None:
    """focusmem bank list my-bank --limit 20

    What is in a bank, by id.
    """
    from dataclasses import asdict

    from focusmem.bank import Bank

    entries = Bank.open(bank).entries()
    shown = entries[:limit]
    if json:
        print_json({"num_trajectories": len(entries), "trajectories": [asdict(entry) for entry in shown]})
        return
    for entry in shown:
        typer.echo(printable(f"{entry.trajectory_id}  {entry.outcome}  {entry.num_steps} steps  {entry.instruction}"))
    typer.echo(f"{len(shown)} of {len(entries)} trajectories.")


@app.command()
def search(
    bank: BankPath,
    text: Annotated[str, typer.Argument(help="What the task asks for, in words.")],
    embedder: EmbedderName,
    screenshot: Annotated[Path | None, typer.Option(help="What is on the screen, as a PNG file.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many hits.")] = 3,
    task_id: Annotated[str | None, typer.Option(help="The task's id, for the leakage guard.")] = None,
    instance: Annotated[str | None, typer.Option(help="What the task is about, for the leakage guard.")] = None,
    template: Annotated[str | None, typer.Option(help="The task's template, for the leakage guard.")] = None,
    guard: Annotated[bool, typer.Option(help="Leave out what could give the task away.")] = True,
    device: Device = "cpu",
    settings: Settings = None,
    json: AsJson = False,
) -> None:
    """focusmem bank search my-bank "How much is the blue mug?" --embedder toy

    Find the trajectories most alike, as an agent at this task would: without those of the same task, the same
    instance or the same template, unless --no-guard is given.
    """
    from focusmem.bank import Bank, Query
    from focusmem.bank.embedder import Moment

    _check_text(text)
    store = Bank.open(bank)
    model = load_embedder(embedder, settings, device)
    store.check_embedder(model.identity)
    shots = () if screenshot is None else (_picture(screenshot),)
    query = Query(task_id=task_id, instruction=text, instance=instance, template=template)
    vector_D = model.embed_queries([Moment(instruction=text, screenshots=shots)])[0]
    _show_hits(store.search(vector_D, query if guard else None, top), json=json)


@app.command()
def delete(
    bank: BankPath,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Trajectories, by id.")],
    cache: Annotated[
        Path | None, typer.Option(help="A folder of cached evidence: what was encoded from them as a whole goes too.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="The words they were encoded in, where not ours or the laboratory's: a folder.")
    ] = None,
    json: AsJson = False,
) -> None:
    """focusmem bank delete my-bank trajectory-17 trajectory-18 --cache my-cache/

    Remove trajectories for good: their vectors, their files and, with --cache, what was encoded from them.

    The exit code is 1 when one of them was not there.
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
def stats(bank: BankPath, json: AsJson = False) -> None:
    """focusmem bank stats my-bank

    How much is in a bank, from where, and whose vectors it holds.
    """
    from focusmem.bank import Bank

    found = Bank.open(bank).stats()
    if json:
        print_json(found)
        return
    rows = [(name, str(value)) for name, value in found.items() if not isinstance(value, dict)]
    groups = [(name, value) for name, value in found.items() if isinstance(value, dict)]
    rows += [(f"{name}: {printable(key)}", str(num)) for name, group in groups for key, num in group.items()]
    print_table("bank", ("what", "how much"), rows)
    if found["num_without_vector"]:
        typer.echo(f"Some have no vector and are never found; run: focusmem bank reembed {bank} --embedder FOLDER")


@app.command()
def export(
    bank: BankPath,
    out: Annotated[Path, typer.Argument(help="A new folder.")],
    json: AsJson = False,
) -> None:
    """focusmem bank export my-bank my-export/

    Write a bank as a plain folder of JSON, PNG and one NumPy file, that `focusmem bank import` reads.
    """
    from focusmem.bank import Bank
    from focusmem.bank.exchange import export_bank
    from focusmem.progress import Progress

    store = Bank.open(bank)
    with Progress("export", total=store.vectors.num_rows()) as line:
        report = export_bank(store, out, line=line)
    _tell({"num_exported": report.num_trajectories, "path": str(out)}, report.failures, json=json)


@app.command(name="import")
def import_(
    bank: BankPath,
    source: Annotated[Path, typer.Argument(metavar="FROM", help="An export, or any folder of trajectories.")],
    embedder: Annotated[
        str | None, typer.Option(help="Needed where the vectors that come along are not of the bank's embedder.")
    ] = None,
    device: Device = "cpu",
    settings: Settings = None,
    json: AsJson = False,
) -> None:
    """focusmem bank import my-bank my-export/

    Add all of an export to a bank, which is made if there is none. Vectors come along, so no model is needed.

    A trajectory that cannot be read is left out and named; the exit code is then 1.
    """
    from focusmem.bank.exchange import import_bank
    from focusmem.progress import Progress

    model = None if embedder is None else load_embedder(embedder, settings, device)
    with Progress("import", total=0) as line:
        report = import_bank(bank, source, model, line=line)
    _tell_added(report, model, bank, json=json)


@app.command()
def reembed(
    bank: BankPath,
    embedder: EmbedderName,
    device: Device = "cpu",
    settings: Settings = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Also those that have a vector of this embedder.")] = False,
    json: AsJson = False,
) -> None:
    """focusmem bank reembed my-bank --embedder toy

    Make the vectors of a bank again, with another embedder or because they are damaged. Stopped, it goes on where it
    was; until it is done the bank works with its old vectors.
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
        **_frames(model),
    }
    _tell(figures, report.failures, json=json)


# What the commands share


def load_embedder(source: str, settings: list[str] | None, device: str) -> "QwenEmbedder":
    """What `--embedder` names."""
    from focusmem.bank.embedder import EmbedderConfig, QwenEmbedder
    from focusmem.cli.settings import config_from
    from focusmem.lab.memory.embedder import is_update
    from focusmem.lab.memory.embedder import load_embedder as load_update
    from focusmem.lab.policy.policy import load_policy
    from focusmem.lab.shipped import Weights
    from focusmem.model.devices import usable_device

    usable_device(device)
    if source == _LAB or is_update(Path(source)):
        if settings:
            raise UserError("The laboratory's embedders are read as they were trained; leave out --set.")
        folder = Weights().embedder if source == _LAB else Path(source)
        return load_update(load_policy(Weights().policy, device), folder)
    return QwenEmbedder.load(source, config_from(EmbedderConfig, settings or []), device=device)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"The text is not valid UTF-8 (at character {error.start}).") from error


def _forgetter(cache: Path, prompts: Path | None) -> Any:
    """Removes what was encoded from a whole trajectory, under any checkpoint, in our words, the laboratory's or others.

    What is kept is named by all that was read, so that the words must be known to find it.
    """
    from focusmem.evidence import Serialiser
    from focusmem.lab.policy.texts import Texts
    from focusmem.model.evidence_cache import forget_on_disk
    from focusmem.schemas import EvidenceItem

    if not cache.is_dir():
        raise UserError(f"{cache} is not a folder, so there is no cached evidence to remove from.")
    wordings = [Serialiser(), Texts.load().serialise, *([] if prompts is None else [Serialiser(prompts)])]

    def forget(stored: "StoredTrajectory") -> None:
        one = stored.trajectory
        item = EvidenceItem(
            item_id=one.trajectory_id, role="episodic", instruction=one.instruction, steps=one.steps, rank=0
        )
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


def _frames(model: "QwenEmbedder | None") -> dict[str, int]:
    if model is None:
        return {}
    counts = model.counts
    return {"num_frames": counts.num_frames, "num_frames_used": counts.num_frames_used}


def _tell_added(report: "Added", model: "QwenEmbedder | None", bank: Path, *, json: bool) -> None:
    figures = {"path": str(bank), "num_added": len(report.added), "num_known": len(report.known), **_frames(model)}
    _tell(figures, report.failures, json=json)


def _tell(figures: dict[str, Any], failures: "Sequence[Failure]", *, json: bool) -> None:
    """Figures, then every failure by name; ends the command with exit code 1 where there are any."""
    from dataclasses import asdict

    if json:
        print_json({**figures, "num_failed": len(failures), "failures": [asdict(failure) for failure in failures]})
    else:
        for failure in failures:
            typer.echo(f"left out {printable(failure.name)}: {printable(failure.reason)}")
        parts = {**figures, "num_failed": len(failures)}
        typer.echo(", ".join(f"{name.removeprefix('num_')} {printable(str(value))}" for name, value in parts.items()))
    if failures:
        raise typer.Exit(1)


def _show_hits(found: "Hits", *, json: bool) -> None:
    removal = found.removed
    if json:
        removed = {
            "num_candidates": removal.num_candidates,
            "num_removed": removal.num_removed,
            "num_by_key": removal.num_by_key,
            "ids_by_key": {key: removal.ids(key) for key in removal.num_by_key},
        }
        hits = [hit.model_dump() for hit in found.hits]
        print_json({"hits": hits, "removed": removed, "is_exact": found.is_exact})
        return
    for hit in found.hits:
        typer.echo(f"{hit.score:.4f}  {hit.trajectory_id}")
    typer.echo(f"Leakage guard: {removal}.")
