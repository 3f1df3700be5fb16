"""Places for files that are too large for messages: plugins of the group `rainbow.staging`.

In comes a file or a folder with a name; out comes the same on another machine. Used by the client and by agents.
"""

from __future__ import annotations

from typing import cast

from rainbow import plugins
from rainbow.errors import InvalidInput, InvalidSettings
from rainbow.models.images import AlgorithmSettings
from rainbow.staging.base import Place


def open_place(name: str, chosen: AlgorithmSettings) -> Place:
    """The place that settings call `name`. Raises InvalidSettings for wrong options, UnknownPlugin."""
    made = plugins.load("rainbow.staging", chosen.name)
    try:
        return cast(Place, made(chosen.options))
    except InvalidInput as exc:
        raise InvalidSettings(f"staging.places.{name}: {exc}") from None


__all__ = ["Place", "open_place"]
