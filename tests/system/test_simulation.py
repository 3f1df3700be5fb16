"""The simulation behind the page on scale decides with the real code: small, it must come out as queueing says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from simulate import simulate


@pytest.mark.parametrize("schedulers", [1, 3])
def test_least_loaded_waits_less_than_random(schedulers: int) -> None:
    found = {
        selection: simulate(60, selection=selection, rate=200, seconds=12, schedulers=schedulers, load=0.7, seed=3)
        for selection in ("random", "least-loaded")
    }
    for figures in found.values():
        assert figures["jobs"] == pytest.approx(200 * 12, rel=0.2)
    assert found["least-loaded"]["started_at_once"] > 0.95
    assert found["least-loaded"]["started_at_once"] > found["random"]["started_at_once"]


def test_without_load_nobody_waits() -> None:
    found = simulate(20, selection="random", rate=20, seconds=6, schedulers=2, load=0.01, seed=1)
    assert found["started_at_once"] == 1.0
