"""Three RabbitMQ nodes under load: each is killed and frozen, most are away, all are restarted in turn.

The workers and an agent are programs that know all three addresses. Each confirmed job starts once.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from clusters import NET_TICKTIME, RabbitCluster
from job_load import Load
from processes import Site
from rainbow.client import Client
from rainbow.errors import RainbowError
from rainbow.settings import Settings
from servers import RedisServer, wait_until

pytestmark = pytest.mark.timeout(150)

BROKER = {"heartbeat": 4.0, "connect_timeout": 4.0, "publish_timeout": 8.0}


class Yard:
    """The programs, and a client of them."""

    def __init__(self, folder: Path, cluster: RabbitCluster, store: RedisServer) -> None:
        self.cluster = cluster
        url = cluster.url(cluster.make_vhost())
        self.site = Site(folder, url, store.url, f"rainbow-test-{uuid.uuid4().hex[:10]}:", log_level="info")
        self.site.shared["broker"] = {"url": url, **BROKER}
        self.site.config = self.site.write(
            "rainbow-config", {**self.site.shared, "token": self.site.token("root", "admin")}
        )
        self.site.scheduler()
        self.site.agent("blue", report_every=1.0)
        settings = {"broker": {"url": url, **BROKER}, "token": self.site.token("root", "admin")}
        self.client = Client(settings=Settings.model_validate(settings), timeout=20)
        wait_until(self._alive, 60, what="the cluster is registered")

    def _alive(self) -> bool:
        try:
            return any(c.alive for c in self.client.clusters())
        except RainbowError:
            return False

    def starts(self) -> list[str]:
        return [job for job, _ in self.site.starts(["blue"])]

    def each_started_once(self, confirmed: list[str]) -> None:
        try:
            wait_until(lambda: set(confirmed) <= set(self.starts()), 90, every=0.2, what="all confirmed jobs started")
        except AssertionError:
            missing = set(confirmed) - set(self.starts())
            records = self.client.status(sorted(missing)[:3])
            raise AssertionError(
                f"{len(missing)} of {len(confirmed)} did not start: {records}\n{self.site.logs()}"
            ) from None
        started = self.starts()
        assert len(started) == len(set(started)), "a job started twice"

    def close(self) -> None:
        self.client.close()
        self.site.__exit__()


@pytest.fixture(scope="module")
def _yard(
    tmp_path_factory: pytest.TempPathFactory, _rabbit_cluster: RabbitCluster, redis_server: RedisServer
) -> Iterator[Yard]:
    made = Yard(tmp_path_factory.mktemp("cluster"), _rabbit_cluster, redis_server)
    yield made
    made.close()


@pytest.fixture
def yard(_yard: Yard, rabbit_cluster: RabbitCluster) -> Yard:
    """With a cluster that is whole."""
    assert _yard.cluster is rabbit_cluster
    return _yard


def under_load(yard: Yard, fault: Callable[[Load], None]) -> None:
    with Load(yard.client) as load:
        load.more(30)
        fault(load)
        load.more(30)
    yard.cluster.healed()
    yard.each_started_once(load.confirmed)


@pytest.mark.parametrize("number", range(3))
def test_a_node_is_killed(yard: Yard, number: int) -> None:
    """The others go on without it, and it comes back."""
    node = yard.cluster.nodes[number]

    def fault(load: Load) -> None:
        node.kill()
        load.more(100)
        node.start()

    under_load(yard, fault)


@pytest.mark.parametrize(
    "number", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
def test_a_node_is_frozen(yard: Yard, number: int) -> None:
    """Once the others count it as down, they go on without it."""

    def fault(load: Load) -> None:
        yard.cluster.freeze(yard.cluster.nodes[number])
        time.sleep(NET_TICKTIME)
        load.more(100)

    under_load(yard, fault)


def test_most_nodes_are_away(yard: Yard) -> None:
    """Nothing is confirmed then, nothing is lost, and all of it resumes."""
    first, *others = yard.cluster.nodes

    def fault(load: Load) -> None:
        yard.cluster.freeze(*others)
        wait_until(lambda: not first.alive, 60, what="the node without the others pauses itself")
        before = len(load.confirmed)
        time.sleep(2.0)
        assert len(load.confirmed) <= before + 10, "a minority confirms nothing; the last batch may be in flight"
        for node in others:
            node.thaw()
        wait_until(lambda: first.alive, 60, what="the node takes connections again")

    under_load(yard, fault)


def test_nodes_are_restarted_in_turn(yard: Yard) -> None:
    def fault(load: Load) -> None:
        for node in yard.cluster.nodes:
            node.server.ctl("stop_app")
            load.more(20)
            node.server.ctl("start_app")
            wait_until(yard.cluster.whole, 60, every=0.5, what="the node is back")

    under_load(yard, fault)


def test_all_addresses_are_used(yard: Yard) -> None:
    """Clients with the same list spread over the nodes."""
    settings = Settings.model_validate(
        {"broker": yard.site.shared["broker"], "token": yard.site.token("root", "admin")}
    )
    ports = {node.server.port for node in yard.cluster.nodes}
    clients = [Client(settings=settings, timeout=20) for _ in range(12)]
    try:
        for client in clients:
            client.ping()
        rows = yard.cluster.nodes[0].server.ctl("list_connections", "port", "state").splitlines()
        used = {int(row.split()[0]) for row in rows if row.split()[0].isdigit()}
    finally:
        for client in clients:
            client.close()
    assert used == ports
    assert urlsplit(yard.cluster.nodes[0].server.url).port in ports
