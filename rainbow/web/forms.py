"""Forms of pages: bounded, and a change only with the one that a page of the same session made."""

from __future__ import annotations

import hmac
from urllib.parse import parse_qsl

from starlette.requests import Request

from rainbow.errors import Denied
from rainbow.web.answers import read_body
from rainbow.web.sessions import Session

#: Bytes that a form may have: a token, and a few words.
_FORM = 32_768


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form. Raises TooLarge."""
    body = await read_body(request, _FORM)
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


async def checked_form(request: Request, session: Session) -> dict[str, str]:
    """The form of a change. Raises Denied unless it was made by a page of this session."""
    form = await read_form(request)
    if not hmac.compare_digest(form.get("csrf", ""), session.csrf):
        raise Denied("this form is not of your session: load the page again")
    return form
