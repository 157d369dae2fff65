"""Plots a run: each loss over the steps, the share of blocks that pass the gate, and the vital signs."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from focusmem.plotting import write_figure
from focusmem.training.metrics import read_metrics
from focusmem.training.vital_signs import VITAL_SIGNS_NOTE

_COLOURS = {
    "total": "#333333",
    "action": "#1f6fb4",
    "semantic": "#d1711f",
    "functional": "#3b8f3e",
    "gate": "#a33b8f",
    "order": "#7a5c2e",
    "ordinary": "#1f6fb4",
    "negative": "#c0392b",
}

_OF_CURVES = (_COLOURS["action"], _COLOURS["semantic"], _COLOURS["total"])
"""Of the curves of one panel, in their order."""
_FLAT = 20
"""If a curve's highest value is more than this many times its last one, its end looks like zero on a linear scale."""


def plot_run(folder: Path, *, title: str) -> list[Path]:
    """Draws `losses.png`. If a gate was in use, it also draws `gate.png`; if vital signs were measured, `vital.png`."""
    lines = read_metrics(folder / "metrics.jsonl")
    if not lines:
        return []
    drawn = [_losses(lines, folder / "losses.png", title)]
    if any(value is not None for line in lines for value in line["passage"].values()):
        drawn.append(_gate(lines, folder / "gate.png", title))
    measured = [line for line in lines if VITAL_SIGNS_NOTE in line]
    if measured:
        drawn.append(_vital_signs(measured, folder / "vital.png", title))
    return drawn


def _losses(lines: list[dict[str, Any]], path: Path, title: str) -> Path:
    names = list(dict.fromkeys(name for line in lines for name in line["loss"]))
    figure = Figure(figsize=(3.2 * (len(names) + 1), 3.4), layout="constrained")
    for place, name in enumerate([*names, "gradient_norm"], start=1):
        axes = figure.add_subplot(1, len(names) + 1, place)
        values = [line["gradient_norm"] if name == "gradient_norm" else line["loss"].get(name) for line in lines]
        _draw(axes, lines, values, _COLOURS.get(name, "#777777"), name.replace("_", " "))
        axes.set_title(name.replace("_", " "))
        _scale(axes, [value for value in values if value is not None])
    figure.suptitle(title)
    return write_figure(figure, path)


def _scale(axes: Axes, values: list[float]) -> None:
    """The scale begins at zero. It is logarithmic if the end of a curve would look like zero."""
    if min(values, default=0.0) > 0 and max(values) > _FLAT * values[-1]:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.05 * max(axes.get_ylim()[1], 1e-9))


def _gate(lines: list[dict[str, Any]], path: Path, title: str) -> Path:
    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    axes = figure.add_subplot()
    for name, label in (("ordinary", "ordinary blocks"), ("negative", "misleading blocks")):
        _draw(axes, lines, [line["passage"][name] for line in lines], _COLOURS[name], label)
    axes.set_ylim(-0.02, 1.02)
    axes.set_ylabel("share let in")
    axes.legend(loc="best")
    figure.suptitle(title)
    return write_figure(figure, path)


_PANELS = (
    ("query change / base queries (rms)", (("query_change", "query change"),)),
    (
        "nats of an action, held out",
        (("own_nats", "own states"), ("shuffled_nats", "states of neighbours"), ("fixed_nats", "fixed queries")),
    ),
    (
        "share the gate lets in, held out",
        (("ordinary_passage", "ordinary blocks"), ("negative_passage", "misleading blocks")),
    ),
)
"""The vital signs, panel by panel: the axis, and its curves."""


def _vital_signs(lines: list[dict[str, Any]], path: Path, title: str) -> Path:
    """A panel for each group of signs that was measured."""
    signs = [line[VITAL_SIGNS_NOTE] for line in lines]
    panels = [
        (words, [(name, label) for name, label in curves if any(one[name] is not None for one in signs)])
        for words, curves in _PANELS
    ]
    panels = [(words, curves) for words, curves in panels if curves]
    figure = Figure(figsize=(4.6 * len(panels), 3.4), layout="constrained")
    for place, (words, curves) in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), place)
        for (name, label), colour in zip(curves, _OF_CURVES, strict=False):
            _draw(axes, lines, [one[name] for one in signs], colour, label)
        axes.set_ylabel(words)
        axes.set_ylim(bottom=0)
        if len(curves) > 1:
            axes.legend(loc="best")
    figure.suptitle(title)
    return write_figure(figure, path)


def _draw(axes: Axes, lines: list[dict[str, Any]], values: list[float | None], colour: str, label: str) -> None:
    points = [(line["step"], value) for line, value in zip(lines, values, strict=True) if value is not None]
    marker = "." if len(points) < 40 else None
    axes.plot([x for x, _ in points], [y for _, y in points], color=colour, marker=marker, label=label)
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)
