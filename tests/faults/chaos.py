"""A rainbow of real programs under random faults, for as long as asked. What its jobs really did is the judge.

    make chaos MINUTES=10 SEED=7
    make chaos MINUTES=30 SHAPE='--schedulers 3 --recorders 3 --nodes 3 --sentinel'

Two schedulers, a registrar, a recorder and the agents of three clusters run as programs of their own on a private
RabbitMQ and Redis, each behind a TCP proxy of its own; a submitter sends jobs all the while, cancels some, and sends
some that were confirmed a second time. A fourth cluster lies about the jobs of the others. Faults
come from the seed alone, so a seed that found something shows the same faults again (though not the same instants
within the programs). Several overlap. In the end all is healed, and then:

- each job that was confirmed to its submitter has run once, or was cancelled: never twice, never not at all;
- it is in one terminal state, which agrees with what its body did, and all its terminal events say the same;
- no program has ended by itself, and nothing lies in the dead letters.

The bodies write to a file, one line as they start and one as they end: nothing that rainbow says is believed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from faults.chaos_servers import Links, Nodes, Rabbit, Sentinels, Shape, Store, start_servers
from faults.liar import CLUSTER, Liar
from faults.liar import NAME as LIAR
from processes import Site
from rainbow import codec, topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.client import Client
from rainbow.client.dead_letters import Letter
from rainbow.errors import RainbowError
from rainbow.models.job import TERMINAL
from rainbow.settings import Settings
from rig import resources
from servers import wait_until

#: Clusters of unequal size, by their nodes.
CLUSTERS = {"blue": 2, "green": 4, "red": 8}
#: Who submits.
USERS = ("alice", "bob")
#: Seconds until a dispatch that no agent takes comes back.
DISPATCH_TIMEOUT = 20.0
#: Seconds for all to come to an end once everything is well again.
SETTLE = 180.0
#: The queue that hears every event: what is told is judged, too.
TAP = "chaos.tap"


# -- programs ------------------------------------------------------------------------------------------------


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
            wait_until(lambda: self._all_alive(client), 120, every=0.5, what="all clusters are there")

    def _all_alive(self, client: Client) -> bool:
        try:
            return sum(c.alive for c in client.clusters()) == len(CLUSTERS)
        except RainbowError:
            return False

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


# -- faults --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """`what` happens to `where` for `seconds`, `pause` after the one before began."""

    what: str
    where: str
    seconds: float
    pause: float

    def __str__(self) -> str:
        return f"{self.what} {self.where} for {self.seconds:.1f} s"


#: What happens how often, and for how many seconds at most.
KINDS: dict[str, tuple[int, float]] = {
    "kill": (8, 3.0),
    "freeze": (6, 14.0),
    "terminate": (3, 2.0),
    "step-clock": (3, 15.0),
    "broker-cut": (8, 0.0),
    "broker-refuse": (4, 8.0),
    "broker-swallow": (4, 8.0),
    "broker-no-answers": (4, 8.0),
    "broker-stall": (3, 6.0),
    "broker-slow": (3, 8.0),
    "store-cut": (4, 0.0),
    "store-refuse": (3, 5.0),
    "store-no-answers": (4, 5.0),
    "store-slow": (2, 6.0),
    "redis-restart": (2, 2.0),
    "redis-freeze": (1, 5.0),
    "redis-forgets": (1, 0.0),
    "rabbitmq-restart": (1, 1.0),
    "rabbitmq-freeze": (1, 10.0),
    "rabbitmq-alarm": (1, 6.0),
}


def kinds(shape: Shape) -> dict[str, tuple[int, float]]:
    """What happens to servers of this shape."""
    found = dict(KINDS)
    if shape.nodes > 1:
        found |= {"rabbitmq-restart": (3, 3.0), "rabbitmq-freeze": (3, 12.0), "rabbitmq-minority": (1, 12.0)}
    if shape.sentinel:
        found = {name: how for name, how in found.items() if not name.startswith("store-")}
        found |= {"redis-restart": (3, 4.0), "redis-freeze": (3, 6.0), "redis-loses": (3, 1.0)}
    return found


def faults(seed: int, pace: float = 1.2, shape: Shape = Shape()) -> Iterator[Fault]:  # noqa: B008
    """Without end; the same for the same seed. `pace`: seconds between two, on average."""
    rng = random.Random(seed)
    possible = kinds(shape)
    names = list(possible)
    weights = [possible[name][0] for name in names]
    store_users = tuple(workers(shape))
    programs = (*store_users, *(f"agent-{c}" for c in CLUSTERS))
    while True:
        what = rng.choices(names, weights)[0]
        longest = possible[what][1]
        if what.startswith("store-"):
            where = rng.choice(store_users)
        elif what.startswith(("redis-", "rabbitmq-")):
            where = what.partition("-")[0]
        elif what.startswith("broker-"):
            where = rng.choice((*programs, "submitter"))
        else:
            where = rng.choice(programs)
        yield Fault(what, where, rng.uniform(0.2, 1.0) * longest, rng.expovariate(1.0 / pace))


class Faults:
    """Lets them happen, each in a thread of its own, until told to stop."""

    def __init__(self, yard: Yard, seed: int, say: Callable[[str], None]) -> None:
        self._yard = yard
        self._seed = seed
        self._say = say
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._clock_steps = random.Random(seed)
        self.count: Counter[str] = Counter()
        self.problems: list[str] = []

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for fault in faults(self._seed, shape=self._yard.shape):
            if self._stop.wait(min(fault.pause, max(0.0, end - time.monotonic()))) or time.monotonic() >= end:
                break
            thread = threading.Thread(target=self._happen, args=(fault,), daemon=True)
            thread.start()
            self._threads.append(thread)
        self._stop.set()
        for thread in self._threads:
            thread.join(180)

    def _happen(self, fault: Fault) -> None:
        yard = self._yard
        server = fault.where in ("redis", "rabbitmq")
        program = yard.programs.get(fault.where)
        link = fault.what.startswith(("broker-", "store-"))
        lock = yard.servers_busy if server else program.busy if program and not link else contextlib.nullcontext()
        if isinstance(lock, type(yard.servers_busy)) and not lock.acquire(blocking=False):
            return  # something else is happening to it
        self._say(str(fault))
        try:
            if server:
                self._to_server(fault)
            elif link:
                proxy = yard.submitter if program is None else program.broker
                if fault.what.startswith("store-"):
                    assert program is not None
                    assert program.store is not None
                    proxy = program.store
                self._to_link(fault, proxy)
            else:
                assert program is not None
                self._to_program(fault, program)
            self.count[fault.what] += 1
        except Exception as exc:
            self.problems.append(f"{fault}: {exc!r}")
        finally:
            if isinstance(lock, type(yard.servers_busy)):
                lock.release()

    def _wait(self, fault: Fault) -> None:
        self._stop.wait(fault.seconds)

    def _to_program(self, fault: Fault, program: Program) -> None:
        program.look()
        match fault.what:
            case "kill":
                program.kill()
                self._wait(fault)
                program.launch()
            case "terminate":
                program.terminate()
                self._wait(fault)
                program.launch()
            case "freeze":
                program.signal(signal.SIGSTOP)
                self._wait(fault)
                program.signal(signal.SIGCONT)
            case "step-clock":
                program.step_clock(random.Random(repr(fault)).uniform(-40, 40))
                self._wait(fault)
                program.step_clock(0.0)

    def _to_link(self, fault: Fault, proxy: Links) -> None:
        match fault.what.partition("-")[2]:
            case "cut":
                proxy.cut()
                return
            case "refuse":
                proxy.refuse()
            case "swallow":
                proxy.swallow()
            case "no-answers":
                proxy.swallow(only_answers=True)
            case "stall":
                proxy.stall()
            case "slow":
                proxy.slow(0.05)
        self._wait(fault)
        proxy.heal()

    def _to_server(self, fault: Fault) -> None:
        yard = self._yard
        match fault.what:
            case "redis-restart":
                yard.redis.kill()
                self._wait(fault)
                yard.redis.start()
            case "redis-forgets":
                yard.forgotten.append(time.time())
                with redis.Redis.from_url(yard.redis.server.url) as admin:
                    admin.flushall()
            case "redis-freeze":
                yard.redis.freeze()
                self._wait(fault)
                yard.redis.thaw()
            case "redis-loses":
                assert isinstance(yard.redis, Sentinels)
                yard.redis.lose(lambda: self._wait(fault))
            case "rabbitmq-minority":
                assert isinstance(yard.rabbit, Nodes)
                yard.rabbit.without_majority(lambda: self._wait(fault))
            case "rabbitmq-restart":
                yard.rabbit.kill()
                self._wait(fault)
                yard.rabbit.start()
            case "rabbitmq-freeze":
                yard.rabbit.freeze()
                self._wait(fault)
                yard.rabbit.thaw()
            case "rabbitmq-alarm":
                yard.rabbit.server.ctl("set_vm_memory_high_watermark", "0.0000001")
                self._wait(fault)
                yard.rabbit.server.ctl("set_vm_memory_high_watermark", "0.6")


# -- load ----------------------------------------------------------------------------------------------------


class Load:
    """Submits jobs of users until told to stop, each until the broker has confirmed it, and some once more; lets
    some wait for others, and cancels some."""

    def __init__(self, yard: Yard, seed: int) -> None:
        self._rng = random.Random(seed)
        self._yard = yard
        self._body = yard.folder / "bodies"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        #: By id: what the body exits with, and whether a cancel was asked for.
        self.jobs: dict[str, int] = {}
        self.cancelled: set[str] = set()
        #: When each was first tried.
        self.submitted_at: dict[str, float] = {}
        #: Those that may be with the broker more than once: only a store that lost its data may run them again.
        self.repeated: set[str] = set()
        #: What a job waits for: the kind of its dependency, and the id.
        self.waits: dict[str, tuple[str, str]] = {}
        self._recent: dict[str, deque[dict[str, Any]]] = {user: deque(maxlen=20) for user in USERS}
        self.tries = 0
        self.problems: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What was begun is finished: call after healing, too."""
        self._stop.set()
        self._thread.join(120)
        if self._thread.is_alive():
            self.problems.append("the submitter did not get its last jobs confirmed")

    def _run(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                clients = {
                    user: stack.enter_context(self._yard.client(self._yard.submitter, timeout=8.0, user=user))
                    for user in USERS
                }
                while not self._stop.wait(self._rng.expovariate(4.0)):
                    user = self._rng.choice(USERS)
                    client, recent = clients[user], self._recent[user]
                    self._submit(client, recent, [self._job(recent) for _ in range(self._rng.choice((1, 1, 2, 5)))])
                    if self._rng.random() < 0.1:
                        self._cancel(client, self._rng.choice(list(recent)[-10:])["id"])
                    if self._rng.random() < 0.1:
                        self._again(client, self._rng.choice(recent))
        except Exception as exc:
            self.problems.append(f"the submitter ended: {exc!r}")

    def _job(self, before: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """A job; some wait for one of those `before`."""
        code = self._rng.choice((0, 0, 0, 3))
        seconds = self._rng.choice((0.0, 0.1, 0.5, 0.5, 2.0, 6.0))
        line = f'printf "%s $RAINBOW_JOB_ID $RAINBOW_ATTEMPT\\n" {{}} >> {self._body}'
        script = f"{line.format('start')}; sleep {seconds}; {line.format('end')}; exit {code}"
        job_id, more = str(uuid.UUID(int=self._rng.getrandbits(128), version=4)), {}
        if before and self._rng.random() < 0.15:
            kind, on = self._rng.choice(("afterok", "afterany")), self._rng.choice(before)["id"]
            self.waits[job_id] = kind, on
            more = {"dependency": f"{kind}:{on}"}
        return {
            **more,
            "id": job_id,
            "command": ["/bin/sh", "-c", script],
            "hold": 600,
            "priority": self._rng.choice((8, 16, 16, 24)),
            "environment": {"PATH": "/usr/bin:/bin"},
            "cwd": str(self._yard.folder),
            "name": f"exit-{code}",
        }

    def _submit(self, client: Client, recent: deque[dict[str, Any]], jobs: Sequence[dict[str, Any]]) -> None:
        self.submitted_at |= dict.fromkeys((job["id"] for job in jobs), time.time())
        while True:
            self.tries += 1
            try:
                client.submit_many(jobs, timeout=8.0)  # type: ignore[arg-type]
                break
            except RainbowError:
                time.sleep(0.2)  # all of them again, with the same ids
                self.repeated |= {job["id"] for job in jobs}
        recent.extend(jobs)
        for job in jobs:
            self.jobs[job["id"]] = int(job["name"].removeprefix("exit-"))

    def waits_for_lost(self, last_loss: float) -> set[str]:
        """Jobs that may wait for good, as is documented: the store has lost the end of what they wait for."""
        found: set[str] = set()
        for job, (_, on) in self.waits.items():  # in the order of submission
            if on in found or self.submitted_at.get(on, last_loss) < last_loss:
                found.add(job)
        return found

    def _again(self, client: Client, job: dict[str, Any]) -> None:
        """By a submitter who forgot that it was confirmed: waiting, running or over by now, it is the same job."""
        self.repeated.add(job["id"])
        with contextlib.suppress(RainbowError):  # then it may be there twice or not
            client.submit_many([job], timeout=8.0)  # type: ignore[list-item]

    def _cancel(self, client: Client, job: str) -> None:
        self.cancelled.add(job)
        with contextlib.suppress(RainbowError):  # then it may be cancelled or not
            client.cancel([job])


# -- the judge -----------------------------------------------------------------------------------------------


@dataclass
class Verdict:
    problems: list[str]
    facts: dict[str, Any]


def bodies(folder: Path) -> tuple[dict[str, list[int]], set[str]]:
    """What really ran: the attempts that each job started as, and the jobs that came to the end of their script."""
    file = folder / "bodies"
    starts: dict[str, list[int]] = defaultdict(list)
    ends: set[str] = set()
    for line in file.read_text().splitlines() if file.exists() else []:
        what, job, attempt = line.split()
        if what == "start":
            starts[job].append(int(attempt))
        else:
            ends.add(job)
    return starts, ends


def _listens(pid: int) -> bool:
    """Whether a process has set up what it does at SIGTERM."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def out_of_order(folder: Path, load: Load, unknown: set[str]) -> Iterator[str]:
    """Jobs that started although what they wait for had not ended, or not well. What may run twice is left out."""
    lines = (folder / "bodies").read_text().splitlines()
    last = {(what, job): at for at, (what, job, _) in enumerate(line.split() for line in lines)}
    first = {(what, job): at for at, (what, job, _) in reversed(list(enumerate(line.split() for line in lines)))}
    for job, (kind, on) in load.waits.items():
        began = first.get(("start", job))
        if began is None or {job, on} & unknown:
            continue
        ended = last.get(("end", on), -1)
        if began < max(ended, last.get(("start", on), -1)) or (kind == "afterok" and (ended < 0 or load.jobs[on])):
            yield f"started too early: {job}, {kind} of {on} (exit code {load.jobs[on]})"


class Tap:
    """Hears every event of a job from the beginning, in a queue of its own."""

    def __init__(self, yard: Yard) -> None:
        self._broker = connect(ConnectOptions(yard.amqp_url(), name="tap"))
        #: By job, its ends as they were told.
        self.words: dict[str, list[str]] = defaultdict(list)
        tap = topology.Queue(TAP, bindings=((topology.EVENTS, "#"),))
        self._broker.declare(topology.Topology(queues=(tap,)))

    def terminal(self) -> dict[str, set[tuple[str, int]]]:
        """By job, the terminal states that were told, with their attempts."""
        told: dict[str, set[tuple[str, int]]] = defaultdict(set)
        consumer = self._broker.consume(TAP, prefetch=1000)
        while got := consumer.take(1000, 2.0):
            for delivery in got:
                if delivery.headers.get(CLUSTER) == LIAR:
                    continue  # its word alone is no news of a job
                data = codec.decode(delivery.body, delivery.content_type)
                for event in data.get("events", [data]):
                    if event["state"] in TERMINAL:
                        told[event["id"]].add((event["state"], event["attempt"]))
                        words = (event.get(key) for key in ("at", "state", "attempt", "cluster", "code", "detail"))
                        self.words[event["id"]].append(" ".join(map(str, words)))
            consumer.ack(got)
        consumer.cancel()
        return told

    def dead(self) -> list[Letter]:
        consumer = self._broker.consume(topology.DEAD_QUEUE, prefetch=1000)
        out: list[Letter] = []
        while got := consumer.take(1000, 1.0):
            out += [Letter(delivery) for delivery in got]
            consumer.ack(got)
        consumer.cancel()
        return out

    def close(self) -> None:
        self._broker.close()


def over(client: Client, ids: Sequence[str]) -> dict[str, Any]:
    """The records of those that are over."""
    found = {}
    for start in range(0, len(ids), 500):
        for record in client.status(ids[start : start + 500]):
            if record is not None and record.state in TERMINAL:
                found[record.id] = record
    return found


def judge(yard: Yard, load: Load, tap: Tap, say: Callable[[str], None]) -> Verdict:
    """Wait until all is over, at most `SETTLE` seconds, and compare."""
    problems: list[str] = []
    wanted = list(load.jobs)
    last_loss = max(yard.forgotten, default=0.0)
    began = time.monotonic()
    records: dict[str, Any] = {}
    with yard.client() as client:
        while time.monotonic() - began < SETTLE:
            with contextlib.suppress(RainbowError):
                records |= over(client, [job for job in wanted if job not in records])
            starts, ends = bodies(yard.folder)
            # Of what was over before the store lost everything there is no record: its body has to do.
            over_then = {j for j in (ends | load.cancelled) if load.submitted_at.get(j, last_loss) < last_loss}
            over_then |= load.waits_for_lost(last_loss)
            missing = [j for j in wanted if j not in records and j not in over_then]
            if not missing:
                break
            time.sleep(1.0)
        say(f"all but {len(missing)} over after {time.monotonic() - began:.0f} s")
        problems += [
            f"not over: {job} started {starts.get(job)} record {client.status([job])[0]!r}"[:700]
            for job in missing[:10]
        ]
        if missing:
            for command in ("list_queues name messages_ready messages_unacknowledged consumers", "list_consumers"):
                say(yard.rabbit.server.ctl("-p", yard.vhost, *command.split()))
        if len(missing) > 10:
            problems.append(f"and {len(missing) - 10} more are not over")
    time.sleep(2.0)
    starts, ends = bodies(yard.folder)
    told = tap.terminal()
    # A store that lost its data does not know the second copy of what was over by then from a new job.
    unknown = {j for j in load.repeated if load.submitted_at.get(j, last_loss) <= last_loss}
    for job, attempts in starts.items():
        if len(attempts) > 1 and job not in unknown:
            problems.append(f"ran {len(attempts)} times: {job} as attempts {attempts}; {told.get(job)}")
    problems += out_of_order(yard.folder, load, unknown)
    for job in wanted:
        record = records.get(job)
        if len(told.get(job, ())) > 1 and job not in unknown:
            problems.append(
                f"more than one end was told: {job} {tap.words[job]}, its record says {record and record.state}"
            )
        if record is None:
            continue
        code = load.jobs[job]
        good = {"failed" if code else "completed"} | ({"cancelled"} if job in load.cancelled else set())
        if job in load.waits:
            # It never can start, or the store has lost what it waits for.
            good |= {"unsatisfiable", "invalid"}
        if record.state not in good:
            problems.append(f"ended wrongly: {job} {record.state}, should be {good}: {record!r}"[:700])
        elif record.state in ("completed", "failed") and (job not in ends or record.returncode != code):
            problems.append(f"{job} is said to be {record.state} with {record.returncode}, but its body did not end so")
    for program in yard.programs.values():
        program.look()
        problems += program.ended
    dead = tap.dead()
    problems += [f"dead letter: {letter.plain()}" for letter in dead[:10]]
    facts = {
        "jobs": len(wanted),
        "ran": len(starts),
        "states": dict(Counter(r.state for r in records.values())),
        "attempts": dict(Counter(r.attempt for r in records.values())),
        "submissions tried": load.tries,
        "waited for others": len(load.waits),
        "repeated": len(load.repeated),
        "dead": len(dead),
        "store lost": len(yard.forgotten),
    }
    return Verdict(problems, facts)


def run(
    folder: Path,
    rabbit: Rabbit,
    store: Store,
    *,
    shape: Shape = Shape(),  # noqa: B008
    seed: int,
    seconds: float,
    say: Callable[[str], None] = print,
) -> Verdict:
    """One run in `folder`, on servers that it may hurt."""
    began = time.monotonic()

    def note(text: str) -> None:
        say(f"{time.monotonic() - began:7.1f} {time.strftime('%H:%M:%S')} {text}")

    yard = Yard(folder, rabbit, store, shape)
    try:
        yard.start()
        note(f"seed {seed}: programs run")
        tap = Tap(yard)
        load = Load(yard, seed)
        load.start()
        time.sleep(3.0)  # RabbitMQ 3.10 may lose a quorum queue for good when it is killed as it is being declared
        liar = Liar(yard.amqp_url(), yard.site.token(LIAR, "register", LIAR), seed)
        liar.start()
        happening = Faults(yard, seed, note)
        happening.run(seconds)
        liar.stop()
        yard.heal()
        note("healed")
        load.stop()
        verdict = judge(yard, load, tap, note)
        verdict.problems += [*load.problems, *happening.problems, *liar.problems]
        verdict.facts |= {"lies": liar.lies, "seed": seed, "seconds": seconds, "faults": dict(happening.count)}
        tap.close()
        return verdict
    finally:
        yard.close()


def shape_options(shape: Shape) -> str:
    counts = f"--schedulers {shape.schedulers} --recorders {shape.recorders} --nodes {shape.nodes}"
    return counts + (" --sentinel" if shape.sentinel else "")


def main() -> int:
    parser = argparse.ArgumentParser(description="A rainbow under random faults.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs and journals")
    parser.add_argument("--schedulers", type=int, default=2)
    parser.add_argument("--recorders", type=int, default=1)
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="nodes of RabbitMQ")
    parser.add_argument("--sentinel", action="store_true", help="Redis with replicas and Sentinels, and failovers")
    asked = parser.parse_args()
    shape = Shape(asked.schedulers, asked.recorders, asked.nodes, asked.sentinel)
    seed = random.SystemRandom().randrange(1 << 31) if asked.seed is None else asked.seed
    seconds = 60.0 * asked.minutes
    folder = Path(tempfile.mkdtemp(prefix="rainbow-chaos-"))
    print(f"seed {seed}, {asked.minutes:g} minutes, in {folder}", flush=True)
    servers: tuple[Rabbit, Store] | None = None
    try:
        servers = start_servers(shape, folder, seed)
        verdict = run(
            folder, *servers, shape=shape, seed=seed, seconds=seconds, say=lambda text: print(text, flush=True)
        )
    finally:
        for server in servers or ():
            server.end()
    print(json.dumps(verdict.facts, indent=2))
    for problem in verdict.problems[:30]:
        print(f"PROBLEM {problem}")
    if verdict.problems or asked.keep:
        print(f"kept: {folder}; again: make chaos SEED={seed} MINUTES={asked.minutes:g} SHAPE='{shape_options(shape)}'")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main())
