"""Markers in every URL, token, key and environment; everything made to fail, logged at debug level; and no marker in
logs, dead letters, job records, explanations, tracebacks, the audit log, or the list of processes."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rainbow import codec, logs, topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Message
from rainbow.client.rpc import Rpc
from rainbow.errors import RainbowError
from rainbow.security.tokens import KeyRing
from rainbow.settings import Settings
from rainbow_agents.agent import Agent
from rainbow_workers.service import ServiceOptions
from rainbow_workers.stores import StoreOptions, open_store
from rig import Rig, eventually, resources
from servers import free_ports

MARK = "m4rk3r"
PASSWORD = f"{MARK}-password"
SECRET = f"{MARK}-registration-secret"
KEY = (MARK + "-key-of-the-ring-" + "k" * 32).encode()


class Found(AssertionError):
    """A secret where none may be."""


def clean(text: str | bytes, where: str, *secrets: str) -> None:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    for secret in (MARK, KEY.hex(), *secrets):
        at = data.find(secret.encode())
        if at >= 0:
            raise Found(f"in {where}: …{data[max(0, at - 80) : at + 40]!r}")


@pytest.fixture
def log() -> Iterator[list[str]]:
    """Every line that is logged, at debug level, in both forms."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(logs.TextFormatter().format(record))
            lines.append(logs.JsonFormatter().format(record))

    root = logging.getLogger()
    level, handler = root.level, Keep()
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield lines
    root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture
def rig(tmp_path: Path, log: list[str]) -> Iterator[Rig]:
    name = uuid.uuid4()
    options = ServiceOptions(secret=SECRET, audit=tmp_path / "audit.jsonl", retry_after=1.0)
    ring = KeyRing((("kid-1", KEY),))
    with Rig(f"memory://{name}", f"memory://{name}", options=options, ring=ring) as rig:
        yield rig


def test_workers_keep_secrets(rig: Rig, log: list[str], tmp_path: Path) -> None:
    tokens = [rig.issue("alice"), rig.issue("a", "agent"), rig.issue("r", "register"), rig.issue("root", "admin")]
    secrets = list(tokens)
    anonymous = Rpc(rig.broker, timeout=10.0)
    registration = {"op": "register", "cluster": "blue", "identity": f"{MARK}-identity", "graph": resources()}
    shown: list[str] = []
    made = anonymous.call({**registration, "secret": SECRET})
    secrets += [made["token"], made["secret"], *made["keys"].values()]

    for token in (*tokens, "x.y.z", tokens[0][:-3], tokens[0] + "x"):
        for request in (
            {"op": "delete", "cluster": "green"},
            {"op": "register", "cluster": "blue", "identity": f"{MARK}-stranger", "graph": resources()},
            {"op": "register", "cluster": "blue", "identity": f"{MARK}-stranger", "graph": {"graph": {}}},
            {"op": "revoke", "jti": "nothing"},
            {"op": "jobs", "unknown": 1},
            {"op": "nonsense"},
        ):
            with suppress(RainbowError):
                shown.append(json.dumps(anonymous.call({**request, "token": token})))
                continue
            try:
                anonymous.call({**request, "token": token})
            except RainbowError as exc:
                shown.append(repr(exc))
    for wrong in (SECRET + "x", ""):
        with pytest.raises(RainbowError) as caught:
            anonymous.call({**registration, "secret": wrong})
        shown.append(str(caught.value))
    # Without an address to answer to, what is wrong becomes a dead letter, in whichever form it is wrong.
    bodies = [
        codec.encode_json({"token": tokens[0], "nonsense": 1}),
        codec.encode_json({"tokens": tokens, "command": ["a"], "nodes": 0}),
        codec.encode_json({"token": tokens[0], "command": ["a"]})[:-1],
        codec.encode_json({"op": "register", "secret": SECRET, "cluster": "!"}),
        codec.encode_msgpack({"op": "register", "secret": SECRET, "token": tokens[2]}),
        codec.encode_msgpack({"op": "register", "secret": SECRET, "token": tokens[2]})[:-1],
        tokens[0].encode(),
    ]
    for exchange in (topology.SUBMIT, topology.CONTROL, topology.EVENTS, topology.REJECTED):
        for body in bodies:
            for kind in (codec.JSON, codec.MSGPACK):
                headers = {"authorization": f"Bearer {tokens[0]}"}
                rig.broker.publish([Message(exchange, "x", body, content_type=kind, headers=headers)]).check(10)
    letters = eventually(lambda: got if len(got := rig.dead_letters()) > 20 else None, 30)
    for letter in letters:
        clean(letter.body, f"a dead letter ({letter.headers['rainbow-reason']})", *secrets)
        clean(repr(letter.headers), "the headers of a dead letter", *secrets)

    refused = rig.submit(command=["true"], clusters=["nowhere"])
    held = rig.submit(command=["true"], clusters=["nowhere"], hold=30)
    assigned = rig.submit(command=["true"])
    shown += [json.dumps([job, rig.job(job["id"])]) for job in (refused, held, assigned)]
    clean("\n".join(shown), "an answer", *secrets)
    assert len(log) > 50
    clean("\n".join(log), "the log", *secrets)
    audit = (tmp_path / "audit.jsonl").read_text()
    assert len(audit.splitlines()) > 20
    clean(audit, "the audit log", *secrets)
    clean(repr([rig.service.ring(), rig.options.limits]), "a repr", *secrets)


def test_who_did_what_is_in_the_audit_log(rig: Rig, tmp_path: Path) -> None:
    """Every change and every refusal, with subject and jti; what only reads is not there."""
    rig.register("blue")
    rig.submit(command=["true"])
    rig.submit(command=["true"], token="x.y.z")
    rig.rpc.call({"op": "groups"})
    mallory = rig.issue("mallory")
    with pytest.raises(RainbowError):
        rig.rpc.call({"op": "delete", "cluster": "blue", "token": mallory})
    with pytest.raises(RainbowError):
        rig.rpc.call({"op": "revoke", "sub": "root", "token": mallory})
    rig.rpc.call({"op": "revoke", "sub": "mallory"})
    rig.rpc.call({"op": "delete", "cluster": "blue"})
    entries = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    seen = [(e["sub"], e["action"], e["result"]) for e in entries]
    assert sorted(seen, key=str) == sorted(
        [
            ("root", "register", "done"),
            ("alice", "submit", "done"),
            (None, "submit", "denied"),
            ("mallory", "delete", "denied"),
            ("mallory", "revoke", "denied"),
            ("root", "revoke", "done"),
            ("root", "delete", "done"),
        ],
        key=str,
    )
    assert all(e["jti"] for e in entries if e["sub"])
    assert {e["object"] for e in entries if e["action"] in ("register", "delete")} == {"blue"}


def unreachable() -> dict[str, Any]:
    port, other = free_ports(2)
    return {
        "broker": {"url": f"amqp://user:{PASSWORD}@127.0.0.1:{port}/v", "connect_timeout": 1.0},
        "store": {"url": f"redis://user:{PASSWORD}@127.0.0.1:{other}/0", "timeout": 1.0},
    }


def test_nothing_of_a_url_is_told_when_it_cannot_be_reached(log: list[str]) -> None:
    given = unreachable()
    shown: list[str] = []
    broker = connect(ConnectOptions(given["broker"]["url"], connect_timeout=0.5, publish_timeout=1.0))
    store = open_store(StoreOptions(given["store"]["url"], timeout=1.0))
    receipt = broker.publish([Message("x", "y", b"z")])
    shown += [str(o) for o in receipt.wait(20)]
    eventually(lambda: broker.status.problem)
    shown.append(str(broker.status))
    with pytest.raises(RainbowError) as caught:
        store.clusters.changes(0)
    shown += [str(caught.value), repr(caught.value)]
    broker.close()
    store.close()
    for bad in (f"amqp://u:{PASSWORD}@h:port/v", f"://u:{PASSWORD}@h", f"amqp://u:{PASSWORD}@h/v?x=1"):
        with pytest.raises(RainbowError) as caught:
            connect(ConnectOptions(bad))
        shown.append(str(caught.value))
    for bad in (f"redis://u:{PASSWORD}@h:port/0", f"nothing://u:{PASSWORD}@h", f"u:{PASSWORD}@h"):
        with pytest.raises(RainbowError) as caught:
            open_store(StoreOptions(bad))
        shown.append(str(caught.value))
    shown.append(repr(Settings.model_validate({**given, "token": f"{MARK}-t", "scheduler": {"secret": SECRET}})))
    clean("\n".join(shown), "an error", PASSWORD)
    clean("\n".join(log), "the log", PASSWORD)


COMMANDS = [
    ["jobs"],
    ["submit", "true"],
    ["doctor"],
    ["config", "show"],
    ["clusters"],
    ["token", "verify"],
    ["token", "show"],
    ["broker", "setup"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_programs_that_fail_tell_nothing(tmp_path: Path, command: list[str]) -> None:
    """The command line with debug on, its secrets in file and environment, nothing there that it needs."""
    keys = tmp_path / "keys.json"
    KeyRing((("kid-1", KEY),)).save(keys)
    config = tmp_path / "rainbow-config.yaml"
    config.write_text(
        json.dumps(
            {
                **unreachable(),
                "keyring": str(keys),
                "token": f"{MARK}.token.in-file",
                "scheduler": {"secret": SECRET},
                "cluster": {"name": "blue", "secret": f"{MARK}-cluster", "keys": {"k": f"{MARK}00"}},
                "log_level": "debug",
            }
        )
    )
    env = {
        **os.environ,
        "RAINBOW_CONFIG": str(config),
        "RAINBOW_DEBUG": "1",
        "RAINBOW_TOKEN": f"{MARK}.token.in-environment",
    }
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "rainbow.cli",
            *command,
            *(["--timeout", "2"] if command[0] in ("jobs", "clusters") else []),
        ],
        env=env,
        capture_output=True,
        timeout=90,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.stdout or done.stderr
    clean(done.stdout, f"stdout of rainbow {' '.join(command)}")
    clean(done.stderr, f"stderr of rainbow {' '.join(command)}")


def test_an_agent_that_fails_tells_nothing_and_shows_nothing_in_ps(rig: Rig, tmp_path: Path, log: list[str]) -> None:
    """Its token, its keys and its own environment stay with it: not in its log, nor in the jobs it runs."""
    graph = tmp_path / "graph.json"
    graph.write_text(json.dumps(resources()))
    os.environ["RAINBOW_SCHEDULER_SECRET"] = SECRET
    try:
        token = rig.issue("site", "register", ("blue",))
        settings = Settings.model_validate(
            {
                "broker": {"url": rig.broker_url},
                "cluster": {"name": "blue"},
                "token": token,
                "agent": {
                    "executor": "local",
                    "graph": str(graph),
                    "state_dir": str(tmp_path / "agent"),
                    "report_every": 1.0,
                },
            }
        )
        agent = Agent(settings)
        agent.start()
        eventually(lambda: agent.health().ok, 60)
        job = rig.submit(command=["/bin/sh", "-c", "env; ps axww -o args; exit 3"])
        record = rig.until(job["id"], "failed", 60)
        own = agent.registrar.token() or ""
        clean(json.dumps(record), "the record of a job that printed its environment and all processes", token, own)
        rig.rpc.call({"op": "revoke", "sub": "agent-blue"})
        assert agent.wait(60)
        agent.stop(5)
        clean("\n".join(log), "the log", token, own)
        clean(str(agent.failure), "the error it ended with", token, own)
    finally:
        del os.environ["RAINBOW_SCHEDULER_SECRET"]
