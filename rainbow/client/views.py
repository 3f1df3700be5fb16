"""What the registrar tells about clusters, read into models. Times are seconds since 1970."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field, SecretStr

from rainbow.models.cluster import StateValue
from rainbow.models.requests import JobPage, position, read_position
from rainbow.models.wire import OpenWire


class ClusterView(OpenWire):
    """A registered cluster. `drained` is the reason why it takes no new jobs, or None.

    `totals` counts its resources by type, `reserved` what is assigned and not yet reported (nodes, cores, gpus).
    `alive` says whether its agent was heard of lately (`heartbeat_at`), `throttled` that jobs fail there at once: it
    gets those that nothing else can run, and one as a probe from time to time. `tree` comes with a cluster asked for by
    name: its folded resources, nested ``{type, size, unit, count, children, more}``.
    """

    name: str
    alive: bool = False
    drained: str | None = None
    throttled: bool = False
    matcher: str = "count"
    description: str | None = None
    registered_at: float = 0.0
    updated_at: float = 0.0
    state: dict[str, StateValue] = Field(default_factory=dict)
    state_at: float | None = None
    heartbeat_at: float | None = None
    totals: dict[str, float] = Field(default_factory=dict)
    subsystems: list[str] = Field(default_factory=list)
    reserved: dict[str, float] = Field(default_factory=dict)
    groups: list[str] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)
    tree: dict[str, Any] | None = None

    @property
    def status(self) -> str:
        """In one word, what is most in the way of new jobs."""
        if self.drained is not None:
            return "drained"
        if not self.alive:
            return "silent"
        if self.state.get("closed"):
            return "closed"
        return "throttled" if self.throttled else "alive"


class Registration(OpenWire):
    """What registering gives: `token` to submit to this cluster, `secret` and `keys` for its agent alone.

    `created` is False when the cluster was registered from here before, and is only changed.
    """

    cluster: str
    registration: str
    token: SecretStr
    secret: SecretStr
    keys: dict[str, SecretStr] = Field(default_factory=dict)
    created: bool = True
    warnings: list[str] = Field(default_factory=list)


class EnrollmentView(OpenWire):
    """An agent that asks to serve `cluster`, without a token yet. Compare `code` with what the agent shows."""

    code: str
    cluster: str
    place: str = ""
    status: str = "pending"
    asked_at: float = 0.0
    until: float = 0.0
    by: str = ""


class Cancelled(OpenWire):
    """The state of a job when it was asked to end: it may still be running for a moment."""

    id: str
    state: str


def merged(pages: Sequence[JobPage], limit: int) -> JobPage:
    """One page of what several tokens see: the newest `limit` jobs, as far as none of the pages has a gap."""
    known = {(at, job.id): job for page in pages for at, job in zip(page.at, page.jobs, strict=True)}
    ends = [read_position(page.next) for page in pages if page.next is not None]
    order = sorted((place for place in known if place >= max(ends, default=place)), reverse=True)
    page = JobPage(jobs=[known[place] for place in order[:limit]], at=[at for at, _ in order[:limit]])
    after = page.position(-1) if len(order) > limit else position(*max(ends)) if ends else None
    return page.model_copy(update={"next": after, "looked": sum(page.looked for page in pages)})


def plain(model: OpenWire) -> dict[str, Any]:
    """The model as JSON can have it. Secrets stay hidden."""
    return model.model_dump(mode="json")
