"""Requests to the registrar and their answers, over whatever broker there is.

Every operation of `rainbow.models.control` may be sent twice without harm, so a request whose answer does not come
is sent again, with the same correlation id, until the time limit. Answers to earlier calls are dropped.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rainbow import codec, topology
from rainbow.backoff import Backoff
from rainbow.brokers.base import REPLIES, Broker, Consumer, Delivery, Message
from rainbow.errors import InvalidInput, PublishFailed, RainbowError, TimedOut, TooLarge, Unroutable

if TYPE_CHECKING:
    from pydantic import BaseModel


_PREFETCH = 1000


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
    for a whole call; after `resend` seconds without an answer the request is sent again.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        token: str | Callable[[], str | None] | None = None,
        timeout: float = 30.0,
        resend: float = 5.0,
        max_bytes: int = 64 << 20,
    ) -> None:
        self._broker = broker
        self._token = token
        self._timeout = timeout
        self._resend = resend
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._waiting: dict[str, queue.SimpleQueue[Delivery]] = {}
        self._consumer: Consumer | None = None
        self._closed = threading.Event()

    def call(self, request: BaseModel | Mapping[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """The result of `request`.

        Raises the error the registrar answered with (by its code); TimedOut without an answer; Unroutable when
        the control queue does not exist; BadCredentials when the broker does not let us in.
        """
        with _Call(self, request) as call:
            return call.reply(self._timeout if timeout is None else timeout)

    def stream(
        self, request: BaseModel | Mapping[str, Any], timeout: float | None = None
    ) -> Iterator[dict[str, Any] | None]:
        """The result of `request`, then every further message sent to the same address (operation `watch`).

        None is given about once a second while nothing comes, so that the caller can stop or ask anew.
        """
        with _Call(self, request) as call:
            yield call.reply(self._timeout if timeout is None else timeout)
            while not self._closed.is_set():
                delivery = call.wait(1.0)
                yield (
                    None
                    if delivery is None
                    else codec.decode(delivery.body, delivery.content_type, max_bytes=self._max_bytes)
                )

    def send(self, request: BaseModel | Mapping[str, Any], timeout: float | None = None) -> None:
        """Send `request` without asking for an answer: done when the broker has it. Raises PublishFailed."""
        message = self._message(request, None, None)
        self._broker.publish([message]).check(self._timeout if timeout is None else timeout)

    def close(self) -> None:
        """Stop listening for answers. The broker stays open. Idempotent."""
        self._closed.set()
        with self._lock:
            consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.cancel()

    # -- inside --------------------------------------------------------------------------------------

    def _message(
        self, request: BaseModel | Mapping[str, Any], correlation_id: str | None, reply_to: str | None
    ) -> Message:
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
            message_id=correlation_id,
            correlation_id=correlation_id,
            reply_to=reply_to,
        )

    def _listen(self) -> Consumer:
        """The consumer of answers; a thread hands them to the calls that wait for them."""
        with self._lock:
            if self._closed.is_set():
                raise RainbowError("the client is closed")
            if self._consumer is None:
                self._consumer = self._broker.consume(REPLIES, prefetch=_PREFETCH)
                threading.Thread(target=self._receive, args=(self._consumer,), name="rpc", daemon=True).start()
            return self._consumer

    def _receive(self, consumer: Consumer) -> None:
        while not self._closed.is_set():
            deliveries = consumer.take(_PREFETCH, 1.0)
            for delivery in deliveries:
                with self._lock:
                    waiting = self._waiting.get(delivery.correlation_id or "")
                if waiting is not None:
                    waiting.put(delivery)
            consumer.ack(deliveries)


class _Call:
    """One request under way."""

    def __init__(self, rpc: Rpc, request: BaseModel | Mapping[str, Any]) -> None:
        self._rpc = rpc
        self._id = str(uuid.uuid4())
        self._answers: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self._message = rpc._message(request, self._id, rpc._listen().address)

    def __enter__(self) -> _Call:
        with self._rpc._lock:
            self._rpc._waiting[self._id] = self._answers
        return self

    def __exit__(self, *_: object) -> None:
        with self._rpc._lock:
            self._rpc._waiting.pop(self._id, None)

    def wait(self, timeout: float) -> Delivery | None:
        try:
            return self._answers.get(timeout=max(0.0, timeout))
        except queue.Empty:
            return None

    def reply(self, timeout: float) -> dict[str, Any]:
        end = time.monotonic() + timeout
        backoff = Backoff(0.1, 2.0)
        failure: RainbowError | None = None
        while (left := end - time.monotonic()) > 0:
            try:
                self._rpc._broker.publish([self._message]).check(left)
                failure = None
            except Unroutable:
                raise Unroutable(
                    "the broker has no control queue: run `rainbow broker setup` or start rainbow-scheduler"
                ) from None
            except PublishFailed as exc:  # lost, blocked or refused: it may work in a moment
                failure = exc
            except TimedOut:
                break
            delay = self._rpc._resend if failure is None else backoff.next()
            delivery = self.wait(min(delay, end - time.monotonic()))
            if delivery is not None:
                return self._result(delivery)
        if failure is not None:
            raise failure
        raise TimedOut(
            f"the registrar did not answer within {timeout:g} s: is rainbow-scheduler running and reaching its store?"
        )

    def _result(self, delivery: Delivery) -> dict[str, Any]:
        from rainbow.models.control import ControlReply
        from rainbow.models.wire import parse

        data = codec.decode(delivery.body, delivery.content_type, max_bytes=self._rpc._max_bytes)
        try:
            reply = parse(ControlReply, data)
        except InvalidInput as exc:
            raise InvalidInput(f"the registrar's answer cannot be read: {exc}") from None
        if not reply.ok:
            raise error_from(reply.code, reply.error)
        return reply.result


__all__ = ["Rpc", "error_from"]
