"""Requests to the registrar (RPC on `rainbow.control`) and its replies; commands to an agent.

Every request names its operation in `op` and carries the caller's token. A request without `reply_to` is
done all the same (a heartbeat wants no reply).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from rainbow.errors import InvalidInput
from rainbow.models.cluster import StateReport
from rainbow.models.job import JobId
from rainbow.models.requests import MAX_OUTPUT, BidAsk, OutputAsk
from rainbow.models.shares import AccountName, ShareTerms
from rainbow.models.wire import ClusterName, OpenWire, Text, Wire, explain

Token = Annotated[str, Field(max_length=16384)]
Group = Annotated[str, Field(pattern=r"^@[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]


class _Request(Wire):
    version: Literal[1] = 1
    token: Token | None = Field(default=None, repr=False)


class Ping(_Request):
    """Is a registrar there, and which versions?"""

    op: Literal["ping"]


class Register(_Request):
    """Register `cluster`, or refresh it. `graph` is JGF or R; `summary` a folded one (msgpack only).

    `identity` marks who registers: the same identity may repeat and change its registration, any other is refused.
    """

    op: Literal["register"]
    cluster: ClusterName
    identity: Annotated[str, Field(min_length=8, max_length=128)]
    secret: Text | None = None
    graph: dict[str, Any] | None = None
    subsystems: dict[str, dict[str, Any]] = Field(default_factory=dict)
    summary: bytes | None = None
    matcher: Literal["count", "fluxion"] = "count"


class Delete(_Request):
    """Remove a cluster with its queues, state, reservations and keys."""

    op: Literal["delete"]
    cluster: ClusterName


class SetSubsystem(_Request):
    op: Literal["subsystem-set"]
    cluster: ClusterName
    name: Text
    graph: dict[str, Any]


class RemoveSubsystem(_Request):
    op: Literal["subsystem-remove"]
    cluster: ClusterName
    name: Text


class Report(_Request):
    """A heartbeat, or state values by hand."""

    op: Literal["state"]
    report: StateReport


class ListClusters(_Request):
    op: Literal["clusters"]
    name: ClusterName | None = None


class Drain(_Request):
    """No new jobs for this cluster."""

    op: Literal["drain"]
    cluster: ClusterName
    reason: Text = "drained"


class Resume(_Request):
    op: Literal["resume"]
    cluster: ClusterName


class SetGroup(_Request):
    """Make `group` exactly these clusters; none removes it."""

    op: Literal["group-set"]
    group: Group
    clusters: Annotated[list[ClusterName], Field(max_length=10_000)]


class ListGroups(_Request):
    op: Literal["groups"]


class GetJobs(_Request):
    """The records of jobs by id, in order; unknown ones are null."""

    op: Literal["status"]
    ids: Annotated[list[JobId], Field(min_length=1, max_length=1000)]


class ListJobs(_Request):
    """The newest jobs, without their history (`rainbow.models.requests.JobPage`): those after the position `before`.

    Elements of an array are only listed with `array`. `text` is in the id, name, user or detail of a job.
    """

    op: Literal["jobs"]
    state: Text | None = None
    cluster: ClusterName | None = None
    user: Text | None = None
    array: JobId | None = None
    text: Text | None = None
    before: Annotated[str, Field(max_length=128)] | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 100


class Watch(_Request):
    """As `status`; and for `ttl` seconds every change of these jobs is sent to `reply_to`."""

    op: Literal["watch"]
    ids: Annotated[list[JobId], Field(min_length=1, max_length=1000)]
    ttl: Annotated[float, Field(gt=0, le=300)] = 60.0


class Cancel(_Request):
    op: Literal["cancel"]
    ids: Annotated[list[JobId], Field(min_length=1, max_length=1000)]
    reason: Text = "cancelled by its user"


class GetOutput(_Request):
    """The output of a job from these bytes on (see `rainbow.models.requests.OutputAsk`), fetched from its cluster."""

    op: Literal["logs"]
    id: JobId
    stdout: Annotated[int, Field(ge=-(1 << 40), le=1 << 40)] = 0
    stderr: Annotated[int, Field(ge=-(1 << 40), le=1 << 40)] = 0
    limit: Annotated[int, Field(gt=0, le=MAX_OUTPUT)] = MAX_OUTPUT


class GetJobspec(_Request):
    """What was submitted as a job: ``{id, jobspec}``, where `jobspec` is null when it is not kept."""

    op: Literal["jobspec"]
    id: JobId


class AgentAnswer(_Request):
    """An agent's answer to a question; `reply` is the question's. It goes to the client that asked."""

    op: Literal["answer"]
    cluster: ClusterName
    reply: Annotated[str, Field(max_length=4096)]
    body: dict[str, Any]


class ListShares(_Request):
    """Weights, shares and usage of accounts and their users."""

    op: Literal["shares"]


class ShowQueue(_Request):
    """Who has jobs that wait and run, with shares and usage. With `id`, what that job waits for."""

    op: Literal["queue"]
    id: JobId | None = None


class SetShare(_Request):
    """Set terms of a user or of an account: what `terms` says. `unset` drops first what was set so before."""

    op: Literal["share-set"]
    user: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    account: AccountName | None = None
    terms: ShareTerms = ShareTerms()
    unset: bool = False


class Revoke(_Request):
    """Revoke one token (`jti`) or all tokens of a subject issued until now (`sub`)."""

    op: Literal["revoke"]
    jti: Text | None = None
    sub: Text | None = None


class SettleDead(_Request):
    """May the caller replay or drop dead letters?

    Asked before it is done at the broker, so that the audit log has who did it.
    """

    op: Literal["dead-replay", "dead-drop"]
    keys: Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=10_000)]


class ListDead(_Request):
    """May the caller look at dead letters?"""

    op: Literal["dead-list"]


class Enroll(_Request):
    """Ask to become the agent of `cluster`, without a token; asking again returns the decision.

    `identity` is the one the agent will register with: a client that knows it gets the token once an admin approved.
    """

    op: Literal["enroll"]
    cluster: ClusterName
    identity: Annotated[str, Field(min_length=16, max_length=128)]
    place: Annotated[str, Field(max_length=256)] = ""


class ListEnrollments(_Request):
    """Who asks to be let in, newest first."""

    op: Literal["enrollments"]


class DecideEnrollment(_Request):
    """Approve or deny the agent that shows `code`."""

    op: Literal["enrollment-decide"]
    code: Annotated[str, Field(max_length=64)]
    approve: bool


AnyRequest = (
    Ping
    | Register
    | Delete
    | SetSubsystem
    | RemoveSubsystem
    | Report
    | ListClusters
    | Drain
    | Resume
    | SetGroup
    | ListGroups
    | GetJobs
    | ListJobs
    | Watch
    | Cancel
    | GetOutput
    | GetJobspec
    | AgentAnswer
    | ListShares
    | SetShare
    | ShowQueue
    | Revoke
    | SettleDead
    | ListDead
    | Enroll
    | ListEnrollments
    | DecideEnrollment
)

_requests: TypeAdapter[AnyRequest] = TypeAdapter(Annotated[AnyRequest, Field(discriminator="op")])


def parse_request(data: Any) -> AnyRequest:
    """The request in `data`. Raises InvalidInput naming the field."""
    try:
        return _requests.validate_python(data)
    except ValidationError as exc:
        raise InvalidInput(explain(exc)) from None


class ControlReply(OpenWire):
    """`ok`, and the result of the operation; or `error` with its stable code and one plain line."""

    version: int = 1
    ok: bool
    code: str | None = None
    error: str | None = None
    result: dict[str, Any] = Field(default_factory=dict)


class AgentCommand(OpenWire):
    """A command from scheduler or registrar to an agent (queue `rainbow.agent.<cluster>`).

    Cancel one attempt of a job (every attempt when 0), report all jobs again (`resync`), bid for jobs (`asks`), or
    send the `output` of a job.
    """

    version: Literal[1] = 1
    command: Literal["cancel", "resync", "bid", "output"]
    id: str | None = None
    attempt: int = 0
    reason: str = ""
    moved: bool = False
    asks: list[BidAsk] = Field(default_factory=list)
    output: OutputAsk | None = None
    reply: str = ""
    until: float = 0.0


__all__ = ["AgentCommand", "AnyRequest", "ControlReply", "parse_request"]
