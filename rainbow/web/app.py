"""The ASGI application: routes, what every answer has in common, health and metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rainbow.client import Client
from rainbow.errors import InvalidInput, NotFound, RainbowError, TooManyRequests
from rainbow.settings import Settings
from rainbow.web import openapi
from rainbow.web.answers import error_answer
from rainbow.web.api import Api
from rainbow.web.feeds import Feeds
from rainbow.web.gateway import Gateway
from rainbow.web.limits import GoodTokens, Rates
from rainbow.web.pages import Console
from rainbow.web.relay import Relay
from rainbow.web.sessions import Sessions

log = logging.getLogger(__name__)

_HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
}


class Metrics:
    """Counters of the web program. Labels are bounded: areas and classes of status."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ["area", "status"]
        self.requests = Counter("rainbow_web_requests", "Requests answered.", labels, registry=self.registry)
        self.seconds = Histogram(
            "rainbow_web_request_seconds", "Time until an answer began.", ["area"], registry=self.registry
        )
        self.open = Gauge("rainbow_web_open_requests", "Requests that are being answered.", registry=self.registry)


def _area(path: str) -> str:
    first = path.split("/")[1] if path.startswith("/") else ""
    return first if first in ("v1", "live", "static", "healthz", "readyz", "metrics") else "pages"


class Common:
    """ASGI middleware: security headers, a rate limit for each caller, metrics, and no trace of a failure shown."""

    def __init__(self, app: ASGIApp, rates: Rates, sessions: Sessions, tokens: GoodTokens, metrics: Metrics) -> None:
        self._app = app
        self._rates = rates
        self._sessions = sessions
        self._tokens = tokens
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        area = _area(scope["path"])
        began = time.perf_counter()
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                present = {name.lower() for name, _ in message["headers"]}
                extra = [(name, value) for name, value in _HEADERS.items() if name not in present]
                if area in ("pages", "v1") and b"cache-control" not in present:
                    extra.append((b"cache-control", b"no-store"))
                message["headers"] = [*message["headers"], *extra]
                self._metrics.requests.labels(area, f"{message['status'] // 100}xx").inc()
                self._metrics.seconds.labels(area).observe(time.perf_counter() - began)
            await send(message)

        with self._metrics.open.track_inprogress():
            if area not in ("healthz", "readyz", "metrics", "static") and not self._rates.take(self._caller(scope)):
                await error_answer(TooManyRequests("too many requests: wait a second"))(scope, receive, sending)
                return
            try:
                await self._app(scope, receive, sending)
            except Exception:
                log.exception("a request failed", extra={"action": "web"})
                if not started:
                    await error_answer(RainbowError("the request failed: the log of rainbow web has the reason"))(
                        scope, receive, sending
                    )

    def _caller(self, scope: Scope) -> str:
        """Whose requests these are: those of a good token, or those from an address."""
        request = Request(scope)
        session = self._sessions.of(request)
        if session is not None:
            return session.token
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._tokens.has(token.strip()):
            return token.strip()
        return f"address {request.client.host if request.client else ''}"


def make_app(settings: Settings, gateway: Gateway | None = None) -> Starlette:
    """The application.

    Args:
        settings: `web`, `broker` and `limits` are read.
        gateway: an existing one; otherwise one is made, and closed with the application.
    """
    bridge = gateway or Gateway(settings)
    feeds = Feeds()
    relay = Relay(bridge)
    metrics = Metrics()
    console = Console(bridge, feeds, sessions := Sessions(settings.web.session_hours))
    document = openapi.document(version("rainbow-hpc"))

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        ready = bridge.connected
        return PlainTextResponse("ok\n" if ready else "no broker\n", 200 if ready else 503)

    async def shown_metrics(_: Request) -> Response:
        return Response(generate_latest(metrics.registry), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def described(_: Request) -> Response:
        return JSONResponse(document)

    async def refused(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, HTTPException)
        error = NotFound(f"no such page: {request.url.path}") if exc.status_code == 404 else InvalidInput(exc.detail)
        if _area(request.url.path) == "v1":
            answer: Response = error_answer(error)
        else:
            answer = console.error(error, sessions.of(request))
        answer.status_code = exc.status_code
        return answer

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        relay.close()
        if gateway is None:
            bridge.close()

    routes: list[Any] = [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", shown_metrics),
        Route("/openapi.json", described),
        *Api(bridge, feeds).routes(),
        *relay.routes(),
        *console.routes(),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: refused}, lifespan=lifespan)
    rates = Rates(settings.web.rate, settings.web.burst)
    tokens = GoodTokens(lambda token: bridge.call(token, Client.clusters))
    app.add_middleware(Common, rates=rates, sessions=sessions, tokens=tokens, metrics=metrics)
    return app
