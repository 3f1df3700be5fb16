"""URLs of brokers and stores: taken apart, and shown, without ever telling the password in them.

What the standard library says about a URL that it cannot read quotes the URL, so it is asked nowhere else first.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from rainbow.errors import InvalidSettings

#: Where a login stands before the host, so that an ``@`` further on can only be a password's.
_WITH_LOGIN = ("amqp", "amqps", "pyamqp", "redis", "rediss", "valkey", "valkeys")


def split(url: str, what: str) -> SplitResult:
    """The parts of the URL of `what` (broker, store), whose port is then a number. Raises InvalidSettings."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = None
    lost = parts is not None and "@" not in parts.netloc and "@" in url and parts.scheme.split("+")[-1] in _WITH_LOGIN
    if parts is None or lost:
        raise InvalidSettings(
            f"the {what} URL {redact(url)!r} cannot be read: it looks like SCHEME://USER:PASSWORD@HOST:PORT/NAME; "
            "in user and password, / is written %2F, ? %3F, # %23, @ %40, : %3A"
        ) from None
    return parts


def redact(url: str) -> str:
    """The URL for logs and errors: without its password, and without the values of its options.

    Whatever stands before the last ``@`` is taken for a login, also where the URL is not as it should be.
    """
    scheme, slashes, rest = url.partition("://") if "://" in url else ("", "", url)
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    if at and (not slashes or set(user) & set("/?#")):
        user, colon = "***", ""  # nothing says where in it the password begins
    place, options, _ = place.partition("?")
    return f"{scheme}{slashes}{user}{':***' if colon else ''}{at}{place}{'?***' if options else ''}"
