"""The output of a job as Flux keeps it (RFC 24): both streams, their order, and what the shell says about them."""

from __future__ import annotations

import base64
import json
from typing import Any

from .ending import end_of

Json = dict[str, Any]

#: Messages of the shell up to this level (a warning) belong to the result: they say what is missing.
_WARNING = 4
#: Blocks of alternating streams in one piece at most.
_BLOCKS = 5000
_STREAMS = ("stdout", "stderr")


class Output:
    """`blocks` are (stream, data) in the order they were written; stream 0 is stdout, 1 stderr."""

    def __init__(self) -> None:
        self.blocks: list[tuple[int, bytes]] = []
        self.notes: list[str] = []

    @property
    def size(self) -> int:
        return sum(len(data) for _, data in self.blocks)

    def piece(self, start: tuple[int, int], limit: int) -> Json:
        """Return at most `limit` bytes of each stream from `start` on (negative: from the end), and their order."""
        sizes = [sum(len(data) for stream, data in self.blocks if stream == number) for number in (0, 1)]
        begin = [max(0, sizes[n] + start[n]) if start[n] < 0 else min(start[n], sizes[n]) for n in (0, 1)]
        end = [b + limit for b in begin]
        place = [0, 0]
        order: list[list[int]] = []
        taken: list[list[bytes]] = [[], []]
        for stream, data in self.blocks:
            here = place[stream]
            place[stream] += len(data)
            part = data[max(0, begin[stream] - here) : max(0, end[stream] - here)]
            if place[stream] <= begin[stream]:
                continue
            if len(order) >= _BLOCKS:
                break
            if part:
                taken[stream].append(part)
                if order and order[-1][0] == stream:
                    order[-1][1] += len(part)
                else:
                    order.append([stream, len(part)])
            if place[stream] > end[stream]:
                break  # what was written later comes with the next piece, so that the order is kept
        result: Json = {"order": order, "notes": self.notes}
        for number, name in enumerate(_STREAMS):
            encoded = base64.b64encode(b"".join(taken[number])).decode()
            result[name] = {"from": begin[number], "size": sizes[number], "data": encoded}
        return result


def read_output(eventlog: str, into: Output | None = None) -> Output:
    """Read an output eventlog, after what is in `into` already."""
    output = into or Output()
    for line in eventlog.splitlines():
        event = json.loads(line)
        context = event.get("context") or {}
        if event["name"] == "data":
            data = data_of(context)
            if data:
                output.blocks.append((1 if context.get("stream") == "stderr" else 0, data))
        else:
            note = note_of(event)
            if note and note not in output.notes:
                output.notes.append(note)
    return output


def tail_of(eventlog: str, limit: int) -> str | None:
    """Return the end of a job's output (see `end_of`): both streams as they came, and what Flux cut of them."""
    blocks: list[bytes] = []
    size = 0
    for line in reversed(eventlog.splitlines()):
        event = json.loads(line)
        if event["name"] == "data":
            data = data_of(event["context"])
        else:
            note = note_of(event)
            data = f"{note}\n".encode() if note and ("truncated" in note or event["name"] == "redirect") else b""
        if data:
            blocks.append(data)
            size += len(data)
            if size > limit:
                break
    return end_of(b"".join(reversed(blocks)), limit)


def note_of(event: Json) -> str | None:
    """Return what the shell says about the output: what was cut, where it was redirected to."""
    context = event.get("context") or {}
    if event["name"] == "log" and context.get("level", _WARNING) <= _WARNING and context.get("message"):
        return f"flux-shell[{context.get('rank', 0)}]: {context['message']}"
    if event["name"] == "redirect":
        return f"{context.get('stream', 'stdout')} is in the file {context.get('path')} on the cluster"
    return None


def data_of(context: Json) -> bytes:
    data = context.get("data")
    if data is None:
        return b""
    block = base64.b64decode(data) if context.get("encoding") == "base64" else str(data).encode()
    return block * int(context.get("repeat", 1))
