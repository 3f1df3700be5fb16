"""Fixtures shared by all tests: real servers (see servers.py), a fresh vhost or key prefix for each test."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

# How fast examples are made says something of the machine, not of the code.
settings.register_profile("rainbow", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rainbow")
pytest.register_assert_rewrite("rainbow.testing", "rainbow_workers.stores.testing", "rainbow_agents.executors.testing")
sys.path[:0] = [str(Path(__file__).parent / "support"), str(Path(__file__).parent)]  # in every import mode

from clusters import RabbitCluster, SentinelSet  # noqa: E402
from servers import (  # noqa: E402
    NoServer,
    Private,
    RabbitServer,
    RedisServer,
    Run,
    find_rabbit,
    find_redis,
    start_rabbit,
    start_redis,
)

if TYPE_CHECKING:
    from agentrig import Agents
    from rig import Rig

T = TypeVar("T")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Started in the background of a shell; programs of the tests would ignore Ctrl-C as well.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        config.stash[_RUN] = run = Run.begin()
        os.environ["RAINBOW_TEST_RUN"] = str(run.folder)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    from scheduling import ByModule

    return ByModule(config, log)


def pytest_unconfigure(config: pytest.Config) -> None:
    run = config.stash.get(_RUN, None)
    if run is not None:
        run.end()


_RUN = pytest.StashKey[Run]()


def missing(reason: object) -> None:
    """Skip, visibly; fail where servers are required (RAINBOW_TEST_REQUIRE=1, as in CI)."""
    if os.environ.get("RAINBOW_TEST_REQUIRE") == "1":
        pytest.fail(f"RAINBOW_TEST_REQUIRE is set and there is no server: {reason}")
    pytest.skip(f"no server: {reason}")


@pytest.fixture(autouse=True)
def _process_as_it_was() -> Iterator[None]:
    """A command that is run in this process sets the level of all logs, and hooks for what is unforeseen: the next
    test has those of before."""
    root = logging.getLogger()
    level, hooks = root.level, (sys.excepthook, threading.excepthook)
    yield
    root.setLevel(level)
    sys.excepthook, threading.excepthook = hooks


@pytest.fixture(scope="session")
def test_run() -> Run:
    """The folder of this run of pytest, shared with its other processes."""
    return Run(Path(os.environ["RAINBOW_TEST_RUN"]))


# -- RabbitMQ --------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def rabbit_server(test_run: Run) -> RabbitServer:
    """A RabbitMQ on which this run may make vhosts. Not ours to stop or configure: see `private_rabbitmq`."""
    try:
        return find_rabbit(test_run)
    except NoServer as exc:
        missing(exc)
        raise


@pytest.fixture
def amqp_vhost(rabbit_server: RabbitServer, test_run: Run) -> str:
    """The name of a fresh vhost on `rabbit_server`."""
    return rabbit_server.new_vhost(test_run.name)


@pytest.fixture
def amqp_url(rabbit_server: RabbitServer, amqp_vhost: str) -> str:
    """The URL of a fresh, empty vhost with all rights."""
    return rabbit_server.vhost_url(amqp_vhost)


@pytest.fixture(scope="session")
def _private_rabbitmq(test_run: Run) -> Iterator[Private[RabbitServer]]:
    folder = Path(tempfile.mkdtemp(prefix="private-rabbitmq-", dir=test_run.folder))
    try:
        private = Private(start_rabbit, folder)
    except NoServer as exc:
        missing(exc)
        raise
    yield private
    private.end()


@pytest.fixture
def private_rabbitmq(_private_rabbitmq: Private[RabbitServer]) -> Iterator[Private[RabbitServer]]:
    """A RabbitMQ of this test process: stop, freeze, kill or alarm it at will; it is healed afterwards."""
    if not _private_rabbitmq.healed().takes_messages():
        _private_rabbitmq.replace()
    yield _private_rabbitmq
    _private_rabbitmq.healed()


@pytest.fixture
def private_amqp_url(private_rabbitmq: Private[RabbitServer], test_run: Run) -> str:
    """The URL of a fresh vhost on `private_rabbitmq`."""
    return private_rabbitmq.server.vhost_url(private_rabbitmq.server.new_vhost(test_run.name))


# -- Redis -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def redis_server(test_run: Run) -> RedisServer:
    """A Redis or Valkey to be used under `redis_prefix` only. Not ours to stop or flush: see `private_redis`."""
    try:
        return find_redis(test_run)
    except NoServer as exc:
        missing(exc)
        raise


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    return redis_server.url


@pytest.fixture
def redis_prefix(redis_server: RedisServer) -> Iterator[str]:
    """A key prefix of this test alone; what is under it is deleted afterwards."""
    redis = pytest.importorskip("redis")
    prefix = f"rainbow-test-{uuid.uuid4().hex[:10]}:"
    yield prefix
    with redis.Redis.from_url(redis_server.url) as client:
        keys = list(client.scan_iter(match=f"{prefix}*", count=1000))
        for start in range(0, len(keys), 1000):
            client.delete(*keys[start : start + 1000])


@pytest.fixture(scope="session")
def _private_redis(test_run: Run) -> Iterator[Private[RedisServer]]:
    folder = Path(tempfile.mkdtemp(prefix="private-redis-", dir=test_run.folder))
    try:
        private = Private(start_redis, folder)
    except NoServer as exc:
        missing(exc)
        raise
    yield private
    private.end()


@pytest.fixture
def private_redis(_private_redis: Private[RedisServer]) -> Iterator[Private[RedisServer]]:
    """A Redis of this test process: stop, freeze, kill or flush it at will; it is healed afterwards."""
    _private_redis.healed()
    yield _private_redis
    _private_redis.healed()


# -- clusters of servers, of one module each ----------------------------------------------------------------


@pytest.fixture(scope="module")
def _sentinel_set(test_run: Run) -> Iterator[SentinelSet]:
    try:
        made = SentinelSet(Path(tempfile.mkdtemp(prefix="sentinel-", dir=test_run.folder)))
    except NoServer as exc:
        missing(exc)
        raise
    yield made
    made.end()


@pytest.fixture
def sentinel_set(_sentinel_set: SentinelSet) -> SentinelSet:
    """A Redis primary, two replicas and three Sentinels, whole: hurt them at will."""
    _sentinel_set.healed()
    return _sentinel_set


@pytest.fixture(scope="module")
def _rabbit_cluster(test_run: Run) -> Iterator[RabbitCluster]:
    try:
        made = RabbitCluster(Path(tempfile.mkdtemp(prefix="rabbit-cluster-", dir=test_run.folder)))
    except NoServer as exc:
        missing(exc)
        raise
    yield made
    made.end()


@pytest.fixture
def rabbit_cluster(_rabbit_cluster: RabbitCluster) -> RabbitCluster:
    """Three nodes of RabbitMQ, whole: hurt them at will."""
    _rabbit_cluster.healed()
    return _rabbit_cluster


@pytest.fixture
def rig() -> Iterator[Rig]:
    """The scheduler's side on the memory plugins; modules that need it otherwise have a `rig` of their own."""
    from rig import Rig

    name = uuid.uuid4()
    with Rig(f"memory://{name}", f"memory://{name}") as rig:
        yield rig


@pytest.fixture
def agents(rig: Rig, tmp_path: Path) -> Iterator[Agents]:
    """Makes agents beside `rig`, and ends them."""
    from agentrig import Agents

    agents = Agents(rig, tmp_path)
    yield agents
    agents.close()
