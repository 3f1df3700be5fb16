"""URLs of brokers and stores: taken apart, and shown, without ever telling the password in them.

What the standard library says about a URL that it cannot read quotes the URL, so it is asked nowhere else first.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from rainbow.errors import InvalidSettings

#: Where a login stands before the host, so that an ``@`` further on can only be a password's.
_WITH_LOGIN = ("amqp", "amqps", "pyamqp", "redis", "rediss", "valkey", "valkeys", "sentinel")
#: Schemes (after any ``PLUGIN+``) whose URLs may name several hosts.
_SEVERAL = ("amqp", "amqps", "pyamqp", "sentinel")
#: What other programs call a scheme.
_SPELLINGS = {
    "pyamqp": "amqp",
    "valkey": "redis",
    "valkeys": "rediss",
    "valkey+sentinel": "redis+sentinel",
    "valkeys+sentinel": "rediss+sentinel",
}

#: Between the URLs of a list: a comma within a password, path or list of hosts is no beginning of a URL.
_BETWEEN = re.compile(r"\s*,\s*(?=[A-Za-z][A-Za-z0-9+.-]*://)")


def addresses(url: str, what: str) -> list[str]:
    """The URLs in `url`, one host each: it may be several separated by commas, and a URL may name several hosts.

    ``amqp://u:p@a:1,b/v`` is ``amqp://u:p@a:1/v`` and ``amqp://u:p@b/v``. Raises InvalidSettings for a list with a
    missing or unreadable part. Only URLs of RabbitMQ and of Redis Sentinel may name several hosts.
    """
    found: list[str] = []
    for one in _BETWEEN.split(url.strip()):
        scheme, slashes, rest = one.partition("://")
        if scheme.rpartition("+")[2] not in _SEVERAL:
            found.append(one)
            continue
        login, at, place = rest.rpartition("@")
        hosts, slash, path = place.partition("/")
        found += [f"{scheme}{slashes}{login}{at}{host.strip()}{slash}{path}" for host in hosts.split(",")]
    if len(found) > 1:
        for one in found:
            if not split(one, what).hostname or one.endswith(","):
                raise InvalidSettings(
                    f"the list of {what} URLs {redact(url)!r} has a part without a host: "
                    "it looks like SCHEME://USER@HOST:PORT,HOST:PORT/NAME or SCHEME://…,SCHEME://…"
                )
    return found


def usual(url: str) -> str:
    """Return `url` (or a list of them) with today's spelling of each scheme: ``valkey://`` is ``redis://``."""
    listed = [(one, *one.partition("://")) for one in _BETWEEN.split(url.strip())]
    if not any(scheme in _SPELLINGS for _, scheme, _, _ in listed):
        return url
    return ",".join(f"{_SPELLINGS.get(scheme, scheme)}{slashes}{rest}" for _, scheme, slashes, rest in listed)


def split(url: str, what: str) -> SplitResult:
    """The parts of the URL of `what` (broker, store), whose port is then a number. Raises InvalidSettings."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = None
    if parts is None or (parts.scheme.rpartition("+")[2] in _WITH_LOGIN and _ambiguous(url, parts)):
        scheme = url.partition("://")[0] if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", url) else "?"
        raise InvalidSettings(
            f"the {what} URL ({scheme}://...) cannot be read: it looks like SCHEME://USER:PASSWORD@HOST:PORT/NAME; "
            "percent-encode user and password: / is written %2F, ? %3F, # %23, @ %40, : %3A"
        ) from None
    return parts


def _ambiguous(url: str, parts: SplitResult) -> bool:
    """Whether a part of the password may have been taken for the host, the path or the fragment."""
    return url.count("@") > 1 or ("@" in url and "@" not in parts.netloc) or "#" in url


def redact(url: str) -> str:
    """The URL for logs and errors: without its password, and without the values of its options.

    Whatever stands before the last ``@`` is taken for a login, also where the URL is not as it should be.
    """
    listed = _BETWEEN.split(url)
    if len({"@" in one for one in listed}) == 1:
        return ",".join(_redact(one) for one in listed)
    return _redact(url)  # what looks like another URL may be a part of a password


def _redact(url: str) -> str:
    scheme, slashes, rest = url.partition("://") if "://" in url else ("", "", url)
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    if at and (not slashes or set(user) & set("/?#")):
        user, colon = "***", ""  # nothing says where in it the password begins
    place, options, _ = place.partition("?")
    return f"{scheme}{slashes}{user}{':***' if colon else ''}{at}{place}{'?***' if options else ''}"
