"""Clients of many callers over one connection to the broker.

The registrar checks the token of each request, so the gateway holds no rights of its own for jobs and clusters: it
forwards what the caller may do. Calls of the client block, so they run in a bounded pool of threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from rainbow.brokers import connect
from rainbow.brokers.base import Broker
from rainbow.client import Client
from rainbow.client.connection import connect_options
from rainbow.client.credentials import Credentials
from rainbow.settings import Settings

T = TypeVar("T")

#: Clients that are kept ready, one for each token; the least recently used one is closed first.
CLIENTS = 256
#: Calls that may wait for the scheduler at the same time.
THREADS = 32


class Gateway:
    """The broker connection of the web program, and a `Client` for each token in use.

    Args:
        settings: broker URL, limits and time-outs; its token opens the broker where `broker.oauth` is on.
        broker: a connection that exists already and stays open; otherwise one is made.
        timeout: seconds for one call.
    """

    def __init__(self, settings: Settings, *, broker: Broker | None = None, timeout: float = 15.0) -> None:
        self.settings = settings
        self.timeout = timeout
        self._owned = broker is None
        self._broker = broker or connect(connect_options(settings, Credentials.from_settings(settings), "rainbow-web"))
        self._lock = threading.Lock()
        self._clients: OrderedDict[str, Client] = OrderedDict()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="rainbow-web")

    @property
    def broker(self) -> Broker:
        """The connection that all callers share."""
        return self._broker

    @property
    def connected(self) -> bool:
        return self._broker.status.connected

    def client(self, token: str) -> Client:
        """The client that acts with `token`."""
        with self._lock:
            made = self._clients.get(token)
            if made is None:
                made = Client(settings=self.settings, token=token, broker=self._broker, timeout=self.timeout)
                self._clients[token] = made
            self._clients.move_to_end(token)
            dropped = self._clients.popitem(last=False)[1] if len(self._clients) > CLIENTS else None
        if dropped is not None:
            dropped.close()
        return made

    async def call(self, token: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run `function(client, ...)` in a thread. Raises what it raises."""
        return await self.wait(partial(function, self.client(token), *args, **kwargs))

    async def wait(self, work: Callable[..., T], *args: Any) -> T:
        """Run `work`, which blocks, in a thread, in the caller's context."""
        work = partial(copy_context().run, work, *args)
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Close all clients and, if it was made here, the broker connection. Idempotent."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            clients, self._clients = list(self._clients.values()), OrderedDict()
        for made in clients:
            made.close()
        if self._owned:
            self._broker.close()
