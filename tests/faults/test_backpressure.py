"""More than can be taken: queues stay bounded, nothing is lost, and who sends is told when to come again (S26)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from rainbow import topology
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually

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
