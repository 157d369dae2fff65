"""Writes matplotlib figures to files."""

import io
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from focusmem.files import write_whole


def write_figure(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG, whole or not at all. It needs no screen and does not use matplotlib's global state."""
    FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    write_whole(path, buffer.getvalue())
    return path
