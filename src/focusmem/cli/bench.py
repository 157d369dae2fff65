"""`focusmem bench`: time the parts on this machine."""

from pathlib import Path
from typing import Annotated, Any

import typer

from focusmem.cli.output import print_json, print_table

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command()
def readout(
    device: Annotated[str, typer.Option(help="cpu, or cuda.")] = "cpu",
    width: Annotated[int, typer.Option(help="Compressor width; 4096 is the paper's.")] = 384,
    dtype: Annotated[
        str | None, typer.Option(help="float32 or bfloat16; default: bfloat16 on a GPU, float32 elsewhere.")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Timed calls per way; the median counts.")] = 10,
    episodic_tokens: Annotated[int, typer.Option(help="Tokens of each of three episodic items.")] = 11_040,
    working_tokens: Annotated[int, typer.Option(help="Tokens of each of three working items.")] = 3_840,
    out: Annotated[Path, typer.Option(help="Where the figures go as JSON.")] = Path("runs/bench/readout.json"),
    json: Annotated[bool, typer.Option("--json", help="The same JSON on standard output.")] = False,
) -> None:
    """focusmem bench readout --device cpu --width 384

    Time the readout of six items: re-projected at each step (naive), projected once per call, cached, absorbed.
    """
    import json as json_module

    from focusmem.diagnostics.readout_cost import ReadoutCostConfig, measure_readout
    from focusmem.files import write_whole

    config = ReadoutCostConfig(
        width=width,
        device=device,
        dtype=dtype or ("bfloat16" if device.startswith("cuda") else "float32"),
        num_repeats=repeats,
        episodic_tokens=episodic_tokens,
        working_tokens=working_tokens,
    )
    figures = measure_readout(config)
    # Shown first: a folder that cannot be written must not lose the figures.
    if json:
        print_json(figures)
    else:
        _show(figures, out)
    write_whole(out, json_module.dumps(figures, indent=2).encode())


def _show(figures: dict[str, Any], out: Path) -> None:
    rows = [
        (way, f"{seconds * 1000:.2f}", f"{figures['speedup_over_naive'][way]:.1f}")
        for way, seconds in figures["median_s"].items()
    ]
    print_table(f"readout of six items on {figures['device_name']}", ("way", "ms", "times naive's speed"), rows)
    typer.echo(
        f"The cached way takes {figures['cached_over_floor']:.2f} times the time its bytes need "
        f"({figures['cached_floor_s'] * 1000:.2f} ms). Figures: {out}"
    )
