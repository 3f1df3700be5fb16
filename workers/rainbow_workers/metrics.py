"""Metrics for Prometheus: read from the workers when they are asked for, so that the hot path only counts.

Labels are bounded: workers, kinds of outcome, states, codes, names of clusters; never those of jobs, and
of users only where that is set.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from rainbow import monitoring, topology
from rainbow.errors import InvalidSettings, RainbowError
from rainbow_workers.records.seen import BOUNDS as START_BOUNDS
from rainbow_workers.records.seen import Seen
from rainbow_workers.scheduling.durations import BOUNDS, Durations
from rainbow_workers.service import Service
from rainbow_workers.stores.base import Tally

#: Seconds without a look at its queue after which a worker is taken for stuck. A batch may wait for the store, whose
#: time-outs are much shorter.
STUCK = 300.0


def serve(service: Service, address: str, *, users: bool = False) -> Callable[[], None]:
    """Answer ``/metrics``, ``/healthz`` and ``/readyz`` on ``HOST:PORT``. Returns a function that stops it.

    With `users`, the jobs of each user are among the metrics: as many labels as there are users.

    Raises InvalidSettings without prometheus-client, or for an address that cannot be used.
    """
    try:
        from prometheus_client import CollectorRegistry
    except ImportError:
        raise InvalidSettings("metrics need prometheus-client: pip install 'rainbow-hpc[metrics]'") from None
    depths = Depths(service)
    registry = CollectorRegistry()
    registry.register(Collector(service, depths, users=users))
    end = monitoring.serve(
        address,
        "scheduler.metrics",
        registry,
        unhealthy=lambda: unhealthy(service),
        unready=lambda: unhealthy(service) or unready(service),
    )
    depths.start()

    def stop() -> None:
        depths.stop()
        end()

    return stop


def unhealthy(service: Service) -> str | None:
    """Why the program should be restarted: a worker that ended or is stuck. None when it is well."""
    now = time.monotonic()
    for worker in service.workers:
        if worker.error is not None:
            return f"worker {worker.task_name} ended: {type(worker.error).__name__}"
        if worker.is_alive() and now - worker.looked_at > STUCK:
            return f"worker {worker.task_name} has not looked at its queue for {now - worker.looked_at:.0f} s"
    return None


def unready(service: Service) -> str | None:
    """Why jobs are not scheduled now: no broker, a broker that takes no messages, or no store. None when they are."""
    status = service.broker.status
    if not status.connected:
        return "no connection to the broker"
    if status.blocked is not None:
        return f"the broker takes no messages: {status.blocked}"
    if any(not worker.is_alive() for worker in service.workers):
        return "the workers have not started"
    stopped = next((w.task_name for w in service.workers if not w.consuming), None)
    return None if stopped is None else f"worker {stopped} consumes nothing: it waits for the store"


class Depths(threading.Thread):
    """Messages that wait in the shared queues, dead letters among them, and jobs that wait and run by the store.

    Asked from time to time, so that a broker or store that does not answer delays no scrape.
    """

    EVERY = 5.0
    QUEUES = tuple(queue.name for queue in topology.core().queues)

    def __init__(self, service: Service) -> None:
        super().__init__(name="rainbow-depths", daemon=True)
        self._service = service
        self._stopping = threading.Event()
        #: By queue; empty while they cannot be known.
        self.known: dict[str, int] = {}
        #: Jobs that wait and run; empty while the store does not answer.
        self.jobs: dict[str, int] = {}
        self.by_user: Mapping[tuple[str, str], Tally] = {}
        #: Seconds that the store took for that; None while it does not answer.
        self.store_seconds: float | None = None

    def run(self) -> None:
        while True:
            try:
                self.known = {name: self._service.broker.stats(name).messages for name in self.QUEUES}
            except RainbowError:  # of what is wrong with the broker the log is full already
                self.known = {}
            began = time.monotonic()
            try:
                self.by_user = self._service.store.jobs.tally()
            except RainbowError:
                self.jobs, self.by_user, self.store_seconds = {}, {}, None
            else:
                tallies = self.by_user.values()
                self.store_seconds = time.monotonic() - began
                counted = {"waiting": sum(t.waiting for t in tallies), "running": sum(t.running for t in tallies)}
                self.jobs = counted
            if self._stopping.wait(self.EVERY):
                return

    def stop(self) -> None:
        self._stopping.set()


class Collector:
    """What prometheus-client asks at each scrape."""

    def __init__(self, service: Service, depths: Depths, *, users: bool = False) -> None:
        self._service = service
        self._depths = depths
        self._users = users

    def collect(self) -> Iterator[Any]:
        """The families of metrics, read from the workers now."""
        yield from self._broker_and_workers()
        yield from self._jobs_and_clusters()
        yield from self._waits_and_use()

    def _broker_and_workers(self) -> Iterator[Any]:
        status, workers, now = self._service.broker.status, self._service.workers, time.monotonic()
        yield _gauge("rainbow_broker_connected", "1 while there is a connection to the broker.", status.connected)
        yield _counter("rainbow_broker_reconnects", "Connections to the broker made again.", status.reconnects)
        consuming = {w.task_name: w.consuming for w in workers}
        yield _gauge("rainbow_worker_consuming", "1 while a worker consumes its queue.", consuming, "worker")
        yield _counter("rainbow_deliveries", "Deliveries handled.", {w.task_name: w.handled for w in workers}, "worker")
        idle = {w.task_name: max(0.0, now - w.looked_at) for w in workers}
        yield _gauge("rainbow_idle_seconds", "Seconds since a worker last looked for deliveries.", idle, "worker")

    def _jobs_and_clusters(self) -> Iterator[Any]:
        service, world = self._service, self._service.world
        yield _counter("rainbow_jobs", "Decisions on jobs, by outcome.", service.outcomes(), "outcome")
        unreachable, drained = len(world.unreachable), len(world.drained - world.unreachable)
        states = {"open": len(world.clusters) - unreachable - drained, "drained": drained, "unreachable": unreachable}
        yield _gauge("rainbow_clusters", "Registered clusters, by state.", states, "state")
        yield _gauge("rainbow_clusters_throttled", "Clusters on which jobs fail at once.", len(world.throttled))
        known = self._depths.known
        yield _gauge("rainbow_queue_messages", "Messages waiting; in rainbow.dead dead letters.", known, "queue")
        yield _stages(service.durations())
        refused = "Events about attempts that the cluster which sent them was never given."
        yield _counter("rainbow_events_refused", refused, service.refused_events())

    def _waits_and_use(self) -> Iterator[Any]:
        service, depths = self._service, self._depths
        answers = depths.store_seconds
        yield _gauge("rainbow_store_answers", "1 while the store answers.", answers is not None)
        yield _gauge("rainbow_store_seconds", "Seconds that the store took for an answer.", answers or 0.0)
        yield _gauge("rainbow_jobs_now", "Jobs that wait, and that are on clusters.", depths.jobs, "state")
        if self._users:
            yield _user_jobs(depths.by_user)
        oldest = None if service.room is None else service.room.oldest
        age = 0.0 if oldest is None else max(0.0, time.time() - oldest)
        yield _gauge("rainbow_waiting_oldest_seconds", "How long the oldest job that waits for room does.", age)
        seen = [recorder.seen for recorder in service.recorders]
        for name, text, label, counts in (
            ("rainbow_refusals", "Dispatches that agents refused, by code.", "code", [s.refusals for s in seen]),
            ("rainbow_ends", "Jobs that ended on clusters, by state.", "state", [s.ends for s in seen]),
            ("rainbow_accepted", "Dispatches that agents accepted, by attempt.", "attempt", [s.accepted for s in seen]),
        ):
            yield _counter(name, text, sum(counts, Counter()), label)
        yield from _starts(seen)
        used, waiting = _use(service)
        yield _gauge("rainbow_cluster_used_ratio", "Cores of a cluster that are in use, 0 to 1.", used, "cluster")
        yield _gauge("rainbow_cluster_jobs_pending", "Jobs that wait on a cluster.", waiting, "cluster")


def _user_jobs(tallies: Mapping[tuple[str, str], Tally]) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    text = "Jobs of a user that wait, and that are on clusters; with scheduler.metrics_users."
    family = GaugeMetricFamily("rainbow_user_jobs", text, labels=["account", "user", "state"])
    for (account, user), tally in sorted(tallies.items()):
        family.add_metric([account, user, "waiting"], tally.waiting)
        family.add_metric([account, user, "running"], tally.running)
    return family


def _starts(seen: Sequence[Seen]) -> Iterator[Any]:
    from prometheus_client.core import HistogramMetricFamily, SummaryMetricFamily

    waits: dict[str, tuple[int, float]] = {}
    for cluster, (count, total) in (item for s in seen for item in s.waits.items()):
        more, longer = waits.get(cluster, (0, 0.0))
        waits[cluster] = count + more, total + longer
    text = "Seconds from the submission of jobs to their start."
    whole = HistogramMetricFamily("rainbow_start_seconds", text)
    buckets = [sum(counts) for counts in zip(*(s.buckets for s in seen), strict=True)] or [0] * (len(START_BOUNDS) + 1)
    bounds = [*map(str, START_BOUNDS), "+Inf"]
    whole.add_metric([], list(zip(bounds, accumulate(buckets), strict=True)), sum(total for _, total in waits.values()))
    yield whole
    each = SummaryMetricFamily("rainbow_cluster_start_seconds", f"{text[:-1]}, by cluster.", labels=["cluster"])
    for cluster, (count, total) in sorted(waits.items()):
        each.add_metric([cluster], count, total)
    yield each


def _use(service: Service) -> tuple[dict[str, float], dict[str, float]]:
    """Of each cluster, the part of its cores that is in use, and the jobs that wait there."""
    world = service.world
    used: dict[str, float] = {}
    waiting: dict[str, float] = {}
    with world.lock:
        for name in world.clusters:
            load = world.load(name)
            waiting[name] = load.pending
            if load.total.cores:
                used[name] = min(1.0, max(0.0, 1 - load.free.cores / load.total.cores))
    return used, waiting


def _stages(durations: Durations) -> Any:
    from prometheus_client.core import HistogramMetricFamily

    text = "Seconds that jobs stayed in a stage of scheduling: decide, ledger, publish, confirm."
    family = HistogramMetricFamily("rainbow_stage_seconds", text, labels=["stage"])
    bounds = [*map(str, BOUNDS), "+Inf"]
    for stage, counts in durations.counts.items():
        buckets = list(zip(bounds, accumulate(counts), strict=True))
        family.add_metric([stage], buckets, durations.sums[stage])
    return family


def _gauge(name: str, text: str, values: float | Mapping[str, float], label: str | None = None) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return _filled(GaugeMetricFamily(name, text, labels=[label] if label else []), values)


def _counter(name: str, text: str, values: float | Mapping[str, float], label: str | None = None) -> Any:
    from prometheus_client.core import CounterMetricFamily

    return _filled(CounterMetricFamily(name, text, labels=[label] if label else []), values)


def _filled(family: Any, values: float | Mapping[str, float]) -> Any:
    for key, value in sorted(values.items()) if isinstance(values, Mapping) else [(None, values)]:
        family.add_metric([] if key is None else [key], value)
    return family
