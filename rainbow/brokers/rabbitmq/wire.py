"""Messages as AMQP 0-9-1 frames, and a pika connection that sends many of them in one go.

pika makes three objects and three socket writes of every publish; here a message is encoded once, in the thread
that publishes it, and the frames of a whole batch leave in one write. Frame and property layout:
www.rabbitmq.com/resources/specs/amqp0-9-1.pdf, 2.3.5 and 4.2.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pika
from pika import data as pika_data
from pika import exceptions as pika_exceptions

from rainbow.brokers.base import Message
from rainbow.brokers.rabbitmq.incoming import Reader
from rainbow.errors import InvalidInput

_FRAME = struct.Struct(">BHI")
_HEADER = struct.Struct(">HHQH")
_ACK = struct.Struct(">BHIHHQBB")
_NACK = struct.Struct(">BHIHHQBB")
_LENGTH = struct.Struct(">I")
_END = b"\xce"
_BASIC = 60
_PERSISTENT = b"\x02"

#: Bytes read from the socket at a time, at most.
READ = 1 << 16

#: Bits of the property flags.
_CONTENT_TYPE, _HEADERS, _DELIVERY_MODE, _PRIORITY = 1 << 15, 1 << 13, 1 << 12, 1 << 11
_CORRELATION_ID, _REPLY_TO, _EXPIRATION, _MESSAGE_ID = 1 << 10, 1 << 9, 1 << 8, 1 << 7


def _short(value: str, what: str) -> bytes:
    raw = value.encode()
    if len(raw) > 255:
        raise InvalidInput(f"{what} of a message has {len(raw)} bytes: AMQP allows 255")
    return bytes((len(raw),)) + raw


@lru_cache(maxsize=4096)
def publish_method(exchange: str, routing_key: str, mandatory: bool) -> bytes:
    """The payload of ``basic.publish``."""
    return (
        struct.pack(">HHH", _BASIC, 40, 0)
        + _short(exchange, "the exchange")
        + _short(routing_key, "the routing key")
        + bytes((1 if mandatory else 0,))
    )


@lru_cache(maxsize=256)
def _type_property(content_type: str) -> bytes:
    return _short(content_type, "the content type")


def _table(out: list[bytes], headers: dict[str, Any]) -> None:
    """Headers that are all texts, as nearly always, are written here; others are left to pika."""
    parts = [b""]
    try:
        for name, value in headers.items():
            if type(value) is not str:
                pika_data.encode_table(out, headers)
                return
            raw = value.encode()
            parts += (_text_field(name), _LENGTH.pack(len(raw)), raw)
    except (pika_exceptions.AMQPError, struct.error, AttributeError, TypeError, ValueError) as exc:
        raise InvalidInput(f"the headers of a message cannot be sent: {type(exc).__name__}") from exc
    table = b"".join(parts)
    out += (_LENGTH.pack(len(table)), table)


@lru_cache(maxsize=1024)
def _text_field(name: str) -> bytes:
    return _short(name, "the name of a header") + b"S"


def properties(m: Message) -> bytes:
    """The payload of the content header frame. Raises InvalidInput for what AMQP cannot carry."""
    flags = _CONTENT_TYPE | _DELIVERY_MODE
    out = [b"", _type_property(m.content_type)]
    if m.headers:
        flags |= _HEADERS
        _table(out, m.headers)
    out.append(_PERSISTENT)
    if m.priority is not None:
        flags |= _PRIORITY
        if not 0 <= m.priority <= 255:
            raise InvalidInput(f"the priority of a message is 0 to 255, not {m.priority}")
        out.append(bytes((m.priority,)))
    if m.correlation_id is not None:
        flags |= _CORRELATION_ID
        out.append(_short(m.correlation_id, "the correlation id"))
    if m.reply_to is not None:
        flags |= _REPLY_TO
        out.append(_short(m.reply_to, "reply_to"))
    if m.expiration is not None:
        flags |= _EXPIRATION
        out.append(_short(str(max(0, int(m.expiration * 1000))), "the expiration"))
    if m.message_id is not None:
        flags |= _MESSAGE_ID
        out.append(_short(m.message_id, "the message id"))
    out[0] = _HEADER.pack(_BASIC, 0, len(m.body), flags)
    return b"".join(out)


def publish_frames(out: list[bytes], channel: int, method: bytes, header: bytes, body: bytes, frame_max: int) -> int:
    """Append the frames of one message to `out`; the number of bytes appended."""
    size = len(body)
    pack = _FRAME.pack
    head = pack(1, channel, len(method)) + method + _END + pack(2, channel, len(header)) + header + _END
    if not size:
        out.append(head)
        return len(head)
    most = frame_max - 8
    if size <= most:
        out += (head, pack(3, channel, size), body, _END)
    else:
        out.append(head)
        for start in range(0, size, most):
            piece = body[start : start + most]
            out += (pack(3, channel, len(piece)), piece, _END)
    return len(head) + size + 8


def ack_frame(channel: int, tag: int, multiple: bool) -> bytes:
    return _ACK.pack(1, channel, 13, _BASIC, 80, tag, multiple, 0xCE)


def nack_frame(channel: int, tag: int, requeue: bool) -> bytes:
    """``basic.nack`` of one delivery: unlike ``basic.reject`` it never counts as a failed delivery on RabbitMQ 4.3."""
    return _NACK.pack(1, channel, 13, _BASIC, 120, tag, 2 if requeue else 0, 0xCE)


class Connection(pika.SelectConnection):  # type: ignore[misc]
    """A pika connection that also sends ready-made frames, reads deliveries and confirms by `reader`, and remembers
    why the broker closed it.

    The three overridden methods, `_output_marshaled_frames` and the size of reads are the only parts of pika used here
    that it does not document; they have been there since pika 1.0, and the contract tests notice if they go.
    """

    def __init__(self, parameters: pika.ConnectionParameters, **callbacks: Any) -> None:
        self.refusal: tuple[int, str] | None = None
        self.after_read: list[Callable[[], None]] = []
        self.reader = Reader(super()._on_data_available)
        super().__init__(parameters, **callbacks)

    @property
    def frame_max(self) -> int:
        return int(self.params.frame_max)

    def send(self, frames: bytes) -> None:
        """Send complete frames, after everything sent before."""
        self._output_marshaled_frames([frames])

    def cut(self) -> None:
        """Close the socket without a word: a broker that blocks this connection never answers a goodbye."""
        if self._transport is not None:
            self._transport.abort()

    def _proto_connection_made(self, transport: Any) -> None:
        # pika reads 4 KiB at a time: five messages, where there may be hundreds.
        transport._MAX_RECV_BYTES = READ
        super()._proto_connection_made(transport)

    def _on_connection_close_from_broker(self, method_frame: Any) -> None:
        self.refusal = (int(method_frame.method.reply_code), str(method_frame.method.reply_text))
        super()._on_connection_close_from_broker(method_frame)

    def _on_data_available(self, data_in: bytes) -> None:
        self.bytes_received += len(data_in)  # what pika tells by that the broker lives
        self.reader.consume(data_in)
        for work in self.after_read:
            work()
