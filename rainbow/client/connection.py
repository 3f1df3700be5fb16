"""A client's connection: the broker, the mailbox for answers, calls to the registrar, confirmed publishing."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from rainbow import settings as settings_module
from rainbow import tracing
from rainbow.backoff import Backoff
from rainbow.brokers import connect, redact
from rainbow.brokers.base import Broker, Message, Receipt
from rainbow.client.credentials import Credentials, peek
from rainbow.client.mailbox import Mailbox
from rainbow.client.reachability import why_not
from rainbow.client.rpc import Rpc
from rainbow.errors import (
    BrokerBlocked,
    BrokerUnavailable,
    PublishFailed,
    QueueFull,
    RainbowError,
    TimedOut,
    Unroutable,
)
from rainbow.settings import Settings

#: Seconds the first connection may take before the socket is asked what is wrong.
_PATIENCE = 1.0
#: Seconds for which the broker may take nothing (memory or disk alarm) before that is told.
_BLOCKED = 3.0


class Connection:
    """Made once a client. `broker` is one made already, which then stays open; else it is made from the settings."""

    def __init__(
        self, settings: Settings, credentials: Credentials, *, broker: Broker | None, timeout: float, name: str
    ) -> None:
        self.timeout = timeout
        self.credentials = credentials
        self._url = settings.broker.url.get_secret_value()
        self._owned = broker is None
        self.broker = broker or connect(connect_options(settings, credentials, name))
        self.mailbox = Mailbox(self.broker)
        self.rpc = Rpc(self.broker, timeout=timeout, max_bytes=settings.limits.control_bytes, mailbox=self.mailbox)
        self._connect_timeout = settings.broker.connect_timeout
        self._reached = False
        self._process = os.getpid()

    def close(self) -> None:
        if os.getpid() != self._process:
            return  # it is the parent's, and the threads that would end it are there
        self.mailbox.close()
        if self._owned:
            self.broker.close()

    def ready(self) -> None:
        """The first time: see that there is a broker, and say at once what is wrong if there is none.

        Raises BrokerUnavailable, BadCredentials, and RainbowError in a process that was forked from the client's."""
        if os.getpid() != self._process:
            raise RainbowError("this client was made before the process forked: make a Client in each process")
        if self._reached:
            return
        begun = time.monotonic()
        limit = min(self._connect_timeout, self.timeout)
        looked = False
        while not self.broker.status.connected:
            self.broker.publish([])  # raises BadCredentials when we were refused
            waited = time.monotonic() - begun
            if waited > _PATIENCE and not looked:
                looked = True
                why = why_not(self._url)
                if why is not None:
                    raise BrokerUnavailable(
                        f"cannot reach the broker {redact(self._url)}: {why}; "
                        "start it, or set broker.url (RAINBOW_BROKER_URL)"
                    )
            if waited > limit:
                problem = self.broker.status.problem
                raise BrokerUnavailable(
                    f"the broker {redact(self._url)} did not let us in within {limit:g} s"
                    + (f": {problem}" if problem else "; `rainbow doctor` says more")
                )
            time.sleep(0.002)
        self._reached = True

    def call(self, op: str, token: str | None, timeout: float | None = None, **fields: Any) -> dict[str, Any]:
        """The registrar's result of operation `op`; fields that are None are left out. Raises as `Rpc.call`."""
        from rainbow.models.control import parse_request  # costs more to import than all a submission needs

        self.ready()
        given = {key: value for key, value in fields.items() if value is not None}
        if token is not None:
            given["token"] = token
        return self.rpc.call(parse_request({"op": op, **given}), timeout)

    def confirm(self, messages: Sequence[Message], timeout: float) -> None:
        """Publish until the broker has confirmed every message, again where a connection was lost on the way:
        the ids stay the same, so that a job which did arrive runs once."""
        with tracing.Submitting(messages):
            self._confirm(messages, time.monotonic() + timeout)

    def _confirm(self, messages: Sequence[Message], end: float) -> None:
        backoff = Backoff(0.1, 2.0)
        waiting = list(messages)
        while True:
            receipt = self.broker.publish(waiting)
            outcomes = self._outcomes(receipt, end, waiting)
            failed = [(m, o) for m, o in zip(waiting, outcomes, strict=True) if o is not None]
            if not failed:
                return
            waiting = [m for m, _ in failed]
            final = next((o for _, o in failed if type(o) is not PublishFailed), None)
            delay = backoff.next()
            if final is not None or time.monotonic() + delay > end:
                raise _not_submitted(final or failed[0][1], waiting)
            time.sleep(delay)

    def _outcomes(self, receipt: Receipt, end: float, messages: Sequence[Message]) -> list[RainbowError | None]:
        """Of a receipt, by `end`; sooner when the broker says that it takes nothing now."""
        refused_at: float | None = None
        while True:
            now = time.monotonic()
            try:
                return receipt.wait(min(0.5, max(0.1, end - now)))
            except TimedOut:
                blocked = self.broker.status.blocked
                refused_at = None if blocked is None else refused_at or now
                if refused_at is not None and now - refused_at >= _BLOCKED:
                    told = BrokerBlocked(f"the broker takes no messages now ({blocked}): try again after some seconds")
                    raise _not_submitted(told, messages) from None
                if now >= end:
                    raise


def connect_options(settings: Settings, credentials: Credentials, name: str) -> Any:
    over_https = settings.broker.url.get_secret_value().partition("://")[0] in ("https", "http")
    if not settings.broker.oauth and not over_https:
        return settings_module.connect_options(settings, name)
    user = str(peek(credentials.for_broker()).get("sub") or "rainbow")
    return settings_module.connect_options(settings, name, user=user, password=credentials.for_broker)


def _not_submitted(error: RainbowError, messages: Sequence[Message]) -> RainbowError:
    """`error` with what it means for the caller, of the same class."""
    if isinstance(error, Unroutable):
        return Unroutable(
            "the broker has no queue for submissions: run `rainbow broker setup` or start rainbow-scheduler"
        )
    if not isinstance(error, PublishFailed):
        return error
    if isinstance(error, QueueFull):
        error = QueueFull(f"as many submissions wait as the broker keeps: try again after some seconds ({error})")
    which = f"job {messages[0].message_id}" if len(messages) == 1 else f"{len(messages)} jobs"
    return type(error)(f"{error}; {which} may be submitted again with the same id")
