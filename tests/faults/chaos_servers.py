"""The servers of a chaos run: single ones, or clusters that look like one and are hurt a member at a time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from clusters import RabbitCluster, SentinelSet
from faults.proxy import Proxy
from servers import Private, RabbitServer, RedisServer, start_rabbit, start_redis


@dataclass(frozen=True)
class Shape:
    """How many of what there are."""

    schedulers: int = 2
    recorders: int = 1
    nodes: int = 1
    sentinel: bool = False


class Nodes:
    """A RabbitMQ cluster with the methods of one private server: a fault happens to one node, drawn by the seed."""

    def __init__(self, cluster: RabbitCluster, seed: int) -> None:
        self.cluster = cluster
        self._rng = random.Random(seed)
        self._hurt = cluster.nodes[0]

    @property
    def server(self) -> RabbitServer:
        """A node that runs."""
        return next((node for node in self.cluster.nodes if node.alive), self.cluster.nodes[0]).server

    @property
    def ports(self) -> list[int]:
        return [node.server.port for node in self.cluster.nodes]

    def kill(self) -> None:
        self._hurt = self._rng.choice(self.cluster.nodes)
        self._hurt.kill()

    def start(self) -> None:
        self._hurt.start()

    def freeze(self) -> None:
        self._hurt = self._rng.choice(self.cluster.nodes)
        self.cluster.freeze(self._hurt)

    def thaw(self) -> None:
        self.cluster.healed()

    def without_majority(self, wait: Callable[[], object]) -> None:
        self.cluster.freeze(*self._rng.sample(self.cluster.nodes, 2))
        wait()
        self.cluster.healed()

    def healed(self) -> None:
        self.cluster.healed()

    def end(self) -> None:
        self.cluster.end()


class Sentinels:
    """A Sentinel set with the methods of one private server: a fault happens to the primary of the moment."""

    def __init__(self, servers: SentinelSet) -> None:
        self.set = servers
        self._hurt = servers.members[0]

    @property
    def server(self) -> RedisServer:
        return self.set.primary.server

    def kill(self) -> None:
        self.set.healed()
        self._hurt = self.set.primary
        self._hurt.kill()

    def start(self) -> None:
        self._hurt.start()

    def freeze(self) -> None:
        self.set.healed()
        self._hurt = self.set.primary
        self._hurt.freeze()

    def thaw(self) -> None:
        self._hurt.thaw()

    def lose(self, wait: Callable[[], object]) -> None:
        """A failover that loses what is written while `wait` runs."""
        self.set.healed()
        self.set.fail_over(wait)

    def healed(self) -> None:
        self.set.healed()

    def end(self) -> None:
        self.set.end()


Rabbit = Private[RabbitServer] | Nodes
Store = Private[RedisServer] | Sentinels


def start_servers(shape: Shape, folder: Path, seed: int) -> tuple[Rabbit, Store]:
    for name in ("rabbitmq", "redis"):
        (folder / name).mkdir()
    rabbit: Rabbit
    if shape.nodes == 3:
        rabbit = Nodes(RabbitCluster(folder / "rabbitmq"), seed)
    else:
        rabbit = Private(start_rabbit, folder / "rabbitmq")
    try:
        store: Store
        store = Sentinels(SentinelSet(folder / "redis")) if shape.sentinel else Private(start_redis, folder / "redis")
    except BaseException:
        rabbit.end()
        raise
    return rabbit, store


class Links:
    """The ways of one program to all servers of a cluster: they fail together."""

    def __init__(self, ports: list[int]) -> None:
        self._proxies = [Proxy("127.0.0.1", port) for port in ports]

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{proxy.port}" for proxy in self._proxies)

    def cut(self) -> None:
        self._each(lambda proxy: proxy.cut())

    def refuse(self) -> None:
        self._each(lambda proxy: proxy.refuse())

    def swallow(self, *, only_answers: bool = False) -> None:
        self._each(lambda proxy: proxy.swallow(only_answers=only_answers))

    def stall(self) -> None:
        self._each(lambda proxy: proxy.stall())

    def slow(self, seconds: float) -> None:
        self._each(lambda proxy: proxy.slow(seconds))

    def heal(self) -> None:
        self._each(lambda proxy: proxy.heal())

    def close(self) -> None:
        self._each(lambda proxy: proxy.close())

    def _each(self, do: Callable[[Proxy], object]) -> None:
        for proxy in self._proxies:
            do(proxy)
