"""`focusmem lab`: visit the small offline world."""

from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command()
def serve(
    seed: Annotated[int, typer.Option(help="Which world: equal seeds give equal sites.")] = 0,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Where to listen; 0 takes any that is free.")] = 8080,
    open: Annotated[bool, typer.Option("--open", help="Show the index page in your browser.")] = False,
) -> None:
    """focusmem lab serve --seed 7 --port 8080

    Serve the laboratory's sites as web pages on this machine, until Ctrl-C.
    """
    import webbrowser

    from focusmem.lab.server import LabServer
    from focusmem.lab.world import World

    with LabServer(World(seed), port) as server:
        typer.echo(f"The laboratory is at {server.url} (Ctrl-C stops it).")
        if open:
            webbrowser.open(server.url)
        wait_for_interrupt()
    typer.echo("Stopped.")


def wait_for_interrupt() -> None:
    import threading

    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        typer.echo()
