"""More than can be taken: queues stay bounded, nothing is lost, and who sends is told when to come again (S26)."""

from __future__ import annotations

import re
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from faults.proxy import proxied
from processes import Site
from rainbow import codec, topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Message
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually, resources

CAP = 10


@pytest.fixture
def rig(amqp_url: str) -> Iterator[Rig]:
    options = ServiceOptions(limits=topology.Limits(max_cluster_jobs=CAP), batch=5, retry_after=0.5)
    with Rig(amqp_url, f"memory://{uuid.uuid4()}", options=options) as rig:
        yield rig


@pytest.mark.parametrize("clusters", [("blue",), ("blue", "green", "red")], ids=["one", "three"])
def test_jobs_of_full_clusters_wait_and_run_when_there_is_room(rig: Rig, clusters: tuple[str, ...]) -> None:
    """S26: what is assigned to a cluster and not taken stays near its cap; the rest is held, and none is lost."""
    for name in clusters:
        rig.register(name)
    jobs = 4 * CAP * len(clusters)
    ids = {rig.submit(command=["true"])["id"] for _ in range(jobs)}
    assert len(ids) == jobs
    for name in clusters:
        assert CAP <= rig.broker.stats(topology.jobs_queue(name)).messages <= 2 * CAP
    consumers = {name: rig.jobs_of(name, prefetch=1) for name in clusters}
    seen: dict[str, int] = {}

    def all_ran() -> bool:
        for name, consumer in consumers.items():
            for delivery in consumer.take(10, 0.1):
                dispatch = rig.open(delivery)
                assert dispatch["id"] not in seen
                seen[dispatch["id"]] = dispatch["attempt"]
                consumer.ack([delivery])
                rig.event(name, dispatch["id"], dispatch["attempt"], "completed", returncode=0)
        return len(seen) == jobs

    eventually(all_ran, 90)
    assert set(seen) == ids
    for job in ids:
        rig.until(job, "completed")


# -- memory ---------------------------------------------------------------------------------------------------


def peak(process: subprocess.Popen[bytes]) -> float:
    """The most memory a program ever had, in MiB."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", text)[1]) / 1024  # type: ignore[index]


def tried(site: Site, *command: str) -> str:
    try:
        return site.cli(*command).stdout
    except AssertionError:  # the programs are not up yet
        return ""


MILLION = pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])


@pytest.mark.parametrize("count", [20_000, MILLION])
def test_many_waiting_submissions_cost_no_memory(
    amqp_url: str, redis_url: str, redis_prefix: str, tmp_path: Path, count: int
) -> None:
    """S26: what waits is with the broker. A program holds what it may prefetch, however much there is: while the store
    is away and nothing can be decided, while all of it is decided, and while the agent takes it."""
    with (
        proxied("127.0.0.1", urlsplit(redis_url).port or 6379) as link,
        Site(tmp_path, amqp_url, f"redis://127.0.0.1:{link.port}/0", redis_prefix, log_level="warning") as site,
    ):
        scheduler = site.scheduler()
        agent = site.agent("blue", resources(nodes=64), report_every=1.0)
        eventually(lambda: "alive" in tried(site, "clusters"), 60)
        broker = connect(ConnectOptions(amqp_url))
        token = site.token("alice")

        def submit(jobs: int) -> None:
            for start in range(0, jobs, 1000):
                some = min(1000, jobs - start)
                bodies = [
                    codec.encode_json(
                        {"id": str(uuid.uuid4()), "token": token, "command": ["true"], "name": f"job-{n}"}
                    )
                    for n in range(some)
                ]
                broker.publish([Message(topology.SUBMIT, "submit", body) for body in bodies]).check(120)

        def drained(queue: str) -> None:
            eventually(lambda: broker.stats(queue).messages == 0, 3600, every=0.2)

        submit(3000)
        drained(topology.SCHEDULER_QUEUE)
        eventually(lambda: len(site.starts(["blue"])) == 3000, 300, every=0.5)
        warm = peak(scheduler), peak(agent)
        link.refuse()
        submit(count)
        time.sleep(3)
        assert peak(scheduler) < warm[0] + 40
        agent.send_signal(signal.SIGSTOP)
        link.heal()
        drained(topology.SCHEDULER_QUEUE)
        assert peak(scheduler) < warm[0] + 60
        agent.send_signal(signal.SIGCONT)
        eventually(lambda: len(site.starts(["blue"])) == 3000 + count, 7000, every=1.0)
        grown = peak(scheduler) - warm[0], peak(agent) - warm[1]
        assert max(grown) < 60, f"grown by {grown} MiB"
        broker.close()
