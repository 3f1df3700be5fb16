"""The rainbow of the random faults: its programs, each with links to broker and store and a clock of its own."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.chaos_servers import Links, Nodes, Rabbit, Sentinels, Shape, Store
from processes import Site
from rainbow.client import Client
from rainbow.settings import Settings
from rig import resources

#: Clusters of unequal size, by their nodes.
CLUSTERS = {"blue": 2, "green": 4, "red": 8}
#: Who submits.
USERS = ("alice", "bob")
#: Seconds until a dispatch that no agent takes comes back.
DISPATCH_TIMEOUT = 20.0


@dataclass
class Program:
    """A program of the site, with its own links to broker and store, and its own clock."""

    name: str
    start: Callable[[], subprocess.Popen[bytes]]
    broker: Links
    store: Links | None
    clock: Path
    process: subprocess.Popen[bytes] | None = None
    #: One fault at a time for each program; links may fail all the same.
    busy: threading.Lock = field(default_factory=threading.Lock)
    ended: list[str] = field(default_factory=list)

    def launch(self) -> None:
        self.process = self.start()

    def look(self) -> None:
        """Note it when the program ended by itself, and start it again."""
        if self.process is not None and self.process.poll() is not None:
            self.ended.append(f"{self.name} ended by itself with code {self.process.returncode}: {self.last_words()}")
            self.launch()

    def last_words(self) -> str:
        """What its log says of its end, to be read when the folder is gone."""
        log = self.clock.parent / f"{self.name}.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return "\n".join(line for line in lines[-8:] if '"level": "info"' not in line)[-4000:]

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def terminate(self) -> None:
        assert self.process is not None
        process, self.process = self.process, None
        listens = _listens(process.pid)
        process.terminate()
        try:
            code = process.wait(60)
        except subprocess.TimeoutExpired:
            self.ended.append(f"{self.name} did not end within 60 s of SIGTERM")
            process.kill()
            process.wait()
            return
        # One that has only just been started does not listen for signals yet, and holds nothing either.
        if code and (listens or code != -signal.SIGTERM):
            self.ended.append(f"{self.name} ended with code {code} on SIGTERM")

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def step_clock(self, seconds: float) -> None:
        with self.clock.open("r+b") as file:  # never shorter than it is: the program has it mapped
            file.write(struct.pack("d", seconds))


def workers(shape: Shape) -> dict[str, tuple[str, ...]]:
    """The programs of the scheduler's side, and what each runs."""
    numbered = range(2, shape.recorders + 1)
    return {
        "scheduler-1": ("scheduler", "returns", "bidding"),
        **{f"scheduler-{number}": ("scheduler", "returns") for number in range(2, shape.schedulers + 1)},
        "registrar": ("registrar",),
        "recorder": ("recorder",),
        **{f"recorder-{number}": ("recorder",) for number in numbered},
    }


class Yard:
    """The servers, the programs and the links between them."""

    def __init__(self, folder: Path, rabbit: Rabbit, store: Store, shape: Shape = Shape()) -> None:  # noqa: B008
        self.folder = folder
        self.shape = shape
        self.ports = rabbit.ports if isinstance(rabbit, Nodes) else [rabbit.server.port]
        self.rabbit = rabbit
        self.redis = store
        self.vhost = f"chaos-{uuid.uuid4().hex[:8]}"
        rabbit.server.make_vhosts([self.vhost])
        self.prefix = f"chaos-{uuid.uuid4().hex[:8]}:"
        self.proxies: list[Links] = []
        self.site = Site(
            folder,
            self.amqp_url(),
            self.store_url(None),
            self.prefix,
            queues={"dispatch_timeout": DISPATCH_TIMEOUT},
            log_format="json",
        )
        self.submitter = self.proxy(*self.ports)
        self.programs = {
            **{name: self.worker(name, *only) for name, only in workers(shape).items()},
            **{f"agent-{cluster}": self.agent(cluster) for cluster in CLUSTERS},
        }
        #: When all data of the store was lost, by the real clock.
        self.forgotten: list[float] = []
        self.servers_busy = threading.Lock()

    def proxy(self, *ports: int) -> Links:
        self.proxies.append(Links(list(ports)))
        return self.proxies[-1]

    def amqp_url(self, links: Links | None = None) -> str:
        hosts = links.hosts if links else ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"amqp://guest:guest@{hosts}/{self.vhost}"

    def store_url(self, links: Links | None) -> str:
        """Of a single server through `links`; Sentinels name servers that no proxy stands before."""
        if isinstance(self.redis, Sentinels):
            return self.redis.set.url
        return self.redis.server.url if links is None else f"redis://{links.hosts}/0"

    def broker_settings(self, links: Links) -> dict[str, Any]:
        url = self.amqp_url(links)
        return {"url": url, "heartbeat": 4.0, "connect_timeout": 5.0, "publish_timeout": 8.0}

    def clock_of(self, name: str) -> tuple[Path, dict[str, str]]:
        file = self.folder / f"clock-{name}"
        file.write_bytes(struct.pack("d", 0.0))
        return file, {"CLOCK_OFFSET": str(file), "PYTHONPATH": str(Path(__file__).parent / "clock")}

    def worker(self, name: str, *only: str) -> Program:
        broker = self.proxy(*self.ports)
        store = None if isinstance(self.redis, Sentinels) else self.proxy(self.redis.server.port)
        clock, env = self.clock_of(name)
        config = self.site.write(
            name,
            {
                **self.site.shared,
                "broker": self.broker_settings(broker),
                "store": {"url": self.store_url(store), "prefix": self.prefix, "timeout": 2.0},
                "scheduler": {
                    "alive_after": 8.0,
                    "retry_after": 1.0,
                    "reserve": 20.0,
                    "breaker": {"threshold": 0},  # some of the jobs fail, and are to go everywhere all the same
                    "failover_rate": 1000.0,
                },
            },
        )
        arguments = [a for worker in only for a in ("--only", worker)]
        return Program(
            name,
            lambda: self.site.start(name, "rainbow_workers.cli", *arguments, config=config, env=env),
            broker,
            store,
            clock,
        )

    def agent(self, cluster: str) -> Program:
        name = f"agent-{cluster}"
        broker = self.proxy(*self.ports)
        clock, env = self.clock_of(name)
        graph = self.folder / f"{cluster}.json"
        graph.write_text(json.dumps(resources(nodes=CLUSTERS[cluster], cores=2)))
        config = self.site.write(
            name,
            {
                "broker": self.broker_settings(broker),
                "cluster": {"name": cluster},
                "token": self.site.token(name, "register", cluster),
                "log_format": "json",
                "agent": {
                    "graph": str(graph),
                    "state_dir": str(self.folder / f"state-{cluster}"),
                    "executor": "local",
                    "report_every": 1.0,
                    "grace": 15.0,
                    "prefetch": 20,
                    "values": {"cluster": cluster},
                },
            },
        )
        return Program(
            name,
            lambda: self.site.start(name, "rainbow_agents.cli", "run", config=config, env=env),
            broker,
            None,
            clock,
        )

    def start(self) -> None:
        for program in self.programs.values():
            program.launch()
        with self.client() as client:
            self.site.served(client, len(CLUSTERS))

    def client(self, proxy: Links | None = None, timeout: float = 30.0, user: str = USERS[0]) -> Client:
        """Of an administrator, straight to the broker; of a user through `proxy`."""
        broker = self.broker_settings(proxy) if proxy else {"url": self.amqp_url()}
        token = self.site.token(user) if proxy else self.site.token("root", "admin")
        settings = {"broker": broker, "token": token, "keyring": str(self.folder / "none.json")}
        return Client(settings=Settings.model_validate(settings), timeout=timeout)

    def heal(self) -> None:
        """Everything as it should be."""
        for proxy in self.proxies:
            proxy.heal()
        for server in (self.rabbit, self.redis):
            server.healed()
        for program in self.programs.values():
            program.step_clock(0.0)
            if program.process is None:
                program.launch()
            program.signal(signal.SIGCONT)
            program.look()

    def close(self) -> None:
        for proxy in self.proxies:
            proxy.heal()
        for program in self.programs.values():
            if program.process is not None:
                program.signal(signal.SIGCONT)
        self.site.__exit__()
        for proxy in self.proxies:
            proxy.close()


def _listens(pid: int) -> bool:
    """Whether a process has set up what it does at SIGTERM."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
