"""`focusmem bench`: time the parts on this machine."""

from pathlib import Path
from typing import Annotated, Any, cast

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


@app.command()
def bank(
    vectors: Annotated[int, typer.Option(help="How many trajectories the bank holds.")] = 25_737,
    width: Annotated[int, typer.Option(help="Numbers per vector; 2048 is Qwen3-VL-Embedding-2B's.")] = 2_048,
    kind: Annotated[str, typer.Option(help="Vectors in clusters, or smooth: without clear neighbours.")] = "clusters",
    queries: Annotated[int, typer.Option(help="How many searches are timed; the median counts.")] = 100,
    top: Annotated[int, typer.Option(help="Hits per search.")] = 3,
    seed: Annotated[int, typer.Option(help="Which vectors.")] = 0,
    folder: Annotated[
        Path | None, typer.Option(help="Where the bank is made and removed again; it needs 9 GB for a million.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the figures go as JSON.")] = Path("runs/bench/bank.json"),
    json: Annotated[bool, typer.Option("--json", help="The same JSON on standard output.")] = False,
) -> None:
    """focusmem bench bank --vectors 25737 --width 2048

    Make a bank of made-up vectors, search it under the leakage guard, and compare with the truth.
    """
    import json as json_module

    from focusmem.diagnostics.bank_cost import BankCostConfig, measure_bank
    from focusmem.files import write_whole

    config = BankCostConfig(
        num_vectors=vectors, width=width, kind=cast(Any, kind), num_queries=queries, top=top, seed=seed, folder=folder
    )
    figures = measure_bank(config)
    if json:
        print_json(figures)
    else:
        _show_bank(figures, out)
    write_whole(out, json_module.dumps(figures, indent=2).encode())


def _show_bank(figures: dict[str, Any], out: Path) -> None:
    recall = figures["recall"]
    rows = [
        ("search with the guard, median", f"{figures['median_s'] * 1000:.2f} ms"),
        ("search with the guard, 95 %", f"{figures['p95_s'] * 1000:.2f} ms"),
        ("search without it, median", f"{figures['median_unfiltered_s'] * 1000:.2f} ms"),
        (f"recall at {figures['config']['top']}", "nothing to find" if recall is None else f"{recall:.4f}"),
        ("first search, which reads the table", f"{figures['load_s']:.2f} s"),
        ("making the table", f"{figures['make_s']:.1f} s"),
        ("on disk", f"{figures['num_bytes_on_disk'] / 2**20:,.0f} MiB"),
    ]
    kind = "exact" if figures["is_exact"] else "through sketches"
    print_table(f"{figures['config']['num_vectors']:,} vectors, {kind}", ("what", "figure"), rows)
    typer.echo(f"Figures: {out}")
