"""The RabbitMQ plugin against bare pika on the same broker: publishing, relaying, one hop.

Both sides send 1 KiB persistent, mandatory messages with confirms into quorum queues from one connection or two,
keep the same number in flight, and take turns, so that each ratio is of one run. Bare pika is its fastest way:
a SelectConnection with callbacks in one thread.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Broker, Delivery, Message, Receipt
from rainbow.topology import Exchange, Queue, Topology
from servers import Run, find_rabbit

MESSAGES = 8000
WINDOW = 500
ROUNDS = 5
HOPS = 300
BODY = b"x" * 1024


# -- bare pika --------------------------------------------------------------------------------------------


class _Bare:
    """A SelectConnection with one confirming channel, run until `stop`."""

    def __init__(self, url: str) -> None:
        self.sent = self.confirmed = 0
        self.channel: Any = None
        self.connection = pika.SelectConnection(pika.URLParameters(url), on_open_callback=self._open)

    def _open(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._channel)

    def _channel(self, channel: Any) -> None:
        self.channel = channel
        channel.confirm_delivery(self.on_confirm, callback=lambda _f: self.begin())

    def begin(self) -> None:
        raise NotImplementedError

    def on_confirm(self, frame: Any) -> None:
        raise NotImplementedError

    def run(self) -> float:
        self.connection.ioloop.start()
        seconds = self.seconds
        self.connection.ioloop.close()
        return seconds

    def stop(self) -> None:
        self.seconds = time.perf_counter() - self.began
        self.connection.add_on_close_callback(lambda *_: self.connection.ioloop.stop())
        self.connection.close()

    began = seconds = 0.0


class _BarePublish(_Bare):
    def __init__(self, url: str, exchange: str) -> None:
        self.exchange = exchange
        super().__init__(url)

    def begin(self) -> None:
        self.began = time.perf_counter()
        for _ in range(WINDOW):
            self._send()

    def _send(self) -> None:
        self.sent += 1
        properties = pika.BasicProperties(delivery_mode=2, content_type="application/json")
        self.channel.basic_publish(self.exchange, "in", BODY, properties, mandatory=True)

    def on_confirm(self, frame: Any) -> None:
        done = frame.method.delivery_tag - self.confirmed if frame.method.multiple else 1
        self.confirmed += done
        for _ in range(min(done, MESSAGES - self.sent)):
            self._send()
        if self.confirmed >= MESSAGES:
            self.stop()


class _BareRelay(_Bare):
    def __init__(self, url: str, exchange: str, queue: str) -> None:
        self.exchange = exchange
        self.queue = queue
        self.waiting: dict[int, int] = {}
        self.low = 1
        super().__init__(url)

    def begin(self) -> None:
        self.began = time.perf_counter()
        self.channel.basic_qos(prefetch_count=WINDOW)
        self.channel.basic_consume(self.queue, self._on_message)

    def _on_message(self, channel: Any, method: Any, props: Any, body: bytes) -> None:
        self.sent += 1
        self.waiting[self.sent] = method.delivery_tag
        properties = pika.BasicProperties(delivery_mode=2, content_type=props.content_type)
        channel.basic_publish(self.exchange, "out", body, properties, mandatory=True)

    def on_confirm(self, frame: Any) -> None:
        last = frame.method.delivery_tag
        for tag in range(self.low, last + 1) if frame.method.multiple else (last,):
            delivery = self.waiting.pop(tag, None)
            if delivery is not None:
                self.channel.basic_ack(delivery)
                self.confirmed += 1
        while self.low <= self.sent and self.low not in self.waiting:
            self.low += 1
        if self.confirmed >= MESSAGES:
            self.stop()


def _bare_hop(url: str, exchange: str, queue: str) -> list[float]:
    """Milliseconds from publish to delivery, one at a time, through one connection of bare pika."""
    times: list[float] = []
    began = 0.0
    state: dict[str, Any] = {}

    def send() -> None:
        nonlocal began
        began = time.perf_counter()
        properties = pika.BasicProperties(delivery_mode=2)
        state["channel"].basic_publish(exchange, "in", BODY, properties, mandatory=True)

    def received(channel: Any, method: Any, _props: Any, _body: bytes) -> None:
        times.append((time.perf_counter() - began) * 1000)
        channel.basic_ack(method.delivery_tag)
        if len(times) < HOPS:
            send()
        else:
            connection.add_on_close_callback(lambda *_: connection.ioloop.stop())
            connection.close()

    def opened(channel: Any) -> None:
        state["channel"] = channel
        channel.confirm_delivery(lambda _f: None, callback=lambda _f: None)
        channel.basic_consume(queue, received, callback=lambda _f: send())

    connection = pika.SelectConnection(
        pika.URLParameters(url), on_open_callback=lambda c: c.channel(on_open_callback=opened)
    )
    connection.ioloop.start()
    connection.ioloop.close()
    return times


# -- ours -------------------------------------------------------------------------------------------------


def _publish(broker: Broker, exchange: str) -> float:
    batch = [Message(exchange, "in", BODY) for _ in range(100)]
    began = time.perf_counter()
    receipts = [broker.publish(batch) for _ in range(MESSAGES // 100)]
    for receipt in receipts:
        receipt.check(120)
    return time.perf_counter() - began


def _relay(broker: Broker, exchange: str, queue: str) -> float:
    done = threading.Event()
    acked = 0
    lock = threading.Lock()
    began = time.perf_counter()
    consumer = broker.consume(queue, prefetch=WINDOW)

    def confirmed(batch: list[Delivery]) -> Callable[[Receipt], None]:
        def settle(receipt: Receipt) -> None:
            nonlocal acked
            assert not any(receipt.outcomes)
            consumer.ack(batch)
            with lock:
                acked += len(batch)
                if acked >= MESSAGES:
                    done.set()

        return settle

    taken = 0
    while taken < MESSAGES:
        batch = consumer.take(100, 10.0)
        taken += len(batch)
        messages = [Message(exchange, "out", d.body, content_type=d.content_type or "") for d in batch]
        broker.publish(messages).then(confirmed(batch))
    done.wait(120)
    seconds = time.perf_counter() - began
    consumer.cancel()
    return seconds


def _hop(broker: Broker, exchange: str, queue: str) -> list[float]:
    consumer = broker.consume(queue, prefetch=10)
    message = [Message(exchange, "in", BODY)]
    times = []
    for _ in range(HOPS):
        began = time.perf_counter()
        broker.publish(message)
        [d] = consumer.take(1, 10.0)
        times.append((time.perf_counter() - began) * 1000)
        consumer.ack([d])
    consumer.cancel()
    return times


# -- both -------------------------------------------------------------------------------------------------


def run(rounds: int = ROUNDS) -> dict[str, float]:
    """Ratios of ours to bare pika (more is better, 1 is as fast), and milliseconds of one hop of bare pika."""
    folder = Run.begin()
    try:
        server = find_rabbit(folder)
        return _measure(server.vhost_url(server.new_vhost(folder.name)), rounds)
    finally:
        folder.end()


def _measure(url: str, rounds: int) -> dict[str, float]:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    into, out = f"{name}.in", f"{name}.out"
    topology = Topology(
        (Exchange(name, "direct"),),
        (Queue(into, ((name, "in"),), delivery_limit=20), Queue(out, ((name, "out"),), delivery_limit=20)),
    )
    broker = connect(ConnectOptions(url, name="bench", max_in_flight=WINDOW))
    times: dict[str, list[float]] = {"bare publish": [], "publish": [], "bare relay": [], "relay": []}
    hops: list[float] = []
    own_hops: list[float] = []
    try:
        for _ in range(rounds):
            for bare in (True, False):
                broker.declare(topology)
                if bare:
                    times["bare publish"].append(_BarePublish(url, name).run())
                    times["bare relay"].append(_BareRelay(url, name, into).run())
                    broker.delete([into, out])
                    broker.declare(topology)
                    hops += _bare_hop(url, name, into)
                else:
                    times["publish"].append(_publish(broker, name))
                    times["relay"].append(_relay(broker, name, into))
                    broker.delete([into, out])
                    broker.declare(topology)
                    own_hops += _hop(broker, name, into)
                broker.delete([into, out])
    finally:
        broker.close()

    def ratio(bare: str, own: str) -> float:
        return statistics.median(b / o for b, o in zip(times[bare], times[own], strict=True))

    return {
        "publish_ratio": round(ratio("bare publish", "publish"), 3),
        "relay_bare_ratio": round(ratio("bare relay", "relay"), 3),
        "hop_ms_median": round(statistics.median(hops), 3),
        "own_hop_ms_median": round(statistics.median(own_hops), 3),
        "publish_per_s": round(MESSAGES / statistics.median(times["publish"])),
        "relay_per_s": round(MESSAGES / statistics.median(times["relay"])),
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
