"""Mutated messages of every kind, to every queue, with every credential, against running programs.

    make fuzz MINUTES=10 SEED=7

A scheduler with all of its workers and an agent run as programs of their own on a RabbitMQ and a Redis. Valid messages
of each kind are changed at random (see `Mutator`) and published where they belong and where they do not. A seed
repeats the same messages. All the while:

- no program ends;
- the resident memory of each stays under `MEMORY`;
- after each burst, a job of an honest user ends well within `SERVED` seconds;
- at the end, the broker still declares queues such as ours.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from faults.mutations import Mutator, bombs
from faults.valid_messages import Kind, io, jgf, jobspec
from processes import Site
from rainbow import codec, topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Message
from rainbow.client import Client
from rainbow.client.rpc import Rpc
from rainbow.errors import RainbowError
from rainbow.resources import read_graph
from rainbow.security import signing
from rainbow.settings import Settings
from rig import resources
from servers import Private, RabbitServer, RedisServer, start_rabbit, start_redis, wait_until

#: Bytes of resident memory that no program may exceed.
MEMORY = 700 << 20

#: Seconds within which an honest job ends after a burst, on a machine with nothing else to do.
SERVED = 1.0
#: The same for a machine that runs other tests as well.
BUSY = 20.0
#: Messages of one burst.
BURST = 40


class Fuzz:
    """Programs, and who attacks them. `note` is told what goes on."""

    def __init__(
        self,
        folder: Path,
        rabbit: Private[RabbitServer],
        store: Private[RedisServer],
        seed: int,
        note: Callable[[str], None] = lambda _: None,
        served: float = BUSY,
    ) -> None:
        self.rng = random.Random(seed)
        self.mutator = Mutator(self.rng)
        self.note = note
        self.served = served
        url = rabbit.server.vhost_url(rabbit.server.new_vhost("fuzz"))
        self.site = Site(folder, url, store.server.url, f"fuzz-{uuid.uuid4().hex[:8]}:", log_level="warning")
        self.programs = {"scheduler": self.site.scheduler(), "agent": self.site.agent("blue")}
        self.broker = connect(ConnectOptions(url, name="fuzz", max_message_bytes=64 << 20))
        self.alice = Client(
            settings=Settings.model_validate({"broker": {"url": url}}), token=self.site.token("alice"), timeout=60
        )
        self.credentials = [
            None,
            "x.y.z",
            self.site.token("mallory"),
            self.site.token("agent-red", "agent", "red"),
            self.site.token("mallory", "register"),
            self.site.token("mallory", "admin"),
            "eyJhbGciOiJub25lIn0.e30.",
        ]
        self.sent: Counter[str] = Counter()
        self.slowest = 0.0
        self.largest: dict[str, int] = dict.fromkeys(self.programs, 0)
        self.problems: list[str] = []

    # -- what there is to send -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Wait until an honest job runs; become the (well-known) cluster red."""

        def listed() -> bool:
            try:
                with Client(
                    settings=Settings.model_validate({"broker": {"url": self.site.shared["broker"]["url"]}}),
                    token=self.site.token("root", "admin"),
                    timeout=10,
                ) as admin:
                    return any(c.name == "blue" and c.alive for c in admin.clusters())
            except RainbowError:
                return False

        wait_until(listed, 90, every=0.5, what="blue is there")
        self.alice.submit(command=["true"], clusters=["blue"]).wait(60)
        rpc = Rpc(self.broker, token=self.site.token("mallory", "register"), timeout=30)
        made = rpc.call({"op": "register", "cluster": "red", "identity": "identity-of-red", "graph": resources()})
        self.registration = str(made["registration"])
        self.keys = {kid: bytes.fromhex(key) for kid, key in made["keys"].items()}
        self.kinds = list(self._kinds())

    def _kinds(self) -> Iterator[Kind]:
        job, spec = str(uuid.uuid4()), jobspec()
        text = "priorities:\n- priority: 1\n  steps:\n  - filter: 'nodes_free > 0'\n"
        submit: dict[str, dict[str, Any]] = {
            "simple": {"command": ["true"], "nodes": 1, "tasks": 1, "environment": {"A": "b"}, "duration": "1h"},
            "jobspec": {"jobspec": spec, "name": "n", "clusters": ["red"], "priority": 5, "hold": 1.0},
            "yaml": {"jobspec": json.dumps(spec), "expires": time.time() + 60},
            "constraint": {
                "command": ["true"],
                "clusters": ["red"],
                "selection": {
                    "name": "constraint",
                    "options": {"priorities": [{"priority": 1, "steps": [{"filter": "nodes_free > 0"}]}]},
                },
            },
            "constraint text": {
                "command": ["true"],
                "selection": {"name": "constraint", "options": {"priorities": text.partition("\n")[2]}},
            },
            "bid": {"command": ["true"], "clusters": ["red"], "selection": {"name": "bid", "options": {"within": 0.2}}},
            "requires": {"command": ["true"], "requires": [{"type": "io", "field": "type", "match": "shm"}]},
            "ask": {"jobspec": spec, "satisfy_only": True},
        }
        for name, document in submit.items():
            yield Kind(f"submit {name}", topology.SUBMIT, "submit", {"version": 1, "id": str(uuid.uuid4()), **document})
        folded = read_graph(resources()).to_bytes()
        register = {"op": "register", "cluster": "red", "identity": "identity-of-red"}
        report = {
            "cluster": "red",
            "values": {"nodes_free": 3, "cost": 0.5},
            "included": [[job, 1]],
            "heartbeat": True,
            "registration": self.registration,
        }
        control: list[dict[str, Any]] = [
            {"op": "ping"},
            {**register, "graph": resources()},
            {**register, "graph": jgf(), "subsystems": {"io": io()}},
            {"op": "subsystem-set", "cluster": "red", "name": "io", "graph": io()},
            {"op": "subsystem-remove", "cluster": "red", "name": "io"},
            {"op": "state", "report": report},
            {"op": "clusters", "name": "red"},
            {"op": "drain", "cluster": "red", "reason": "r"},
            {"op": "resume", "cluster": "red"},
            {"op": "group-set", "group": "@g", "clusters": ["red"]},
            {"op": "groups"},
            {"op": "status", "ids": [job]},
            {"op": "jobs", "limit": 10, "state": "assigned"},
            {"op": "watch", "ids": [job], "ttl": 5.0},
            {"op": "cancel", "ids": [job], "reason": "r"},
            {"op": "logs", "id": job},
            {"op": "answer", "cluster": "red", "reply": "x" * 40, "body": {"bids": []}},
            {"op": "revoke", "jti": "0" * 32},
            {"op": "dead-drop", "keys": ["0123456789"]},
            {"op": "enroll", "cluster": "pink", "identity": "identity-of-pink-0", "place": "here"},
            {"op": "enrollments"},
            {"op": "enrollment-decide", "code": "AAAA-BBBB-CCCC", "approve": False},
        ]
        for request in control:
            yield Kind(f"control {request['op']}", topology.CONTROL, request["op"], request)
        yield Kind(
            "control register summary",
            topology.CONTROL,
            "register",
            {**register, "summary": folded},
            binary=True,
        )
        event = {"id": job, "attempt": 1, "cluster": "red", "at": time.time(), "user": "mallory", "returncode": 0}
        for state in ("accepted", "running", "completed", "rejected", "lost"):
            document = {"version": 1, "events": [{**event, "state": state, "output": "o", "detail": "d"}]}
            headers = {"rainbow-cluster": "red", "rainbow-registration": self.registration}
            yield Kind("event", topology.EVENTS, f"job.red.{state}", document, sign=True, headers=headers)
        dispatch = {
            "version": 1,
            "id": job,
            "attempt": 1,
            "cluster": "blue",
            "jobspec": spec,
            "user": "mallory",
            "priority": 16,
            "submitted_at": 1.0,
            "assigned_at": 1.0,
            "route": b"r",
        }
        for exchange, key in ((topology.JOBS, "blue"), (topology.REJECTED, "blue"), (topology.BIDS, "bid")):
            yield Kind(f"dispatch to {exchange}", exchange, key, dispatch, binary=True, sign=True)
        held = {"rainbow-kind": "dispatch", "rainbow-origin": "k:00", "rainbow-route": b"r"}
        yield Kind("held dispatch", topology.SUBMIT, "submit", dispatch, binary=True, sign=True, headers=held)
        command = {"version": 1, "command": "cancel", "id": job, "attempt": 1, "reason": "r"}
        yield Kind("command", topology.AGENTS, "blue", command, sign=True)
        yield Kind("dead letter", topology.DEAD, "invalid", {"token": "***", "op": "jobs"})

    def messages(self, count: int) -> list[Message]:
        return [self._message() for _ in range(count)]

    def _message(self) -> Message:
        rng = self.rng
        kind = rng.choice(self.kinds)
        self.sent[kind.name] += 1
        document = dict(kind.document)
        token = rng.choice(self.credentials)
        bearer: dict[str, Any] = {}
        if token is not None:
            if rng.random() < 0.8:
                document["token"] = token
            else:
                bearer = {"authorization": f"Bearer {token}"}
        if rng.random() < 0.85:
            document = self.mutator.document(document)
        body = self.mutator.encoded(document, kind.binary or rng.random() < 0.2)
        binary = body[:1] != b"{"
        if rng.random() < 0.15:
            body = self.mutator.body(body)
        headers: dict[str, Any] = {**kind.headers, **bearer}
        if kind.sign and rng.random() < 0.8:
            headers[signing.HEADER] = signing.sign(self.keys, body)
        self._spoil(headers)
        exchange, key = kind.exchange, kind.key
        if rng.random() < 0.1:
            other = rng.choice(self.kinds)
            exchange, key = other.exchange, other.key
        return Message(
            exchange,
            key,
            body,
            content_type=rng.choice((codec.MSGPACK if binary else codec.JSON, codec.JSON, codec.MSGPACK, "x/y", "")),
            message_id=rng.choice((None, str(uuid.UUID(int=rng.getrandbits(128))), "x" * 200)),
            correlation_id=rng.choice((None, "c", "c" * 200)),
            reply_to=rng.choice((None, "amq.rabbitmq.reply-to.nowhere", "rainbow.scheduler", "nobody", "rainbow.dead")),
            priority=rng.choice((None, 0, 9, 255)),
            headers=headers,
            mandatory=False,
        )

    def _spoil(self, headers: dict[str, Any]) -> None:
        """Headers that are ours, with values that are not."""
        rng = self.rng
        if rng.random() > 0.3:
            return
        names = ("CC", "BCC", "x-death", "x-delivery-count", "rainbow-kind", "rainbow-route", "rainbow-origin",
                 "rainbow-registration", "rainbow-cluster", "rainbow-exchange", "rainbow-time", "authorization",
                 signing.HEADER)  # fmt: skip
        values: tuple[Any, ...] = (
            "", "x", "dispatch", "bid", 1, -1, True, None, [], ["a", 1], {"a": {"b": []}}, [{"reason": 1}], b"\xff\0",
            "x" * 3000,
        )  # fmt: skip
        for _ in range(rng.randint(1, 3)):
            name = rng.choice(names)
            # RabbitMQ itself refuses a CC that is no list.
            headers[name] = rng.choice(([], ["rainbow.dead", "blue"])) if name in ("CC", "BCC") else rng.choice(values)

    def bomb(self) -> Message:
        name, body, kind = self.rng.choice(BOMBS)
        self.sent[f"bomb {name}"] += 1
        exchange, key = self.rng.choice(
            ((topology.SUBMIT, "submit"), (topology.CONTROL, "register"), (topology.EVENTS, "job.red.running"))
        )
        headers = {}
        token = self.rng.choice(self.credentials)
        if token:
            headers["authorization"] = f"Bearer {token}"
        return Message(exchange, key, body, content_type=kind, headers=headers, mandatory=False)

    # -- the run -----------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.problems:
            batch = self.messages(BURST)
            if self.rng.random() < 0.25:
                batch.append(self.bomb())
            self.broker.publish(batch).wait(60)
            self.look()
        self.note(f"{sum(self.sent.values())} messages, an honest job within {self.slowest:.2f} s, {self.largest}")

    def look(self) -> None:
        """Serve an honest job, and look at the programs."""
        began = time.monotonic()
        try:
            record = self.alice.submit(command=["true"], clusters=["blue"]).wait(self.served)
            if record.state != "completed":
                self.problems.append(f"an honest job ended {record.state}: {record.detail}")
        except RainbowError as exc:
            self.problems.append(f"an honest job was not served: {exc}")
        self.slowest = max(self.slowest, time.monotonic() - began)
        for name, process in self.programs.items():
            if process.poll() is not None:
                self.problems.append(f"{name} ended with code {process.returncode}")
                continue
            self.largest[name] = max(self.largest[name], _resident(process.pid))
            if self.largest[name] > MEMORY:
                self.problems.append(f"{name} took {self.largest[name] >> 20} MiB")

    def close(self) -> None:
        self.alice.close()
        self.broker.close()
        self.site.__exit__()


#: Made once: some are large.
BOMBS = bombs()


def _resident(pid: int) -> int:
    """The peak of a process's resident memory, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


def fuzz(
    folder: Path,
    rabbit: Private[RabbitServer],
    store: Private[RedisServer],
    *,
    seed: int,
    seconds: float,
    served: float = BUSY,
    note: Callable[[str], None] = lambda _: None,
) -> Fuzz:
    """Run for `seconds`; what was wrong is in `problems`."""
    made = Fuzz(folder, rabbit, store, seed, note, served)
    try:
        made.begin()
        made.run(seconds)
        if not rabbit.server.takes_messages():
            made.problems.append("the broker declares no queues such as ours any more")
        if made.problems:
            made.problems.append(made.site.logs())
    finally:
        made.close()
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutated messages to running programs.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--served", type=float, default=SERVED, help="seconds within which an honest job ends")
    asked = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if asked.seed is None else asked.seed
    folder = Path(tempfile.mkdtemp(prefix="rainbow-fuzz-"))
    print(f"seed {seed}, {asked.minutes:g} minutes, in {folder}", flush=True)
    servers: list[Private[Any]] = []
    try:
        for name, start in (("rabbitmq", start_rabbit), ("redis", start_redis)):
            (folder / name).mkdir()
            servers.append(Private(start, folder / name))
        done = fuzz(
            folder,
            servers[0],
            servers[1],
            seed=seed,
            seconds=60.0 * asked.minutes,
            served=asked.served,
            note=lambda text: print(text, flush=True),
        )
    finally:
        for server in servers:
            server.end()
    for problem in done.problems:
        print(f"PROBLEM {problem}")
    if done.problems:
        print(f"kept: {folder}; again: make fuzz SEED={seed} MINUTES={asked.minutes:g}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
