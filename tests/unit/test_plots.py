"""The plots of benchmarks and simulation are drawn, in one style."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
EXPLANATION = Path(__file__).resolve().parents[2] / "docs" / "explanation"
BENCHMARKS = str(Path(__file__).resolve().parents[1] / "benchmarks")


def test_each_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import long_run
    import plot
    import recorded
    import simulate

    rows = [
        {"clusters": n, "decide_us_median": 9.0, "decide_us_p99": 20.0, "started_at_once": 0.9} for n in (10.0, 100.0)
    ]
    simulate.draw({"least-loaded": rows}, tmp_path / "scale.svg")
    long_run.draw({"jobs": [1e5, 2e5], "scheduler": [80.0, 81.0]}, tmp_path / "memory.svg")
    plot.draw({"relay_ratio": 0.9, "nodes_100_new_us": 3.0, "nodes_100_load_us": 9.0}, tmp_path / "bench.svg")
    for name in ("scale", "memory", "bench"):
        assert "<svg" in (tmp_path / f"{name}.svg").read_text()
    recorded.main([str(tmp_path)])
    for name in ("scale", "memory", "waiting"):
        drawn, shown = (file.read_text() for file in (tmp_path / f"{name}.svg", EXPLANATION / f"{name}.svg"))
        assert re.findall("<!-- (.*?) -->", drawn) == re.findall("<!-- (.*?) -->", shown), "draw it again: make plots"
        assert "dc:date" not in drawn
    for module in (long_run, plot, simulate):
        assert module.style is sys.modules["style"]
