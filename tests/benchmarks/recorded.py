"""The plots of the documents, drawn from recorded figures: those of `make simulate` and `make long-run`.

They are of 28 and 29 November 2026, on a machine with two cores that all programs shared.
"""

from __future__ import annotations

import json
from pathlib import Path

import long_run
import simulate
import simulate_waiting

FIGURES = Path(__file__).with_name("recorded.json")


def main(arguments: list[str]) -> int:
    [folder] = map(Path, arguments)
    figures = json.loads(FIGURES.read_text())
    simulate.draw(figures["simulate"], folder / "scale.svg")
    long_run.draw(figures["long-run"], folder / "memory.svg")
    simulate_waiting.draw(figures["simulate-waiting"], folder / "waiting.svg")
    return 0
