"""A whole scheduler side in one test process, with a hand-written submitter and agent: messages in, messages out."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

from rainbow import codec, topology
from rainbow.brokers import ConnectOptions, connect, declare
from rainbow.brokers.base import REPLIES, Broker, Consumer, Delivery, Message
from rainbow.client.rpc import Rpc
from rainbow.security import signing, tokens
from rainbow.security.tokens import KeyRing
from rainbow_workers.service import Service, ServiceOptions
from rainbow_workers.stores import StoreOptions, open_store
from rainbow_workers.stores.base import Store

T = TypeVar("T")


def eventually(look: Callable[[], T | None], timeout: float = 60.0, every: float = 0.02) -> T:
    """What `look` gives once it gives something true; AssertionError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {timeout:g} s (last: {found!r})"
        time.sleep(every)


def gathered(
    take: Callable[[], Iterable[T]], enough: Callable[[list[T]], object] = bool, timeout: float = 60.0
) -> list[T]:
    """All that `take` gave, called until that is enough: anything at all unless told otherwise."""
    found: list[T] = []

    def look() -> object:
        found.extend(take())
        return enough(found)

    eventually(look, timeout)
    return found


def resources(nodes: int = 4, cores: int = 8, gpus: int = 0, host: str = "node") -> dict[str, Any]:
    """An R (RFC 20) of equal nodes."""

    def ids(count: int) -> str:
        return f"0-{count - 1}" if count > 1 else "0"

    children = {"core": ids(cores), **({"gpu": ids(gpus)} if gpus else {})}
    return {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": ids(nodes), "children": children}],
            "nodelist": [f"{host}[{ids(nodes)}]" if nodes > 1 else f"{host}0"],
        },
    }


class Rig:
    """Workers on `broker_url` and `store_url`, and everything that stands around them."""

    def __init__(
        self,
        broker_url: str,
        store_url: str,
        *,
        prefix: str = "rainbow:",
        options: ServiceOptions | None = None,
        ring: KeyRing | None = None,
        start: bool = True,
    ) -> None:
        self.ring = ring or KeyRing.generate()
        self.broker_url = broker_url
        self.options = options or ServiceOptions()
        self._store_options = StoreOptions(store_url, prefix=prefix, keep=self.options.keep)
        self.worker_broker = self.connect("workers")
        self.store: Store = open_store(self._store_options)
        self.service = Service(self.worker_broker, self.store, self.ring, self.options)
        self.broker = self.connect("test")
        declare(self.broker, topology.core(self.options.limits))
        # Of direct reply-to there is one for a connection: the registrar's answers come on the other.
        self.submitter = self.connect("submitter")
        self.token = self.issue("alice")
        self.rpc = Rpc(self.broker, token=self.issue("root", "admin"), timeout=20.0)
        self._replies: Consumer | None = None
        self._kept: dict[str, Delivery] = {}
        self.registrations: dict[str, dict[str, Any]] = {}
        if start:
            self.service.start()

    def restart(self) -> None:
        """Start the workers anew after `service.stop()`, on the same broker and store."""
        self.service = Service(self.worker_broker, self.store, self.ring, self.options)
        self.service.start()

    def connect(self, name: str) -> Broker:
        return connect(ConnectOptions(self.broker_url, name=name, max_message_bytes=64 << 20))

    def issue(
        self,
        sub: str,
        role: tokens.Role = "submit",
        clusters: tuple[str, ...] = ("*",),
        ttl: float = 3600,
        accounts: tuple[str, ...] = (),
    ) -> str:
        return tokens.issue(self.ring, sub=sub, role=role, clusters=clusters, ttl=ttl, accounts=accounts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.service.stop()
        error = self.service.failed()
        self.submitter.close()
        # A broker with thousands of quorum queues is slow, and vhosts are kept for a while.
        self.broker.delete([q.name for q in topology.core().queues])
        self.broker.delete([q for c in self.registrations for q in topology.cluster_queues(c)])
        self.broker.close()
        self.worker_broker.close()
        self.store.close()
        assert error is None, f"a worker ended: {error!r}"

    # -- the submitter ----------------------------------------------------------------------------------------

    def publish(self, body: bytes, **properties: Any) -> None:
        """Any bytes onto the submission exchange, confirmed."""
        self.submitter.publish([Message(topology.SUBMIT, "submit", body, **properties)]).check(20)

    def send(self, **fields: Any) -> str:
        """A submission with a reply address; gives its correlation id."""
        correlation = str(uuid.uuid4())
        body = codec.encode_json({"token": self.token, **fields})
        self.publish(body, reply_to=self.replies.address, correlation_id=correlation)
        return correlation

    def submit(self, **fields: Any) -> dict[str, Any]:
        """Submit and wait for the (first) answer."""
        return self.answer(self.send(**fields))

    def answer(self, correlation: str, timeout: float = 60.0) -> dict[str, Any]:
        delivery = eventually(lambda: self._reply(correlation), timeout)
        return codec.decode(delivery.body)

    @property
    def replies(self) -> Consumer:
        if self._replies is None:
            self._replies = self.submitter.consume(REPLIES, prefetch=1000)
        return self._replies

    def _reply(self, correlation: str) -> Delivery | None:
        if correlation in self._kept:
            return self._kept.pop(correlation)
        for delivery in self.replies.take(100, 0.05):
            self.replies.ack([delivery])
            self._kept[delivery.correlation_id or ""] = delivery
        return self._kept.pop(correlation, None)

    def job(self, job_id: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.rpc.call({"op": "status", "ids": [job_id]})["jobs"][0]
        return found

    def until(self, job_id: str, state: str, timeout: float = 60.0) -> dict[str, Any]:
        """The job's record once it is in `state`."""

        def look() -> dict[str, Any] | None:
            record = self.job(job_id)
            return record if record is not None and record["state"] == state else None

        return eventually(look, timeout)

    def dead_letters(self) -> list[Delivery]:
        """Take all dead letters there are."""
        consumer = self.broker.consume(topology.DEAD_QUEUE, prefetch=1000)
        out: list[Delivery] = []
        while got := consumer.take(1000, 0.5):
            consumer.ack(got)
            out.extend(got)
        consumer.cancel()
        return out

    # -- the cluster ------------------------------------------------------------------------------------------

    def register(self, cluster: str, graph: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        request = {"op": "register", "cluster": cluster, "identity": f"identity-of-{cluster}", **more}
        if "summary" not in more:
            request["graph"] = graph or resources()
        got = self.rpc.call(request)
        self.registrations[cluster] = got
        return got

    def report(self, cluster: str, *, heartbeat: bool = True, **values: Any) -> None:
        registration = self.registrations[cluster]["registration"]
        self.rpc.call(
            {
                "op": "state",
                "report": {
                    "cluster": cluster,
                    "values": values,
                    "heartbeat": heartbeat,
                    "registration": registration,
                },
            }
        )

    def jobs_of(self, cluster: str, prefetch: int = 100) -> Consumer:
        return self.broker.consume(topology.jobs_queue(cluster), prefetch=prefetch)

    def keys(self, cluster: str) -> dict[str, bytes]:
        return {kid: bytes.fromhex(key) for kid, key in self.registrations[cluster]["keys"].items()}

    def open(self, delivery: Delivery) -> dict[str, Any]:
        """A dispatch, its signature checked as an agent does."""
        dispatch = codec.decode(delivery.body, codec.MSGPACK)
        signing.check(self.keys(dispatch["cluster"]), delivery.body, delivery.headers[signing.HEADER])
        return dispatch

    def event(self, cluster: str, job_id: str, attempt: int, state: str, **more: Any) -> None:
        """An agent's event, signed."""
        told = {"id": job_id, "attempt": attempt, "cluster": cluster, "state": state, "at": time.time(), **more}
        self.says(cluster, {"version": 1, "events": [told]}, state)

    def says(self, cluster: str, document: dict[str, Any], state: str = "reported") -> None:
        """A message of an agent, signed."""
        body = codec.encode_json(document)
        headers = {
            signing.HEADER: signing.sign(self.keys(cluster), body),
            "rainbow-cluster": cluster,
            "rainbow-registration": self.registrations[cluster]["registration"],
        }
        message = Message(topology.EVENTS, topology.event_key(cluster, state), body, headers=headers)
        self.broker.publish([message]).check(20)
