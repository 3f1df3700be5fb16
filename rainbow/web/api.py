"""The HTTP API below ``/v1``: what a submitter does, where a firewall leaves nothing but HTTPS.

The token travels in ``Authorization: Bearer``. Rights, errors and limits are those of the message queue, since every
call becomes the same message.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rainbow import tracing
from rainbow.client import Client
from rainbow.client.submission import JobFields
from rainbow.client.views import plain
from rainbow.errors import InvalidInput, RainbowError
from rainbow.models.ids import read_element, read_id
from rainbow.models.job import TERMINAL, JobRecord
from rainbow.web.answers import Unauthorized, coded, error_document, event, event_stream, read_json
from rainbow.web.feeds import QUIET, Feed, Feeds
from rainbow.web.gateway import Gateway

log = logging.getLogger(__name__)

#: Jobs in one request.
MOST_JOBS = 10_000
#: Seconds between two looks at a job that is followed.
_EVERY = 1.0


def bearer(request: Request) -> str:
    """The token of a request. Raises Unauthorized."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise Unauthorized("no token: send `Authorization: Bearer TOKEN`")
    return token.strip()


def record_document(record: JobRecord) -> dict[str, Any]:
    """A record as JSON, without what is not known."""
    return record.model_dump(mode="json", exclude_none=True)


def job_id(request: Request) -> str:
    """The id in the path. Raises InvalidInput."""
    text = str(request.path_params["id"])
    try:
        element = read_element(text)
        return read_id(text) if element is None else f"{element[0]}[{element[1]}]"
    except ValueError:
        raise InvalidInput(f"{text[:80]!r} is no job id: give a UUID") from None


def number(request: Request, name: str, default: int, least: int, most: int) -> int:
    """A whole number of the query. Raises InvalidInput."""
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise InvalidInput(f"{name} is a whole number from {least} to {most}, not {text[:40]!r}")
    return value


def job_feed(gateway: Gateway, token: str, which: str) -> Feed:
    """A feed of one job's record, until it has ended."""

    async def fetch() -> JobRecord:
        return await gateway.call(token, lambda client: client.job(which).status())

    return Feed(fetch, _EVERY, lambda record: record.state in TERMINAL)


def _fields(data: Any) -> JobFields:
    if not isinstance(data, dict):
        raise InvalidInput("a job is a JSON object")
    if "token" in data or "tokens" in data:
        raise InvalidInput("the token belongs into the header Authorization, not into the job")
    return data  # type: ignore[return-value]  # the client checks every field


class Api:
    """The handlers of the API."""

    def __init__(self, gateway: Gateway, feeds: Feeds) -> None:
        self._gateway = gateway
        self._feeds = feeds
        limits = gateway.settings.limits
        self._one = limits.message_bytes
        self._many = limits.control_bytes

    def routes(self) -> list[Route]:
        """Every route, with errors as coded JSON answers."""
        table: list[tuple[str, Literal["GET", "POST"], Callable[[Request], Awaitable[Response]]]] = [
            ("/v1/jobs", "POST", self.submit),
            ("/v1/jobs", "GET", self.jobs),
            ("/v1/satisfy", "POST", self.satisfy),
            ("/v1/jobs/{id}", "GET", self.job),
            ("/v1/jobs/{id}/events", "GET", self.events),
            ("/v1/jobs/{id}/output", "GET", self.output),
            ("/v1/jobs/{id}/jobspec", "GET", self.jobspec),
            ("/v1/jobs/{id}/cancel", "POST", self.cancel),
            ("/v1/clusters", "GET", self.clusters),
            ("/v1/clusters/{name}", "GET", self.cluster),
        ]
        return [Route(path, coded(handler), methods=[method]) for path, method, handler in table]

    async def submit(self, request: Request) -> Response:
        token = bearer(request)
        data = await read_json(request, self._many)
        many = isinstance(data, dict) and set(data) == {"jobs"}
        jobs = data["jobs"] if many else [data]
        if not isinstance(jobs, list) or not 1 <= len(jobs) <= MOST_JOBS:
            raise InvalidInput(f"jobs is a list of 1 to {MOST_JOBS} jobs")
        with tracing.within(tracing.parent_of(request.headers)):
            made = await self._gateway.call(token, Client.submit_many, [_fields(job) for job in jobs])
        for job in made:
            log.info("job submitted", extra={"action": "submit", "job": job.id})
        ids = [{"id": job.id} for job in made]
        return JSONResponse({"jobs": ids}, 202, {} if many else {"Location": f"/v1/jobs/{made[0].id}"})

    async def satisfy(self, request: Request) -> Response:
        token = bearer(request)
        fields = _fields(await read_json(request, self._one))
        answer = await self._gateway.call(token, lambda client: client.satisfy(**fields))
        return JSONResponse(answer.model_dump(mode="json", exclude_none=True))

    async def jobs(self, request: Request) -> Response:
        given = {
            name: request.query_params.get(name) or None
            for name in ("state", "cluster", "user", "text", "array", "before")
        }
        limit = number(request, "limit", 100, 1, 10_000)
        page = await self._gateway.call(bearer(request), Client.job_page, **given, limit=limit)
        return JSONResponse({"jobs": [record_document(record) for record in page.jobs], "next": page.next})

    async def job(self, request: Request) -> Response:
        which = job_id(request)
        record = await self._gateway.call(bearer(request), lambda client: client.job(which).status())
        return JSONResponse(record_document(record))

    async def events(self, request: Request) -> Response:
        token, which = bearer(request), job_id(request)
        feed = self._feeds.values(("job", token, which), lambda: job_feed(self._gateway, token, which))
        first = await anext(feed)
        if isinstance(first, RainbowError):
            raise first

        async def events() -> AsyncIterator[str]:
            yield event("job", record_document(first))
            async for value in feed:
                if value is QUIET:
                    yield value
                elif isinstance(value, RainbowError):
                    yield event("error", error_document(value))
                else:
                    yield event("job", record_document(value))

        return event_stream(events())

    async def output(self, request: Request) -> Response:
        far = 1 << 40
        where = {name: number(request, name, 0, -far, far) for name in ("stdout", "stderr")}
        piece = await self._gateway.call(bearer(request), Client.output, job_id(request), **where)
        return JSONResponse(plain(piece))

    async def jobspec(self, request: Request) -> Response:
        return JSONResponse(await self._gateway.call(bearer(request), Client.jobspec, job_id(request)))

    async def cancel(self, request: Request) -> Response:
        which = job_id(request)
        done = await self._gateway.call(bearer(request), lambda client: client.job(which).cancel())
        return JSONResponse(plain(done), 202)

    async def clusters(self, request: Request) -> Response:
        found = await self._gateway.call(bearer(request), Client.clusters)
        return JSONResponse({"clusters": [plain(view) for view in found]})

    async def cluster(self, request: Request) -> Response:
        found = await self._gateway.call(bearer(request), Client.cluster, str(request.path_params["name"]))
        return JSONResponse(plain(found))
