"""A registered cluster that lies: well-signed events about jobs it was never given, and those of others once more.

Nothing that it says may change a job. It is given none: it has neither nodes nor cores.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import deque
from dataclasses import replace
from typing import Any

from rainbow import codec, topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Broker, Message
from rainbow.client.rpc import Rpc
from rainbow.errors import RainbowError
from rainbow.models.job import REPORTED
from rainbow.security import signing

NAME = "liar"
CLUSTER = "rainbow-cluster"
_QUEUE = "chaos.liar"
#: Seconds between two lies, and between two registrations: the store may have forgotten it.
_EVERY, _ANEW = 0.1, 5.0

_GRAPH = {
    "graph": {
        "nodes": [
            {"id": "0", "metadata": {"type": "cluster", "name": "liar0", "paths": {"containment": "/liar0"}}},
            {"id": "1", "metadata": {"type": "ssd", "name": "ssd0", "paths": {"containment": "/liar0/ssd0"}}},
        ],
        "edges": [{"source": "0", "target": "1", "metadata": {"subsystem": "containment"}}],
    }
}


class Liar:
    """Speaks until it is stopped. `lies` counts what the broker took."""

    def __init__(self, broker_url: str, token: str, seed: int) -> None:
        self._url = broker_url
        self._token = token
        self._rng = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._heard: deque[Message] = deque(maxlen=200)
        self._seen: deque[dict[str, Any]] = deque(maxlen=200)
        self._registration: dict[str, Any] = {}
        self.lies = 0
        self.problems: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        if not self.lies:
            self.problems.append("the liar said nothing")

    def _run(self) -> None:
        broker = connect(ConnectOptions(self._url, name=NAME))
        try:
            queue = topology.Queue(_QUEUE, bindings=((topology.EVENTS, "#"),))
            broker.declare(topology.Topology(queues=(queue,)))
            consumer = broker.consume(_QUEUE, prefetch=100)
            rpc = Rpc(broker, token=lambda: self._token)
            anew = 0.0
            while not self._stop.wait(_EVERY):
                try:
                    if time.monotonic() >= anew:
                        self._register(rpc)
                        anew = time.monotonic() + _ANEW
                    got = consumer.take(100, 0.0)
                    for delivery in got:
                        self._listen(delivery)
                    consumer.ack(got)
                    self._lie(broker)
                except RainbowError:
                    anew = 0.0  # faults are not its business
        except Exception as exc:
            self.problems.append(f"the liar ended: {exc!r}")
        finally:
            broker.close()

    def _register(self, rpc: Rpc) -> None:
        request = {"op": "register", "cluster": NAME, "identity": f"identity-of-{NAME}"}
        self._registration = rpc.call({**request, "graph": _GRAPH}, 5.0)

    def _listen(self, delivery: Any) -> None:
        if delivery.headers.get(CLUSTER) in (None, NAME):
            return
        message = Message(topology.EVENTS, delivery.routing_key, delivery.body, headers=dict(delivery.headers))
        self._heard.append(replace(message, content_type=delivery.content_type))
        self._seen.extend(codec.decode(delivery.body, delivery.content_type).get("events", []))

    def _lie(self, broker: Broker) -> None:
        if not self._registration or not self._seen:
            return
        kind = self._rng.random()
        message = self._rng.choice(self._heard) if kind < 0.2 else self._invented(known=kind < 0.9)
        broker.publish([message]).check(5.0)
        self.lies += 1

    def _invented(self, *, known: bool) -> Message:
        """An event about a job of another cluster, or about one that is nobody's."""
        about = self._rng.choice(self._seen)
        state = self._rng.choice(sorted(REPORTED))
        event = {
            "id": about["id"] if known else str(uuid.UUID(int=self._rng.getrandbits(128), version=4)),
            "attempt": self._rng.choice((about["attempt"], about["attempt"] + 1, 100_000)),
            "cluster": NAME,
            "state": state,
            "at": time.time(),
            "returncode": 0,
            **({"grant": about["grant"]} if about.get("grant") and self._rng.random() < 0.5 else {}),
        }
        body = codec.encode_json({"version": 1, "events": [event]})
        keys = {kid: bytes.fromhex(key) for kid, key in self._registration["keys"].items()}
        headers = {
            signing.HEADER: signing.sign(keys, body),
            CLUSTER: NAME,
            "rainbow-registration": self._registration["registration"],
        }
        return Message(topology.EVENTS, topology.event_key(NAME, state), body, headers=headers)
