"""Sessions of people who signed in with a token: an unguessable cookie here, the token in memory only."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from rainbow.client.credentials import peek

COOKIE = "rainbow_session"
#: Sessions that are kept; the oldest goes first.
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Session:
    """`csrf` has to come back with every form. `user` and `role` are for display: the registrar checks the token."""

    token: str = field(repr=False)
    csrf: str = field(repr=False)
    until: float
    user: str
    role: str


class Sessions:
    """Sessions by cookie; each ends `hours` after it began, or with its token."""

    def __init__(self, hours: float, clock: Callable[[], float] = time.time) -> None:
        self._seconds = hours * 3600
        self._clock = clock
        self._known: OrderedDict[str, Session] = OrderedDict()

    def begin(self, token: str, response: Response, *, secure: bool) -> Session:
        """Sign in: the cookie goes into `response`. It is HttpOnly, SameSite=Strict, and Secure over HTTPS."""
        claims = peek(token)
        until = self._clock() + self._seconds
        expires = claims.get("exp")
        if isinstance(expires, int | float):
            until = min(until, float(expires))
        session = Session(
            token, secrets.token_urlsafe(32), until, str(claims.get("sub", "?")), str(claims.get("role", "?"))
        )
        name = secrets.token_urlsafe(32)
        self._known[name] = session
        while len(self._known) > _MOST:
            self._known.popitem(last=False)
        response.set_cookie(
            COOKIE, name, max_age=int(until - self._clock()), httponly=True, samesite="strict", secure=secure, path="/"
        )
        return session

    def of(self, request: Request) -> Session | None:
        """The session of a request, None without one that is still good."""
        name = request.cookies.get(COOKIE, "")
        session = self._known.get(name)
        if session is not None and session.until <= self._clock():
            del self._known[name]
            return None
        return session

    def end(self, request: Request, response: Response) -> None:
        """Sign out."""
        self._known.pop(request.cookies.get(COOKIE, ""), None)
        response.delete_cookie(COOKIE, path="/")
