"""The Lua scripts: package data, put together from the parts each one needs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

#: What each script builds on, in order.
_PARTS = {
    "open": ("store",),
    "changes": ("store", "reservations", "changes"),
    "put": ("store",),
    "delete": ("store", "reservations"),
    "report": ("store", "reservations"),
    "group": ("store",),
    "revoke": ("store",),
    "place": ("store", "reservations", "changes", "jobs"),
    "assign": ("store", "reservations", "changes", "jobs"),
    "record": ("store", "reservations", "jobs"),
    "get": ("store", "jobs"),
    "jobspec": ("store", "jobs"),
    "find": ("store", "jobs"),
    "watch": ("store",),
    "await": ("store", "jobs"),
    "unawait": ("store",),
    "cancel": ("store", "jobs"),
}


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the name the server knows it by once it has seen it (EVALSHA)."""

    name: str
    source: str
    sha: str


@cache
def script(name: str) -> Script:
    """A Lua script of this package by name."""
    folder = files(__package__) / "lua"
    parts = [folder / "lib" / f"{part}.lua" for part in _PARTS[name]] + [folder / f"{name}.lua"]
    source = "\n".join(part.read_text(encoding="utf-8") for part in parts)
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())
