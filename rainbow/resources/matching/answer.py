"""What matching says about one cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unmet:
    """One need that a cluster does not meet.

    `code` is stable (see `explain`), `detail` is for people, `path` names the place in the request
    (``node[4] > slot[2] > core[48]``).
    """

    code: str
    detail: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer for one cluster.

    `slots` is how many of the whole request fit at once on the empty cluster, each on vertices of its own: exact, or a
    lower bound where siblings compete and time ran out (2**53 - 1 when the request asks for nothing). `unmet` is empty
    when it matches.
    """

    match: bool
    slots: int
    unmet: tuple[Unmet, ...] = ()
