"""The figures as a picture: how matching grows with nodes and with clusters, and the ratios beside their bars."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import style

#: Key -> (bar, whether more is better): what the project holds itself to.
BARS: dict[str, tuple[float, bool]] = {
    "relay_ratio": (0.8, True),
    "celery_ratio": (3.0, True),
    "bulk_ratio": (0.8, True),
    "flux_ratio": (0.8, True),
    "accept_ms_median": (50.0, False),
    "new_shape_ms_1000": (0.6, False),
    "known_shape_us_1000": (10.0, False),
    "growth_clusters_10x": (2.0, False),
    "growth_nodes_1000x": (1.3, False),
    "register_ratio": (2.0, False),
    "reregister_ratio": (0.2, False),
    "choose_us_10000": (50.0, False),
    "help_ratio": (2.0, False),
}


def draw(figures: Mapping[str, float | None], target: Path) -> None:
    """Write a PNG to `target`."""
    figure, (left, right) = style.chart(13, 5, 2)
    nodes = [n for n in (100, 1000, 10_000, 100_000) if figures.get(f"nodes_{n}_new_us") is not None]
    left.loglog(nodes, [figures[f"nodes_{n}_new_us"] for n in nodes], "o-", label="new request, one cluster of n nodes")
    left.loglog(nodes, [figures[f"nodes_{n}_load_us"] for n in nodes], "s-", label="loading its R")
    clusters = [n for n in (1000, 10_000) if figures.get(f"new_shape_ms_{n}") is not None]
    asked = [1e3 * (figures[f"new_shape_ms_{n}"] or 0.0) for n in clusters]
    left.loglog(clusters, asked, "^-", label="new request, n clusters")
    left.set(xlabel="n", ylabel="µs", title="Cost of matching")
    left.legend()

    shown = {key: figures[key] for key in BARS if figures.get(key) is not None}
    # 1 is the bar; right of it is better, whichever way the figure counts.
    margins = [
        (value or 0.0) / BARS[key][0] if BARS[key][1] else BARS[key][0] / (value or 1.0) for key, value in shown.items()
    ]
    right.barh(list(shown), margins, color=["tab:green" if m >= 1 else "tab:red" for m in margins])
    right.axvline(1, color="black", linewidth=1)
    right.set(xscale="log", title="Figures over their bars (1 is the bar, more is better)")
    for row, value in enumerate(shown.values()):
        right.text(margins[row], row, f" {value:.3g}", va="center")
    style.save(figure, target)
    print(f"drawn to {target}")
