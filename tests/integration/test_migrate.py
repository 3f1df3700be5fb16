"""Queues that exist with other limits than the settings': they are worked with, named, and changed in place."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from faults.proxy import Proxy
from rainbow import topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Broker, Delivery, Message
from rainbow.brokers.rabbitmq.migration import Migration
from rainbow.errors import BrokerUnavailable, Conflict, NotFound, TopologyMismatch
from rainbow.topology import Exchange, Limits, Queue, Topology
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually, gathered

OLD = Limits(dispatch_timeout=300.0, max_submissions=5000, core_delivery_limit=20)
NEW = Limits(dispatch_timeout=60.0, max_submissions=8000, core_delivery_limit=1000)


@pytest.fixture
def broker(amqp_url: str) -> Iterator[Broker]:
    made = connect(ConnectOptions(amqp_url, name="test"))
    yield made
    made.close()


def wanted(limits: Limits) -> Topology:
    return topology.core(limits) + topology.cluster("blue", limits)


def migrate(url: str, queues: tuple[Queue, ...]) -> dict[str, int]:
    migration = Migration(ConnectOptions(url, name="migrate"))
    try:
        return migration.run(list(queues))
    finally:
        migration.close()


def taken(broker: Broker, queue: str, count: int) -> list[Delivery]:
    consumer = broker.consume(queue, prefetch=5000)
    found = gathered(lambda: consumer.take(1000, 0.2), lambda found: len(found) >= count)
    found += consumer.take(1000, 0.3)
    consumer.ack(found)
    consumer.cancel()
    return found


def test_limits_change_and_messages_stay(broker: Broker, amqp_url: str) -> None:
    """Their order and properties, and where the queue is bound; the queues that are as wanted are left alone."""
    broker.declare(wanted(OLD))
    numbered = [
        Message(
            topology.SUBMIT,
            "submit",
            b"%d" % n,
            message_id=f"m{n}",
            correlation_id=f"c{n}",
            reply_to="amq.rabbitmq.reply-to.x",
            headers={"number": str(n)},
            expiration=3600 if n % 2 else None,
        )
        for n in range(1500)
    ]
    broker.publish(numbered).check(30)
    broker.publish([Message(topology.JOBS, "blue", b"job", expiration=300.0)]).check(30)
    with pytest.raises(TopologyMismatch) as differs:
        broker.declare(wanted(NEW))
    for part in ("'rainbow.scheduler' has x-max-length=5000, wanted 8000", "x-delivery-limit=20, wanted 1000"):
        assert part in differs.value.message
    assert differs.value.tolerable
    assert "rainbow broker migrate" in differs.value.message
    moved = migrate(amqp_url, wanted(NEW).queues)
    assert moved["rainbow.scheduler"] == 1500
    assert moved["rainbow.jobs.blue"] == 1
    assert topology.DEAD_QUEUE not in moved
    broker.declare(wanted(NEW))
    assert migrate(amqp_url, wanted(NEW).queues) == {}
    for gone in (topology.MIGRATION, "rainbow.migration.rainbow.scheduler"):
        with pytest.raises(NotFound):
            broker.stats(gone)
    broker.publish([Message(topology.SUBMIT, "submit", b"next")]).check(30)
    found = taken(broker, topology.SCHEDULER_QUEUE, 1501)
    assert [d.body for d in found] == [*(m.body for m in numbered), b"next"]
    for sent, got in zip(numbered, found, strict=False):
        assert (got.message_id, got.correlation_id, got.reply_to) == (
            sent.message_id,
            sent.correlation_id,
            sent.reply_to,
        )
        assert got.headers == sent.headers
    assert [d.body for d in taken(broker, topology.jobs_queue("blue"), 1)] == [b"job"]


def test_it_does_not_begin_beside_consumers_or_without_room(broker: Broker, amqp_url: str) -> None:
    broker.declare(wanted(OLD))
    consumer = broker.consume(topology.SCHEDULER_QUEUE, prefetch=10)
    eventually(lambda: broker.stats(topology.SCHEDULER_QUEUE).consumers == 1)
    with pytest.raises(Conflict, match=r"rainbow\.scheduler has 1 consumer\(s\): stop rainbow-scheduler"):
        migrate(amqp_url, wanted(NEW).queues)
    consumer.cancel()
    eventually(lambda: broker.stats(topology.SCHEDULER_QUEUE).consumers == 0)
    broker.publish([Message(topology.SUBMIT, "submit", b"%d" % n) for n in range(5)]).check(30)
    with pytest.raises(Conflict, match=r"holds 5 messages, and is to hold 3 at most"):
        migrate(amqp_url, wanted(Limits(max_submissions=3)).queues)
    broker.declare(wanted(OLD))
    assert len(taken(broker, topology.SCHEDULER_QUEUE, 5)) == 5


class Crash(Exception):
    """Thrown where a run is cut off."""


class Crashing:
    """Cuts the connections of the thread that asked for it, and throws, at its nth step that changes something."""

    STEPS = ("queue_declare", "queue_delete", "queue_bind", "queue_unbind", "basic_ack")

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._mine = threading.local()
        for name in self.STEPS:
            monkeypatch.setattr(BlockingChannel, name, self._wrapped(getattr(BlockingChannel, name)))

    def at(self, step: int, proxy: Proxy) -> None:
        self._mine.left, self._mine.proxy = step, proxy

    def _wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(channel: Any, *args: Any, **more: Any) -> Any:
            left = getattr(self._mine, "left", 0)
            if left and not more.get("passive"):
                self._mine.left = left - 1
                if left == 1:
                    self._mine.proxy.refuse()
                    raise Crash
            return real(channel, *args, **more)

        return call


def test_a_run_that_was_cut_off_anywhere_is_finished_by_the_next(
    broker: Broker, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every message is there once, in order, wherever it was cut off, also the second time."""
    crashing = Crashing(monkeypatch)
    parts = urlsplit(amqp_url)

    sent = [b"%d" % n for n in range(4)]
    steps = range(1, 27)

    def queue(step: int, length: int) -> Queue:
        name = f"cut-{step}"
        return Queue(name, bindings=((name, "#"),), max_length=length, dead_letter="dead")

    for step in steps:
        old = queue(step, 100)
        broker.declare(Topology((Exchange(old.name, "topic"),), (old,)))
        broker.publish([Message(old.name, "k", body) for body in sent]).check(30)

    def cut_off(step: int) -> bool:
        """Whether a run has a step of that number; it is right afterwards."""
        new = queue(step, 200)
        name = new.name
        crashed = False
        for again in (step, step // 2, 0):
            proxy = Proxy(parts.hostname or "", parts.port or 0)
            crashing.at(again, proxy)
            try:
                migrate(amqp_url.replace(f":{parts.port}/", f":{proxy.port}/"), (new,))
            except Crash:
                crashed = True
            finally:
                proxy.close()
            eventually(lambda: _free(broker, name))
        crashing.at(0, proxy)
        migrate(amqp_url, (new,))
        with pytest.raises(NotFound):
            broker.stats(f"{topology.MIGRATION}.{name}")
        broker.publish([Message(name, "k", b"last")]).check(30)
        assert [d.body for d in taken(broker, name, len(sent) + 1)] == [*sent, b"last"], step
        return crashed

    with ThreadPoolExecutor(12) as pool:
        outcomes = list(pool.map(cut_off, steps))
    assert outcomes.count(True) >= 15
    assert not outcomes[-1], "there are more steps than were tried"


def _free(broker: Broker, name: str) -> bool:
    """Whether the broker has noticed that the connection of before is gone."""
    for queue in (name, f"{topology.MIGRATION}.{name}"):
        try:
            if broker.stats(queue).consumers:
                return False
        except NotFound:
            pass
    return True


def test_nobody_declares_while_messages_are_moved(broker: Broker, amqp_url: str) -> None:
    broker.declare(Topology(queues=(Queue(topology.MIGRATION, kind="classic"),)))
    with pytest.raises(BrokerUnavailable, match="it was interrupted: run it again"):
        broker.declare(wanted(NEW))
    assert migrate(amqp_url, wanted(NEW).queues) == {}
    broker.declare(wanted(NEW))


def test_workers_go_on_with_the_limits_that_are_there(
    amqp_url: str, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.declare(wanted(OLD))
    made = Rig(amqp_url, f"memory://{amqp_url[-8:]}", options=ServiceOptions(limits=NEW), start=False)
    with caplog.at_level(logging.WARNING), made as rig:
        rig.service.start()
        rig.register("blue")
        rig.report("blue", nodes_free=4, cores_free=32)
        assert rig.submit(command="true")["status"] == "assigned"
    warned = "\n".join(r.getMessage() for r in caplog.records if r.levelno == logging.WARNING)
    assert "'rainbow.scheduler' has x-max-length=5000, wanted 8000" in warned
    assert "'rainbow.jobs.blue' has x-message-ttl=300000, wanted 60000" in warned


def test_what_would_drop_jobs_is_not_worked_with(amqp_url: str, broker: Broker) -> None:
    """Other dead-lettering, or a queue of another type."""
    broker.declare(Topology(queues=(Queue(topology.SCHEDULER_QUEUE, kind="classic"),)))
    with pytest.raises(TopologyMismatch) as differs:
        broker.declare(wanted(NEW))
    assert not differs.value.tolerable
    assert migrate(amqp_url, wanted(NEW).queues) == {topology.SCHEDULER_QUEUE: 0}
    broker.declare(wanted(NEW))


def test_the_commands(amqp_url: str, broker: Broker, tmp_path: Path) -> None:
    """`broker setup` and `doctor` name what differs and the command; `broker migrate` is that command."""
    broker.declare(wanted(OLD))
    config = tmp_path / "c.json"
    config.write_text(
        json.dumps(
            {
                "broker": {"url": amqp_url},
                "keyring": str(tmp_path / "none.json"),
                "queues": {"max_submissions": 8000, "dispatch_timeout": 60},
            }
        )
    )

    def rainbow(*args: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "rainbow.cli", *args, "--config", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    for said in (rainbow("broker", "setup", "-C", "blue"), rainbow("broker", "migrate", "--dry-run", "-C", "blue")):
        assert "'rainbow.scheduler' has x-max-length=5000, wanted 8000" in said
        assert "'rainbow.jobs.blue' has x-message-ttl=300000, wanted 60000" in said
    doctor = json.loads(rainbow("doctor", "--json", code=1))
    (queues,) = [check for check in doctor["checks"] if check["name"] == "queues"]
    assert "x-max-length=5000, wanted 8000" in queues["detail"]
    assert "rainbow broker migrate" in queues["advice"]
    assert "changed: queue 'rainbow.scheduler' has x-max-length=5000" in rainbow("broker", "migrate", "-C", "blue")
    assert "queues are as the settings say" in rainbow("broker", "migrate", "-C", "blue")
    assert "has x-" not in rainbow("broker", "setup", "-C", "blue")
