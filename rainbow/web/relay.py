"""Messages of submitters over HTTPS: the other side of `rainbow.brokers.https`.

A caller posts submissions and control requests, and reads the answers to them from a stream. The token in each message
is checked by the workers, as it is for those who publish to the broker themselves.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rainbow import topology, tracing
from rainbow.brokers.base import Delivery, Message
from rainbow.client.mailbox import Mailbox, Slot
from rainbow.errors import Denied, InvalidInput, RainbowError, TooManyRequests
from rainbow.models.wire import Wire, parse
from rainbow.web.answers import coded, event, event_stream, read_json
from rainbow.web.api import bearer
from rainbow.web.gateway import Gateway

log = logging.getLogger(__name__)

#: What a submitter may publish: exchange and routing keys. Everything else is for those with the broker itself.
ALLOWED: dict[str, frozenset[str]] = {
    topology.SUBMIT: frozenset({"submit"}),
    topology.CONTROL: frozenset(
        {"ping", "status", "jobs", "watch", "cancel", "logs", "jobspec", "clusters", "groups", "shares", "queue"}
    ),
}
#: Boxes that may be open, and answers that a box waits for.
BOXES = 5_000
_ANSWERS = 20_000
#: Seconds for which a box outlives its stream, so that a connection that is made again misses nothing.
_OUTLIVES = 60.0
#: Seconds between two comments on a quiet stream.
_EVERY = 15.0
#: Answers that wait to be read; a reader that is further behind loses the oldest ones, and asks again.
_BEHIND = 1_000


class Posted(Wire):
    """A message to publish. `body` is base64; `reply` says that the answer is wanted. `traceparent` is W3C's."""

    exchange: str
    routing_key: Annotated[str, Field(max_length=255)]
    body: str
    content_type: Annotated[str, Field(max_length=255)] = "application/json"
    message_id: Annotated[str, Field(max_length=255)] | None = None
    correlation_id: Annotated[str, Field(max_length=255)] | None = None
    reply: bool = False
    traceparent: Annotated[str, Field(max_length=55)] | None = None


class Post(Wire):
    """Messages, and the box for their answers: a secret name that the caller made up."""

    box: Annotated[str, Field(min_length=32, max_length=128)]
    messages: Annotated[list[Posted], Field(min_length=1, max_length=1_000)]


class Box:
    """Where the answers of one caller arrive."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._arrived: asyncio.Queue[Delivery] = asyncio.Queue()
        self._slots: OrderedDict[str, tuple[Slot, str | None]] = OrderedDict()
        self.used_at = time.monotonic()
        self.readers = 0

    def put(self, delivery: Delivery) -> None:
        """Called in the thread of the mailbox."""
        self._loop.call_soon_threadsafe(self._put, delivery)

    def _put(self, delivery: Delivery) -> None:
        if self._arrived.qsize() >= _BEHIND:
            self._arrived.get_nowait()
        self._arrived.put_nowait(delivery)

    def slot(self, mailbox: Mailbox, correlation_id: str | None) -> Slot:
        """A slot for one answer. Its id is ours: that of another caller cannot be guessed."""
        made = mailbox.open(str(uuid.uuid4()), sink=self.put)
        self._slots[made.id] = (made, correlation_id)
        while len(self._slots) > _ANSWERS:
            self._slots.popitem(last=False)
        return made

    async def next(self, timeout: float) -> dict[str, Any] | None:
        """The next answer, None after `timeout` seconds."""
        try:
            delivery = await asyncio.wait_for(self._arrived.get(), timeout)
        except TimeoutError:
            return None
        _, theirs = self._slots.get(delivery.correlation_id or "", (None, None))
        return {
            "correlation_id": theirs,
            "content_type": delivery.content_type,
            "body": base64.b64encode(delivery.body).decode(),
        }


class Relay:
    """The handlers of ``/v1/messages``."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._mailbox = Mailbox(gateway.broker)
        self._limit = gateway.settings.limits.control_bytes
        self._boxes: dict[tuple[str, str], Box] = {}

    def routes(self) -> list[Route]:
        """Post messages; read the answers."""
        return [
            Route("/v1/messages", coded(self.post), methods=["POST"]),
            Route("/v1/messages", coded(self.answers), methods=["GET"]),
        ]

    async def post(self, request: Request) -> Response:
        token = bearer(request)
        posted = parse(Post, await read_json(request, self._limit))
        box = self._box(token, posted.box)
        outcomes: list[RainbowError | None] = [None] * len(posted.messages)
        ready: list[tuple[int, Message]] = []
        for index, message in enumerate(posted.messages):
            try:
                ready.append((index, self._message(message, box)))
            except RainbowError as exc:
                outcomes[index] = exc
        if ready:
            receipt = self._gateway.broker.publish([message for _, message in ready])
            found = await self._gateway.wait(receipt.wait, self._gateway.timeout)
            for (index, sent), outcome in zip(ready, found, strict=True):
                outcomes[index] = outcome
                if outcome is None and sent.exchange == topology.SUBMIT:
                    log.info("job submitted", extra={"action": "submit", "job": sent.message_id})
        shown = [None if o is None else {"code": o.code, "message": o.message} for o in outcomes]
        return JSONResponse({"outcomes": shown})

    def _message(self, posted: Posted, box: Box) -> Message:
        if posted.routing_key not in ALLOWED.get(posted.exchange, ()):
            raise Denied(f"{posted.routing_key[:40]!r} cannot be published over HTTPS: connect to the broker itself")
        try:
            body = base64.b64decode(posted.body, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidInput("body is no base64") from None
        slot = box.slot(self._mailbox, posted.correlation_id) if posted.reply else None
        trace = tracing.parent_of({tracing.HEADER: posted.traceparent})
        return Message(
            exchange=posted.exchange,
            routing_key=posted.routing_key,
            body=body,
            content_type=posted.content_type,
            message_id=posted.message_id,
            correlation_id=None if slot is None else slot.id,
            reply_to=None if slot is None else slot.address,
            headers=None if trace is None else {tracing.HEADER: trace},
        )

    async def answers(self, request: Request) -> Response:
        token, name = bearer(request), request.query_params.get("box", "")
        if not 32 <= len(name) <= 128:
            raise InvalidInput("box is a secret name of 32 to 128 characters")
        box = self._box(token, name)

        async def events() -> AsyncIterator[str]:
            box.readers += 1
            try:
                yield ": answers\n\n"
                while not await request.is_disconnected():
                    box.used_at = time.monotonic()
                    answer = await box.next(_EVERY)
                    yield ": still here\n\n" if answer is None else event("message", answer)
            finally:
                box.readers -= 1

        return event_stream(events())

    def _box(self, token: str, name: str) -> Box:
        now = time.monotonic()
        found = self._boxes.get((token, name))
        if found is None:
            old = [key for key, box in self._boxes.items() if not box.readers and now - box.used_at > _OUTLIVES]
            for key in old:
                del self._boxes[key]
            if len(self._boxes) >= BOXES:
                raise TooManyRequests("too many callers wait for answers: try again in a minute")
            found = self._boxes[token, name] = Box(asyncio.get_running_loop())
        found.used_at = now
        return found

    def close(self) -> None:
        """Stop listening for answers."""
        self._mailbox.close()
