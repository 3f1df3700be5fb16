"""A queue or exchange that exists with other arguments than wanted: which, and whether it can be worked with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rainbow.errors import TopologyMismatch

#: What a person can do about it, by hand.
WHAT_TO_DO = "drain and delete what differs so that it can be declared again, or change the settings to match"
#: What moves the messages as well.
MIGRATE = "`rainbow broker migrate` changes it, or change the settings to match"

#: Limits of a queue that may differ from the settings: the queue works, with its own. What a full queue does and where
#: rejected messages go may not: jobs would be dropped.
LIMITS = frozenset({"x-message-ttl", "x-max-length", "x-delivery-limit"})

_INEQUIVALENT = re.compile(
    r"inequivalent arg '(?P<arg>[^']+)' for .*?: received (?P<want>.*?) but current is (?P<have>.*)", re.DOTALL
)
_VALUE = re.compile(r"(?:the value )?'(?P<value>[^']*)'(?: of type '[^']*')?")


@dataclass(frozen=True, slots=True)
class Difference:
    """An argument of `what` (``queue 'q'``): its value there and the one wanted, None where there is none."""

    what: str
    argument: str
    have: str | None
    want: str | None

    @property
    def tolerable(self) -> bool:
        return self.argument in LIMITS and (self.have is None or self.have.isdigit())

    def __str__(self) -> str:
        return f"{self.what} has {self.argument}={self.have or 'none'}, wanted {self.want or 'none'}"


def parse(what: str, code: int, text: str) -> Difference | None:
    """The difference in the broker's reason; None when it is about something else."""
    found = _INEQUIVALENT.search(text)
    if code != 406 or not found:
        return None
    return Difference(what, found["arg"], _value(found["have"]), _value(found["want"]))


def difference(what: str, code: int, text: str) -> str:
    """``queue 'q' has x-message-ttl=1000, wanted 2000`` out of the broker's reason, or its own words."""
    found = parse(what, code, text)
    return f"{what}: {code} {text}" if found is None else str(found)


def mismatch(found: Sequence[Difference | str]) -> TopologyMismatch:
    """The error for differences, or for the broker's own words where it told no difference."""
    tolerable = all(isinstance(one, Difference) and one.tolerable for one in found)
    advice = MIGRATE if all(isinstance(one, Difference) for one in found) else WHAT_TO_DO
    return TopologyMismatch(f"{'; '.join(map(str, found))}: {advice}", tolerable=tolerable)


def _value(raw: str) -> str | None:
    hit = _VALUE.search(raw)
    return hit["value"] if hit else None if raw.strip() == "none" else raw.strip()
