"""The judge of the random faults: what ran, what was told and what is recorded must agree."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.chaos_load import Load
from faults.chaos_yard import Yard
from faults.liar import CLUSTER
from faults.liar import NAME as LIAR
from rainbow import codec, topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.client import Client
from rainbow.client.dead_letters import Letter
from rainbow.errors import RainbowError
from rainbow.models.job import TERMINAL

#: Seconds for all to come to an end once everything is well again.
SETTLE = 180.0
#: Jobs of each of the two users whose shares are compared: there is room for 28.
SHARED = 80
#: The queue that hears every event: what is told is judged, too.
TAP = "chaos.tap"


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


def out_of_order(folder: Path, load: Load, unknown: set[str]) -> Iterator[str]:
    """Jobs that started although what they wait for had not ended, or not well. What may run twice is left out."""
    lines = (folder / "bodies").read_text().splitlines()
    last = {(what, job): at for at, (what, job, _) in enumerate(line.split() for line in lines)}
    first = {(what, job): at for at, (what, job, _) in reversed(list(enumerate(line.split() for line in lines)))}
    for job, (kind, array) in load.waits.items():
        began = first.get(("start", job))
        for on in load.arrays.get(array, [array]):
            if began is None or {job, on} & unknown:
                continue
            ended = last.get(("end", on), -1)
            if began < max(ended, last.get(("start", on), -1)) or (kind == "afterok" and (ended < 0 or load.jobs[on])):
                yield f"started too early: {job}, {kind} of {on} (exit code {load.jobs[on]})"


def wrong_arrays(load: Load, records: dict[str, Any], last_loss: float) -> Iterator[str]:
    """Arrays that count each of their elements once, in the state in which it is, or not.

    Of elements that were over before the store lost everything there may be no record.
    """
    for array, elements in load.arrays.items():
        record = records.get(array)
        if record is None or array in load.cancelled:
            continue
        code = load.jobs[elements[0]]
        state = "failed" if code else "completed"
        before = load.submitted_at.get(array, last_loss) < last_loss
        count = sum(records.get(element) is not None for element in elements) if before else len(elements)
        expected = (state, {state: count} if count else {}, code if count == len(elements) else record.exit_code or 0)
        if (record.state, record.counts, record.exit_code or 0) != expected:
            yield f"array of {len(elements)} ended wrongly, should be {state} with {code}: {record!r}"[:700]


def shares(yard: Yard, users: tuple[str, str] = ("carol", "dave")) -> Iterator[str]:
    """Two users who have used nothing submit more than there is room for, one after the other: each gets half.

    Shares are judged when all is well again. Amid faults they follow from what each user has used, which the store
    forgets with the rest, and from which clusters can be reached.
    """
    jobs: dict[str, str] = {}
    script = f'printf "start $RAINBOW_JOB_ID 1\\n" >> {yard.folder / "shares"}; sleep 2'
    with yard.client() as root:
        for user in users:
            ids = [str(uuid.uuid4()) for _ in range(SHARED)]
            jobs |= dict.fromkeys(ids, user)
            with yard.client(yard.submitter, user=user) as client:
                client.submit_many([{"id": i, "command": ["/bin/sh", "-c", script], "hold": 600} for i in ids])
        began = time.monotonic()
        while len(over(root, [*jobs])) < len(jobs):
            if time.monotonic() - began > SETTLE:
                yield f"of {len(jobs)} jobs of two new users only {len(over(root, [*jobs]))} are over"
                return
            time.sleep(0.5)
    started = [line.split()[1] for line in (yard.folder / "shares").read_text().splitlines()]
    order = [jobs[job] for job in started if job in jobs]
    # Until one of them has no more that wait. The first one started before the second one came, which counts.
    end = min(max(at for at, user in enumerate(order) if user == name) for name in users)
    share = order[:end].count(users[1]) / end
    if not 0.4 <= share <= 0.6:
        yield f"of two users with equal weights, the second had {share:.0%} when the jobs of one had started"


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
    wanted = [*load.jobs, *load.arrays]
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
            over_then |= {array for array, elements in load.arrays.items() if over_then.issuperset(elements)}
            # Of an array that was cancelled, elements that were never sent have no record.
            over_then |= {e for a in load.cancelled & records.keys() for e in load.arrays.get(a, ()) if e not in starts}
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
    problems += wrong_arrays(load, records, last_loss)
    for job in wanted:
        record = records.get(job)
        if len(told.get(job, ())) > 1 and job not in unknown:
            problems.append(
                f"more than one end was told: {job} {tap.words[job]}, its record says {record and record.state}"
            )
        if record is None or job in load.arrays:
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
        "arrays": len(load.arrays),
        "repeated": len(load.repeated),
        "dead": len(dead),
        "store lost": len(yard.forgotten),
    }
    return Verdict(problems, facts)
