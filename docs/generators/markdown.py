"""What the generated pages share."""

from __future__ import annotations

from pathlib import Path

#: The project.
ROOT = Path(__file__).parents[2]


def cell(text: str) -> str:
    """`text` in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
