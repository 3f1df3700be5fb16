"""Shared pollers: however many pages look at one thing, it is fetched once.

A feed starts with its first subscriber and ends with its last one. A subscriber receives the current value and then
each value that differs from the one before, so a slow page skips values and never builds up a queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Any

from rainbow.errors import RainbowError, TimedOut, Unavailable

#: Stands for a value that has not changed for `_SILENCE` seconds: proxies end connections on which nothing comes.
QUIET = ": still here\n\n"
_SILENCE = 20.0


class Feed:
    """One polled value.

    Args:
        fetch: returns the value now.
        every: seconds between two fetches.
        done: says that a value is the last one.
    """

    def __init__(
        self, fetch: Callable[[], Awaitable[Any]], every: float, done: Callable[[Any], bool] = lambda _: False
    ) -> None:
        self._fetch = fetch
        self._every = every
        self._done = done
        self._changed = asyncio.Condition()
        self._version = 0
        self._value: Any = None
        self._ended = False
        self._task: asyncio.Task[None] | None = None
        self.subscribers = 0

    async def values(self) -> AsyncIterator[Any]:
        """The value now, then each change, and QUIET when there was none for long. A RainbowError is the last one."""
        self.subscribers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._poll())
        seen = 0
        try:
            while True:
                value: Any = QUIET
                with suppress(TimeoutError):
                    async with asyncio.timeout(_SILENCE), self._changed:
                        await self._changed.wait_for(partial(self._news, seen))
                        if self._version == seen:
                            return
                        seen, value = self._version, self._value
                if seen or value is not QUIET:
                    yield value
        finally:
            self.subscribers -= 1
            if not self.subscribers and self._task is not None:
                self._task.cancel()
                self._task = None

    def _news(self, seen: int) -> bool:
        return self._version > seen or self._ended

    async def _poll(self) -> None:
        while not self._ended:
            value: Any
            try:
                value = await self._fetch()
            except (Unavailable, TimedOut) as exc:
                if self._version:  # it may come back: subscribers keep what they have
                    await asyncio.sleep(self._every)
                    continue
                value = exc
            except RainbowError as exc:
                value = exc
            ended = isinstance(value, RainbowError) or self._done(value)
            async with self._changed:
                if value != self._value or ended:
                    self._value = value
                    self._version += 1
                self._ended = ended
                self._changed.notify_all()
            if not ended:
                await asyncio.sleep(self._every)


class Feeds:
    """The feeds in use, by what they show and for whom."""

    def __init__(self) -> None:
        self._feeds: dict[Hashable, Feed] = {}

    async def values(self, key: Hashable, make: Callable[[], Feed]) -> AsyncIterator[Any]:
        """The values of the feed `key`, made by `make` if nobody uses it yet."""
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = make()
        try:
            async for value in feed.values():
                yield value
        finally:
            if not feed.subscribers and self._feeds.get(key) is feed:
                del self._feeds[key]
