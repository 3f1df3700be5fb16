"""What monitoring systems ask a long-running program: ``/metrics``, ``/healthz`` and ``/readyz`` over HTTP.

``/healthz`` answers 200 unless the program should be restarted. ``/readyz`` answers 200 while it can do its job, which
needs the broker and whatever else it uses. Otherwise the answer is 503, and its text says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from rainbow.errors import InvalidSettings

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

#: A name or an address; empty for our own machine.
_HOST = re.compile(r"[A-Za-z0-9._-]*|\[?[0-9A-Fa-f:.]+\]?")


def address(text: str, setting: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; the host is 127.0.0.1 when left out. Raises InvalidSettings naming `setting`."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65_535 or not _HOST.fullmatch(host):
        raise InvalidSettings(f"{setting} is HOST:PORT, as 127.0.0.1:9100: no URL, no user, no path")
    return host.strip("[]") or "127.0.0.1", int(port)


class _Quiet(WSGIRequestHandler):
    #: Seconds that a client may take for its request: one that sends nothing must not hold a thread.
    timeout = 10

    def log_message(self, *_: Any) -> None:
        """A scrape is no news."""


def serve(
    where: str,
    setting: str,
    registry: CollectorRegistry,
    *,
    unhealthy: Callable[[], str | None],
    unready: Callable[[], str | None],
) -> Callable[[], None]:
    """Serve until the returned function is called.

    Args:
        where: ``HOST:PORT``.
        setting: the name of the setting, for errors.
        registry: the metrics.
        unhealthy: why the program should be restarted, or None.
        unready: why it cannot do its job now, or None.

    Raises:
        InvalidSettings: for an address that cannot be used.
    """
    import threading

    from prometheus_client import make_wsgi_app
    from prometheus_client.exposition import ThreadingWSGIServer

    host, port = address(where, setting)
    metrics = make_wsgi_app(registry)
    probes = {"/healthz": unhealthy, "/readyz": unready}

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            answer: Iterable[bytes] = metrics(environ, start_response)
            return answer
        if path not in probes:
            status, text = "404 Not Found", "try /metrics, /healthz or /readyz"
        else:
            problem = probes[path]()
            status, text = ("200 OK", "ok") if problem is None else ("503 Service Unavailable", problem)
        start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")])
        return [f"{text}\n".encode()]

    try:
        server = make_server(host, port, app, ThreadingWSGIServer, _Quiet)
    except OSError as exc:
        raise InvalidSettings(f"{setting}: cannot listen on {where}: {exc.strerror or exc}") from None
    thread = threading.Thread(target=server.serve_forever, name="rainbow-monitoring", daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join(5)

    return stop
