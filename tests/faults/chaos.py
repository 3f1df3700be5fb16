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
- what waits for others has started after them, and each array counts each of its elements once;
- two users of equal weight, who then submit more than there is room for, get half each;
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
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import redis

from faults.chaos_judge import Tap, Verdict, judge, shares
from faults.chaos_load import Load
from faults.chaos_servers import Links, Nodes, Rabbit, Sentinels, Shape, Store, start_servers
from faults.chaos_yard import CLUSTERS, Program, Yard, workers
from faults.liar import NAME as LIAR
from faults.liar import Liar


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
        verdict.problems += shares(yard)
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
