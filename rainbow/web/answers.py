"""Answers over HTTP: JSON, errors with their stable code, server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from rainbow.errors import Denied, InvalidInput, RainbowError, TooLarge, TooManyRequests

#: HTTP status by the exit code of an error (`rainbow.errors`): one table for all errors.
_STATUS = {1: 409, 2: 400, 3: 403, 4: 503, 5: 404, 124: 504}


class Unauthorized(Denied):
    """The request carries no token."""


def status_of(error: RainbowError) -> int:
    """The HTTP status for an error."""
    if isinstance(error, Unauthorized):
        return 401
    if isinstance(error, TooManyRequests):
        return 429
    if isinstance(error, TooLarge):
        return 413
    return 500 if type(error) is RainbowError else _STATUS.get(error.exit_code, 500)


def error_document(error: RainbowError) -> dict[str, Any]:
    """``{"error": {"code", "message"}}``."""
    return {"error": {"code": error.code, "message": error.message}}


def error_answer(error: RainbowError) -> JSONResponse:
    """The JSON answer for an error."""
    status = status_of(error)
    headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "5"}}
    return JSONResponse(error_document(error), status, headers.get(status))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key is given twice")
    return out


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


async def read_body(request: Request, limit: int) -> bytes:
    """The body, read no further than `limit` bytes. Raises TooLarge."""
    announced = request.headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > limit:
        raise TooLarge(f"the body has {announced} bytes: at most {limit} are taken")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise TooLarge(f"the body has more than {limit} bytes, which is the limit")
        parts.append(part)
    return b"".join(parts)


async def read_json(request: Request, limit: int) -> Any:
    """The JSON document in the body. Raises InvalidInput, TooLarge."""
    body = await read_body(request, limit)
    try:
        return json.loads(body, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(f"the body is no JSON document: {exc}") from None


def event(name: str, data: Any) -> str:
    """One server-sent event; text goes as it is, anything else as JSON."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    lines = "".join(f"data: {line}\n" for line in text.split("\n"))
    return f"event: {name}\n{lines}\n"


def event_stream(events: AsyncIterator[str]) -> StreamingResponse:
    """The answer that sends `events` as they come."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def coded(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """`handler`, with errors as coded JSON answers."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except RainbowError as exc:
            return error_answer(exc)

    return answer
