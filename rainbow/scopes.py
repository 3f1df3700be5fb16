"""What a token may do at the broker itself: scopes for RabbitMQ's OAuth 2 plugin, from role and clusters.

A scope is ``rainbow.PERMISSION:VHOST/NAME/ROUTING_KEY``, where ``*`` stands for any text, dots included
(rabbitmq.com/docs/oauth2#scope-translation). A right to write to a topic exchange needs the part for the routing key:
without it some releases (3.10, 4.3) let nothing through. What each role needs follows from `rainbow.topology`:

- every client asks the registrar, and gets its answers through direct reply-to, which needs no right of its own;
- a submitter writes to `rainbow.submit`;
- an agent reads the two queues of its cluster, and writes events under its cluster's routing keys alone;
- an admin does everything with what is ours; the workers also answer, through the default exchange.

A right to publish is no right to be heard: scheduler, registrar and recorder check tokens and signatures all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

from rainbow import topology, urls
from rainbow.tokens import AUDIENCE, Role


def for_token(
    role: Role, clusters: Iterable[str], vhost: str | None, groups: Mapping[str, frozenset[str]] | None = None
) -> list[str]:
    """The scopes of a token of `role` for `clusters` (names, ``@groups``, ``*``) on `vhost`.

    The broker knows no groups: those in `groups` are written out with the members they have now, and others open no
    queue. No scopes at all where there is no `vhost` (a broker that is not RabbitMQ).
    """
    if vhost is None:
        return []
    place = _Place(vhost)
    if role == "admin":
        return place.everything()
    scopes = [place.write(topology.CONTROL)]
    if role == "submit":
        scopes.append(place.write(topology.SUBMIT))
    elif role == "agent":
        for name in _names(clusters, groups or {}):
            scopes += (
                place.read(f"{topology.JOBS}.{name}"),
                place.read(f"rainbow.agent.{name}"),
                place.write(topology.EVENTS, topology.event_key(name, "*")),
            )
    return scopes


def for_workers(vhost: str | None) -> list[str]:
    """The scopes of scheduler, registrar, recorder and returns: an admin's, and answering."""
    if vhost is None:
        return []
    place = _Place(vhost)
    return [*place.everything(), f"{AUDIENCE}.write:{place.vhost}/amq.default"]


def for_enrolment(vhost: str | None) -> list[str]:
    """The scopes of a pass for agents without a token: asking to be let in, and nothing else."""
    return [] if vhost is None else [_Place(vhost).write(topology.CONTROL, "enroll")]


def vhost_of(url: str) -> str | None:
    """The virtual host that an AMQP URL names (``/`` when it names none); None for other brokers' URLs."""
    parts = urls.split(url, "broker")
    if parts.scheme.rpartition("+")[2] not in ("amqp", "amqps"):
        return None
    return unquote(parts.path[1:]) or "/"


def _names(clusters: Iterable[str], groups: Mapping[str, frozenset[str]]) -> list[str]:
    given = set(clusters)
    if "*" in given:
        return ["*"]
    members = (groups.get(name, frozenset()) for name in given if name.startswith("@"))
    return sorted({n for n in given if not n.startswith("@")}.union(*members))


class _Place:
    """Scopes on one virtual host, its name written so that neither ``/`` nor ``*`` in it means anything."""

    def __init__(self, vhost: str) -> None:
        self.vhost = quote(vhost, safe="")

    def read(self, name: str) -> str:
        return f"{AUDIENCE}.read:{self.vhost}/{name}"

    def write(self, exchange: str, routing_key: str = "*") -> str:
        return f"{AUDIENCE}.write:{self.vhost}/{exchange}/{routing_key}"

    def everything(self) -> list[str]:
        return [
            f"{AUDIENCE}.configure:{self.vhost}/rainbow.*",
            self.write("rainbow.*"),
            # Topic exchanges ask for the right to bind, too, by routing key.
            f"{self.read('rainbow.*')}/*",
        ]
