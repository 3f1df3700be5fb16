"""The command line and the client over HTTPS alone: `rainbow web` between them and the broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agentrig import Agents
from rainbow import topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import REPLIES, Message
from rainbow.client import Client
from rainbow.errors import BadCredentials, BrokerUnavailable, Denied, InvalidInput, InvalidSettings
from rainbow.settings import Settings
from rig import Rig, eventually, gathered
from webserver import serve


class Far:
    """Somebody behind a firewall, with a token and the URL of the web program."""

    def __init__(self, rig: Rig, url: str, home: Path) -> None:
        self.rig = rig
        self.url = url
        self.home = home

    def client(self, token: str | None = None) -> Client:
        settings = Settings.model_validate({"broker": {"url": self.url, "connect_timeout": 5}})
        return Client(settings=settings, token=token or self.rig.token, timeout=20)

    def rainbow(self, *words: str, code: int = 0) -> str:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RAINBOW_")}
        environment |= {"HOME": str(self.home), "RAINBOW_BROKER_URL": self.url, "RAINBOW_TOKEN": self.rig.token}
        done = subprocess.run(
            [sys.executable, "-m", "rainbow.cli", *words], env=environment, capture_output=True, text=True, timeout=90
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def far(rabbit_server: object, test_run: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    broker: str = rabbit_server.vhost_url(rabbit_server.kept_vhost(test_run.name))  # type: ignore[attr-defined]
    with Rig(broker, f"memory://{uuid.uuid4().hex}") as rig:
        agents = Agents(rig, tmp_path_factory.mktemp("far"))
        try:
            agents.start("blue", executor="local")
            settings = Settings.model_validate({"broker": {"url": broker}, "web": {"rate": 1000, "burst": 1000}})
            for url in serve(settings):
                yield Far(rig, url, tmp_path_factory.mktemp("home"))
        finally:
            agents.close()


def test_the_client_does_what_it_does_at_the_broker(far: Far) -> None:
    with far.client() as client:
        assert client.satisfy(command=["true"]).clusters == ["blue"]
        job = client.submit(command=["sh", "-c", "echo from afar"], nodes=1)
        assert job.answer.cluster == "blue"
        assert job.wait(timeout=60).state == "completed"
        assert "".join(piece.stdout for piece in job.logs()) == "from afar\n"
        assert job.id in [record.id for record in client.jobs()]
        assert [c.name for c in client.clusters()] == ["blue"]
        many = client.submit_many([{"command": ["true"]} for _ in range(600)])
        assert {record.state for record in client.wait([j.id for j in many], timeout=120)} == {"completed"}
        long = client.submit(command=["sleep", "60"])
        eventually(lambda: long.status().state == "running")
        long.cancel()
        assert long.wait(timeout=60).state == "cancelled"


def test_the_command_line_too(far: Far) -> None:
    said = far.rainbow("submit", "--wait", "sh", "-c", "echo hello; exit 3", code=3)
    assert "hello" in said
    listed = json.loads(far.rainbow("jobs", "--json"))
    assert "failed" in json.dumps(listed)
    spec = json.loads(far.rainbow("status", listed["jobs"][0]["id"], "--jobspec"))
    assert spec["tasks"][0]["command"] == ["sh", "-c", "echo hello; exit 3"]
    assert "blue" in far.rainbow("clusters")
    far.rainbow("top", "--once")
    assert "alice" in far.rainbow("queue")
    assert "alice" in far.rainbow("shares")


def test_what_needs_the_broker_itself_is_denied(far: Far) -> None:
    broker = connect(ConnectOptions(far.url, password=lambda: far.rig.token))
    try:
        with pytest.raises(Denied, match="declared"):
            broker.declare(topology.core())
        with pytest.raises(Denied, match="deleted"):
            broker.delete(["rainbow.dead"])
        with pytest.raises(Denied, match="consumed"):
            broker.consume("rainbow.dead", prefetch=1)
        for exchange, key in (
            ("", "rainbow.dead"),
            (topology.EVENTS, "blue.completed"),
            (topology.CONTROL, "register"),
            (topology.CONTROL, "drain"),
            (topology.JOBS, "blue"),
        ):
            with pytest.raises(Denied, match="cannot be published"):
                broker.publish([Message(exchange, key, b"{}")]).check(20)
    finally:
        broker.close()


def test_another_caller_gets_no_answer_of_ours(far: Far) -> None:
    """The correlation id of somebody else opens nothing: each box has ids of its own."""
    with far.client() as ours, far.client(far.rig.issue("mallory")) as theirs:
        name = str(uuid.uuid4())
        slot = theirs._connection.mailbox.open(name)
        theirs._connection.ready()
        job = ours.submit(id=name, command=["true"])
        assert job.wait(timeout=60).state == "completed"
        assert slot.wait(1.0) is None


def test_a_bad_token_and_a_bad_job_are_told(far: Far) -> None:
    with far.client("not.a.token") as client, pytest.raises(Denied):
        client.jobs()
    with far.client() as client, pytest.raises(InvalidInput):
        client.submit(command=["true"], nodes=-1)
    broker = connect(ConnectOptions(far.url))
    try:

        def refused() -> bool:
            try:
                broker.publish([])
            except BadCredentials:
                return True
            return False

        eventually(refused)
    finally:
        broker.close()


def test_a_token_never_travels_unencrypted(far: Far) -> None:
    with pytest.raises(InvalidSettings, match="use https://"):
        connect(ConnectOptions("http://rainbow.example.org"))


def test_nobody_there_is_one_plain_error() -> None:
    settings = Settings.model_validate({"broker": {"url": "http://127.0.0.1:9", "connect_timeout": 2}})
    with Client(settings=settings, token="x", timeout=5) as client, pytest.raises(BrokerUnavailable, match="listens"):
        client.jobs()


def test_a_stream_that_breaks_off_in_the_middle_is_opened_again(far: Far) -> None:
    """A proxy that cuts the stream: between two events, and in the middle of one. The thread of answers goes on."""
    whole = b'event: message\ndata: {"body": "aGVsbG8="}\n\n'
    pieces = [
        whole + b'event: message\ndata: {"bo',
        b"event: mess",
        b"\xff\xfe\n",
        b"event: message\ndata: []\n\n",
        whole,
    ]
    opened: list[str] = []

    class Cutting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            piece = pieces[min(len(opened), len(pieces) - 1)]
            opened.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(piece) + 100))
            self.end_headers()
            self.wfile.write(piece)

        def log_message(self, *_: Any) -> None:
            """The test sees what it wants to see."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Cutting)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    broker = connect(ConnectOptions(f"http://127.0.0.1:{server.server_port}"))
    try:
        consumer = broker.consume(REPLIES, prefetch=1)
        found = gathered(lambda: consumer.take(10, 0.2), lambda found: len(found) >= 2)
        assert {delivery.body for delivery in found} == {b"hello"}
        assert len(opened) >= len(pieces)
        assert len(set(opened)) == 1, "each time the stream of the same box"
        eventually(lambda: broker.status.reconnects >= 4, 60)
    finally:
        broker.close()
        server.shutdown()
        server.server_close()
        thread.join(60)


def test_the_stream_is_opened_again_after_a_restart(far: Far) -> None:
    settings = Settings.model_validate({"broker": {"url": far.rig.broker_url}, "web": {"rate": 1000}})
    servers = serve(settings)
    url = next(servers)
    port = int(url.rpartition(":")[2])
    with Far(far.rig, url, far.home).client() as client:
        job = client.submit(command=["sleep", "4"])
        assert next(servers, None) is None  # the first server ends
        again = serve(settings, port)
        next(again)
        assert job.wait(timeout=60).state == "completed"
        assert client.submit(command=["true"]).wait(timeout=60).state == "completed"
        assert next(again, None) is None
