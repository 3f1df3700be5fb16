"""The two things a broker sends most, read straight from the bytes: deliveries and confirms.

pika makes an object of every frame and looks up callbacks for it, which costs more than all the rest of a delivery's
way through this process. Here a delivery whose three frames (method, header, one body) stand in one piece, and a
confirm, go to whoever registered for their channel. Everything else is left to pika, frame by frame and in order.
Layout: www.rabbitmq.com/resources/specs/amqp0-9-1.pdf, 2.3.5 and 4.2.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from pika import data as pika_data

_METHOD, _HEADER, _BODY, _HEARTBEAT, _END = 1, 2, 3, 8, 0xCE
_TEXT = ord("S")
_DELIVER, _ACK, _NACK = 60 << 16 | 60, 60 << 16 | 80, 60 << 16 | 120

_frame = struct.Struct(">BHI").unpack_from
_method = struct.Struct(">I").unpack_from
_confirm = struct.Struct(">QB").unpack_from
_delivered = struct.Struct(">QB").unpack_from
_content = struct.Struct(">QH").unpack_from
_long = struct.Struct(">I").unpack_from


class Properties(NamedTuple):
    """Of a message, as far as rainbow looks at them."""

    content_type: str | None
    message_id: str | None
    correlation_id: str | None
    reply_to: str | None
    priority: int | None
    headers: dict[str, Any]
    user_id: str | None


#: (delivery tag, redelivered, exchange, routing key, properties, body)
Delivered = Callable[[int, bool, str, str, Properties, bytes], None]
#: (delivery tag, multiple, whether the broker has it)
Confirmed = Callable[[int, bool, bool], None]


class Reader:
    """By channel number, who gets its deliveries and confirms. `consume` gives what is not for them to `other`."""

    def __init__(self, other: Callable[[bytes], None]) -> None:
        self.delivered: dict[int, Delivered] = {}
        self.confirmed: dict[int, Confirmed] = {}
        self._other = other
        self._rest = b""

    def consume(self, data: bytes) -> None:
        """Read `data` from the socket, after what the last call left. The rest waits for the next."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        at, size = 0, len(data)
        while size - at >= 8:
            kind, channel, length = _frame(data, at)
            end = at + length + 8
            if end > size and kind <= _HEARTBEAT:
                break
            if kind == _METHOD and length >= 13 and data[end - 1] == _END:
                method = _method(data, at + 7)[0]
                if method == _DELIVER and channel in self.delivered:
                    after = self._deliver(data, at, end, size, channel)
                    if after == 0:
                        break
                    if after > 0:
                        at = after
                        continue
                elif method in (_ACK, _NACK) and channel in self.confirmed:
                    tag, bits = _confirm(data, at + 11)
                    self.confirmed[channel](tag, bool(bits & 1), method == _ACK)
                    at = end
                    continue
            # Content that pika began goes on in frames of other kinds, which come this way as well. What is no frame
            # at all (a server of another protocol) is the end of the connection, and pika's to say.
            self._other(data[at:end])
            at = min(end, size)
        self._rest = data[at:]

    def _deliver(self, data: bytes, at: int, header: int, size: int, channel: int) -> int:
        """The end of the delivery whose method frame is at `at`, now handed over. 0 when more has to be read first; -1
        when it is for pika: in several pieces, or with something in it that is not read here."""
        if size - header < 22:
            return 0
        kind, number, length = _frame(data, header)
        body: int = header + length + 8
        if kind != _HEADER or number != channel:
            return -1
        if body > size:
            return 0
        total, flags = _content(data, header + 11)
        if total:
            if body + 7 > size:
                return 0
            kind, number, length = _frame(data, body)
            end: int = body + length + 8
            if kind != _BODY or number != channel or length != total or flags & 1:
                return -1
            if end > size:
                return 0
            content = data[body + 7 : end - 1]
        else:
            end, content = body, b""
        try:
            properties = _properties(data, header + 21, body - 1, flags)
            place = at + 12 + data[at + 11]
            tag, redelivered = _delivered(data, place)
            exchange, key = _two_texts(data[place + 9 : header - 1])
        except (UnicodeDecodeError, struct.error, IndexError):
            return -1
        self.delivered[channel](tag, redelivered != 0, exchange, key, properties, content)
        return end


@lru_cache(maxsize=1024)
def _two_texts(data: bytes) -> tuple[str, str]:
    """Exchange and routing key: the same for most of what comes from a queue."""
    place = 1 + data[0]
    return data[1:place].decode(), data[place + 1 : place + 1 + data[place]].decode()


def _properties(data: bytes, at: int, end: int, flags: int) -> Properties:
    """The properties between `at` and `end`. Raises what decoding raises; the caller leaves those to pika."""
    found: list[str | None] = [None] * 16
    headers: dict[str, Any] = {}
    priority: int | None = None
    for bit in (15, 14):
        if flags >> bit & 1:
            length = data[at]
            found[bit] = data[at + 1 : at + 1 + length].decode()
            at += 1 + length
    if flags & 1 << 13:
        length = _long(data, at)[0]
        if length:
            headers = _table(data, at + 4, at + 4 + length)
        at += 4 + length
    if flags & 1 << 12:
        at += 1
    if flags & 1 << 11:
        priority = data[at]
        at += 1
    if flags & 0b11111110000:
        for bit in (10, 9, 8, 7):
            if flags >> bit & 1:
                length = data[at]
                found[bit] = data[at + 1 : at + 1 + length].decode()
                at += 1 + length
        if flags & 1 << 6:
            at += 8
        for bit in (5, 4):
            if flags >> bit & 1:
                length = data[at]
                found[bit] = data[at + 1 : at + 1 + length].decode()
                at += 1 + length
    if at > end:
        raise IndexError
    return Properties(found[15], found[7], found[10], found[9], priority, headers, found[4])


def _table(data: bytes, at: int, end: int) -> dict[str, Any]:
    """The table between `at` and `end`: texts are read here, which are most of ours; a table with more goes to pika."""
    begin, found = at - 4, {}
    while at < end:
        after = at + 1 + data[at]
        if data[after] != _TEXT:
            table: dict[str, Any] = pika_data.decode_table(data, begin)[0]
            return table
        start = after + 5
        stop = start + _long(data, after + 1)[0]
        raw = data[start:stop]
        try:
            value: str | bytes = raw.decode()
        except UnicodeDecodeError:  # as pika does
            value = raw
        found[data[at + 1 : after].decode()] = value
        at = stop
    return found
