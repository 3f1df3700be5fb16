"""Metrics for Prometheus: read from the workers when they are asked for, so that the hot path only counts.

Labels are bounded: workers, kinds of outcome, states of clusters; never names of jobs or users.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from rainbow import topology
from rainbow.brokers.base import Broker
from rainbow.errors import InvalidSettings, RainbowError
from rainbow_workers.service import Service

#: A name or an address; empty for our own machine.
_HOST = re.compile(r"[A-Za-z0-9._-]*|\[?[0-9A-Fa-f:.]+\]?")


def serve(service: Service, address: str) -> Callable[[], None]:
    """Answer ``http://ADDRESS/metrics`` (``HOST:PORT``; the host is 127.0.0.1 when left out). Gives what stops it.

    Raises InvalidSettings without prometheus-client, or for an address that cannot be used.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise InvalidSettings("metrics need prometheus-client: pip install 'rainbow-hpc[metrics]'") from None
    host, _, port = address.rpartition(":")
    if not port.isdigit() or int(port) > 65_535 or not _HOST.fullmatch(host):
        raise InvalidSettings("scheduler.metrics is HOST:PORT, as 127.0.0.1:9100: no URL, no user, no path")
    depths = Depths(service.broker)
    registry = CollectorRegistry()
    registry.register(Collector(service, depths))
    try:
        server, thread = start_http_server(int(port), host or "127.0.0.1", registry)
    except OSError as exc:
        raise InvalidSettings(f"metrics cannot be served on {address}: {exc.strerror or exc}") from None

    depths.start()

    def stop() -> None:
        depths.stop()
        server.shutdown()
        server.server_close()
        thread.join(5)

    return stop


class Depths(threading.Thread):
    """How many messages wait in the queues that there is one of, dead letters among them: asked for from time to time,
    so that a broker which answers nothing keeps no scrape waiting."""

    EVERY = 5.0
    QUEUES = tuple(queue.name for queue in topology.core().queues)

    def __init__(self, broker: Broker) -> None:
        super().__init__(name="rainbow-depths", daemon=True)
        self._broker = broker
        self._stopping = threading.Event()
        #: By queue; empty while they cannot be known.
        self.known: dict[str, int] = {}

    def run(self) -> None:
        while True:
            try:
                self.known = {name: self._broker.stats(name).messages for name in self.QUEUES}
            except RainbowError:  # of what is wrong with the broker the log is full already
                self.known = {}
            if self._stopping.wait(self.EVERY):
                return

    def stop(self) -> None:
        self._stopping.set()


class Collector:
    """What prometheus-client asks at each scrape."""

    def __init__(self, service: Service, depths: Depths) -> None:
        self._service = service
        self._depths = depths

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        handled = CounterMetricFamily("rainbow_deliveries", "Deliveries handled.", labels=["worker"])
        progress = GaugeMetricFamily(
            "rainbow_idle_seconds", "Seconds since a worker last looked for deliveries.", labels=["worker"]
        )
        now = time.monotonic()
        for worker in self._service.workers:
            handled.add_metric([worker.task_name], worker.handled)
            progress.add_metric([worker.task_name], max(0.0, now - worker.looked_at))
        outcomes = CounterMetricFamily("rainbow_jobs", "Decisions on jobs, by outcome.", labels=["outcome"])
        for outcome, count in sorted(self._service.outcomes().items()):
            outcomes.add_metric([outcome], count)
        world = self._service.world
        unreachable, drained = len(world.unreachable), len(world.drained - world.unreachable)
        clusters = GaugeMetricFamily("rainbow_clusters", "Registered clusters, by state.", labels=["state"])
        clusters.add_metric(["open"], len(world.clusters) - unreachable - drained)
        clusters.add_metric(["drained"], drained)
        clusters.add_metric(["unreachable"], unreachable)
        throttled = GaugeMetricFamily("rainbow_clusters_throttled", "Clusters on which jobs fail at once.")
        throttled.add_metric([], len(world.throttled))
        waiting = GaugeMetricFamily(
            "rainbow_queue_messages", "Messages waiting, by queue; in rainbow.dead those that died.", labels=["queue"]
        )
        for name, count in sorted(self._depths.known.items()):
            waiting.add_metric([name], count)
        yield from (handled, progress, outcomes, clusters, throttled, waiting)
