"""What a client may ask of clusters, groups, tokens and enrollments: most of it is an administrator's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from rainbow.client.connection import Connection
from rainbow.client.credentials import Credentials
from rainbow.client.views import ClusterView, EnrollmentView, Registration
from rainbow.errors import Denied, NotFound
from rainbow.models.cluster import StateValue
from rainbow.models.wire import parse


class Clusters:
    """The part of `Client` that is about clusters. Raises as all of it does."""

    _connection: Connection
    _credentials: Credentials

    def clusters(self) -> list[ClusterView]:
        """All registered clusters one may see, by name."""
        return self._clusters(None)

    def cluster(self, name: str) -> ClusterView:
        """One cluster. Raises NotFound."""
        found = self._clusters(name)
        if not found:
            raise NotFound(f"no cluster {name!r} is registered, or your token does not cover it")
        return found[0]

    def _clusters(self, name: str | None) -> list[ClusterView]:
        found: dict[str, ClusterView] = {}

        def ask(token: str, _: list[str]) -> None:
            try:
                listed = self._connection.call("clusters", token, name=name)["clusters"]
            except NotFound:  # another token may cover it
                return
            found.update((item["name"], parse(ClusterView, item)) for item in listed)

        with_each(self._credentials.for_clusters(), (name,) if name else (), found, ask)
        return [found[key] for key in sorted(found)]

    def register(
        self,
        cluster: str,
        *,
        identity: str,
        summary: bytes | None = None,
        graph: Mapping[str, Any] | None = None,
        subsystems: Mapping[str, Mapping[str, Any]] | None = None,
        matcher: str = "count",
        secret: str | None = None,
    ) -> Registration:
        """Register a cluster, or change it: with its folded `summary` (`rainbow.resources.Summary.to_bytes`), or a
        resource graph as it is (JGF or R).

        `identity` marks the place that registers: only the same one may repeat and change it; any other gets
        Conflict. `secret` is the first rainbow's registration secret, where the scheduler allows it.
        """
        token = None if secret and not self._credentials.only else self._credentials.for_cluster()
        result = self._connection.call(
            "register",
            token,
            cluster=cluster,
            identity=identity,
            summary=summary,
            graph=dict(graph) if graph is not None else None,
            subsystems={key: dict(value) for key, value in (subsystems or {}).items()},
            matcher=matcher,
            secret=secret,
        )
        return parse(Registration, result)

    def delete(self, cluster: str) -> None:
        """Forget a cluster, its queues and keys. Jobs waiting in its queue go back to the scheduler."""
        self._administer("delete", cluster)

    def set_subsystem(self, cluster: str, name: str, graph: Mapping[str, Any]) -> list[str]:
        """Add or replace a subsystem (JGF); gives the names of all."""
        return list(self._administer("subsystem-set", cluster, name=name, graph=dict(graph))["subsystems"])

    def remove_subsystem(self, cluster: str, name: str) -> list[str]:
        """Remove a subsystem; gives the names of those left. Raises NotFound."""
        return list(self._administer("subsystem-remove", cluster, name=name)["subsystems"])

    def set_state(self, cluster: str, values: Mapping[str, StateValue]) -> dict[str, StateValue]:
        """Merge values into the cluster's state; gives what was set."""
        report = {"cluster": cluster, "values": dict(values), "heartbeat": False}
        token = self._credentials.for_cluster(cluster)
        return dict(self._connection.call("state", token, report=report)["values"])

    def drain(self, cluster: str, reason: str = "drained") -> None:
        """No new jobs for this cluster, until `resume`."""
        self._administer("drain", cluster, reason=reason)

    def resume(self, cluster: str) -> None:
        self._administer("resume", cluster)

    def groups(self) -> dict[str, list[str]]:
        """The clusters of each group."""
        return dict(self._connection.call("groups", self._credentials.for_cluster())["groups"])

    def set_group(self, group: str, clusters: Sequence[str]) -> dict[str, list[str]]:
        """Make `group` (``@name``) exactly these clusters; none removes it. Gives all groups."""
        token = self._credentials.for_cluster()
        return dict(self._connection.call("group-set", token, group=group, clusters=list(clusters))["groups"])

    def shares(self) -> dict[str, Any]:
        """``{half_life, shares: [{account, user, weight, share, usage, max_running, max_waiting, max_rate, set_by}]}``,
        with `user` null in the row of an account. Without an administrator's token, one's own rows."""
        return self._connection.call("shares", self._credentials.for_cluster())

    def queue(self, job_id: str | None = None) -> dict[str, Any]:
        """``{users: [{account, user, weight, share, usage, waiting, running}], totals: {waiting, running}}``: users
        with jobs, or that had some lately; without an administrator's token, one's own rows. With the id of a job also
        ``job``: what it waits for, None if it does not wait. Raises NotFound."""
        return self._connection.call("queue", self._credentials.for_cluster(), None, id=job_id)

    def set_share(
        self, name: str, *, account: bool = False, terms: Mapping[str, float | None] | None = None, unset: bool = False
    ) -> dict[str, Any]:
        """Set `weight`, `max_running`, `max_waiting` or `max_rate` of a user or an account; `unset` drops what was set
        before. Gives what holds. Raises NotFound when there is nothing to drop."""
        fields = {"account" if account else "user": name, "terms": dict(terms or {}), "unset": unset}
        return self._connection.call("share-set", self._credentials.for_cluster(), None, **fields)

    def revoke(self, *, jti: str | None = None, sub: str | None = None) -> dict[str, Any]:
        """Revoke one token, or all tokens of a subject issued until now."""
        return dict(self._connection.call("revoke", self._credentials.for_cluster(), jti=jti, sub=sub)["revoked"])

    def enrollments(self) -> list[EnrollmentView]:
        """The agents that ask to be let in, newest first. For an administrator."""
        found = self._connection.call("enrollments", self._credentials.for_cluster())["enrollments"]
        return [parse(EnrollmentView, item) for item in found]

    def decide_enrollment(self, code: str, *, approve: bool) -> EnrollmentView:
        """Let the agent in that shows `code`, or not. Raises NotFound."""
        token = self._credentials.for_cluster()
        return parse(EnrollmentView, self._connection.call("enrollment-decide", token, code=code, approve=approve))

    def note_dead(self, what: Literal["list", "replay", "drop"], keys: Sequence[str] = ()) -> None:
        """Ask the registrar whether one may look at dead letters, replay or drop them, and have it written down."""
        fields: dict[str, Any] = {"keys": list(keys)} if keys else {}
        self._connection.call(f"dead-{what}", self._credentials.for_cluster(), **fields)

    def _administer(self, op: str, cluster: str, **fields: Any) -> dict[str, Any]:
        return self._connection.call(op, self._credentials.for_cluster(cluster), cluster=cluster, **fields)


def with_each(
    tokens: Sequence[str],
    names: Sequence[str],
    found: Mapping[str, Any],
    ask: Callable[[str, list[str]], None],
) -> None:
    """Ask with one token after the other until all `names` are found (with all of them if there are no names).

    A token that is refused does not spoil the others; if all are, the first refusal is raised.
    """
    refused: Denied | None = None
    answered = False
    for token in tokens:
        missing = [name for name in names if name not in found]
        if names and not missing:
            return
        try:
            ask(token, missing)
            answered = True
        except Denied as exc:
            refused = refused or exc
    if refused is not None and not answered:
        raise refused
