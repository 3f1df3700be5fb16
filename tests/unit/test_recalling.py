"""Which jobs a scheduler takes back from a cluster: those that wait there while a cluster that can run them is idle."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from rainbow import codec
from rainbow.brokers.base import Message
from rainbow.jobspec import read_cached, simple
from rainbow.models.cluster import ClusterRecord, ClusterState
from rainbow.models.job import JobEvent
from rainbow.resources import read_graph
from rainbow.security.tokens import KeyRing
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.scheduling.contention import Contention
from rainbow_workers.scheduling.decide import Decider, Job
from rainbow_workers.scheduling.recalling import Recalling
from rainbow_workers.stores import StoreOptions, open_store
from rainbow_workers.stores.base import Changes
from rig import resources

SMALL = read_cached(simple(["true"], cores_per_task=1))
WIDE = read_cached(simple(["true"], cores_per_task=4))


class Side:
    """A scheduler that has sent jobs to the cluster `slow`, where they wait; `fast` is idle."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.sent: list[Message] = []
        self.store = open_store(StoreOptions(f"memory://{uuid.uuid4().hex}"))
        self.world = ClusterCache(alive_after=1e9)
        self.contention = Contention()
        self.recalling = Recalling(
            self,  # type: ignore[arg-type]
            self.store,
            self.world,
            Decider(self.world),
            ClusterKeys(KeyRing.generate()),
            self.contention,
            5.0,
            lambda: self.now,
        )
        self.clusters(slow={"cores_free": 0, "jobs_pending": 3}, fast={})

    def publish(self, messages: list[Message]) -> None:
        self.sent += messages

    def clusters(self, drained: str = "", **values: dict[str, Any]) -> None:
        records, states = {}, {}
        for name, more in values.items():
            summary = read_graph(resources(nodes=1, cores=4, host=name))
            records[name] = ClusterRecord(
                name=name,
                registration="r",
                identity="i",
                summary=summary.to_bytes(),
                digest=summary.digest,
                drained="why" if name == drained else None,
            )
            full = {"nodes_free": 1, "cores_free": 4, "gpus_free": 0, "jobs_pending": 0, **more}
            states[name] = ClusterState(values=full, heartbeat_at=1.0)
        self.world.apply(Changes(self.world.version + 1, clusters=records, states=states))

    def dispatched(self, spec: Any = SMALL, state: Any = "accepted", **more: Any) -> str:
        job = Job(str(uuid.uuid4()), "alice", spec, frozenset({"*"}), self.now, **more)
        self.recalling.note([(job, "slow")], self.now)
        event = JobEvent(id=job.id, attempt=job.attempt, cluster="slow", state=state, at=self.now, user="alice")
        self.store.jobs.record([event])
        return job.id

    def recalled(self, after: float = 6.0) -> list[str]:
        """The jobs that are taken back so many seconds later."""
        self.now += after
        self.sent.clear()
        self.recalling.look()
        commands = [codec.decode(message.body) for message in self.sent]
        assert all(
            c["command"] == "recall" and m.routing_key == "slow" for c, m in zip(commands, self.sent, strict=True)
        )
        return [command["id"] for command in commands]


@pytest.fixture
def side() -> Side:
    return Side()


def test_no_more_is_taken_back_than_the_idle_cluster_can_start_the_newest_first(side: Side) -> None:
    jobs = [side.dispatched() for _ in range(6)]
    assert side.recalled(1.0) == [], "it may start any moment"
    assert side.recalled() == [*reversed(jobs)][:4]
    assert set(side.recalled(1.0)) == set(jobs[:2]), "the others were asked for a moment ago"
    assert len(side.recalled(11.0)) == 4, "what came to nothing is asked for again"


def test_what_has_started_or_went_on_is_left_alone(side: Side) -> None:
    running = side.dispatched(state="running")
    waits = side.dispatched()
    assert side.recalled() == [waits]
    ended = JobEvent(id=waits, attempt=1, cluster="slow", state="rejected", at=side.now, code="recalled")
    side.store.jobs.record([ended])
    assert side.recalled(11.0) == []
    assert running not in side.recalled(11.0)


@pytest.mark.parametrize(
    "fast",
    [{"cores_free": 3}, {"jobs_pending": 1}, {"closed": "the agent is executor-down"}],
    ids=["full", "busy", "closed"],
)
def test_only_to_a_cluster_that_would_start_it_at_once(side: Side, fast: dict[str, Any]) -> None:
    side.dispatched(WIDE)
    side.clusters(slow={"cores_free": 0, "jobs_pending": 3}, fast=fast)
    assert side.recalled() == []


def test_only_where_it_may_run_and_nothing_else_waits(side: Side) -> None:
    side.dispatched(restrict=("slow",))
    mine = side.dispatched()
    side.contention.clusters = frozenset({"fast"})
    assert side.recalled() == []
    side.contention.clusters = frozenset()
    assert side.recalled(1.0) == [mine]


def test_a_drained_cluster_gives_back_sooner(side: Side) -> None:
    job = side.dispatched()
    side.clusters(drained="slow", slow={"cores_free": 0, "jobs_pending": 3}, fast={})
    assert side.recalled(1.5) == [job]


def test_a_job_is_not_moved_for_ever(side: Side) -> None:
    side.dispatched(attempt=5)
    assert side.recalled() == []
