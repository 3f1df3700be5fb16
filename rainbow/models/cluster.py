"""What the registry knows of a cluster, and what its agent reports."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rainbow.models.wire import ClusterName, OpenWire

StateValue = bool | int | float | str
#: As it may be reported.
_Reported = (
    bool
    | Annotated[int, Field(gt=-(10**30), lt=10**30)]
    | Annotated[float, Field(gt=-1e30, lt=1e30, allow_inf_nan=False)]
    | Annotated[str, Field(max_length=1024)]
)
_Name = Annotated[str, Field(max_length=128)]


class ClusterRecord(OpenWire):
    """A registered cluster. `summary` is the folded resource graph (`rainbow.resources.Summary.to_bytes`).

    `registration` names this registration: keys are derived from it, and only its owner may change it.
    `identity` is the secret-free mark of who registered (made by the agent, kept in its state folder), `owner` the
    subject of the token that did it first. `agent_jti` is the token its agent was given last, and `epoch` counts how
    often that agent was revoked: each time the registration gets another name, and with it other keys. From
    `barred_at` on (0: not) it waits for an agent whose token was issued later. At `emptied_at` (0: never) its queue was
    found to be gone: what was assigned before then and not taken is lost, which is still to be said. At `back_at`
    (0: never) its agent registered it again, since the store had lost it, and with it all that had been assigned.
    """

    name: ClusterName
    registration: str
    identity: str
    summary: bytes = Field(default=b"", repr=False)
    digest: str = ""
    matcher: Literal["count", "fluxion"] = "count"
    drained: str | None = None
    registered_at: float = 0.0
    updated_at: float = 0.0
    owner: str = ""
    agent_jti: str = ""
    epoch: int = 0
    barred_at: float = 0.0
    emptied_at: float = 0.0
    back_at: float = 0.0


class ClusterState(OpenWire):
    """The latest report of an agent.

    `values` are flat: `nodes_free`, `cores_free`, `gpus_free`, `jobs_pending`, `jobs_running`, and what the admin adds
    (`cost_per_node_hour`).

    `at` is the time of the latest report of any kind and `heartbeat_at` of the latest heartbeat (0: none yet), both
    on the registrar's clock, in seconds since 1970. `alive` is what held when the state was read: nothing is written
    when an agent falls silent, so a cache of states judges by `heartbeat_at`.
    """

    values: dict[str, StateValue] = Field(default_factory=dict)
    at: float = 0.0
    heartbeat_at: float = 0.0
    alive: bool = False


class StateReport(OpenWire):
    """A heartbeat or an admin's update. `values` are merged into the state.

    `included` lists the (job id, attempt) whose use the free numbers of this report already contain: their
    reservations end. `heartbeat` is False for an update by hand, which says nothing about liveness.
    """

    cluster: ClusterName
    values: Annotated[dict[_Name, _Reported], Field(max_length=200)] = Field(default_factory=dict)
    included: Annotated[list[tuple[_Name, int]], Field(max_length=100_000)] = Field(default_factory=list)
    heartbeat: bool = True
    registration: _Name | None = None


class Enrollment(OpenWire):
    """An agent without any token that asks to serve `cluster`.

    `mark` stands for its identity, as in a registration; `code` follows from both (`rainbow.security.enrollment`).
    `place` is where it says it is. Times: seconds since 1970.
    """

    code: str
    cluster: ClusterName
    mark: str
    place: str = ""
    asked_at: float
    seen_at: float = 0.0
    until: float
    status: Literal["pending", "approved", "denied"] = "pending"
    decided_at: float = 0.0
    by: str = ""


class Revocation(OpenWire):
    """A token (`jti`) or everyone's tokens of a subject (`sub`) issued before `before` (seconds since 1970)."""

    kind: Literal["jti", "sub"]
    value: str
    before: float
    until: float
