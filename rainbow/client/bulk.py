"""Very many submissions, as lines of JSON: checked, published in a pipeline, confirmed, and never held all at once.

A line is what is published to the exchange: a submission, whose token may be left out. One that cannot be read is
reported and left out; it keeps no other from going.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from rainbow import codec, topology, tracing
from rainbow.brokers.base import Message, Receipt
from rainbow.client.connection import Connection
from rainbow.errors import InvalidInput, RainbowError, TooLarge
from rainbow.models.job import SubmitRequest
from rainbow.models.wire import parse

#: Lines in one piece, and pieces on their way at a time.
PIECE = 500
PIECES = 8


@dataclass(slots=True)
class Piece:
    """Lines that were read together. `ids` of the jobs the broker now has, in order; `refused` as (line number, why).
    `last` is the number of the last line: all before it are settled too."""

    last: int
    ids: list[str] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)


def submit_lines(
    connection: Connection,
    lines: Iterable[bytes],
    tokens: Callable[[Sequence[str]], Sequence[str]],
    *,
    run: uuid.UUID,
    skip: int = 0,
    max_bytes: int = codec.MAX_BYTES,
    timeout: float = 30.0,
) -> Iterator[Piece]:
    """Submit `lines` after the first `skip`; gives the pieces as they are confirmed, in order. Empty lines are fine.

    A job without an id gets one that follows from `run` and its line number, so that the same file may be sent again
    with the same `run`: no job runs twice. `tokens` are those for the clusters a job names.
    Raises PublishFailed and the like once the broker takes no more for `timeout` seconds; all pieces given were
    taken.
    """
    numbered = islice(enumerate(lines, 1), skip, None)
    under_way: deque[tuple[Piece, list[Message], Receipt, tracing.Submitting]] = deque()
    reader = _Reader(tokens, run, max_bytes)
    try:
        while part := list(islice(numbered, PIECE)):
            piece, messages = Piece(part[-1][0]), []
            for number, line in part:
                try:
                    message = reader.read(number, line)
                except RainbowError as exc:
                    piece.refused.append((number, exc.message))
                    continue
                if message is not None:
                    messages.append(message)
                    piece.ids.append(message.message_id or "")
            steps = tracing.Submitting(messages)
            under_way.append((piece, messages, connection.broker.publish(messages), steps))
            if len(under_way) >= PIECES:
                yield _settled(connection, *under_way.popleft(), timeout)
        while under_way:
            yield _settled(connection, *under_way.popleft(), timeout)
    finally:
        for _, _, receipt, _ in under_way:
            receipt.wait(timeout)


def _settled(
    connection: Connection,
    piece: Piece,
    messages: list[Message],
    receipt: Receipt,
    steps: tracing.Submitting,
    timeout: float,
) -> Piece:
    with steps:
        outcomes = receipt.wait(timeout)
        again = [m for m, outcome in zip(messages, outcomes, strict=True) if outcome is not None]
        if again:
            connection.confirm(again, timeout)
    return piece


class _Reader:
    """Makes messages of lines."""

    def __init__(self, tokens: Callable[[Sequence[str]], Sequence[str]], run: uuid.UUID, max_bytes: int) -> None:
        self._tokens = tokens
        self._run = run
        self._max_bytes = max_bytes
        self._known: dict[tuple[str, ...], Sequence[str]] = {}

    def read(self, number: int, line: bytes) -> Message | None:
        """None for an empty line. Raises InvalidInput, TooLarge, Denied."""
        line = line.strip()
        if not line:
            return None
        data = codec.decode(line, max_bytes=self._max_bytes)
        request = parse(SubmitRequest, data)
        if request.satisfy_only:
            raise InvalidInput("satisfy_only asks for an answer, and there is none here: use `rainbow satisfy`")
        data["id"] = job_id = request.id or str(uuid.uuid5(self._run, str(number)))
        data.setdefault("version", request.version)
        if request.token is None and request.tokens is None:
            data.update(self._token_fields(request.clusters))
        body = codec.encode_json(data)
        if len(body) > self._max_bytes:
            raise TooLarge(f"the submission has {len(body)} bytes: at most {self._max_bytes} are taken")
        return Message(topology.SUBMIT, "submit", body, message_id=job_id, correlation_id=job_id)

    def _token_fields(self, clusters: Sequence[str] | None) -> dict[str, Any]:
        named = tuple(clusters or ())
        found = self._known.get(named)
        if found is None:
            found = self._known[named] = self._tokens(named)
        return {"token": found[0]} if len(found) == 1 else {"tokens": list(found)}
