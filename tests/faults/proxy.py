"""A TCP proxy that misbehaves on request: cuts, swallows, stalls, slows down, refuses."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

CHUNK = 65536


class _Pair:
    """One connection through the proxy: a socket on each side, a thread for each direction."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy = proxy
        self.client = client
        self.server = server
        self.lost_data = False
        self.bytes_up = 0
        for source, target, up in ((client, server, True), (server, client, False)):
            threading.Thread(target=self._pump, args=(source, target, up), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, up: bool) -> None:
        try:
            while data := source.recv(CHUNK):
                if up:
                    self.bytes_up += len(data)
                if not self.proxy._let_through(self, up):
                    continue
                target.sendall(data)
        except OSError:
            pass
        # An end of one side ends the other, as a router does, unless the link is "dead" and nobody is told.
        if not self.proxy.silent:
            self.close()

    def close(self, *, reset: bool = False) -> None:
        for sock in (self.client, self.server):
            with contextlib.suppress(OSError):
                if reset:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self.proxy._forget(self)


class Proxy:
    """Listens on a free loopback port and forwards to `host`:`port`, until told to behave otherwise.

    - `cut()` resets all connections; new ones work.
    - `refuse()` resets all, and new ones at once.
    - `swallow()` reads and drops what is sent, in both directions or only the answers: a half-open link.
    - `stall()` forwards nothing, but loses nothing either.
    - `slow(seconds)` waits before forwarding each piece.
    - `heal()` ends all that; connections that lost bytes are reset.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._pairs: set[_Pair] = set()
        self._lock = threading.Lock()
        self._flow = threading.Event()
        self._flow.set()
        self._refusing = False
        self._swallow_up = self._swallow_down = False
        self._delay = 0.0
        self._wait = threading.Event()
        self._closed = False
        self.accepted = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def silent(self) -> bool:
        return self._swallow_up or self._swallow_down

    @property
    def connections(self) -> int:
        with self._lock:
            return len(self._pairs)

    @property
    def bytes_up(self) -> int:
        """Bytes that clients sent on the connections open now."""
        with self._lock:
            return sum(p.bytes_up for p in self._pairs)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            if self._refusing:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
                continue
            try:
                server = socket.create_connection(self._target, timeout=10)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            try:
                for sock in (client, server):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:  # gone already
                client.close()
                server.close()
                continue
            with self._lock:
                pair = _Pair(self, client, server)
                self._pairs.add(pair)
            if self._closed or self._refusing:  # said while the server was being reached
                pair.close(reset=True)

    def _let_through(self, pair: _Pair, up: bool) -> bool:
        self._flow.wait()
        if self._delay:
            self._wait.wait(self._delay)
        if self._swallow_up if up else self._swallow_down:
            pair.lost_data = True
            return False
        return True

    def _forget(self, pair: _Pair) -> None:
        with self._lock:
            self._pairs.discard(pair)

    def _close_all(self, *, only_lossy: bool = False) -> None:
        with self._lock:
            pairs = [p for p in self._pairs if p.lost_data or not only_lossy]
        for pair in pairs:
            pair.close(reset=True)

    def cut(self) -> None:
        self._close_all()

    def refuse(self) -> None:
        self._refusing = True
        self._close_all()

    def swallow(self, *, only_answers: bool = False) -> None:
        self._swallow_down = True
        self._swallow_up = not only_answers

    def stall(self) -> None:
        self._flow.clear()

    def slow(self, seconds: float) -> None:
        self._delay = seconds

    def heal(self) -> None:
        self._refusing = self._swallow_up = self._swallow_down = False
        self._delay = 0.0
        self._flow.set()
        self._close_all(only_lossy=True)

    def close(self) -> None:
        self._closed = True
        self._wait.set()
        self.heal()
        self._listener.close()
        self._close_all()


@contextlib.contextmanager
def proxied(host: str, port: int) -> Iterator[Proxy]:
    proxy = Proxy(host, port)
    try:
        yield proxy
    finally:
        proxy.close()
