"""The console: pages for people, rendered on the server. Live parts come as server-sent events with HTML in them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from rainbow import topology
from rainbow.client import Client, overview
from rainbow.errors import InvalidInput, RainbowError
from rainbow.models.dependencies import DEPENDENCY
from rainbow.models.job import TERMINAL, JobRecord
from rainbow.models.requests import Output
from rainbow.pictures import timeline, tree
from rainbow.web import letters, search, views
from rainbow.web.answers import event, event_stream, status_of
from rainbow.web.api import job_feed, job_id, number
from rainbow.web.feeds import QUIET, Feed, Feeds
from rainbow.web.forms import checked_form, read_form
from rainbow.web.gateway import Gateway
from rainbow.web.search import Found, link
from rainbow.web.sessions import Session, Sessions

_HERE = Path(__file__).parent
#: Seconds between two looks at what the overview shows.
_EVERY = 2.0
#: Newest jobs that are counted and drawn.
_SEARCHED = 10_000
#: Jobs that wait for others which are listed.
_LISTED = 50
#: Newest jobs that are looked through for refusals of a cluster.
_LOOKED_AT = 200
_WINDOWS = {"1m": 60.0, "5m": 300.0, "15m": 900.0, "1h": 3600.0, "6h": 21600.0, "1d": 86400.0}

_JOB_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")

Handler = Callable[[Request, Session], Awaitable[Response]]


class Console:
    """The handlers of the pages."""

    def __init__(self, gateway: Gateway, feeds: Feeds, sessions: Sessions) -> None:
        self._gateway = gateway
        self._feeds = feeds
        self._sessions = sessions
        self._searches = search.Searches(gateway)
        self._letters = letters.Letters(gateway, gateway.settings.keyring)
        self._templates = Environment(loader=FileSystemLoader(_HERE / "templates"), autoescape=True)
        self._templates.filters.update(stamp=timeline.stamp, span=timeline.span)
        self._templates.globals.update(link=link, share=views.share, bars=_bars)
        self._templates.filters.update(linked=_linked, coded=_coded)

    def routes(self) -> list[Route | Mount]:
        """Every route of the console."""
        pages: list[tuple[str, Handler]] = [
            ("/", self.overview),
            ("/clusters", self.clusters),
            ("/clusters/{name}", self.cluster),
            ("/jobs", self.jobs),
            ("/jobs/{id}", self.job),
            ("/timeline", self.timeline),
            ("/waiting", self.waiting),
            ("/users", self.users),
            ("/dead", self.dead),
            ("/dead/{key}", self.dead_letter),
            ("/live/overview", self.live_overview),
            ("/live/jobs", self.live_jobs),
            ("/live/jobs/{id}", self.live_job),
            ("/live/jobs/{id}/output", self.live_output),
        ]
        return [
            Route("/login", self.login, methods=["GET", "POST"]),
            Route("/logout", self._page(self.logout), methods=["POST"]),
            Route("/jobs/{id}/cancel", self._page(self.cancel), methods=["POST"]),
            Route("/dead", self._page(self.settle_dead), methods=["POST"]),
            *(Route(path, self._page(handler), methods=["GET"]) for path, handler in pages),
            Mount("/static", StaticFiles(directory=_HERE / "static")),
        ]

    # -- sessions --------------------------------------------------------------------------------------------

    async def login(self, request: Request) -> Response:
        if request.method == "GET":
            return self._render("login.html", None, status=200)
        form = await read_form(request)
        token = form.get("token", "").strip()
        try:
            await self._gateway.call(token, Client.clusters)
        except RainbowError as exc:
            return self._render("login.html", None, status=status_of(exc), problem=exc.message)
        response = RedirectResponse("/", 303)
        self._sessions.begin(token, response, secure=request.url.scheme == "https")
        return response

    async def logout(self, request: Request, session: Session) -> Response:
        await checked_form(request, session)
        response = RedirectResponse("/login", 303)
        self._sessions.end(request, response)
        return response

    def _page(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """`handler` for those who signed in, with errors as plain pages."""

        async def page(request: Request) -> Response:
            session = self._sessions.of(request)
            if session is None:
                return RedirectResponse("/login", 303)
            try:
                return await handler(request, session)
            except RainbowError as exc:
                return self.error(exc, session)

        return page

    def error(self, error: RainbowError, session: Session | None) -> Response:
        """The plain page for an error."""
        return self._render("error.html", session, status=status_of(error), error=error)

    def _render(self, template: str, session: Session | None, *, status: int = 200, **values: Any) -> HTMLResponse:
        return HTMLResponse(self._html(template, session=session, **values), status)

    def _html(self, template: str, **values: Any) -> str:
        return self._templates.get_template(template).render(now=time.time(), **values)

    # -- pages -----------------------------------------------------------------------------------------------

    async def overview(self, request: Request, session: Session) -> Response:
        seen = await self._gateway.call(session.token, overview.look)
        return self._render("overview.html", session, **_overview(seen))

    async def clusters(self, request: Request, session: Session) -> Response:
        found = await self._gateway.call(session.token, Client.clusters)
        return self._render("clusters.html", session, clusters=found)

    async def cluster(self, request: Request, session: Session) -> Response:
        name = str(request.path_params["name"])
        view = await self._gateway.call(session.token, Client.cluster, name)
        jobs = await self._gateway.call(session.token, Client.jobs, cluster=name, limit=20)
        newest = await self._gateway.call(session.token, Client.jobs, limit=_LOOKED_AT)
        # The list has neither the history nor the answer of a job.
        whole = await self._gateway.call(session.token, Client.status, [job.id for job in newest])
        queue = topology.jobs_queue(name)
        queued = (await self._gateway.call(session.token, Client.waiting, [queue]))[queue]
        picture = None if view.tree is None else Markup(tree.svg(view.tree, name))  # noqa: S704 - escapes what it draws
        return self._render(
            "cluster.html",
            session,
            cluster=view,
            jobs=jobs,
            tree=picture,
            queued=queued,
            refusals=views.refusals([job for job in whole if job is not None], name),
        )

    async def jobs(self, request: Request, session: Session) -> Response:
        wanted, before = search.wanted_by(request)
        found = await self._searches.first(session.token, search.filters(wanted), before)
        goes_on = None
        if found.after and len(found.jobs) < search.PAGE:
            left = {"left": str(search.PAGE - len(found.jobs)), "looked": str(found.looked)}
            goes_on = link("/live/jobs", {**wanted, "before": found.after, **left})
        return self._render("jobs.html", session, goes_on=goes_on, **search.listed(wanted, before, found))

    async def live_jobs(self, request: Request, session: Session) -> Response:
        """The rest of a page of jobs that took longer than a moment to fill: rows as they are found."""
        wanted, before = search.wanted_by(request)
        left = number(request, "left", search.PAGE, 1, search.PAGE)
        looked = number(request, "looked", 0, 0, 1 << 40)
        if before is None:
            raise InvalidInput("before is missing: this goes on where a page of jobs ended")

        async def events() -> AsyncIterator[str]:
            so_far = Found(after=before, looked=looked)
            try:
                async for step in self._searches.more(session.token, search.filters(wanted), before, left):
                    so_far = Found(so_far.jobs + step.jobs, step.after, so_far.looked + step.looked)
                    if step.jobs:
                        yield event("rows", self._html("_job_rows.html", jobs=step.jobs))
                    yield event("looked", self._html("_looked.html", **search.listed(wanted, before, so_far, left)))
            except RainbowError as exc:
                yield event("problem", exc.message)
                return
            yield event("end", "")

        return event_stream(events())

    async def job(self, request: Request, session: Session) -> Response:
        which = job_id(request)
        record = await self._gateway.call(session.token, lambda client: client.job(which).status())
        wait = None
        if record.state == "held" and session.role in ("submit", "admin"):
            wait = (await self._gateway.call(session.token, Client.queue, which))["job"]
        jobspec, why_not = "", ""
        try:
            document = await self._gateway.call(session.token, Client.jobspec, which)
            jobspec = json.dumps(document, indent=2, ensure_ascii=False)
        except RainbowError as exc:
            why_not = exc.message
        return self._render("job.html", session, wait=wait, jobspec=jobspec, why_not=why_not, **_job(record))

    async def cancel(self, request: Request, session: Session) -> Response:
        await checked_form(request, session)
        which = job_id(request)
        reason = f"cancelled by {session.user}"
        await self._gateway.call(session.token, lambda client: client.job(which).cancel(reason))
        return RedirectResponse(f"/jobs/{which}", 303)

    async def timeline(self, request: Request, session: Session) -> Response:
        chosen = request.query_params.get("window", "1h")
        seconds = _WINDOWS.get(chosen, 3600.0)
        now = time.time()
        until = min(now, float(number(request, "until", int(now) + 1, 1, 1 << 40)))
        since = until - seconds
        # A job that ran in this time may have been submitted long before it.
        newest = await self._gateway.call(session.token, Client.jobs, limit=_SEARCHED)
        lanes = timeline.lanes([job for job in newest if timeline.ran(job, since, until)], since, until)

        def at(window: str, end: float) -> str:
            return link("/timeline", {"window": window, "until": str(int(end)) if end < now else ""})

        middle = until - seconds / 2
        return self._render(
            "timeline.html",
            session,
            lanes=lanes,
            since=since,
            until=until,
            chosen=chosen,
            # Another window has the same middle, unless the right edge is now.
            windows={name: at(name, until if until == now else middle + w / 2) for name, w in _WINDOWS.items()},
            earlier=at(chosen, middle),
            ticks=[time.strftime("%H:%M:%S", time.gmtime(since + n * seconds / 4)) for n in range(5)],
            later=at(chosen, until + seconds / 2) if until < now else None,
        )

    async def waiting(self, request: Request, session: Session) -> Response:
        pages = [
            await self._gateway.call(session.token, Client.job_page, state=state, limit=_SEARCHED)
            for state in ("held", "assigned", "accepted")
        ]
        shares: list[views.Share] = []
        if session.role in ("submit", "admin"):
            due = await self._gateway.call(session.token, Client.shares)
            queue = await self._gateway.call(session.token, Client.queue)
            shares = views.shares(due["shares"], queue["users"])
        return self._render(
            "waiting.html",
            session,
            waits=views.waits(pages),
            dependents=[job for job in pages[0].jobs if job.code == DEPENDENCY][:_LISTED],
            shares=shares,
            more=any(page.next is not None for page in pages),
        )

    async def users(self, request: Request, session: Session) -> Response:
        page = await self._gateway.call(session.token, Client.job_page, limit=_SEARCHED)
        return self._render("users.html", session, users=views.users(page), jobs=len(page.jobs), more=page.next)

    async def dead(self, request: Request, session: Session) -> Response:
        found = await self._letters.all(session.token)
        return self._render("dead.html", session, letters=found, most=letters.MOST)

    async def dead_letter(self, request: Request, session: Session) -> Response:
        found = await self._letters.show(session.token, str(request.path_params["key"]))
        return self._render("letter.html", session, **found)

    async def settle_dead(self, request: Request, session: Session) -> Response:
        form = await checked_form(request, session)
        what, own = form.get("what"), "own" in form
        keys = [name.removeprefix("key-") for name in form if name.startswith("key-")]
        if what not in ("replay", "drop"):
            raise InvalidInput("a dead letter is replayed or dropped")
        await self._letters.settle(session.token, "replay" if what == "replay" else "drop", keys, own=own)
        return RedirectResponse("/dead", 303)

    # -- live parts ------------------------------------------------------------------------------------------

    async def live_overview(self, request: Request, session: Session) -> Response:
        async def fetch() -> str:
            # Rendered once for all pages that show it.
            seen = await self._gateway.call(session.token, overview.look)
            return event("html", self._html("_overview.html", **_overview(seen)))

        return self._live(("overview", session.token), lambda: Feed(fetch, _EVERY), str)

    async def live_job(self, request: Request, session: Session) -> Response:
        which = job_id(request)

        def html(record: JobRecord) -> str:
            return event("html", self._html("_job.html", session=session, **_job(record)))

        return self._live(
            ("job", session.token, which), partial(job_feed, self._gateway, session.token, which), html, last=True
        )

    def _live(self, key: Any, make: Callable[[], Feed], shown: Callable[[Any], str], *, last: bool = False) -> Response:
        async def events() -> AsyncIterator[str]:
            async for value in self._feeds.values(key, make):
                if isinstance(value, RainbowError):
                    yield event("problem", value.message)
                    return
                yield value if value is QUIET else shown(value)
            if last:
                yield event("end", "")

        return event_stream(events())

    async def live_output(self, request: Request, session: Session) -> Response:
        """The output of a job from its beginning, as text, until it has ended."""
        which = job_id(request)

        async def events() -> AsyncIterator[str]:
            stdout = stderr = 0
            while not await request.is_disconnected():
                piece: Output
                try:
                    piece = await self._gateway.call(session.token, _next_piece, which, stdout, stderr)
                except RainbowError as exc:
                    yield event("problem", exc.message)
                    return
                for name, text in (("stdout", piece.stdout), ("stderr", piece.stderr)):
                    if text:
                        yield event(name, {"text": text})
                if piece.ended and not piece.more:
                    yield event("end", piece.detail or "")
                    return
                stdout, stderr = piece.stdout_next, piece.stderr_next

        return event_stream(events())


def _next_piece(client: Client, which: str, stdout: int, stderr: int) -> Output:
    """The next piece of output, or an empty one after a moment: a thread is never held for long."""
    piece = client.output(which, stdout=stdout, stderr=stderr)
    if not (piece.stdout or piece.stderr or piece.ended):
        time.sleep(0.5)
    return piece


def _overview(seen: Mapping[str, Any]) -> dict[str, Any]:
    return {"seen": seen, "attention": views.attention(seen), "queues": views.queues(seen["queues"])}


def _job(record: JobRecord) -> dict[str, Any]:
    life = views.life(record)
    return {
        "job": record,
        "life": life,
        "parts": views.parts(life, time.time()),
        "reasons": views.reasons(record),
        "ended": record.state in TERMINAL,
    }


def _bars(lane: timeline.Lane) -> Markup:
    return Markup(timeline.svg(lane, link=True))  # noqa: S704 - escapes what it draws


def _linked(text: str) -> Markup:
    """`text` with a link to the page of each job whose id is in it."""
    return Markup(_JOB_ID.sub(r'<a href="/jobs/\g<0>">\g<0></a>', str(escape(text))))  # noqa: S704 - escaped


def _coded(text: str) -> Markup:
    """`text` with what stands in backquotes as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped
