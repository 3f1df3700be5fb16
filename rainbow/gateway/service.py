"""rainbow v1's calls, made today's: each with the token or secret in the request. One that has none is refused."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

from rainbow import topology
from rainbow.brokers import connect
from rainbow.brokers.base import Broker
from rainbow.client import Client
from rainbow.client import waiting as queue_view
from rainbow.client.connection import connect_options
from rainbow.client.credentials import Credentials
from rainbow.client.submission import JobFields
from rainbow.errors import Conflict, Denied, InvalidInput, NotFound, RainbowError
from rainbow.gateway import wire
from rainbow.gateway.secrets import ClusterSecret
from rainbow.models.job import Answer
from rainbow.settings import ClusterSettings, ClusterToken, Settings

_TIMEOUT = 30.0
#: Answers that mean that the job was taken.
_TAKEN = ("assigned", "held", "satisfied", "duplicate")


def number_of(job_id: str, attempt: int) -> int:
    """v1's job ids are 31 bits: those of a hash, so that nothing has to be kept between looking and accepting."""
    digest = blake2b(f"{job_id}/{attempt}".encode(), digest_size=4).digest()
    return (int.from_bytes(digest, "big") & 0x7FFFFFFF) or 1


class Service:
    """Calls of v1 by name (`wire.METHODS`), each from a request to a response. Thread-safe.

    The settings' own token, if there is one, answers `Satisfy` alone: v1's clients ask that without a token.
    """

    def __init__(self, settings: Settings, *, broker: Broker | None = None, timeout: float = _TIMEOUT) -> None:
        self._owned = broker is None
        self._settings = settings
        self._own = Credentials.from_settings(settings)
        self._broker = broker or connect(connect_options(settings, self._own, "rainbow-gateway"))
        self._timeout = timeout
        # Calls never act with what the gateway itself holds.
        self._bare = settings.model_copy(
            update={"token": None, "token_file": None, "clusters": [], "cluster": ClusterSettings()}
        )
        self._queues: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Disconnect. Idempotent."""
        if self._owned:
            self._broker.close()

    def _client(self, token: str | None = None, clusters: Mapping[str, str] | None = None) -> Client:
        chosen = self._bare
        if clusters:
            tokens = [ClusterToken.model_validate({"name": n, "token": t}) for n, t in clusters.items()]
            chosen = chosen.model_copy(update={"clusters": tokens})
        return Client(settings=chosen, token=token, broker=self._broker, timeout=self._timeout)

    # -- clusters ---------------------------------------------------------------------------------------------

    def register(self, request: Any) -> dict[str, Any]:
        """A cluster by its graph. The secret is a token of role register, or the scheduler's where that is allowed.

        Raises:
            Conflict: the name is taken, also for the cluster that took it: v1 has nothing to tell it by.
        """
        if not request.secret:
            raise Denied("no secret: registering needs one")
        a_token = request.secret.count(".") == 2
        with self._client(request.secret if a_token else None) as client:
            made = client.register(
                request.name,
                identity=f"rainbow v1 {uuid.uuid4()}",
                graph=_document(request.nodes, "nodes"),
                secret=None if a_token else request.secret,
            )
        token, secret = made.token.get_secret_value(), ClusterSecret.of(made).text()
        return {"status": wire.REGISTER_SUCCESS, "token": token, "secret": secret, "request_id": made.registration}

    def register_subsystem(self, request: Any) -> dict[str, Any]:
        """A subsystem's graph, with the cluster's secret."""
        secret = ClusterSecret.read(request.secret, request.name)
        if not request.subsystem:
            raise InvalidInput("no subsystem: give its name")
        with self._client(secret.token) as client:
            client.set_subsystem(request.name, request.subsystem, _document(request.nodes, "nodes"))
        return {"status": wire.REGISTER_SUCCESS}

    def update_state(self, request: Any) -> dict[str, Any]:
        """Values of a cluster, with its secret."""
        secret = ClusterSecret.read(request.secret, request.cluster)
        with self._client(secret.token) as client:
            client.set_state(request.cluster, _document(request.payload, "payload"))
        return {"status": wire.STATE_SUCCESS}

    # -- jobs -------------------------------------------------------------------------------------------------

    def satisfy(self, request: Any) -> dict[str, Any]:
        """Which clusters could run a jobspec, of those that the gateway's own token covers.

        Raises:
            Denied: the gateway has no token.
        """
        if not (self._own.only or self._own.own):
            raise Denied("this gateway has no token of its own, which asking without one would need")
        fields: JobFields = {"jobspec": request.payload}
        if request.matcher:
            fields["match"] = request.matcher
        with Client(settings=self._settings, broker=self._broker, timeout=self._timeout) as client:
            answer = client.satisfy(**fields)
        return {
            "status": wire.SATISFY_SUCCESS,
            "clusters": answer.clusters,
            "total_clusters": answer.total_clusters,
            "total_matches": answer.total_matches,
            "total_mismatches": answer.total_mismatches,
        }

    def submit_job(self, request: Any) -> dict[str, Any]:
        """A job for the clusters whose tokens are in the request."""
        clusters = {row.name: row.token for row in request.clusters if row.name and row.token}
        if not clusters:
            raise Denied("no clusters with their tokens")
        fields: JobFields = {
            "id": str(uuid.uuid4()),
            "jobspec": request.jobspec,
            "clusters": list(clusters),
            "satisfy_only": request.satisfy_only,
        }
        if request.name:
            fields["name"] = request.name
        if request.select_algorithm:
            fields["selection"] = {"name": request.select_algorithm, "options": dict(request.select_options)}
        with self._client(clusters=clusters) as client:
            answer = client.submit(**fields).wait_answer(self._timeout)
        return _submitted(answer)

    def receive_jobs(self, request: Any) -> dict[str, Any]:
        """The oldest jobs that wait for a cluster. They stay where they are."""
        secret = self._cluster_side(request)
        with self._queue(request.cluster) as consumed:
            found = consumed(request.maxJobs, secret)
            jobs: dict[int, str] = {}
            for job in found.jobs:
                dispatch = job.dispatch
                number = number_of(dispatch.id, dispatch.attempt)
                shown = {"id": number, "cluster": dispatch.cluster, "name": dispatch.name or "", "user": dispatch.user}
                jobs.setdefault(number, json.dumps({**shown, "jobspec": json.dumps(dispatch.jobspec)}))
        return {"status": wire.JOBS_SUCCESS if jobs else wire.JOBS_NONE, "jobs": jobs}

    def accept_jobs(self, request: Any) -> dict[str, Any]:
        """Take jobs out of the queue, and tell that they are accepted: they are the caller's to run.

        Partial when not all of them wait there any more.
        """
        secret = self._cluster_side(request)
        wanted = set(request.jobids)
        with self._queue(request.cluster) as consumed:
            found = consumed(0, secret)
            by_number: dict[int, list[Any]] = {}
            for job in found.jobs:
                by_number.setdefault(number_of(job.dispatch.id, job.dispatch.attempt), []).append(job)
            # Two with one number are as good as none: which was meant cannot be known.
            chosen = [by_number[n][0] for n in sorted(wanted) if len(by_number.get(n, ())) == 1]
            if chosen:
                queue_view.accept(
                    self._broker, found.consumer, chosen, secret.keys, request.cluster, secret.registration
                )
        return {"status": wire.ACCEPT_SUCCESS if len(chosen) == len(wanted) else wire.ACCEPT_PARTIAL}

    def _cluster_side(self, request: Any) -> ClusterSecret:
        """The secret in a request of a cluster's side, with a token that the registrar says is good."""
        secret = ClusterSecret.read(request.secret, request.cluster)
        with self._client(secret.token) as client:
            try:
                client.cluster(request.cluster)
            except NotFound:
                raise Denied(f"the secret of cluster {request.cluster} is not good any more") from None
        return secret

    def _queue(self, cluster: str) -> _Queue:
        """One look at a time at each queue: two at once would each see a part."""
        with self._lock:
            lock = self._queues.setdefault(cluster, threading.Lock())
        return _Queue(self._broker, cluster, lock)


class _Found:
    """Good jobs of a queue, and the consumer that holds them."""

    def __init__(self, consumer: Any, jobs: list[Any]) -> None:
        self.consumer, self.jobs = consumer, jobs


class _Queue:
    """A look at a cluster's queue; what was not accepted goes back at the end."""

    def __init__(self, broker: Broker, cluster: str, lock: threading.Lock) -> None:
        self._broker, self._cluster, self._lock = broker, cluster, lock
        self._consumer: Any = None

    def __enter__(self) -> Callable[[int, ClusterSecret], _Found]:
        self._lock.acquire()
        return self._look

    def __exit__(self, *_: object) -> None:
        try:
            if self._consumer is not None:
                self._consumer.cancel()
        finally:
            self._lock.release()

    def _look(self, most: int, secret: ClusterSecret) -> _Found:
        queue = topology.jobs_queue(self._cluster)
        wanted = min(max(0, most) or queue_view.MOST, queue_view.MOST, self._broker.stats(queue).messages)
        self._consumer = self._broker.consume(queue, prefetch=max(1, wanted))
        waiting = queue_view.listed(self._broker, self._consumer, wanted, secret.keys, self._cluster)
        return _Found(self._consumer, [job for job in waiting if job.problem is None])


def _submitted(answer: Answer) -> dict[str, Any]:
    status = {"denied": wire.SUBMIT_DENIED}.get(answer.status, wire.SUBMIT_ERROR)
    return {
        "status": wire.SUBMIT_SUCCESS if answer.status in _TAKEN else status,
        "request_id": answer.id,
        "jobid": number_of(answer.id, 0),
        "cluster": answer.cluster or "",
        "clusters": answer.clusters,
        "error": answer.error or "",
    }


def _document(text: str, what: str) -> dict[str, Any]:
    """A JSON object; v1's client writes the state as JSON within JSON. Raises InvalidInput."""
    try:
        document = json.loads(text)
        document = json.loads(document) if isinstance(document, str) else document
    except (ValueError, RecursionError):
        raise InvalidInput(f"{what} is not JSON") from None
    if not isinstance(document, dict):
        raise InvalidInput(f"{what} is no JSON object")
    return document


#: What a call answers when it fails, by its name: denied, taken already, anything else.
FAILED: Mapping[str, tuple[int, int, int]] = {
    "Register": (wire.REGISTER_DENIED, wire.REGISTER_EXISTS, wire.REGISTER_ERROR),
    "RegisterSubsystem": (wire.REGISTER_DENIED, wire.REGISTER_ERROR, wire.REGISTER_ERROR),
    "UpdateState": (wire.STATE_ERROR, wire.STATE_ERROR, wire.STATE_ERROR),
    "SubmitJob": (wire.SUBMIT_DENIED, wire.SUBMIT_ERROR, wire.SUBMIT_ERROR),
    "ReceiveJobs": (wire.JOBS_DENIED, wire.JOBS_ERROR, wire.JOBS_ERROR),
    "AcceptJobs": (wire.ACCEPT_ERROR, wire.ACCEPT_ERROR, wire.ACCEPT_ERROR),
    "Satisfy": (wire.SATISFY_ERROR, wire.SATISFY_ERROR, wire.SATISFY_ERROR),
}


def failed(method: str, error: RainbowError) -> int:
    """The status of an answer to a call that failed."""
    denied, exists, other = FAILED[method]
    return denied if isinstance(error, Denied) else exists if isinstance(error, Conflict) else other
