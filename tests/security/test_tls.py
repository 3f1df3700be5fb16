"""TLS to broker and store: the right certificate lets in; a wrong authority, host name or date, a missing client
certificate, and a port that speaks no TLS are each refused with a word that says so, and nothing is sent."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from rainbow.brokers import ConnectOptions, Tls, connect
from rainbow.errors import InvalidSettings, RainbowError, StoreUnavailable
from rainbow_workers.stores import StoreOptions, open_store
from security.certificates import Authority
from servers import Private, RabbitServer, free_ports, spawn, start_rabbit, wait_until
from servers import redis_program as find_program

BAD = {
    "wrong-ca": ("localhost", "good", "other", "CERTIFICATE_VERIFY_FAILED|certificate verify failed"),
    "wrong-host": ("127.0.0.1", "good", "ca", "(?i)ip address mismatch|hostname mismatch|not valid for"),
    "expired": ("localhost", "expired", "ca", "(?i)expired"),
}


@dataclass
class Files:
    ca: Path
    other: Path
    good: tuple[Path, Path]
    expired: tuple[Path, Path]
    client: tuple[Path, Path]

    def tls(self, ca: str = "ca", client: bool = True) -> Tls:
        cert, key = self.client if client else (None, None)
        return Tls(str(getattr(self, ca)), str(cert) if cert else None, str(key) if key else None)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("certificates")
    ca, other = Authority(folder), Authority(folder, "other")
    return Files(
        ca.ca, other.ca, ca.issue("good"), ca.issue("expired", expired=True), ca.issue("client", "client.example")
    )


# -- the store ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def redis_ports(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """Ports of two Redis that want a client certificate, by their own; and `plain`, without TLS."""
    program = find_program()
    if program is None:
        if os.environ.get("RAINBOW_TEST_REQUIRE") == "1":
            pytest.fail("no Redis on PATH")
        pytest.skip("no Redis on PATH")
    ports = dict(zip(("good", "expired", "plain"), free_ports(3), strict=True))
    processes = []
    for name in ("good", "expired"):
        folder = tmp_path_factory.mktemp(f"redis-{name}")
        cert, key = getattr(files, name)
        plain = str(ports["plain"]) if name == "good" else "0"
        given = ["--bind", "127.0.0.1", "--port", plain, "--tls-port", str(ports[name]), "--save", ""]
        tls = ["--tls-cert-file", str(cert), "--tls-key-file", str(key), "--tls-ca-cert-file", str(files.ca)]
        processes.append((spawn([program, *given, *tls], folder), folder))
    for name in ("good", "expired"):
        wait_until(partial(_open, ports[name]), what=name)
    yield ports
    for process, _ in processes:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _open(port: int) -> bool:
    from servers import answers

    return answers("127.0.0.1", port)


def ask_store(url: str, tls: Tls | None) -> None:
    with closing(open_store(StoreOptions(url, tls=tls, timeout=4.0))) as store:
        store.clusters.changes(0)


def test_store_lets_in_with_the_right_certificates(files: Files, redis_ports: dict[str, int]) -> None:
    ask_store(f"rediss://localhost:{redis_ports['good']}/0", files.tls())


@pytest.mark.parametrize("name", BAD)
def test_store_with_a_bad_certificate(files: Files, redis_ports: dict[str, int], name: str) -> None:
    host, server, ca, word = BAD[name]
    with pytest.raises(StoreUnavailable, match=word):
        ask_store(f"rediss://{host}:{redis_ports[server]}/0", files.tls(ca))


def test_store_checks_cannot_be_switched_off_in_the_url(files: Files, redis_ports: dict[str, int]) -> None:
    url = f"rediss://127.0.0.1:{redis_ports['good']}/0?ssl_cert_reqs=none&ssl_check_hostname=false"
    with pytest.raises(RainbowError):
        ask_store(url, files.tls("other"))


def test_store_without_a_client_certificate(files: Files, redis_ports: dict[str, int]) -> None:
    with pytest.raises(StoreUnavailable):
        ask_store(f"rediss://localhost:{redis_ports['good']}/0", files.tls(client=False))


def test_store_on_a_plain_port(files: Files, redis_ports: dict[str, int]) -> None:
    """TLS is not given up for a server that has none; and a plain URL with certificates is a mistake."""
    with pytest.raises(StoreUnavailable):
        ask_store(f"rediss://localhost:{redis_ports['plain']}/0", files.tls())
    with pytest.raises(InvalidSettings, match="rediss://"):
        ask_store(f"redis://localhost:{redis_ports['plain']}/0", files.tls())


# -- the broker ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rabbit_ports(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """One RabbitMQ; its TLS listener has the good certificate. `expired` is a second one."""
    started: list[Private[RabbitServer]] = []
    ports: dict[str, int] = {}
    for name in ("good", "expired"):
        (port,) = free_ports(1)
        cert, key = getattr(files, name)
        config = (
            f"listeners.ssl.1 = 127.0.0.1:{port}\nssl_options.cacertfile = {files.ca}\n"
            f"ssl_options.certfile = {cert}\nssl_options.keyfile = {key}\n"
            "ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\n"
        )
        folder = tmp_path_factory.mktemp(f"rabbitmq-{name}")
        started.append(Private(partial(start_rabbit, config=config), folder))
        ports[name] = port
        ports.setdefault("plain", started[0].server.port)
        wait_until(partial(_open, port), what=name)
    yield ports
    for private in started:
        private.end()


def why_not(url: str, tls: Tls | None) -> str:
    """What stands in the way of the connection, "" when nothing does."""
    broker = connect(ConnectOptions(url, tls=tls, connect_timeout=4.0, publish_timeout=6.0))
    with closing(broker):
        end = time.monotonic() + 8
        while time.monotonic() < end:
            if broker.status.connected:
                return ""
            problem = broker.status.problem
            if problem is not None:
                return problem
            time.sleep(0.02)
    return "nothing within 8 s"


def test_broker_lets_in_with_the_right_certificates(files: Files, rabbit_ports: dict[str, int]) -> None:
    assert why_not(f"amqps://guest:guest@localhost:{rabbit_ports['good']}/%2F", files.tls()) == ""


@pytest.mark.parametrize("name", BAD)
def test_broker_with_a_bad_certificate(files: Files, rabbit_ports: dict[str, int], name: str) -> None:
    import re

    host, server, ca, word = BAD[name]
    said = why_not(f"amqps://guest:marker-secret@{host}:{rabbit_ports[server]}/%2F", files.tls(ca))
    assert re.search(word, said), said
    assert "marker-secret" not in said


def test_broker_without_a_client_certificate(files: Files, rabbit_ports: dict[str, int]) -> None:
    said = why_not(f"amqps://guest:guest@localhost:{rabbit_ports['good']}/%2F", files.tls(client=False))
    assert "certificate" in said.lower(), said


def test_broker_on_a_plain_port(files: Files, rabbit_ports: dict[str, int]) -> None:
    said = why_not(f"amqps://guest:guest@localhost:{rabbit_ports['plain']}/%2F", files.tls())
    assert "ssl" in said.lower() or "tls" in said.lower(), said
    with pytest.raises(InvalidSettings, match="amqps://"):
        connect(ConnectOptions(f"amqp://localhost:{rabbit_ports['plain']}/", tls=files.tls()))


@pytest.mark.parametrize("spoilt", ["missing", "no-certificate"])
def test_files_that_cannot_be_used(tmp_path: Path, spoilt: str) -> None:
    ca = tmp_path / "ca.pem"
    if spoilt == "no-certificate":
        ca.write_text("hello")
    with pytest.raises(InvalidSettings, match="TLS file"):
        connect(ConnectOptions("amqps://localhost/", tls=Tls(ca=str(ca))))
