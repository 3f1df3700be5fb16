"""Delivery tags the broker waits for, and how few acks tell it about those that are done.

An ack with `multiple` covers every delivery of the channel up to its tag, so it may only be used for a run from
the lowest tag outstanding in which every one is done: it would take an unfinished one with it.
"""

from __future__ import annotations

from collections.abc import Iterable

#: RabbitMQ keeps acks of a quorum queue back once this many are on their way, and forgets what it keeps back when
#: the channel closes (`SOFT_LIMIT` of rabbit_fifo_client): after a burst, closing waits a moment.
BURST = 16
LINGER = 0.3


class Outstanding:
    """Tags of one channel with one consumer: they count up from 1."""

    __slots__ = ("_acked", "_high", "_low", "_open")

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._acked: set[int] = set()
        self._low, self._high = 1, 0

    def __contains__(self, tag: int) -> bool:
        return tag in self._open and tag not in self._acked

    def delivered(self, tag: int) -> None:
        self._open.add(tag)
        self._high = tag

    def ack(self, tags: Iterable[int]) -> None:
        """Note what is done; tags that are not outstanding are passed over."""
        self._acked.update(tag for tag in tags if tag in self._open)

    def remove(self, tag: int) -> bool:
        """Take out one that is settled in another way; False if it is not outstanding (any more)."""
        if tag not in self:
            return False
        self._open.discard(tag)
        return True

    def acks(self) -> list[tuple[int, bool]]:
        """What to send for all that was noted: (tag, multiple)."""
        if not self._acked:
            return []
        acked, still = self._acked, self._open
        run: list[int] = []
        tag = self._low
        while tag <= self._high:
            if tag in acked:
                run.append(tag)
            elif tag in still:
                break
            tag += 1
        self._low = tag
        out = [(run[-1], len(run) > 1)] if run else []
        acked.difference_update(run)
        still.difference_update(run)
        out += [(t, False) for t in sorted(acked)]
        still -= acked
        acked.clear()
        return out

    def clear(self) -> None:
        """A new channel: its tags start over."""
        self._open.clear()
        self._acked.clear()
        self._low, self._high = 1, 0
