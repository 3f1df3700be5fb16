"""The audit log as a real `rainbow-scheduler` writes it: everything that matters, done or refused, with who and which
token; while the file is rotated, moved away, or cannot be written."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import jwt
import pytest

from processes import Site
from rainbow import codec, topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Broker, Message
from rainbow.client import Client
from rainbow.client.rpc import Rpc
from rainbow.errors import RainbowError
from rainbow.security import signing
from rainbow.security.tokens import KeyRing
from rainbow.settings import load
from rig import resources
from servers import wait_until

SECRET = "m4rk3r-registration-secret"
Lines = list[dict[str, Any]]


class Audited:
    """A scheduler process with an audit log, and hand-written requests to it."""

    def __init__(self, site: Site, broker: Broker, path: Path) -> None:
        self.site = site
        self.broker = broker
        self.path = path
        self.rpc = Rpc(broker, timeout=20.0)
        self.tokens: list[str] = []

    def token(self, sub: str, role: Any = "submit") -> str:
        self.tokens.append(self.site.token(sub, role))
        return self.tokens[-1]

    def ask(self, token: str | None, op: str, **fields: Any) -> dict[str, Any] | str:
        """The result, or the code of the refusal."""
        try:
            return self.rpc.call({"op": op, **({"token": token} if token else {}), **fields})
        except RainbowError as exc:
            return exc.code

    def submit(self, token: str, **fields: Any) -> None:
        body = codec.encode_json({"token": token, **fields})
        self.broker.publish([Message(topology.SUBMIT, "x", body)]).check(10)

    def lines(self) -> Lines:
        files = sorted(self.path.parent.glob(f"{self.path.name}*"), key=lambda f: -int(f.suffix[1:] or "0", 36))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def noted(self, **wanted: Any) -> Lines:
        return [line for line in self.lines() if all(line.get(k) == v for k, v in wanted.items())]


@pytest.fixture
def audited(
    tmp_path: Path, amqp_url: str, redis_url: str, redis_prefix: str, request: pytest.FixtureRequest
) -> Iterator[Audited]:
    options: dict[str, Any] = {"audit": str(tmp_path / "audit.jsonl"), "secret": SECRET, "allow_secret": True}
    options |= getattr(request, "param", {})
    if options["audit"] != "-" and not options["audit"].startswith("/dev"):
        options["audit"] = str(tmp_path / options["audit"])
    with Site(tmp_path, amqp_url, redis_url, redis_prefix, scheduler=options, log_level="debug") as site:
        site.scheduler()
        with closing(connect(ConnectOptions(amqp_url, name="test"))) as broker:
            made = Audited(site, broker, Path(options["audit"]))
            with Client(settings=load(site.config, {}), timeout=60) as admin:
                wait_until(lambda: _answers(admin), 60, what="the scheduler answers")
            yield made
            broker.delete([q.name for q in topology.core().queues])


def _answers(admin: Client) -> bool:
    try:
        return bool(admin.ping(timeout=2.0))
    except RainbowError:
        return False


def test_who_did_what_to_what_and_was_it_allowed(audited: Audited, tmp_path: Path) -> None:
    root, mallory, site = audited.token("root", "admin"), audited.token("mallory"), audited.token("site", "register")
    graph, place = resources(), {"identity": "identity-of-blue", "graph": resources()}
    ask, note = audited.ask, []

    def expect(sub: str | None, action: str, about: Any, result: str = "done", **more: Any) -> None:
        note.append({"sub": sub, "action": action, "object": about, "result": result, **more})

    registered = ask(site, "register", cluster="blue", **place)
    assert isinstance(registered, dict)
    expect("site", "register", "blue", role="register")
    assert ask(mallory, "register", cluster="red", **place) == "denied"
    expect("mallory", "register", "red", "denied", role="submit")
    assert ask(site, "register", cluster="blue", identity="a-stranger", graph=graph) == "conflict"
    expect("site", "register", "blue", "conflict")
    assert ask(None, "register", cluster="blue", secret="wrong", **place) == "denied"
    expect(None, "register", "blue", "denied", jti=None)
    assert ask(None, "register", cluster="green", identity="identity-of-green", graph=graph, secret=SECRET)
    expect("cluster-green", "register", "green")

    job = "4b9b8f9e-0b0e-4a5b-9a2f-3d8f2d9a1c11"
    audited.submit(mallory, id=job, command=["true"])
    expect("mallory", "submit", job)
    audited.submit("x.y.z", id="5b9b8f9e-0b0e-4a5b-9a2f-3d8f2d9a1c11", command=["true"])
    expect(None, "submit", "5b9b8f9e-0b0e-4a5b-9a2f-3d8f2d9a1c11", "denied")
    audited.submit(site, id="6b9b8f9e-0b0e-4a5b-9a2f-3d8f2d9a1c11", command=["true"])
    expect(None, "submit", "6b9b8f9e-0b0e-4a5b-9a2f-3d8f2d9a1c11", "denied")
    audited.submit(mallory, id="7b9b8f9e-0b0e-4a5b-9a2f-3d8f2d9a1c11", colour="red")
    expect(None, "submit", "7b9b8f9e-0b0e-4a5b-9a2f-3d8f2d9a1c11", "invalid")
    wait_until(lambda: audited.noted(object="7b9b8f9e-0b0e-4a5b-9a2f-3d8f2d9a1c11"), 30)

    assert ask(audited.token("eve"), "cancel", ids=[job]) == "denied"
    expect("eve", "cancel", [job], "denied")
    assert ask(mallory, "cancel", ids=[job])
    expect("mallory", "cancel", [job])

    for sub, token, result in (("mallory", mallory, "denied"), ("root", root, "done")):
        more: list[tuple[str, dict[str, Any], Any, dict[str, Any]]] = [
            ("drain", {"cluster": "blue", "reason": "repairs"}, "blue", {"reason": "repairs"}),
            ("resume", {"cluster": "blue"}, "blue", {}),
            ("group-set", {"group": "@g", "clusters": ["blue"]}, "@g", {"clusters": ["blue"]}),
            ("revoke", {"sub": "nobody"}, "nobody", {"kind": "sub"}),
            ("revoke", {"jti": "0123"}, "0123", {"kind": "jti"}),
            ("subsystem-remove", {"cluster": "blue", "name": "io"}, "blue", {"subsystem": "io"}),
            ("dead-drop", {"keys": ["abc"]}, ["abc"], {"count": 1}),
            ("dead-replay", {"keys": ["abc"]}, ["abc"], {}),
        ]
        for op, fields, about, extra in more:
            got = ask(token, op, **fields)
            code = got if isinstance(got, str) else "done"
            assert code == ("not-found" if op == "subsystem-remove" and sub == "root" else result)
            expect(sub, op, about, code, **extra)

    asked = [ask(None, "enroll", cluster="red", identity="identity-of-red-agent") for _ in range(5)]
    expect(None, "enroll", "red")
    code = asked[0]["code"]  # type: ignore[index]
    assert ask(mallory, "enrollment-decide", code=code, approve=True) == "denied"
    expect("mallory", "enrollment-decide", code, "denied", approve=True)
    assert ask(root, "enrollment-decide", code=code, approve=True)
    expect("root", "enrollment-decide", code, approve=True)
    assert ask(None, "enroll", cluster="red", identity="identity-of-red-agent")["token"]  # type: ignore[index]
    expect(None, "enroll", "red")
    other = ask(None, "enroll", cluster="pink", identity="identity-of-pink-agent")["code"]  # type: ignore[index]
    expect(None, "enroll", "pink")
    ask(root, "enrollment-decide", code=other, approve=False)
    expect("root", "enrollment-decide", other, approve=False)
    assert ask(None, "enroll", cluster="pink", identity="identity-of-pink-agent") == "denied"
    expect(None, "enroll", "pink", "denied")

    assert ask(root, "nonsense") == "invalid"
    expect(None, "request", None, "invalid")
    body = codec.encode_json({"events": []})
    forged = {signing.HEADER: "k:0", "rainbow-cluster": "blue", "rainbow-registration": "r"}
    audited.broker.publish([Message(topology.EVENTS, "job.blue.completed", body, headers=forged)]).check(10)
    expect(None, "event", "job.blue.completed", "bad-signature")
    audited.broker.publish([Message(topology.REJECTED, "blue", b"\x80", content_type=codec.MSGPACK)]).check(10)
    expect(None, "return", None, "bad-signature")

    audited.site.cli("token", "rotate", "--prepare")
    ring = KeyRing.load(tmp_path / "keys.json")
    wait_until(lambda: audited.noted(action="rotate"), 60)
    expect(None, "rotate", [kid for kid, _ in ring.keys])
    (tmp_path / "keys.json").write_text("{")
    wait_until(lambda: audited.noted(action="rotate", result="invalid-settings"), 60)
    ring.save(tmp_path / "keys.json")
    wait_until(lambda: len(audited.noted(action="rotate", result="done")) == 2, 60)

    assert ask(mallory, "delete", cluster="blue") == "denied"
    expect("mallory", "delete", "blue", "denied")
    assert ask(root, "delete", cluster="blue")
    expect("root", "delete", "blue")
    # What only reads leaves no line, unless it is refused.
    ask(root, "clusters")
    assert ask("x.y.z", "clusters") == "denied"
    expect(None, "clusters", None, "denied")

    for wanted in note:
        wait_until(lambda w=wanted: audited.noted(**w), 20, what=str(wanted))  # type: ignore[misc]
    lines = audited.lines()
    assert not [line for line in lines if line["action"] == "clusters" and line["result"] == "done"]
    assert len([line for line in lines if line["action"] == "enroll" and line["object"] == "red"]) == 2
    ids = {jwt.decode(t, options={"verify_signature": False})["jti"] for t in audited.tokens}
    for line in lines:
        assert {"time", "sub", "jti", "role", "action", "object", "result"} <= line.keys()
        assert line["sub"] in (None, "cluster-green", "root") or line["jti"] in ids
    _no_secrets(audited, registered)


def _no_secrets(audited: Audited, registered: dict[str, Any]) -> None:
    text = "".join(f.read_text() for f in audited.path.parent.glob(f"{audited.path.name}*"))
    secrets = [SECRET, registered["token"], registered["secret"], *registered["keys"].values(), *audited.tokens]
    secrets += [key.hex() for _, key in audited.site.ring.keys]
    for secret in secrets:
        assert secret not in text
        assert secret.rpartition(".")[2] not in text


def test_refused_once_held(audited: Audited) -> None:
    """Let in, put on hold, revoked meanwhile: both are there."""
    root, eve = audited.token("root", "admin"), audited.token("eve")
    job = "8b9b8f9e-0b0e-4a5b-9a2f-3d8f2d9a1c11"
    audited.submit(eve, id=job, command=["true"], hold=60)
    wait_until(lambda: audited.noted(object=job, result="done"), 60)
    audited.ask(root, "revoke", sub="eve")
    wait_until(lambda: audited.noted(object=job, result="denied"), 30)


@pytest.mark.parametrize("audited", [{"audit_bytes": 4096, "audit_keep": 500}], indirect=True)
def test_no_line_is_lost_or_torn_while_files_rotate(audited: Audited) -> None:
    """By size, by ourselves; the registrar and the scheduler write at once."""
    root = audited.token("root", "admin")
    count, asking = 300, Rpc(audited.broker, token=root, timeout=20)

    def submitting() -> None:
        for number in range(count):
            audited.submit(root, id=f"00000000-0000-4000-8000-{number:012}", command=["true"])

    thread = threading.Thread(target=submitting)
    thread.start()
    for number in range(count):
        asking.call({"op": "revoke", "jti": f"jti-{number}"})
    thread.join()
    wait_until(lambda: len(audited.noted(action="submit")) == count, 30)
    assert {line["object"] for line in audited.noted(action="revoke")} == {f"jti-{n}" for n in range(count)}
    files = list(audited.path.parent.glob("audit.jsonl*"))
    assert len(files) > 10
    for file in files:
        assert file.stat().st_size <= 4096
        assert file.stat().st_mode & 0o777 == 0o600


def test_another_program_may_move_the_file_away(audited: Audited) -> None:
    root = audited.token("root", "admin")
    audited.ask(root, "revoke", jti="one")
    moved = audited.path.with_name("elsewhere")
    audited.path.rename(moved)

    def begun_anew() -> bool:
        audited.ask(root, "revoke", jti="two")
        return audited.path.exists()

    wait_until(begun_anew, 10, every=0.2)
    everything = moved.read_text() + audited.path.read_text()
    assert "one" in everything
    assert everything.count("two") >= 1


@pytest.mark.parametrize("audited", [{"audit": "/dev/full"}, {"audit": "file/audit.jsonl"}], indirect=True)
def test_work_goes_on_where_it_cannot_be_written(audited: Audited, tmp_path: Path) -> None:
    """A full disk; a folder that cannot be made. It is said in the log, once, and when it works again how many are
    missing."""
    if audited.path != Path("/dev/full"):
        (tmp_path / "file").write_text("in the way")
    root = audited.token("root", "admin")
    for number in range(5):
        assert audited.ask(root, "revoke", jti=f"n{number}")
    log = tmp_path / "scheduler.log"
    wait_until(lambda: "audit log not written" in log.read_text(), 60)
    if audited.path != Path("/dev/full"):
        (tmp_path / "file").unlink()
        wait_until(lambda: audited.ask(root, "revoke", jti="again") and audited.path.exists(), 10, every=0.2)
        assert "audit log written again action=audit lost=" in log.read_text()
    assert log.read_text().count("audit log not written") == 1
    assert all(p.poll() is None for p in audited.site.running)


@pytest.mark.parametrize("audited", [{"audit": "-"}], indirect=True)
def test_on_stdout(audited: Audited, tmp_path: Path) -> None:
    audited.ask(audited.token("root", "admin"), "revoke", jti="one")
    (process,) = audited.site.running
    process.send_signal(signal.SIGTERM)
    try:
        assert process.wait(30) == 0
    except subprocess.TimeoutExpired:
        pytest.fail("it does not end")
    found = [json.loads(x) for x in (tmp_path / "scheduler.log").read_text().splitlines() if x.startswith("{")]
    assert [(x["sub"], x["action"], x["object"]) for x in found] == [("root", "revoke", "one")]
