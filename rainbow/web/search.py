"""Looking for jobs through any number of them: a page answers soon, and goes on while somebody looks at it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from rainbow.client import Client
from rainbow.models.job import JobRecord
from rainbow.models.requests import read_position
from rainbow.web.gateway import Gateway

#: Jobs of a page, and seconds in which they are looked for before it is shown.
PAGE, PATIENCE = 50, 1.0
#: Questions at once to the scheduler's side for all pages that go on looking.
_AT_ONCE = 2


@dataclass(slots=True)
class Found:
    """Jobs, newest first, and after which position there may be more (None: there are none).

    `looked` is how many jobs were looked at.
    """

    jobs: list[JobRecord] = field(default_factory=list)
    after: str | None = None
    looked: int = 0


class Searches:
    """The searches of all pages."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def first(self, token: str, filters: Mapping[str, str | None], before: str | None) -> Found:
        """A page of jobs, or what was found of it within PATIENCE."""
        found, end = Found(), time.monotonic() + PATIENCE
        while True:
            step = await self._step(token, filters, found.after or before, PAGE - len(found.jobs))
            found = Found(found.jobs + step.jobs, step.after, found.looked + step.looked)
            if found.after is None or len(found.jobs) >= PAGE or time.monotonic() >= end:
                return found

    async def more(
        self, token: str, filters: Mapping[str, str | None], before: str, wanted: int
    ) -> AsyncIterator[Found]:
        """What each further step found, up to `wanted` jobs in all."""
        after: str | None = before
        while after is not None and wanted > 0:
            async with self._turns:
                step = await self._step(token, filters, after, wanted)
            wanted -= len(step.jobs)
            after = step.after
            yield step

    async def _step(self, token: str, filters: Mapping[str, str | None], before: str | None, limit: int) -> Found:
        page = await self._gateway.call(token, Client.job_page, **filters, limit=limit, before=before)
        return Found(page.jobs, page.next, page.looked)


def wanted_by(request: Request) -> tuple[dict[str, str], str | None]:
    """The filters of a list of jobs, as they were typed, and after which position it begins."""
    given = request.query_params
    wanted = {key: given.get(key, "").strip() for key in ("state", "cluster", "user", "text")}
    return wanted, given.get("before") or None


def filters(wanted: Mapping[str, str]) -> dict[str, str | None]:
    """The filters as the client takes them."""
    return {key: value or None for key, value in wanted.items()}


def link(path: str, wanted: Mapping[str, str]) -> str:
    """A path with a query of what is not empty."""
    return f"{path}?{urlencode({k: v for k, v in wanted.items() if v})}"


def listed(wanted: Mapping[str, str], before: str | None, found: Found, room: int = PAGE) -> dict[str, Any]:
    """What a list of jobs shows that has `room`; `back_to` is how far was looked where it is not full."""
    return {
        "jobs": found.jobs,
        "wanted": wanted,
        "looked": found.looked,
        "newest": link("/jobs", wanted) if before else None,
        "older": link("/jobs", {**wanted, "before": found.after}) if found.after else None,
        "back_to": read_position(found.after)[0] if found.after and len(found.jobs) < room else None,
    }
