"""Options of an executor, as the settings give them: checked by name and kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from rainbow.errors import InvalidSettings

T = TypeVar("T")


def read_options(name: str, given: Mapping[str, Any], **defaults: Any) -> dict[str, Any]:
    """`given` over `defaults`, whose types they must have (None takes any). Raises InvalidSettings naming it."""
    unknown = sorted(set(given) - set(defaults))
    if unknown:
        raise InvalidSettings(
            f"executor {name!r} has no option {unknown[0]!r}: it takes {', '.join(sorted(defaults)) or 'none'}"
        )
    out = dict(defaults)
    for key, value in given.items():
        default = defaults[key]
        kind = float if isinstance(default, float) else type(default)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if default is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise InvalidSettings(f"option {key!r} of executor {name!r} must be a {kind.__name__}, not {value!r}")
        if kind in (int, float) and value < 0 and not (isinstance(default, int) and default < 0):
            raise InvalidSettings(f"option {key!r} of executor {name!r} must not be negative")
        out[key] = value
    return out
