"""What `rainbow doctor` looks at. A check never raises: what it meets is its result."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rainbow.errors import (
    BadCredentials,
    Denied,
    InvalidSettings,
    NotFound,
    RainbowError,
    TimedOut,
    TopologyMismatch,
    Unavailable,
    UnknownPlugin,
    Unroutable,
)

if TYPE_CHECKING:
    from rainbow.brokers.base import Broker
    from rainbow.settings import Settings

#: Seconds for each question to the outside.
_LIMIT = 5.0
#: A token that runs out within this many seconds is worth a word.
_SOON = 3 * 86400


@dataclass(frozen=True, slots=True)
class Check:
    """`ok` is None for what was passed over. `unreachable` marks a broker or store that does not answer."""

    name: str
    ok: bool | None
    detail: str
    advice: str | None = None
    unreachable: bool = False

    @property
    def word(self) -> str:
        return {True: "ok", False: "problem", None: "-"}[self.ok]

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def run(config: Path | None) -> list[Check]:
    """All checks, in the order in which things depend on each other."""
    from rainbow.cli.session import load_settings
    from rainbow.exposure import exposed
    from rainbow.settings import Settings, find

    checks = [*_versions()]
    try:
        settings = load_settings(config)
        path = find(config)
        advice = f"others can read the secrets in it: `chmod 600 {path}`" if exposed(config) else None
        checks.append(Check("settings", True, str(path) if path else "no file: defaults and environment", advice))
    except InvalidSettings as exc:
        checks.append(Check("settings", False, str(exc), "mend the file, or make a new one: `rainbow config init`"))
        return checks
    assert isinstance(settings, Settings)
    for check in _ALL:
        checks.extend(check(settings))
    return checks


def _versions() -> Iterator[Check]:
    names = ("rainbow-hpc", "pika", "redis", "kombu")
    found = []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    yield Check("versions", True, ", ".join((f"Python {sys.version.split()[0]}", *found)))


# -- broker ----------------------------------------------------------------------------------------------


def _broker(settings: Settings) -> Iterator[Check]:
    from rainbow.brokers import redact
    from rainbow.client.reachability import why_not

    url = settings.broker.url.get_secret_value()
    shown = redact(url)
    why = why_not(url)
    if why is not None:
        yield Check("broker", False, f"{shown}: {why}", "start it, or set broker.url (RAINBOW_BROKER_URL)", True)
        return
    try:
        broker = _connect(settings)
    except RainbowError as exc:
        yield Check("broker", False, str(exc), "mend broker.url, or install what is missing")
        return
    try:
        reached, missing = _look(broker, shown)
        yield reached
        if reached.ok:
            yield _queues(broker, settings, missing)
            yield _registrar(settings)
    finally:
        broker.close()


def _connect(settings: Settings) -> Broker:
    from rainbow.brokers import connect
    from rainbow.client.connection import connect_options
    from rainbow.client.credentials import Credentials

    options = connect_options(settings, Credentials.from_settings(settings), "rainbow-doctor")
    return connect(replace(options, connect_timeout=_LIMIT / 2, publish_timeout=_LIMIT / 2))


def _look(broker: Broker, shown: str) -> tuple[Check, list[str] | None]:
    """Can we log in, and which of our queues are missing (None: we may not look)?"""
    from rainbow import topology

    missing: list[str] | None = []
    try:
        for queue in topology.core().queues:
            try:
                broker.stats(queue.name)
            except NotFound:
                assert missing is not None
                missing.append(queue.name)
    except BadCredentials as exc:
        return Check(
            "broker", False, str(exc), "set user and password in broker.url, or broker.oauth with a token"
        ), None
    except Denied:
        missing = None
    except Unavailable as exc:
        return Check("broker", False, str(exc), "see the broker's log; does its virtual host exist?", True), None
    except RainbowError as exc:
        return Check("broker", False, str(exc), "see the broker's log"), None
    return Check("broker", True, f"connected to {shown}"), missing


def _queues(broker: Broker, settings: Settings, missing: list[str] | None) -> Check:
    from rainbow import topology
    from rainbow.cli.known_clusters import known_clusters
    from rainbow.settings import limits

    bounds = limits(settings)
    wanted = topology.core(bounds)
    if missing is None:
        return Check("queues", None, "not visible with these rights, which is fine for submitting")
    if missing:
        named = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        return Check("queues", False, f"missing: {named}", "run `rainbow broker setup`")
    names = known_clusters(settings)
    try:
        for name in names or ():
            with suppress(NotFound):  # of a cluster whose queue is gone, its agent has it made again
                for queue in topology.cluster_queues(name):
                    broker.stats(queue)
                wanted += topology.cluster(name, bounds)
        # All are there, so this changes nothing: the broker only compares.
        broker.declare(wanted)
    except TopologyMismatch as exc:
        advice = "it works with the limits it has; `rainbow broker migrate` changes them" if exc.tolerable else None
        return Check("queues", False, str(exc), advice or "run `rainbow broker migrate`, or change `queues` to match")
    except Denied:
        return Check(
            "queues", None, f"all {len(wanted.queues)} are there; how they are is not visible with these rights"
        )
    except RainbowError as exc:
        return Check("queues", False, str(exc), "see the broker's log")
    unseen = "" if names is not None else "; those of clusters are not known here"
    return Check("queues", True, f"all {len(wanted.queues)} are there as declared{unseen}")


def _registrar(settings: Settings) -> Check:
    from rainbow.client import Client

    start = "start rainbow-scheduler, and see its log"
    try:
        with Client(settings=settings, timeout=_LIMIT, name="rainbow-doctor") as client:
            asked = time.time()
            answer = client.ping()
            took = time.time() - asked
    except Unroutable as exc:
        return Check("registrar", False, str(exc), start)
    except TimedOut:
        return Check("registrar", False, f"no answer within {_LIMIT:g} s", start)
    except RainbowError as exc:
        return Check("registrar", False, str(exc), start)
    theirs, mine = str(answer.get("version")), version("rainbow-hpc")
    skew = float(answer.get("time") or asked) - asked
    if abs(skew) > 30 + took:
        return Check("registrar", False, f"its clock differs by {skew:.0f} s", "set the clocks: tokens depend on them")
    if theirs != mine:
        return Check("registrar", True, f"answers in {took * 1000:.0f} ms; it is {theirs}, this is {mine}")
    return Check("registrar", True, f"answers in {took * 1000:.0f} ms; the same version")


# -- store -----------------------------------------------------------------------------------------------


def _store(settings: Settings) -> Iterator[Check]:
    from rainbow.brokers import redact
    from rainbow.cli.known_clusters import open_store
    from rainbow.client.reachability import why_not

    if "store" not in settings.model_fields_set:
        yield Check("store", None, "not set here: only the scheduler's side needs it")
        return
    url = settings.store.url.get_secret_value()
    why = why_not(url)
    if why is not None:
        yield Check("store", False, f"{redact(url)}: {why}", "start it, or set store.url (RAINBOW_STORE_URL)", True)
        return
    try:
        store = open_store(settings)
    except (UnknownPlugin, ImportError) as exc:
        yield Check(
            "store", None, f"not looked at: {exc}", "on the scheduler's side: pip install 'rainbow-hpc[scheduler]'"
        )
        return
    except RainbowError as exc:
        yield Check("store", False, str(exc), "mend store.url")
        return
    try:
        warnings = store.warnings()
        # As the scheduler reads it: a server that lets us in may still refuse these keys, or scripts.
        store.clusters.changes(0)
    except BadCredentials as exc:
        yield Check("store", False, str(exc), "set user and password in store.url, or give the user these rights")
        return
    except Unavailable as exc:
        yield Check("store", False, str(exc), "start it, or set store.url (RAINBOW_STORE_URL)", True)
        return
    finally:
        store.close()
    yield Check("store", True, f"connected to {redact(url)}")
    for warning in warnings:
        yield Check("store", False, warning, "see the store's configuration")


# -- keys and tokens -------------------------------------------------------------------------------------


def _keys(settings: Settings) -> Iterator[Check]:
    from rainbow.security.tokens import KeyRing

    if not settings.keyring.exists():
        yield Check("key ring", None, f"none at {settings.keyring}: only the scheduler's side needs it")
        return
    try:
        ring = KeyRing.load(settings.keyring)
    except InvalidSettings as exc:
        yield Check("key ring", False, str(exc), "mend it: without it nobody can be let in")
        return
    yield Check("key ring", True, f"{settings.keyring}: {len(ring.keys)} key(s), signs with {ring.signing[0]}")


def _tokens(settings: Settings) -> Iterator[Check]:
    from rainbow.client.credentials import Credentials

    try:
        held = Credentials.from_settings(settings)
    except InvalidSettings as exc:
        yield Check("token", False, str(exc), "mend token_file")
        return
    named = [
        ("token", held.own),
        *((f"token for {name}", token) for name, token in held.clusters.items()),
        (f"secret of {held.served}", held.agent),
    ]
    if not any(token for _, token in named):
        advice = "get one (`rainbow token issue --save`, on the scheduler's side) and set RAINBOW_TOKEN or `token`"
        yield Check("token", False, "there is none: nothing can be submitted", advice)
    for name, token in named:
        if token:
            yield _token(settings, name, token)


def _token(settings: Settings, name: str, token: str) -> Check:
    from rainbow.client.credentials import peek
    from rainbow.security import tokens

    anew = "get a new one: `rainbow token issue`"
    if settings.keyring.exists():
        try:
            tokens.verify(tokens.KeyRing.load(settings.keyring), token)
        except Denied as exc:
            return Check(name, False, str(exc), anew)
        except InvalidSettings:
            pass  # said already
    claims = peek(token)
    expires = claims.get("exp")
    if not isinstance(expires, int | float):
        return Check(name, False, "it is not a token", anew)
    left = expires - time.time()
    if left <= 0:
        return Check(name, False, f"it ran out {_length(-left)} ago", anew)
    said = f"{claims.get('sub')} may {claims.get('role')} for {_length(left)} more"
    return Check(name, True, said, anew if left < _SOON else None)


def _length(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


# -- Flux ------------------------------------------------------------------------------------------------


def _flux(settings: Settings) -> Iterator[Check]:
    program = shutil.which("flux")
    if program is None:
        needed = settings.cluster.name is not None and settings.agent.executor in ("auto", "flux", "flux-cli")
        yield Check(
            "flux",
            False if needed else None,
            "not on PATH" + ("" if needed else ": only an agent of a Flux cluster needs it"),
            "start the agent inside Flux, or set agent.executor" if needed else None,
        )
        return
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_LIMIT, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as exc:
        yield Check("flux", False, f"{program} does not start ({type(exc).__name__})", "mend the Flux installation")
        return
    first = next(iter(said.stdout.splitlines()), "").strip()
    yield Check("flux", True, first or program)


def _extras(settings: Settings) -> Iterator[Check]:
    """What was asked for, and is not installed: traces, metrics."""
    from rainbow import tracing

    wanted = {
        "metrics": (settings.scheduler.metrics or settings.agent.metrics, "prometheus_client", "metrics"),
        "traces": (tracing.is_wanted(), "opentelemetry.exporter.otlp.proto.http", "otel"),
    }
    for name, (asked, module, extra) in wanted.items():
        if asked and not _importable(module):
            yield Check(name, False, f"{module} is not installed", f"pip install 'rainbow-hpc[{extra}]'")
        elif asked:
            yield Check(name, True, f"on ({asked})" if isinstance(asked, str) else "on, by the variables OTEL_*")


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


_ALL: tuple[Callable[[Settings], Iterator[Check]], ...] = (_broker, _store, _keys, _tokens, _extras, _flux)
