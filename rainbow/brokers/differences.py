"""RabbitMQ's words for "exists with other arguments", as words for a person."""

from __future__ import annotations

import re

WHAT_TO_DO = "drain and delete what differs so that it can be declared again, or change the settings to match"

_INEQUIVALENT = re.compile(
    r"inequivalent arg '(?P<arg>[^']+)' for .*?: received (?P<want>.*?) but current is (?P<have>.*)", re.DOTALL
)
_VALUE = re.compile(r"(?:the value )?'(?P<value>[^']*)'(?: of type '[^']*')?")


def difference(what: str, code: int, text: str) -> str:
    """``queue 'q' has x-message-ttl=1000, wanted 2000`` out of the broker's reason, or its own words."""
    found = _INEQUIVALENT.search(text)
    if code == 406 and found:
        return f"{what} has {found['arg']}={_value(found['have'])}, wanted {_value(found['want'])}"
    return f"{what}: {code} {text}"


def _value(raw: str) -> str:
    hit = _VALUE.search(raw)
    return hit["value"] if hit else raw.strip()
