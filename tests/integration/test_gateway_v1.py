"""rainbow v1's own client, from the package registry, against `rainbow-gateway`: as its scripts use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rainbow.settings import load
from running import Rainbow, alone, eventually

pytest.importorskip("grpc", reason="the extra gateway is not installed")

from rainbow.errors import Denied
from rainbow.gateway import wire
from rainbow.gateway.secrets import ClusterSecret
from rainbow.gateway.server import make_server
from rainbow.gateway.service import Service, number_of

PACKAGES = ["rainbow-scheduler==0.0.16", "jobspec==0.1.15"]
DATA = Path(__file__).resolve().parents[2] / "rainbow" / "demo" / "data"
CLIENT = Path(__file__).resolve().parents[1] / "support" / "v1_client.py"

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with v1's packages, which have the import name of ours: they are for processes of their own."""
    folder = tmp_path_factory.mktemp("v1")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check"]
    done = subprocess.run([*command, "--target", str(folder), *PACKAGES], capture_output=True, text=True, timeout=240)
    if done.returncode:
        pytest.skip(f"{' '.join(PACKAGES)} cannot be installed: {done.stderr.strip()[-200:]}")
    return folder


@pytest.fixture(params=["memory", "rabbitmq"])
def rainbow(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rainbow]:
    alone(monkeypatch, tmp_path)
    monkeypatch.delenv("RAINBOW_KEYRING")
    if request.param == "memory":
        name = uuid.uuid4().hex
        made = Rainbow(tmp_path, f"memory://{name}", f"memory://{name}")
    else:
        url, store, prefix = (request.getfixturevalue(f) for f in ("amqp_url", "redis_url", "redis_prefix"))
        made = Rainbow(tmp_path, url, store, prefix)
    yield made
    made.end()


@pytest.fixture
def host(rainbow: Rainbow, tmp_path: Path) -> Iterator[str]:
    """The gateway, with a token of its own that submits."""
    rainbow.write_config({"token": rainbow.token("submit", "gateway")})
    settings = load(rainbow.config, {})
    service = Service(settings)
    server = make_server(settings, service)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait()
    service.close()


@pytest.fixture
def ask(v1: Path, host: str, tmp_path: Path) -> Ask:
    """Run one operation of v1's client; what it prints last."""
    config = tmp_path / "v1.yaml"
    # v1's simple jobs ask for a rack: the cluster of its own examples has one.
    (tmp_path / "nodes.json").symlink_to(DATA / "red.json")
    (tmp_path / "io.json").symlink_to(DATA / "red-io.json")
    environment = {**{k: v for k, v in os.environ.items() if not k.startswith("RAINBOW_")}, "PYTHONPATH": str(v1)}

    def run(operation: str, *arguments: str, config: Path = config) -> Any:
        command = [sys.executable, str(CLIENT), operation, host, str(config), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_the_session_of_the_first_rainbow(rainbow: Rainbow, ask: Ask, tmp_path: Path) -> None:
    secret = rainbow.token("register", "root", ("keebler",))
    made = ask("register", "keebler", secret, "nodes.json")
    assert made["status"] == wire.REGISTER_SUCCESS
    assert made["token"].count(".") == 2
    assert ClusterSecret.read(made["secret"], "keebler").keys

    assert ask("subsystem", "keebler", "io", "io.json") == {"status": wire.REGISTER_SUCCESS}
    (tmp_path / "state.json").write_text('{"cost_per_node_hour": 3, "region": "here"}')
    assert ask("state", "keebler", "state.json") == {"status": wire.STATE_SUCCESS}
    with rainbow.client() as client:
        seen = client.cluster("keebler")
        assert (seen.subsystems, seen.state["cost_per_node_hour"]) == (["io"], 3)

    first = ask("submit-job", "1", "hostname")
    assert first == {
        "status": wire.SUBMIT_SUCCESS,
        "total_matches": 1,
        "total_mismatches": 0,
        "total_clusters": 1,
        "clusters": ["keebler"],
        "cluster": "keebler",
    }
    jobspec = tmp_path / "jobspec.yaml"
    jobspec.write_text(
        "version: 1\nresources:\n  r:\n    type: node\n    count: 2\n    with: [{type: core, count: 2}]\n"
        "tasks:\n- {name: build, command: [spack, install, ior], resources: r}\n"
    )
    assert ask("submit-jobspec", "jobspec.yaml")["status"] == wire.SUBMIT_SUCCESS
    assert ask("satisfy", "jobspec.yaml")["clusters"] == ["keebler"]
    jobspec.write_text(jobspec.read_text().replace("count: 2\n    with", "count: 4\n    with"))
    too_large = ask("submit-jobspec", "jobspec.yaml")
    assert (too_large["clusters"], too_large["total_mismatches"]) == ([], 1)

    # The first is taken; looking takes nothing.
    [job] = ask("receive", "1")
    assert (job["cluster"], json.loads(job["jobspec"])["tasks"][0]["command"]) == ("keebler", ["hostname"])
    with rainbow.client() as client:
        eventually(lambda: {j.state for j in client.jobs()} == {"accepted", "assigned"}, 60)
    [job] = ask("receive", "0")
    assert json.loads(job["jobspec"])["tasks"][0]["command"] == ["spack", "install", "ior"]
    assert ask("receive", "0") is not None
    with rainbow.client() as client:
        eventually(lambda: {j.state for j in client.jobs()} == {"accepted"}, 60)


def test_who_may_is_as_strict_as_anywhere(rainbow: Rainbow, ask: Ask, host: str, tmp_path: Path) -> None:
    denied = {"status": wire.REGISTER_DENIED, "token": "", "secret": ""}
    assert ask("register", "keebler", "chocolate-cookies", "nodes.json") == denied
    assert ask("register", "keebler", rainbow.token("register", "root", ("other",)), "nodes.json") == denied
    assert ask("register", "keebler", rainbow.token("register", "root", ("keebler",)), "nodes.json")["status"] == 1
    # A known name is taken, also with a good secret.
    again = ask("register", "keebler", rainbow.token("register", "root", ("keebler",)), "nodes.json")
    assert again["status"] == wire.REGISTER_EXISTS

    service = Service(load(rainbow.config, {}))
    try:
        request = wire.message(wire.SCHEDULER, "ReceiveJobsRequest")
        agent = rainbow.token("agent", "x", ("red",))
        forged = ClusterSecret(agent, {"k": b"0" * 32}, "r").text()
        # Another cluster's, a submitter's, made up: refused each.
        for secret in (forged, rainbow.token("submit"), "409ece99-0f91-4816-9113-e62458afdfe1", "", "rainbow1.e30="):
            with pytest.raises(Denied):
                service.receive_jobs(request(cluster="keebler", secret=secret))
        wrong = ClusterSecret("a.b.c", {}, "r").text()
        with pytest.raises(Denied):
            service.receive_jobs(request(cluster="keebler", secret=wrong))
        submit = wire.message(wire.SCHEDULER, "SubmitJobRequest")
        with pytest.raises(Denied, match="no clusters with their tokens"):
            service.submit_job(submit(jobspec="{}"))
        bad = submit(jobspec='{"version": 1}', clusters=[{"name": "keebler", "token": "a.b.c"}])
        assert service.submit_job(bad)["status"] == wire.SUBMIT_DENIED
    finally:
        service.close()


def test_a_gateway_without_a_token_tells_nobody_anything(rainbow: Rainbow, tmp_path: Path) -> None:
    rainbow.write_config()
    service = Service(load(rainbow.config, {}))
    try:
        with pytest.raises(Denied, match="no token of its own"):
            service.satisfy(wire.message(wire.MEMORY, "SatisfyRequest")(payload="{}"))
    finally:
        service.close()


def test_the_program(tmp_path: Path) -> None:
    """It serves, says where, and ends when told to; an address open to others needs TLS or a word for it."""
    config = tmp_path / "c.yaml"
    config.write_text("broker: {url: 'memory://x'}\n")
    command = [str(Path(sys.executable).parent / "rainbow-gateway"), "--config", str(config), "--listen"]
    refused = subprocess.run([*command, "0.0.0.0:0"], capture_output=True, text=True, timeout=120)
    assert refused.returncode == 2
    assert "without TLS" in refused.stderr
    with subprocess.Popen([*command, "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("rainbow-gateway is up: 127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0


def test_numbers_of_jobs() -> None:
    ids = {number_of(str(uuid.uuid4()), 1) for _ in range(1000)}
    assert len(ids) > 990
    assert all(0 < number < 1 << 31 for number in ids)
