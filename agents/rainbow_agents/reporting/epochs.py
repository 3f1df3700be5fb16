"""Reports all jobs again when the store may have lost what it knew of them, and says so to the recorder.

The registrar names the epoch of the store in its replies. A new epoch means that the store may have lost writes: the
journal publishes again what is under way and what ended lately, and after these events a statement that the cluster has
reported for the epoch. Schedulers wait for it before they give away jobs that may be here.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from rainbow import topology
from rainbow.brokers.base import Broker, Message
from rainbow_agents.contact import Contact
from rainbow_agents.journal import Journal
from rainbow_agents.registration.client import RegistrationClient

log = logging.getLogger(__name__)

#: Seconds before the last contact from which on ended jobs are reported again: for as long, a submission that was
#: handed out may come again, or a second copy of its dispatch come back (`queues.dispatch_timeout`).
AGAIN = 1800.0
_CONFIRM = 30.0


class EpochReporter:
    """`heard` takes the registrar's replies; `drained` is called whenever all events of the journal are confirmed."""

    def __init__(
        self,
        cluster: str,
        broker: Broker,
        journal: Journal,
        registrar: RegistrationClient,
        *,
        contact: Contact,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cluster = cluster
        self._broker = broker
        self._journal = journal
        self._registrar = registrar
        self._contact = contact
        self._wake = wake
        self._clock = clock
        self._wanted = 0
        #: When the registrar was asked that named the epoch `_wanted`, and its `alive_after`.
        self._named: tuple[float, object] = (0.0, None)

    def heard(self, reply: Mapping[str, Any], asked_at: float) -> None:
        """A reply of the registrar: ``epoch`` is the store's, ``reported`` the one that is recorded for this cluster.

        Args:
            reply: What the registrar answered to a report.
            asked_at: When it was asked, in the contact's time.

        Raises:
            JournalDown: Nothing was changed; the next reply is taken instead.
        """
        epoch, recorded = reply.get("epoch"), reply.get("reported")
        alive_after = reply.get("alive_after")
        epochs = self._journal.epochs
        if not isinstance(epoch, int) or not epoch:
            self._contact.heard(asked_at, alive_after)  # a registrar of an earlier release
            return
        if epoch == epochs.reported:
            epochs.confirm()
            self._contact.heard(asked_at, alive_after)
            if recorded != epoch:
                self._wanted = epoch
                self._wake()
            return
        since = min(self._clock(), epochs.confirmed_at or self._clock()) - AGAIN
        count = self._journal.outbox.republish(self._clock() - since)
        log.info("%d jobs are reported for epoch %d of the store", count, epoch, extra={"action": "report-again"})
        self._wanted, self._named = epoch, (asked_at, alive_after)
        self._wake()

    def drained(self) -> None:
        """State that this cluster has reported, when that is wanted.

        Raises:
            PublishFailed: The broker did not take the statement; it is sent with the next call.
        """
        epoch = self._wanted
        if not epoch:
            return
        body = json.dumps({"version": 1, "events": [], "epoch": epoch}).encode()
        key = topology.event_key(self._cluster, "reported")
        message = Message(topology.EVENTS, key, body, headers=dict(self._registrar.headers(body)))
        self._broker.publish([message]).check(_CONFIRM)
        self._journal.epochs.report(epoch)
        self._contact.heard(*self._named)
        if self._wanted == epoch:
            self._wanted = 0


__all__ = ["EpochReporter"]
