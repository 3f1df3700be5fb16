"""Selection plugins (entry points `rainbow.selection`): which of the clusters that match gets the job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rainbow import plugins
from rainbow_workers.selection.base import Selection

GROUP = "rainbow.selection"


class Selections:
    """Plugins by name and options, made once and kept: some remember whose turn it is."""

    _MAX = 256

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Selection] = {}

    def get(self, name: str, options: Mapping[str, Any]) -> Selection:
        """Raises UnknownPlugin, or InvalidInput for options the plugin does not take."""
        key = (name, repr(sorted(options.items())) if options else "")
        made = self._made.get(key)
        if made is None:
            made = cast(Selection, plugins.load(GROUP, name)(options))
            if len(self._made) >= self._MAX:
                self._made.clear()
            self._made[key] = made
        return made
