"""Job events on their way out: batches into messages, signed, published with confirms."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rainbow import topology
from rainbow.brokers.base import Broker, Message, Receipt
from rainbow.models.job import RANK
from rainbow_agents.journal import Pending
from rainbow_agents.registration.client import RegistrationClient

#: Events, and bytes of their output, in one message at most.
_BATCH = 200
_BATCH_BYTES = 256 << 10


class Publisher:
    """Publishes events of this cluster to `rainbow.events`."""

    def __init__(self, broker: Broker, cluster: str, registrar: RegistrationClient) -> None:
        self._broker = broker
        self._cluster = cluster
        self._registrar = registrar

    def publish(self, pending: Sequence[Pending]) -> Receipt:
        """Send the events; the receipt has one outcome for each message, not for each event: all or nothing counts.

        Events of one state share a message, and the states of a job follow each other in their order.
        """
        ordered = sorted(pending, key=lambda p: (RANK[p.event.state], p.seq))
        messages = []
        for state, group in itertools.groupby(ordered, key=lambda p: p.event.state):
            for chunk in _chunks(list(group)):
                # As the journal wrote them: nothing is encoded twice.
                body = ('{"version":1,"events":[' + ",".join(p.text for p in chunk) + "]}").encode()
                messages.append(
                    Message(
                        exchange=topology.EVENTS,
                        routing_key=topology.event_key(self._cluster, state),
                        body=body,
                        headers=self._registrar.headers(body),
                    )
                )
        return self._broker.publish(messages)


def _chunks(pending: list[Pending]) -> list[list[Pending]]:
    out: list[list[Pending]] = [[]]
    size = 0
    for p in pending:
        weight = len(p.event.output or "") + len(p.event.detail or "")
        if out[-1] and (len(out[-1]) >= _BATCH or size + weight > _BATCH_BYTES):
            out.append([])
            size = 0
        out[-1].append(p)
        size += weight
    return out if out[0] else []
