"""How far schedulers are, by their own events on a queue of the benchmark's: a message a batch, where asking a hundred
queues for their lengths would take more of the broker than the jobs do."""

from __future__ import annotations

import threading
import time
from typing import Self

from rainbow import topology
from rainbow.brokers import ConnectOptions, connect

QUEUE = "bench.progress"


class Progress(threading.Thread):
    """`marks`: (time, jobs assigned until then) for each batch since the last `reset`."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.broker = connect(ConnectOptions(url, name="progress"))
        exchanges = tuple(e for e in topology.core().exchanges if e.name == topology.EVENTS)
        self.broker.declare(
            topology.Topology(exchanges, (topology.Queue(QUEUE, bindings=((topology.EVENTS, "#"),), kind="classic"),))
        )
        self.marks: list[tuple[float, int]] = []
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()
        self.broker.close()

    def reset(self) -> None:
        self.marks = []

    def run(self) -> None:
        consumer = self.broker.consume(QUEUE, prefetch=500)
        while not self._ended.is_set():
            deliveries = consumer.take(500, 0.2)
            for delivery in deliveries:
                # Not parsed: it would be a part of what is measured. Each message has events of one state.
                count = delivery.body.count(b'"state":"assigned"')
                if count:
                    self.marks.append((time.perf_counter(), count + (self.marks[-1][1] if self.marks else 0)))
            if deliveries:
                consumer.ack(deliveries)

    def rate(self, count: int, limit: float = 300.0) -> float:
        """Jobs a second from the first batch to the one that makes `count` full. Waits for it."""
        end = time.monotonic() + limit
        while not self.marks or self.marks[-1][1] < count:
            assert time.monotonic() < end, f"{self.marks[-1:]} of {count}"
            time.sleep(0.02)
        (began, first), (ended, last) = self.marks[0], self.marks[-1]
        return (last - first) / (ended - began)
