"""One rainbow for all tests here: real servers, workers, and three clusters whose agents run jobs on this machine."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from processes import Site
from rainbow.client import Client
from rainbow.errors import RainbowError
from rainbow.settings import load
from rig import eventually, resources
from servers import RabbitServer, RedisServer, Run

CLUSTERS = ("blue", "green", "red")


@pytest.fixture(scope="package")
def site(
    rabbit_server: RabbitServer, redis_server: RedisServer, test_run: Run, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    redis = pytest.importorskip("redis")
    folder = tmp_path_factory.mktemp("site")
    url = rabbit_server.vhost_url(rabbit_server.kept_vhost(test_run.name))
    prefix = f"rainbow-test-{uuid.uuid4().hex[:10]}:"
    (folder / "shared").mkdir()
    staging = {"places": {"shared": {"name": "folder", "options": {"path": str(folder / "shared")}}}}
    with Site(folder, url, redis_server.url, prefix, log_level="warning", staging=staging) as site:
        site.scheduler()
        for name in CLUSTERS:
            graph = resources(nodes=2, cores=8, gpus=2, host=name)
            site.agent(name, graph, executor="local", options={}, report_every=1.0)
        with Client(settings=load(site.config, {})) as admin:

            def alive() -> bool:
                try:
                    return sum(cluster.alive for cluster in admin.clusters()) == len(CLUSTERS)
                except RainbowError:
                    return False

            eventually(alive, 60, every=0.2)
        yield site
    with redis.Redis.from_url(redis_server.url) as store:
        for key in list(store.scan_iter(match=f"{prefix}*", count=1000)):
            store.delete(key)


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    """The client of a user with a token and nothing else."""
    with Client(settings=load(site.settings_of("alice"), {})) as made:
        yield made
