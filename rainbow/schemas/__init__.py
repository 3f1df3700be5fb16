"""JSON Schemas (2020-12) of the messages, for other languages and for editors.

One file a message: ``submission``, ``answer``, ``dispatch``, ``event``, ``record``. They are written by
``docs/generate.py`` from the models.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

NAMES = ("submission", "answer", "dispatch", "event", "record")


def load(name: str) -> dict[str, Any]:
    """Return the schema of a message, one of `NAMES`."""
    loaded: dict[str, Any] = json.loads((files(__name__) / f"{name}.json").read_text())
    return loaded
