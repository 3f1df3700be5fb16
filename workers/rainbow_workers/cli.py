"""The `rainbow-scheduler` program: the workers on RabbitMQ and Redis. The one place that builds their parts."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rainbow.brokers.base import Broker
    from rainbow.settings import Settings
    from rainbow_workers.service import Service
    from rainbow_workers.stores.base import Store

log = logging.getLogger(__name__)

app = typer.Typer(add_completion=False, no_args_is_help=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(epilog="Example: rainbow-scheduler --config rainbow-config.yaml --only scheduler --only returns")
def run(
    config: Annotated[Path | None, typer.Option(help="Settings file (rainbow-config.yaml).")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Start only this worker: scheduler, bidding, registrar, recorder, returns. Repeatable."),
    ] = None,
    declare: Annotated[bool, typer.Option(help="Declare exchanges and queues on start.")] = True,
) -> None:
    """Run the workers: schedule submissions, keep the registry, record events, place anew what comes back."""
    from rainbow import exposure, logs, settings
    from rainbow.errors import InvalidInput
    from rainbow.program import up
    from rainbow_workers import metrics
    from rainbow_workers.service import WORKERS

    given = settings.load(config)
    logs.setup(given.log_level, given.log_format, settings.secrets(given))
    exposure.warn_if_exposed(config)
    workers = tuple(only) if only else WORKERS
    unknown = [w for w in workers if w not in WORKERS]
    if unknown:
        raise InvalidInput(f"no worker named {unknown[0]!r}: choose from {', '.join(WORKERS)}")

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    broker, store, service = build(given, workers, declare=declare)
    address = given.scheduler.metrics
    with ExitStack() as ending:
        ending.callback(store.close)
        ending.callback(broker.close)
        ending.callback(service.stop)
        if address is not None:
            ending.callback(metrics.serve(service, address, users=given.scheduler.metrics_users))
        if not _started(service, stop):
            return
        up()
        log.info("workers run", extra={"action": "start", "workers": ",".join(workers)})
        while not stop.wait(0.5):
            error = service.failed()
            if error is not None:
                raise error


def _started(service: Service, stop: threading.Event) -> bool:
    """Start the workers, waiting for broker and store for as long as it takes: they may come up after us. False when
    told to stop meanwhile. Raises what waiting does not mend."""
    from rainbow.backoff import Backoff
    from rainbow.errors import Unavailable

    backoff = Backoff(first=0.5, most=15.0)
    while True:
        try:
            service.start()
        except Unavailable as exc:
            log.warning("not started yet, trying again: %s", exc, extra={"action": "start", "code": exc.code})
            if backoff.wait(stop):
                return False
        else:
            return True


def _store(given: Settings) -> Store:
    from rainbow.brokers import Tls
    from rainbow_workers.stores import StoreOptions, open_store

    tls = given.store.tls
    return open_store(
        StoreOptions(
            url=given.store.url.get_secret_value(),
            prefix=given.store.prefix,
            tls=Tls(*(str(p) if p else None for p in (tls.ca, tls.cert, tls.key))),
            timeout=given.store.timeout,
            keep=given.store.keep,
            alive_after=given.scheduler.alive_after,
            jobspec_bytes=given.store.jobspec_bytes,
        )
    )


def build(given: Settings, workers: tuple[str, ...], *, declare: bool) -> tuple[Broker, Store, Service]:
    """Broker, store and service from the settings."""
    from rainbow import settings
    from rainbow.brokers import connect
    from rainbow.security import scopes
    from rainbow.security.oauth import worker_password
    from rainbow.security.tokens import KeyRing
    from rainbow_workers.clusters.circuit_breaker import BreakerPolicy
    from rainbow_workers.scheduling.waiting import waiting_policy
    from rainbow_workers.service import Service, ServiceOptions

    ring = KeyRing.load(given.keyring)
    store = _store(given)
    vhost = scopes.vhost_of(given.broker.url.get_secret_value())
    name = "rainbow-scheduler"
    service: Service | None = None

    def ring_now() -> KeyRing:
        return ring if service is None else service.ring()

    user, password = (name, worker_password(ring_now, vhost, name)) if given.broker.oauth else (None, None)
    broker = connect(settings.connect_options(given, name, user=user, password=password))
    s = given.scheduler
    options = ServiceOptions(
        workers=workers,
        selection=s.algorithms.selection.name,
        selection_options=s.algorithms.selection.options,
        graphs=given.graphdatabase.name,
        limits=settings.limits(given),
        declare=declare and s.declare,
        batch=s.batch,
        prefetch=s.prefetch,
        reserve=s.reserve,
        alive_after=s.alive_after,
        retry_after=s.retry_after,
        keep=given.store.keep,
        max_attempts=s.max_attempts,
        breaker=BreakerPolicy(s.breaker.threshold, s.breaker.fast, s.breaker.probe),
        failover_rate=s.failover_rate,
        waiting=waiting_policy(s.waiting),
        secret=settings.secret(s.secret) if s.allow_secret else None,
        vhost=vhost,
        ring_file=given.keyring,
        audit=s.audit,
        audit_bytes=s.audit_bytes,
        audit_keep=s.audit_keep,
        agent_ttl=s.agent_token_ttl,
        submit_ttl=s.user_token_ttl,
        message_bytes=given.limits.message_bytes,
        control_bytes=given.limits.control_bytes,
        depth=given.limits.depth,
    )
    service = Service(broker, store, ring, options)
    return broker, store, service


def main() -> None:
    """Run, and turn errors into one line and an exit code."""
    from typer.main import get_command

    from rainbow.helptext import plain
    from rainbow.program import run as run_program

    command = plain(get_command(app))
    run_program("rainbow-scheduler", lambda: command.main(prog_name="rainbow-scheduler", standalone_mode=False))


if __name__ == "__main__":
    main()
