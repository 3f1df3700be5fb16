"""How all plots look: those of `make bench`, of `make simulate` and of `make long-run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_LOOK: dict[Any, Any] = {
    "figure.dpi": 110,
    "font.size": 10,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.3,
    "legend.fontsize": "small",
    "legend.frameon": False,
    "svg.hashsalt": "rainbow",
}


def chart(width: float, height: float, columns: int = 1) -> tuple[Any, Any]:
    """A figure and its axes (an array of them where there are several columns)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update(_LOOK)
    return pyplot.subplots(1, columns, figsize=(width, height))


def save(figure: Any, target: Path) -> None:
    """Write it; the ending of the name says as what."""
    from matplotlib import pyplot

    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None} if target.suffix == ".svg" else None)
    pyplot.close(figure)
