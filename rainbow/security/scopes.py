"""What a token may do at the broker itself: scopes for RabbitMQ's OAuth 2 plugin, from role and clusters.

A scope is ``rainbow.PERMISSION:VHOST/NAME/ROUTING_KEY``, where ``*`` stands for any text, dots included
(rabbitmq.com/docs/oauth2#scope-translation). A right to write to a topic exchange needs the part for the routing key:
without it some releases (3.10, 4.3) let nothing through. What each role needs is in `rainbow.security.access`; answers
come through direct reply-to, which needs no right of its own.

A right to publish is no right to be heard: scheduler, registrar and recorder check tokens and signatures all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

from rainbow import urls
from rainbow.security import access
from rainbow.security.tokens import AUDIENCE, Role


def for_token(
    role: Role, clusters: Iterable[str], vhost: str | None, groups: Mapping[str, frozenset[str]] | None = None
) -> list[str]:
    """The scopes of a token of `role` for `clusters` (names, ``@groups``, ``*``) on `vhost`.

    The broker knows no groups: those in `groups` are written out with the members they have now, and others open no
    queue. No scopes at all where there is no `vhost` (a broker that is not RabbitMQ).
    """
    if vhost is None:
        return []
    names = _names(clusters, groups or {})
    return [
        _scope(vhost, grant, cluster)
        for grant in access.GRANTS
        if role in grant.roles
        for cluster in (names if grant.per_cluster else [""])
    ]


def for_workers(vhost: str | None) -> list[str]:
    """The scopes of scheduler, registrar, recorder and returns: an admin's, and answering."""
    return [] if vhost is None else [_scope(vhost, grant, "") for grant in access.GRANTS if grant.workers]


def vhost_of(url: str) -> str | None:
    """The virtual host that an AMQP URL names (``/`` when it names none); None for other brokers' URLs."""
    parts = urls.split(urls.addresses(url, "broker")[0], "broker")
    if parts.scheme.rpartition("+")[2] not in ("amqp", "amqps"):
        return None
    return unquote(parts.path[1:]) or "/"


def _names(clusters: Iterable[str], groups: Mapping[str, frozenset[str]]) -> list[str]:
    given = set(clusters)
    if "*" in given:
        return ["*"]
    members = (groups.get(name, frozenset()) for name in given if name.startswith("@"))
    return sorted({n for n in given if not n.startswith("@")}.union(*members))


def _scope(vhost: str, grant: access.Grant, cluster: str) -> str:
    """A grant on one virtual host, its name written so that neither ``/`` nor ``*`` in it means anything."""
    place = f"{quote(vhost, safe='')}/{grant.name.format(cluster=cluster)}"
    key = "" if grant.key is None else f"/{grant.key.format(cluster=cluster)}"
    return f"{AUDIENCE}.{grant.permission}:{place}{key}"
