"""Dispatches that are in their queue twice, and come back: what one copy began is neither repeated nor ended."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest

from rainbow import topology
from rainbow.brokers.base import Message
from rainbow_workers.service import Service, ServiceOptions
from rig import Rig, eventually

LIMITS = topology.Limits(dispatch_timeout=2.0)


@pytest.fixture
def rig(amqp_url: str) -> Iterator[Rig]:
    """Without a recorder: it is started when the test says so."""
    options = ServiceOptions(workers=("scheduler", "registrar", "returns"), limits=LIMITS, retry_after=0.5)
    with Rig(amqp_url, f"memory://{uuid.uuid4()}", options=options) as rig:
        yield rig


@pytest.fixture
def recorder(rig: Rig) -> Iterator[Service]:
    """Not running yet."""
    made = Service(rig.worker_broker, rig.store, rig.ring, ServiceOptions(workers=("recorder",), limits=LIMITS))
    yield made
    made.stop()
    assert made.failed() is None


def twice(rig: Rig) -> str:
    """A job whose dispatch is in the queue of `blue` twice, and taken once by its agent."""
    rig.register("blue")
    rig.register("green")
    job: str = rig.submit(command=["true"], clusters=["blue"])["id"]
    consumer = rig.jobs_of("blue", prefetch=1)
    [taken] = eventually(lambda: consumer.take(1, 0.5))
    assert rig.open(taken)["id"] == job
    copy = Message(
        topology.JOBS, "blue", taken.body, taken.content_type or "", message_id=job, headers=dict(taken.headers)
    )
    rig.broker.publish([copy]).check(10)
    consumer.ack([taken])
    consumer.cancel()
    return job


def test_a_copy_of_a_running_job_comes_back_while_no_recorder_runs(rig: Rig, recorder: Service) -> None:
    """S35, S38: the recorder is down for longer than a dispatch waits; what the agent said lies in its queue."""
    job = twice(rig)
    for state in ("accepted", "running"):
        rig.event("blue", job, 1, state)
    eventually(lambda: rig.broker.stats(topology.jobs_queue("blue")).messages == 0, 30)
    time.sleep(4)  # it came back; the ledger says `assigned` still
    assert rig.job(job)["state"] == "assigned"  # type: ignore[index]
    assert rig.broker.stats(topology.agent_queue("blue")).messages == 0  # nobody ended it
    recorder.start()
    record = rig.until(job, "running")
    assert record["attempt"] == 1
    time.sleep(2)
    rig.event("blue", job, 1, "completed", returncode=0)
    record = rig.until(job, "completed")
    assert (record["attempt"], record["cluster"]) == (1, "blue")
    assert rig.broker.stats(topology.agent_queue("blue")).messages == 0


def test_what_nobody_took_goes_elsewhere_and_its_cluster_is_told(rig: Rig, recorder: Service) -> None:
    """S38: the fence goes out with the assignment that it protects, and does not end the job."""
    recorder.start()
    rig.register("blue")
    job: str = rig.submit(command=["true"])["id"]
    rig.register("green")
    record = eventually(lambda: (r := rig.job(job)) and r["attempt"] == 2 and r, 30)
    assert (record["state"], record["cluster"]) == ("assigned", "green")
    commands = rig.broker.consume(topology.agent_queue("blue"), prefetch=10)
    [fence] = eventually(lambda: commands.take(1, 0.5))
    assert b'"moved":true' in fence.body.replace(b" ", b"")
    commands.ack([fence])
    # An agent that had begun after all says `rejected`, not `cancelled`: also a ledger that forgot the job goes on.
    rig.event("green", job, 2, "accepted")
    rig.event("blue", job, 1, "rejected", code="error", detail="the job goes on elsewhere")
    rig.event("green", job, 2, "completed", returncode=0)
    assert rig.until(job, "completed")["attempt"] == 2
