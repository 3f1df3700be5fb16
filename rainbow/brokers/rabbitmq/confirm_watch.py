"""Whether confirms come: says once when they stay away, and once when they come again."""

from __future__ import annotations

import logging

from rainbow.brokers.base import Message

log = logging.getLogger(__name__)

#: Seconds without the confirm of the oldest message after which that is said: a leader of a queue may be frozen.
UNCONFIRMED = 10.0


class ConfirmWatch:
    """Looked at now and then by the publisher."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._oldest: Message | None = None
        self._since = 0.0
        self._said = False

    def look(self, oldest: Message | None, waiting: int, now: float) -> None:
        """`oldest`: the message that has waited longest for its confirm, of `waiting`."""
        if oldest is None or oldest is not self._oldest:
            self._oldest, self._since = oldest, now
            if self._said:
                self._said = False
                log.info("%s confirms messages again", self._address, extra={"action": "broker.confirming"})
        elif now - self._since >= UNCONFIRMED and not self._said:
            self._said = True
            log.warning(
                "%s has not confirmed %d message(s) for %.0f s, the oldest for %r from exchange %r: the leader of its "
                "queue may be frozen or cut off",
                self._address,
                waiting,
                now - self._since,
                oldest.routing_key,
                oldest.exchange,
                extra={"action": "broker.unconfirmed", "messages": waiting},
            )
