"""Messages through `rainbow web`, where a firewall leaves nothing but HTTPS: all that a submitter does, and no more.

Submissions and control requests are posted to the web program, which publishes them and reports the broker's confirms.
Answers come back on one stream of server-sent events. Queues cannot be declared, deleted or consumed this way.
"""

from __future__ import annotations

import base64
import http.client
import json
import queue
import secrets
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rainbow import tracing
from rainbow.backoff import Backoff
from rainbow.brokers.base import REPLIES, Delivery, Message, QueueStats, Receipt, Status
from rainbow.errors import (
    BadCredentials,
    Denied,
    InvalidInput,
    InvalidSettings,
    PublishFailed,
    QueueFull,
    RainbowError,
    TooLarge,
    Unroutable,
)
from rainbow.topology import Topology
from rainbow.urls import redact, split

if TYPE_CHECKING:
    from rainbow.brokers import ConnectOptions

#: Seconds without a line on the stream, which has a comment every 15 s, after which it is opened again.
_SILENCE = 45.0
#: Messages in one request.
_CHUNK = 500
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_FAILURES: dict[str, type[RainbowError]] = {
    kind.code: kind for kind in (Denied, InvalidInput, TooLarge, PublishFailed, QueueFull, Unroutable)
}


class HttpsConsumer:
    """The answers to what was published. They are gone once sent, so settling does nothing."""

    def __init__(self, owner: HttpsBroker) -> None:
        self.address = REPLIES
        self._owner = owner
        self._arrived: queue.SimpleQueue[Delivery | None] = queue.SimpleQueue()

    def put(self, delivery: Delivery | None) -> None:
        """Hand over an answer; None wakes up `take`."""
        self._arrived.put(delivery)

    def take(self, limit: int, timeout: float) -> list[Delivery]:
        """See `rainbow.brokers.base.Consumer`."""
        self._owner.check()
        out: list[Delivery] = []
        try:
            while len(out) < limit:
                delivery = self._arrived.get(timeout=0 if out else timeout)
                if delivery is None:
                    break
                out.append(delivery)
        except queue.Empty:
            pass
        return out

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Nothing is kept."""

    reject = requeue = ack

    def cancel(self) -> None:
        """Stop: later answers are dropped."""
        self._owner.drop(self)
        self.put(None)


class HttpsBroker:
    """The broker behind a URL of `rainbow web`."""

    def __init__(self, options: ConnectOptions) -> None:
        parts = split(options.url, "broker")
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise InvalidSettings(f"{redact(options.url)} would send your token unencrypted: use https://")
        self._url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/v1/messages"
        self._options = options
        self._box = secrets.token_urlsafe(32)
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=_context(options)))
        self._work: queue.SimpleQueue[tuple[list[Message], Receipt] | None] = queue.SimpleQueue()
        self._consumers: list[HttpsConsumer] = []
        self._refused: BadCredentials | None = None
        self._status = Status(False)
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=run, name=f"rainbow-https-{run.__name__}", daemon=True)
            for run in (self._publishing, self._listening)
        ]
        for thread in self._threads:
            thread.start()

    # -- the contract ----------------------------------------------------------------------------------------

    def declare(self, topology: Topology) -> None:
        """Not over HTTPS. Raises Denied."""
        raise Denied("queues cannot be declared over HTTPS: connect to the broker itself")

    def delete(self, queues: Sequence[str]) -> None:
        """Not over HTTPS. Raises Denied."""
        raise Denied("queues cannot be deleted over HTTPS: connect to the broker itself")

    def stats(self, queue: str) -> QueueStats:
        """Not over HTTPS. Raises Denied."""
        raise Denied("queues cannot be looked at over HTTPS: connect to the broker itself")

    def publish(self, messages: Sequence[Message]) -> Receipt:
        """See `rainbow.brokers.base.Broker`."""
        self.check()
        receipt = Receipt(len(messages))
        if messages:
            self._work.put((list(messages), receipt))
        return receipt

    def consume(self, queue: str, *, prefetch: int) -> HttpsConsumer:
        """Only answers can be consumed. Raises Denied."""
        if queue != REPLIES:
            raise Denied(f"queue {queue} cannot be consumed over HTTPS: connect to the broker itself")
        made = HttpsConsumer(self)
        self._consumers.append(made)
        return made

    def close(self) -> None:
        """Finish what was published, and stop. Idempotent."""
        if self._closed.is_set():
            return
        self._work.put(None)
        self._threads[0].join(self._options.publish_timeout)
        self._closed.set()
        self._status = Status(False, None, self._status.reconnects, "closed")

    @property
    def status(self) -> Status:
        """How the stream of answers is."""
        return self._status

    # -- for consumers ---------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise BadCredentials if the web program refused the token."""
        if self._refused is not None:
            raise self._refused

    def drop(self, consumer: HttpsConsumer) -> None:
        """Forget a cancelled consumer."""
        if consumer in self._consumers:
            self._consumers.remove(consumer)

    # -- threads ---------------------------------------------------------------------------------------------

    def _publishing(self) -> None:
        while (work := self._work.get()) is not None:
            messages, receipt = work
            for start in range(0, len(messages), _CHUNK):
                part = messages[start : start + _CHUNK]
                for index, outcome in enumerate(self._post(part), start):
                    receipt.settle(index, outcome)

    def _post(self, messages: Sequence[Message]) -> list[RainbowError | None]:
        body = json.dumps({"box": self._box, "messages": [_document(m) for m in messages]}).encode()
        request = self._request(self._url, body, {"Content-Type": "application/json"})
        try:
            with self._opener.open(request, timeout=self._options.publish_timeout) as answer:
                outcomes = json.load(answer)["outcomes"]
        except urllib.error.HTTPError as exc:
            return [_error_of(exc)] * len(messages)
        except (OSError, ValueError, KeyError, http.client.HTTPException) as exc:
            return [PublishFailed(f"{redact(self._options.url)}: {_reason(exc)}")] * len(messages)
        return [None if o is None else _FAILURES.get(o["code"], PublishFailed)(o["message"]) for o in outcomes]

    def _listening(self) -> None:
        pause = Backoff(0.2, 5.0)
        opened = False
        while not self._closed.is_set():
            try:
                with self._opener.open(self._request(f"{self._url}?box={self._box}"), timeout=_SILENCE) as stream:
                    self._status = Status(True, None, self._status.reconnects + opened)
                    opened = True
                    pause.reset()
                    self._receive(stream)
                problem = "the stream of answers ended"
            except urllib.error.HTTPError as exc:
                error = _error_of(exc)
                if isinstance(error, Denied):
                    self._refused = BadCredentials(error.message)
                problem = error.message
            except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException) as exc:
                problem = _reason(exc)
            self._status = Status(False, None, self._status.reconnects, problem)
            if self._refused is not None:
                for consumer in self._consumers:
                    consumer.put(None)
                return
            pause.wait(self._closed)

    def _receive(self, stream: Any) -> None:
        for event in _events(stream):
            if self._closed.is_set():
                return
            delivery = Delivery(
                REPLIES,
                base64.b64decode(event["body"]),
                content_type=event.get("content_type"),
                correlation_id=event.get("correlation_id"),
            )
            for consumer in self._consumers:
                consumer.put(delivery)

    def _request(self, url: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Any:
        request = urllib.request.Request(url, body, headers or {})  # noqa: S310 - https, or http on the loopback
        if self._options.password is not None:
            request.add_header("Authorization", f"Bearer {self._options.password()}")
        return request


def _context(options: ConnectOptions) -> ssl.SSLContext:
    tls = options.tls
    try:
        context = ssl.create_default_context(cafile=tls.ca if tls else None)
        if tls is not None and tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key)
    except OSError as exc:
        raise InvalidSettings(f"the files of broker.tls cannot be used: {exc}") from None
    return context


def _document(message: Message) -> dict[str, Any]:
    trace = tracing.parent_of(message.headers)
    return {
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "body": base64.b64encode(message.body).decode(),
        "content_type": message.content_type,
        "message_id": message.message_id,
        "correlation_id": message.correlation_id,
        "reply": message.reply_to is not None,
        **({tracing.HEADER: trace} if trace else {}),
    }


def _events(stream: Any) -> Iterator[dict[str, Any]]:
    """The events `message` of a stream; comments and other events are skipped."""
    name = data = ""
    for raw in stream:
        line = raw.decode().rstrip("\n")
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            data = line[6:]
        elif not line and name == "message":
            yield json.loads(data)
            name = data = ""


def _error_of(exc: urllib.error.HTTPError) -> RainbowError:
    """The error in an HTTP answer."""
    with exc:
        try:
            error = json.loads(exc.read(65_536))["error"]
            code, text = str(error["code"]), str(error["message"])
        except (ValueError, KeyError, TypeError, OSError):
            code, text = "", f"HTTP status {exc.code}"
    return _FAILURES.get(code, PublishFailed)(text)


def _reason(exc: BaseException) -> str:
    reason = getattr(exc, "reason", None) or exc
    return str(getattr(reason, "strerror", None) or reason)
