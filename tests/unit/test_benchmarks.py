"""`make bench`: what one part does to the figures of the others."""

from __future__ import annotations

import json
import runpy
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_BENCH = Path(__file__).parents[1] / "benchmarks" / "__main__.py"


def _module(run: Callable[[], dict[str, float | None]]) -> types.ModuleType:
    made = types.ModuleType("part")
    made.run = run  # type: ignore[attr-defined]
    return made


def test_a_part_that_fails_takes_no_others_figures_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def fails() -> dict[str, float | None]:
        assert json.loads((tmp_path / "build/bench.json").read_text())["relay_ratio"] == 0.5, "written when it was done"
        raise RuntimeError("no ply here")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    bench = runpy.run_path(str(_BENCH))
    parts: dict[str, Callable[[], dict[str, float | None]]] = {
        "relay": lambda: {"relay_ratio": 0.5},
        "flux": fails,
        "startup": lambda: {"help_ratio": 2.0},
    }
    for name, run in parts.items():
        monkeypatch.setitem(sys.modules, f"part_{name}", _module(run))
    bench["PARTS"].clear()
    bench["PARTS"].update({name: (f"part_{name}", "run") for name in parts})
    monkeypatch.setattr(sys, "argv", ["bench"])
    assert bench["main"]() == 1
    said = capsys.readouterr()
    assert "without figures: flux" in said.err
    assert "no ply here" in said.err
    figures = json.loads((tmp_path / "build/bench.json").read_text())
    assert (figures["relay_ratio"], figures["help_ratio"], figures["flux_ratio"]) == (0.5, 2.0, None)
    assert figures["relay_load"] >= 0
