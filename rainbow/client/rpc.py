"""Requests to the registrar and their answers, over whatever broker there is.

Every operation of `rainbow.models.control` may be sent twice without harm, so a request whose answer does not come
is sent again, with the same correlation id, until the time limit. Answers to earlier calls are dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rainbow import codec, topology
from rainbow.backoff import Backoff
from rainbow.brokers.base import Broker, Delivery, Message
from rainbow.client.mailbox import Mailbox, Slot
from rainbow.errors import InvalidInput, PublishFailed, RainbowError, TimedOut, TooLarge, Unroutable

if TYPE_CHECKING:
    from pydantic import BaseModel


def _classes(base: type[RainbowError]) -> Iterator[type[RainbowError]]:
    yield base
    for below in base.__subclasses__():
        yield from _classes(below)


def error_from(code: str | None, text: str | None) -> RainbowError:
    """The error with stable code `code`, as the other side raised it (RainbowError for a code not known here)."""
    found = {cls.code: cls for cls in reversed(list(_classes(RainbowError)))}
    return found.get(code or "", RainbowError)(text or "the registrar gave no reason")


class Rpc:
    """Calls to the registrar through `broker`. May be used from several threads.

    `token` (or what it returns, asked at each call) is put into requests that carry none. `timeout` in seconds is
    for a whole call; after `resend` seconds without an answer the request is sent again. `mailbox` is shared with
    others who wait for answers on the same broker; without one, Rpc has its own.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        token: str | Callable[[], str | None] | None = None,
        timeout: float = 30.0,
        resend: float = 5.0,
        max_bytes: int = 64 << 20,
        mailbox: Mailbox | None = None,
    ) -> None:
        self._broker = broker
        self._token = token
        self._timeout = timeout
        self._resend = resend
        self._max_bytes = max_bytes
        self._mailbox = mailbox or Mailbox(broker)

    def call(self, request: BaseModel | Mapping[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """The result of `request`.

        Raises the error the registrar answered with (by its code); TimedOut without an answer; Unroutable when
        the control queue does not exist; BadCredentials when the broker does not let us in.
        """
        return self._ask(request, self._mailbox.open(), self._timeout if timeout is None else timeout)

    def stream(
        self, request: BaseModel | Mapping[str, Any], timeout: float | None = None
    ) -> Iterator[dict[str, Any] | None]:
        """The result of `request`, then every further message sent to the same address (operation `watch`).

        None is given about once a second while nothing comes, so that the caller can stop or ask anew.
        """
        slot = self._mailbox.open()
        yield self._ask(request, slot, self._timeout if timeout is None else timeout)
        while not self._mailbox.closed:
            delivery = slot.wait(1.0)
            yield (
                None
                if delivery is None
                else codec.decode(delivery.body, delivery.content_type, max_bytes=self._max_bytes)
            )

    def send(self, request: BaseModel | Mapping[str, Any], timeout: float | None = None) -> None:
        """Send `request` without asking for an answer: done when the broker has it. Raises PublishFailed."""
        self.post(request, None, timeout)

    def post(self, request: BaseModel | Mapping[str, Any], slot: Slot | None, timeout: float | None = None) -> None:
        """Send `request`, its answers to go to `slot`: done when the broker has it. Raises PublishFailed."""
        message = self._message(request, slot)
        try:
            self._broker.publish([message]).check(self._timeout if timeout is None else timeout)
        except Unroutable:
            raise Unroutable(
                "the broker has no control queue: run `rainbow broker setup` or start rainbow-scheduler"
            ) from None

    def read(self, delivery: Delivery) -> dict[str, Any]:
        """The result in an answer. Raises the error it holds, and InvalidInput when it cannot be read."""
        from rainbow.models.control import ControlReply
        from rainbow.models.wire import parse

        data = codec.decode(delivery.body, delivery.content_type, max_bytes=self._max_bytes)
        try:
            reply = parse(ControlReply, data)
        except InvalidInput as exc:
            raise InvalidInput(f"the registrar's answer cannot be read: {exc}") from None
        if not reply.ok:
            raise error_from(reply.code, reply.error)
        return reply.result

    def close(self) -> None:
        """Stop listening for answers. The broker stays open. Idempotent."""
        self._mailbox.close()

    # -- inside --------------------------------------------------------------------------------------

    def _message(self, request: BaseModel | Mapping[str, Any], slot: Slot | None) -> Message:
        data = dict(request) if isinstance(request, Mapping) else request.model_dump(exclude_none=True)
        if not data.get("token"):
            token = self._token() if callable(self._token) else self._token
            if token:
                data["token"] = token
        binary = any(isinstance(value, bytes) for value in data.values())  # a folded summary
        body = codec.encode_msgpack(data) if binary else codec.encode_json(data)
        if len(body) > self._max_bytes:
            raise TooLarge(f"the request has {len(body)} bytes: the limit is {self._max_bytes}")
        return Message(
            exchange=topology.CONTROL,
            routing_key=str(data["op"]),
            body=body,
            content_type=codec.MSGPACK if binary else codec.JSON,
            message_id=slot.id if slot else None,
            correlation_id=slot.id if slot else None,
            reply_to=slot.address if slot else None,
        )

    def _ask(self, request: BaseModel | Mapping[str, Any], slot: Slot, timeout: float) -> dict[str, Any]:
        end = time.monotonic() + timeout
        backoff = Backoff(0.1, 2.0)
        failure: RainbowError | None = None
        while (left := end - time.monotonic()) > 0:
            try:
                self.post(request, slot, left)
                failure = None
            except Unroutable:
                raise
            except PublishFailed as exc:  # lost, blocked or refused: it may work in a moment
                failure = exc
            except TimedOut:
                break
            delay = self._resend if failure is None else backoff.next()
            delivery = slot.wait(min(delay, end - time.monotonic()))
            if delivery is not None:
                return self.read(delivery)
        if failure is not None:
            raise failure
        raise TimedOut(
            f"the registrar did not answer within {timeout:g} s: is rainbow-scheduler running and reaching its store?"
        )


__all__ = ["Rpc", "error_from"]
