"""How figures become files."""

import io
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from focusmem.files import write_whole


def write_figure(figure: Figure, path: Path) -> Path:
    """As PNG, whole or not at all, without a screen and without matplotlib's global state."""
    FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    write_whole(path, buffer.getvalue())
    return path
