"""Enrollment: an agent that has no token yet asks for one, shows a code, and registers once an admin approved.

What it asks with is its identity, made here and kept here: nothing secret is typed or mailed.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

from rainbow import brokers
from rainbow.brokers.base import Broker
from rainbow.client.credentials import peek
from rainbow.client.rpc import Rpc
from rainbow.errors import InvalidSettings, TimedOut, Unavailable
from rainbow.resources.graph.json_stream import Blocks
from rainbow.resources.readers.summary import Summary
from rainbow.security import bearer
from rainbow.security.enrollment import code
from rainbow.settings import Settings, connect_options, secret
from rainbow_agents.discovery import discover
from rainbow_agents.identity import Identity, Registration
from rainbow_agents.registration.client import RegistrationClient

log = logging.getLogger(__name__)


def enroll(
    settings: Settings,
    *,
    say: Callable[[str], None],
    stop: threading.Event,
    every: float = 2.0,
    summary: Callable[[], Summary] | None = None,
) -> Registration:
    """Ask, tell the code through `say`, wait for an admin, register, and keep the registration for `rainbow-agent run`.

    With `broker.oauth` the broker is entered with the pass (`rainbow enroll pass`) that stands where the token will.
    Raises Denied, Conflict, InvalidSettings; TimedOut when the question ran out or `stop` was set.
    """
    cluster = settings.cluster.name
    if cluster is None:
        raise InvalidSettings("which cluster is this? set cluster.name (--cluster, or RAINBOW_CLUSTER_NAME)")
    known = Blocks()
    fold = summary or (lambda: discover(settings.agent.graph, settings.agent.subsystems, known))
    fold()  # what is wrong with the graph is found before anybody is asked
    identity = Identity(settings.agent.state_dir / cluster)
    token = _ask(settings, cluster, identity, say, stop, every)
    registrar = RegistrationClient(
        cluster=cluster, identity=identity, summary=fold, token=token, matcher=settings.agent.matcher
    )
    broker = _connect(settings, cluster, token)
    try:
        rpc = Rpc(broker)
        try:
            return registrar.register(rpc)
        finally:
            rpc.close()
    finally:
        broker.close()


def _ask(
    settings: Settings,
    cluster: str,
    identity: Identity,
    say: Callable[[str], None],
    stop: threading.Event,
    every: float,
) -> str:
    request = {"op": "enroll", "cluster": cluster, "identity": identity.name, "place": socket.gethostname()[:256]}
    broker = _connect(settings, cluster, _pass(settings) if settings.broker.oauth else None)
    rpc = Rpc(broker)
    said = False
    try:
        while True:
            try:
                answer = rpc.call(request, 15.0)
            except (Unavailable, TimedOut) as exc:
                log.warning("not asked yet: %s", exc, extra={"action": "enroll", "code": exc.code})
            else:
                if answer.get("status") == "approved":
                    return str(answer["token"])
                if not said:
                    shown = code(cluster, identity.name)
                    say(f"asking to serve cluster {cluster}; an administrator lets this agent in with:")
                    say(f"  rainbow enroll approve {shown}")
                    said = True
            if stop.wait(every):
                raise TimedOut(f"nobody has approved this agent for cluster {cluster} yet: ask again any time")
    finally:
        rpc.close()
        broker.close()


def _pass(settings: Settings) -> str:
    token = secret(settings.token)
    if token is None and settings.token_file is not None:
        token = bearer.read_file(settings.token_file)
    if token is None:
        raise InvalidSettings(
            "only tokens open this broker (broker.oauth): set token or token_file to what `rainbow enroll pass` prints"
        )
    return token


def _connect(settings: Settings, cluster: str, token: str | None) -> Broker:
    name = f"rainbow-agent {cluster}"
    if token is None or not settings.broker.oauth:
        return brokers.connect(connect_options(settings, name))
    user = str(peek(token).get("sub") or "enrollment")
    return brokers.connect(connect_options(settings, name, user=user, password=lambda: token))
