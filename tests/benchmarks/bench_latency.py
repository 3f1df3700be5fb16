"""Submit to accepted on an idle system, beside a bare publish-consume hop on the same broker: medians, milliseconds.

`accept_ms_median` is from the publish of a submission to its `accepted` event on `rainbow.events`, with the real
scheduler process and a real agent process (dry-run executor).
"""

from __future__ import annotations

import queue
import tempfile
import threading
import time
import uuid
from pathlib import Path
from statistics import median

import pika

from processes import Site
from rainbow import codec, topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Message
from rainbow.client import Client
from rainbow.errors import RainbowError
from rainbow.settings import load
from rig import eventually, resources
from servers_here import rabbitmq, redis

SAMPLES = 200


def hop(url: str) -> float:
    """Median milliseconds of: publish persistent with confirms, deliver, on a quorum queue, pika alone."""
    got: queue.SimpleQueue[float] = queue.SimpleQueue()
    ready = threading.Event()

    def consume() -> None:
        connection = pika.BlockingConnection(pika.URLParameters(url))
        channel = connection.channel()
        channel.queue_declare("hop", durable=True, arguments={"x-queue-type": "quorum"})

        def on_message(channel: object, method: object, properties: object, body: bytes) -> None:
            got.put(time.perf_counter())
            channel.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]
            if body == b"end":
                channel.stop_consuming()  # type: ignore[attr-defined]

        channel.basic_consume("hop", on_message)
        ready.set()
        channel.start_consuming()
        connection.close()

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    ready.wait(30)
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    samples = []
    persistent = pika.BasicProperties(delivery_mode=2)
    for number in range(SAMPLES + 1):
        began = time.perf_counter()
        channel.basic_publish("", "hop", b"end" if number == SAMPLES else b"x" * 1024, persistent)
        samples.append(got.get(timeout=30) - began)
        time.sleep(0.01)
    thread.join(30)
    connection.close()
    return median(samples) * 1000


def accept(amqp_url: str, redis_url: str) -> float:
    with tempfile.TemporaryDirectory(prefix="rainbow-bench-") as folder:
        with Site(Path(folder), amqp_url, redis_url, "bench:", log_level="warning") as site:
            site.scheduler()
            settings = load(site.config, {})
            with Client(settings=settings) as client:
                eventually(lambda: _up(client), 60)
                site.agent("red", resources(nodes=16, cores=8))
                eventually(lambda: any(c.alive for c in client.clusters()), 60)
            return _accept(amqp_url, site.token("alice"))


def _up(client: Client) -> bool:
    try:
        return bool(client.ping(timeout=2))
    except RainbowError:
        return False


def _accept(amqp_url: str, token: str) -> float:
    """Listens as anybody may with the right to bind: a queue of its own on the events exchange."""
    watcher = pika.BlockingConnection(pika.URLParameters(amqp_url))
    channel = watcher.channel()
    channel.queue_declare("bench-watch", durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_bind("bench-watch", topology.EVENTS, "job.red.#")
    broker = connect(ConnectOptions(amqp_url))
    consumer = broker.consume("bench-watch", prefetch=100)
    samples = []
    try:
        for _ in range(SAMPLES):
            job_id = str(uuid.uuid4())
            body = codec.encode_json({"token": token, "id": job_id, "command": ["true"], "nodes": 1})
            began = time.perf_counter()
            broker.publish([Message(topology.SUBMIT, "submit", body)])
            samples.append(_accepted(consumer, job_id) - began)
            time.sleep(0.02)
    finally:
        broker.close()
        watcher.close()
    return median(samples) * 1000


def _accepted(consumer: object, job_id: str) -> float:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        deliveries = consumer.take(10, 1.0)  # type: ignore[attr-defined]
        now = time.perf_counter()
        consumer.ack(deliveries)  # type: ignore[attr-defined]
        for delivery in deliveries:
            for event in codec.decode(delivery.body)["events"]:
                if event["id"] == job_id and event["state"] == "accepted":
                    return now
    raise AssertionError("not accepted within 30 s")


def run() -> dict[str, float]:
    with rabbitmq() as amqp_url, redis() as redis_url:
        return {"hop_ms_median": hop(amqp_url), "accept_ms_median": accept(amqp_url, redis_url)}


if __name__ == "__main__":
    print(run())
