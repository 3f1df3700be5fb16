"""What `rainbow-agent check` looks at: each part an agent needs, and what to do where one is missing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rainbow.brokers import redact
from rainbow.client.rpc import Rpc
from rainbow.errors import BrokerUnavailable, RainbowError, TimedOut
from rainbow.settings import Settings
from rainbow_agents.agent import Agent
from rainbow_agents.executors.base import Down, ExecutorDown, ExecutorEvent, Up


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    what: str
    ok: bool
    detail: str
    exit_code: int = 0


def examine(load: Callable[[], Settings], *, within: float = 10.0) -> list[Finding]:
    """All findings, in the order an agent would meet them; stops where nothing further can be looked at."""
    return list(_examine(load, within))


def _examine(load: Callable[[], Settings], within: float) -> Iterator[Finding]:
    try:
        settings = load()
    except RainbowError as exc:
        yield _wrong("settings", exc)
        return
    yield Finding("settings", True, f"executor {settings.agent.executor}")
    try:
        agent = Agent(settings)
    except RainbowError as exc:
        yield _wrong("identity and policy", exc)
        return
    registered = "registered before" if agent.registrar.registered else "not registered yet, with a token to do so"
    yield Finding("identity", True, f"cluster {agent.cluster}, {registered}")
    try:
        yield from _resources(agent)
        yield from _executor(agent, within)
        yield from _broker(agent, within)
    finally:
        agent.journal.close()


def _resources(agent: Agent) -> Iterator[Finding]:
    try:
        summary = agent.summary()
    except RainbowError as exc:
        yield _wrong("resources", exc)
        return
    yield Finding("resources", True, summary.describe())
    for warning in list(summary.warnings)[:5]:
        yield Finding("resources", True, f"note: {warning}")


def _executor(agent: Agent, within: float) -> Iterator[Finding]:
    told: list[ExecutorEvent] = []
    arrived = threading.Event()

    def listen(happening: ExecutorEvent) -> None:
        told.append(happening)
        if isinstance(happening, Up | Down):
            arrived.set()

    try:
        executor = agent.make_executor(listen)
    except RainbowError as exc:
        yield _wrong("executor", exc)
        return
    try:
        arrived.wait(within)
        down = next((h.reason for h in told if isinstance(h, Down)), "it does not answer")
        if not any(isinstance(h, Up) for h in told):
            yield Finding("executor", False, f"{agent.settings.agent.executor} cannot be used: {down}", 4)
            return
        usage = executor.usage()
        yield Finding("executor", True, ", ".join(f"{k} {v}" for k, v in usage.values().items()))
    except ExecutorDown as exc:
        yield Finding("executor", False, str(exc), 4)
    finally:
        executor.close()


def _broker(agent: Agent, within: float) -> Iterator[Finding]:
    url = redact(agent.settings.broker.url.get_secret_value())
    broker = None
    try:
        broker = agent.connect()
        end = time.monotonic() + within
        while not broker.status.connected and time.monotonic() < end:
            time.sleep(0.05)
        rpc = Rpc(broker, token=agent.registrar.token)
        if not broker.status.connected:
            # Credentials that are refused say so at the first call; a broker that is away does not.
            rpc.call({"op": "ping", "version": 1}, timeout=0.5)
        yield Finding("broker", True, url)
        answer = rpc.call({"op": "ping", "version": 1}, timeout=within)
        skew = abs(float(answer.get("time") or time.time()) - time.time())
        if skew > 30:
            text = f"its clock and ours differ by {skew:.0f} s: set the clocks (tokens allow 60 s)"
            yield Finding("registrar", False, text, 1)
        else:
            yield Finding("registrar", True, f"release {answer.get('version', '?')} answers")
        if not agent.registrar.registered:
            yield from _name(agent.cluster, rpc.call({"op": "clusters", "version": 1}, timeout=within))
    except TimedOut as exc:
        if broker is not None and not broker.status.connected:
            yield _wrong("broker", BrokerUnavailable(f"{url} cannot be reached: is it running, is the URL right?"))
        else:
            yield _wrong("registrar", exc)
    except RainbowError as exc:
        yield _wrong("broker", exc)
    finally:
        if broker is not None:
            broker.close()


def _name(cluster: str, listed: Mapping[str, Any]) -> Iterator[Finding]:
    """The name of a cluster that was not registered from this state folder must be free."""
    if any(known.get("name") == cluster for known in listed.get("clusters", ())):
        text = (
            f"cluster {cluster} is registered by somebody else: choose another name, use the state folder that it was "
        )
        yield Finding("name", False, f"{text}registered from, or have an admin delete it first", 1)


def _wrong(what: str, exc: RainbowError) -> Finding:
    return Finding(what, False, exc.message, exc.exit_code)
