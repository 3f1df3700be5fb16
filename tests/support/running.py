"""A running rainbow for tests of client and command line: the real workers in this process, on whatever broker and
store the URLs name, and clusters whose agent does what the test says."""

from __future__ import annotations

import json
import os
import shlex
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rainbow import codec, topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Delivery, Message
from rainbow.client import Client, Registration
from rainbow.models.control import AgentCommand
from rainbow.models.job import Dispatch, JobEvent
from rainbow.models.requests import Output
from rainbow.models.wire import parse
from rainbow.security import signing, tokens
from rainbow.settings import Settings
from rainbow_workers.service import Service, ServiceOptions
from rainbow_workers.stores import StoreOptions, open_store


def graph(nodes: int = 2, cores: int = 4, name: str = "tiny") -> dict[str, Any]:
    """JGF v2 of a cluster of equal nodes."""
    vertices: dict[str, Any] = {"0": {"metadata": {"type": "cluster", "name": f"{name}0"}}}
    edges: list[dict[str, Any]] = []

    def add(parent: str, kind: str) -> str:
        key = str(len(vertices))
        vertices[key] = {"metadata": {"type": kind, "basename": kind, "name": f"{kind}{key}"}}
        edges.append({"source": parent, "target": key, "relation": "contains"})
        return key

    for _ in range(nodes):
        node = add("0", "node")
        for _ in range(cores):
            add(node, "core")
    return {"graph": {"nodes": vertices, "edges": edges}}


def io_graph(kind: str = "shm") -> dict[str, Any]:
    """A subsystem `io` that node 1 of `graph` has."""
    return {
        "graph": {
            "nodes": {"io0": {"metadata": {"type": "io"}}, "io1": {"metadata": {"type": kind, "size": 1}}},
            "edges": [{"source": "1", "target": "io1", "relation": "contains"}],
        }
    }


Act = Callable[[Dispatch], list[dict[str, Any]] | None]


def completes(dispatch: Dispatch) -> list[dict[str, Any]]:
    """The life of a job that runs at once."""
    return [
        {"state": "accepted", "flux_id": "f1"},
        {"state": "running"},
        {"state": "completed", "returncode": 0, "output": f"hello from {dispatch.cluster}\n"},
    ]


def fails(dispatch: Dispatch) -> list[dict[str, Any]]:
    return [{"state": "accepted"}, {"state": "failed", "returncode": 3, "detail": "no such file"}]


def refuses(_: Dispatch) -> None:
    """The dispatch is rejected with a reason."""
    return


@dataclass
class Cluster:
    """A registered cluster. With `act`, its agent takes jobs and tells the events `act` gives (None: rejects)."""

    rainbow: Rainbow
    made: Registration
    act: Act | None
    stop: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        if self.act is not None:
            self.threads = [threading.Thread(target=run, daemon=True) for run in (self._serve, self._answer)]
            for thread in self.threads:
                thread.start()

    def end(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(10)

    def tell(self, dispatch: Dispatch, *events: dict[str, Any]) -> None:
        name = self.made.cluster
        listed = [
            parse(
                JobEvent, {"id": dispatch.id, "attempt": dispatch.attempt, "cluster": name, "at": time.time(), **event}
            ).model_dump(exclude_none=True)
            for event in events
        ]
        body = codec.encode_json({"events": listed})
        keys = {kid: bytes.fromhex(key.get_secret_value()) for kid, key in self.made.keys.items()}
        headers = {
            signing.HEADER: signing.sign(keys, body),
            "rainbow-cluster": name,
            "rainbow-registration": self.made.registration,
        }
        key = topology.event_key(name, listed[0]["state"])
        self.rainbow.broker.publish([Message(topology.EVENTS, key, body, headers=headers)]).check(10)

    def _serve(self) -> None:
        assert self.act is not None
        consumer = self.rainbow.broker.consume(topology.jobs_queue(self.made.cluster), prefetch=10)
        while not self.stop.is_set():
            for delivery in consumer.take(1, 0.1):
                dispatch = parse(Dispatch, codec.decode(delivery.body, delivery.content_type))
                events = self.act(dispatch)
                if events is None:
                    self.tell(dispatch, {"state": "rejected", "code": "policy", "detail": "not today"})
                    consumer.reject([delivery])
                else:
                    self.tell(dispatch, *events)
                    consumer.ack([delivery])
        consumer.cancel()

    def _answer(self) -> None:
        """Answer what is asked for the output of jobs, as an agent that keeps none does."""
        consumer = self.rainbow.broker.consume(topology.agent_queue(self.made.cluster), prefetch=10)
        while not self.stop.is_set():
            for delivery in consumer.take(10, 0.1):
                command = parse(AgentCommand, codec.decode(delivery.body, delivery.content_type))
                if command.output is not None:
                    ask = command.output
                    piece = Output(id=ask.id, attempt=ask.attempt, source="tail", ended=True, detail="none is kept")
                    answer = {
                        "op": "answer",
                        "token": self.made.secret.get_secret_value(),
                        "cluster": self.made.cluster,
                        "reply": command.reply,
                        "body": piece.model_dump(exclude_none=True),
                    }
                    message = Message(topology.CONTROL, "answer", codec.encode_json(answer))
                    self.rainbow.broker.publish([message]).check(10)
                consumer.ack([delivery])
        consumer.cancel()


class Rainbow:
    """Workers, broker and store of one test."""

    def __init__(self, folder: Path, broker_url: str, store_url: str, prefix: str = "rainbow:") -> None:
        self.folder = folder
        self.url = broker_url
        self.ring = tokens.KeyRing.generate()
        self.ring.save(folder / "keys.json")
        self.broker = connect(ConnectOptions(url=broker_url, name="rainbow-test"))
        self.store = open_store(StoreOptions(url=store_url, prefix=prefix))
        self.service = Service(
            self.broker, self.store, self.ring, ServiceOptions(secret="peanutbutta", retry_after=1.0)
        )
        self.clusters: list[Cluster] = []
        self.config = folder / "rainbow-config.yaml"
        self.write_config({"store": {"url": store_url, "prefix": prefix}})
        self.service.start()

    def write_config(self, more: Mapping[str, Any] | None = None) -> None:
        base = {
            "broker": {"url": self.url, "connect_timeout": 60},  # of a machine that runs other tests as well
            "keyring": str(self.folder / "keys.json"),
            "agent": {"state_dir": str(self.folder / "agent")},
        }
        self.config.write_text(json.dumps({**base, **(more or {})}, indent=1))

    def token(self, role: tokens.Role = "admin", sub: str = "root", clusters: tuple[str, ...] = ("*",)) -> str:
        return tokens.issue(self.ring, sub=sub, role=role, clusters=clusters, ttl=3600)

    def client(self, role: tokens.Role = "admin", sub: str = "root", **settings: Any) -> Client:
        chosen = Settings.model_validate({"broker": {"url": self.url}, **settings})
        return Client(settings=chosen, token=None if settings else self.token(role, sub), timeout=20)

    def cluster(self, name: str, *, nodes: int = 2, cores: int = 4, act: Act | None = completes) -> Cluster:
        from rainbow.resources import read_graph

        with self.client() as client:
            made = client.register(
                name, identity=f"place-of-{name}", summary=read_graph(graph(nodes, cores, name)).to_bytes()
            )
            client.set_state(name, {"nodes_free": nodes, "cores_free": nodes * cores})
        cluster = Cluster(self, made, act)
        self._heartbeat(cluster, nodes, nodes * cores)
        self.clusters.append(cluster)
        cluster.start()
        return cluster

    def _heartbeat(self, cluster: Cluster, nodes: int, cores: int) -> None:
        name = cluster.made.cluster
        report = {
            "cluster": name,
            "values": {"nodes_free": nodes, "cores_free": cores},
            "registration": cluster.made.registration,
        }
        body = codec.encode_json({"op": "state", "token": cluster.made.secret.get_secret_value(), "report": report})
        self.broker.publish([Message(topology.CONTROL, "state", body)]).check(10)

    def waiting(self, queue: str, timeout: float = 5.0) -> list[Delivery]:
        """What lies in a queue, which is left as it is."""
        consumer = self.broker.consume(queue, prefetch=100)
        found = consumer.take(100, timeout)
        consumer.cancel()
        return found

    def end(self) -> None:
        for cluster in self.clusters:
            cluster.end()
        self.service.stop(grace=5)
        self.broker.close()
        self.store.close()


def in_memory(folder: Path) -> Rainbow:
    name = uuid.uuid4().hex[:12]
    return Rainbow(folder, f"memory://{name}", f"memory://{name}")


def in_force(made: Rainbow, monkeypatch: Any) -> Iterator[Rainbow]:
    """Commands work with it, as a submitter, until it ends: the body of a fixture."""
    monkeypatch.setenv("RAINBOW_CONFIG", str(made.config))
    monkeypatch.setenv("RAINBOW_TOKEN", made.token())
    yield made
    made.end()


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


class Shell:
    """Runs `rainbow` commands in this process."""

    def __init__(self, capsys: Any) -> None:
        self._capsys = capsys

    def __call__(self, line: str, code: int | None = 0) -> Said:
        """Run a command line, which must end with exit code `code` (any if None)."""
        from rainbow.cli.exits import run

        self._capsys.readouterr()
        got = run(shlex.split(line))
        said = Said(got, *self._capsys.readouterr())
        assert code in (said.code, None), f"rainbow {line}: exit {said.code}, not {code}\n{said.out}{said.err}"
        assert "Traceback" not in said.err
        return said


def alone(monkeypatch: Any, folder: Path) -> None:
    """Nothing of this machine's settings is in force: commands work in `folder`, which is also their home."""
    from rainbow import settings

    for name in list(os.environ):
        if name.startswith("RAINBOW_") and not name.startswith("RAINBOW_TEST"):
            monkeypatch.delenv(name)
    home = folder / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("RAINBOW_KEYRING", str(home / "keys.json"))
    monkeypatch.setattr(settings, "DATA_DIR", home / "data")
    monkeypatch.chdir(folder)


def eventually(check: Callable[[], Any], limit: float = 60.0) -> Any:
    """The first true answer of `check`, which may raise until then. Fails after `limit` seconds."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        with suppress(Exception):
            found = check()
            if found:
                return found
        time.sleep(0.05)
    found = check()
    assert found, f"still {found!r} after {limit:g} s"
    return found
