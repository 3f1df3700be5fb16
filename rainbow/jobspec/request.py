"""The one request model that every jobspec dialect is read into, and that matching works on.

Plain frozen dataclasses: they are made on the scheduler's hot path and compared by value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

Dialect = Literal["V1", "canonical", "nextgen", "nextgen-list", "simple"]

SLOT = "slot"
XOR_SLOT = "xor_slot"


@dataclass(frozen=True, slots=True)
class Count:
    """How many are asked for (RFC 14): `min` is the smallest allowed value, `max` the largest.

    `max` is None when the range is open (``"3+"``). A plain integer has ``min == max``. Count 0 asks for nothing.
    """

    min: int
    max: int | None


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement on a subsystem (nextgen `requires`).

    Some vertex of `subsystem` that is linked to the resource must have a ``metadata[field]`` that the match algorithm
    `algorithm` (entry points `rainbow.match`) accepts.

    `arguments` are that algorithm's: ``{"match": "shm"}``, or ``{"min": "0.5.1", "max": "0.5.5"}``; kept as a sorted
    tuple of pairs so that the requirement can be hashed. What is in `also` the same vertex must meet.
    """

    subsystem: str
    field: str
    algorithm: str
    arguments: tuple[tuple[str, str], ...]
    also: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Want:
    """A resource vertex asked for. `type` is ``slot`` for a slot and ``xor_slot`` for an alternative.

    Nesting multiplies; `children` must all hold at once, on vertices of their own.
    """

    type: str
    count: Count
    children: tuple[Want, ...] = ()
    exclusive: bool | None = None
    unit: str | None = None
    label: str | None = None
    requires: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Constraint:
    """RFC 31. `operator` is one of and, or, not, properties, hostlist, ranks.

    `values` are Constraints for and/or/not; property texts (a leading ``^`` negates); host names or
    hostlist texts as written; or rank idset texts. A constraint that always holds is not stored at all.
    """

    operator: Literal["and", "or", "not", "properties", "hostlist", "ranks"]
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class HostNeed:
    """Something an image needs of the node it runs on (`rainbow.jobspec.compatibility`).

    `attribute` is a compspec name (``mpi.version``), `value` what it must be (``>=4.1,<5``). With `if_known`, a node
    that says nothing of the attribute meets it too.
    """

    attribute: str
    value: str
    if_known: bool = False

    def __str__(self) -> str:
        return f"{self.attribute} {self.value}"


@dataclass(frozen=True, slots=True)
class Request:
    """What matching is asked: all `resources` at once, on an empty cluster, on nodes that meet all of `host`.

    Equal requests (same shape, whatever command, name or environment the job has) compare and hash equal:
    match results are cached by it.
    """

    resources: tuple[Want, ...]
    constraint: Constraint | None = None
    host: tuple[HostNeed, ...] = ()


@lru_cache(maxsize=4096)
def shared(request: Request) -> Request:
    """The same object for equal requests, so that caches can key it by identity."""
    return request


@dataclass(slots=True, unsafe_hash=True)
class Demand:
    """A rough total of what the job takes when it runs, for reservations and scoring (not for matching).

    Not to be changed. (Not frozen: making one would take four times as long, and several are made for each job.)
    """

    nodes: int = 0
    cores: int = 0
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a job, whatever dialect it was written in."""

    command: tuple[str, ...] = ()
    name: str | None = None
    slot: str | None = None
    resources: str | None = None
    count: tuple[tuple[str, Any], ...] = ()
    depends_on: tuple[str, ...] = ()
    group: str | None = None
    local: bool = False
    extra: dict[str, Any] = field(default_factory=dict, hash=False, compare=False)


@dataclass(frozen=True, slots=True)
class Jobspec:
    """A jobspec that was read and found valid.

    `document` is the mapping as it was given (for the executor), without what it waits for: the jobs in `after`, and
    the time `begin` (seconds since 1970). `parameters` is ``attributes.parameter`` (for selection formulas), `duration`
    is in seconds (0 = no limit, None = not said). `preferences` are needs of the image that may go unmet, with their
    weights (for the selection `compatibility`).
    """

    dialect: Dialect
    request: Request
    demand: Demand
    document: dict[str, Any] = field(hash=False, compare=False)
    tasks: tuple[Task, ...] = ()
    name: str | None = None
    duration: float | None = None
    parameters: dict[str, Any] = field(default_factory=dict, hash=False, compare=False)
    preferences: tuple[tuple[HostNeed, float], ...] = ()
    after: tuple[tuple[str, str], ...] = ()
    begin: float | None = None

    @property
    def queue(self) -> str | None:
        """The queue that the job names."""
        attributes = self.document.get("attributes")
        system = attributes.get("system", attributes) if isinstance(attributes, dict) else None
        queue = system.get("queue") if isinstance(system, dict) else None
        return queue if isinstance(queue, str) else None
