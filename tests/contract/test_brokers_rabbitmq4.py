"""The contract of brokers on RabbitMQ 4, which Debian 13 has: in a chroot that `tests/support/trixie-chroot` makes.

`make contract-rabbitmq4`. Skipped, visibly, where there is no chroot and none can be made.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from rainbow import topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Message
from rainbow.brokers.rabbitmq.migration import Migration
from rainbow.testing.brokers import BrokerContract
from rainbow.topology import Limits, QueueKind
from rig import eventually, gathered
from servers import NoServer, RabbitServer, answers, end_group, free_ports, spawn, started_at

pytestmark = [pytest.mark.rabbitmq4, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).parents[1] / "support" / "trixie-chroot"


@dataclass
class Chroot:
    """A RabbitMQ 4 in the chroot, its data in a folder of this test there."""

    folder: Path
    server: RabbitServer
    ctl: list[str]

    def end(self) -> None:
        end_group(self.server.group, self.server.started)
        shutil.rmtree(self.folder, ignore_errors=True)


def _start() -> Chroot:
    made = subprocess.run([str(SCRIPT)], capture_output=True, text=True, timeout=900, check=False)
    if made.returncode:
        raise NoServer(f"no RabbitMQ 4: {(made.stderr.strip().splitlines() or ['?'])[-1]}")
    root = Path(made.stdout.strip())
    folder = Path(tempfile.mkdtemp(prefix="rainbow-tests-", dir=root / "tmp"))
    inside = Path("/") / folder.relative_to(root)
    port, distribution, epmd = free_ports(3)
    (folder / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{port}\nlog.file = false\nlog.console = true\nlog.console.level = warning\n"
        "vm_memory_high_watermark.absolute = 1GB\ndisk_free_limit.absolute = 50MB\nmax_message_size = 67108864\n"
    )
    (folder / "enabled_plugins").write_text("[].\n")
    (folder / ".erlang.cookie").write_text(uuid.uuid4().hex)
    (folder / ".erlang.cookie").chmod(0o400)
    env = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(inside),
        "LANG": "C.UTF-8",
        "ERL_EPMD_PORT": str(epmd),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"rainbow{port}@localhost",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": f"{inside}/mnesia",
        "RABBITMQ_LOG_BASE": f"{inside}/log",
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_CONFIG_FILE": f"{inside}/rabbitmq.conf",
        "RABBITMQ_ADVANCED_CONFIG_FILE": f"{inside}/advanced.config",
        "RABBITMQ_ENABLED_PLUGINS_FILE": f"{inside}/enabled_plugins",
        "RABBITMQ_PID_FILE": f"{inside}/pid",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    chroot = ["chroot", str(root), "env", "-i", *(f"{key}={value}" for key, value in env.items())]
    program = f"epmd -port {epmd} -address 127.0.0.1 & /usr/lib/rabbitmq/bin/rabbitmq-server; kill $!"
    process = spawn([*chroot, "/bin/sh", "-c", f"ulimit -n 16000 2>/dev/null; {program}"], folder)
    url = f"amqp://guest:guest@127.0.0.1:{port}"
    server = RabbitServer(url, group=process.pid, started=started_at(process.pid), folder=str(folder))
    made_one = Chroot(folder, server, [*chroot, "/usr/lib/rabbitmq/bin/rabbitmqctl", "-q"])
    end = time.monotonic() + 90
    while not answers("127.0.0.1", port):
        if process.poll() is not None or time.monotonic() > end:
            said = (folder / "output").read_text(errors="replace")[-500:]
            made_one.end()
            raise NoServer(f"RabbitMQ 4 did not start in the chroot: {said}")
        time.sleep(0.2)
    return made_one


@pytest.fixture(scope="module")
def rabbit4() -> Iterator[Chroot]:
    try:
        made = _start()
    except (NoServer, OSError, subprocess.SubprocessError) as exc:
        pytest.skip(f"no RabbitMQ 4 in a chroot: {exc}")
    yield made
    made.end()


def _vhost(rabbit4: Chroot) -> str:
    """The URL of a fresh vhost."""
    vhost = f"rainbow-{uuid.uuid4().hex[:10]}"
    for command in (["add_vhost", vhost], ["set_permissions", "-p", vhost, "guest", ".*", ".*", ".*"]):
        subprocess.run([*rabbit4.ctl, *command], capture_output=True, timeout=60, check=True)
    return rabbit4.server.vhost_url(vhost)


@pytest.fixture
def url(rabbit4: Chroot) -> str:
    return _vhost(rabbit4)


@pytest.fixture(scope="module")
def shared_url(rabbit4: Chroot) -> str:
    """For the contract, whose names differ from test to test: making a vhost takes two seconds."""
    return _vhost(rabbit4)


class TestRabbitMQ4Quorum(BrokerContract):
    kind: ClassVar[QueueKind] = "quorum"
    knows_lost_replies = False

    @pytest.fixture
    def options(self, shared_url: str) -> ConnectOptions:
        return ConnectOptions(shared_url)


class TestRabbitMQ4Classic(TestRabbitMQ4Quorum):
    kind = "classic"


def test_it_is_version_4(rabbit4: Chroot) -> None:
    said = subprocess.run([*rabbit4.ctl, "version"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.startswith("4.")


def test_requeued_for_long_is_not_dropped(url: str) -> None:
    """RabbitMQ 4 limits deliveries of quorum queues to 20 where nothing else is said."""
    broker = connect(ConnectOptions(url))
    try:
        broker.declare(topology.core())
        broker.publish([Message(topology.DEAD, "x", b"kept")]).check(20)
        consumer = broker.consume(topology.DEAD_QUEUE, prefetch=1)
        for _ in range(30):
            (delivery,) = eventually(lambda: consumer.take(1, 0.5))
            consumer.requeue([delivery])
        consumer.cancel()
        eventually(lambda: broker.stats(topology.DEAD_QUEUE).messages == 1)
    finally:
        broker.close()


def test_queues_are_migrated(url: str) -> None:
    broker = connect(ConnectOptions(url))
    try:
        broker.declare(topology.core(Limits(max_submissions=500)))
        broker.publish([Message(topology.SUBMIT, "submit", b"%d" % n) for n in range(100)]).check(20)
        migration = Migration(ConnectOptions(url))
        moved = migration.run(list(topology.core(Limits(max_submissions=600)).queues))
        migration.close()
        assert moved[topology.SCHEDULER_QUEUE] == 100
        broker.declare(topology.core(Limits(max_submissions=600)))
        consumer = broker.consume(topology.SCHEDULER_QUEUE, prefetch=200)
        found = gathered(lambda: consumer.take(200, 0.5), lambda found: len(found) == 100)
        assert [d.body for d in found] == [b"%d" % n for n in range(100)]
    finally:
        broker.close()


def test_frozen_and_thawed(rabbit4: Chroot, url: str) -> None:
    """A confirm that waits is there after the thaw."""
    broker = connect(ConnectOptions(url))
    try:
        broker.declare(topology.core())
        pid = int((rabbit4.folder / "pid").read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            receipt = broker.publish([Message(topology.SUBMIT, "submit", b"x")])
            assert not receipt.done
        finally:
            os.kill(pid, signal.SIGCONT)
        receipt.check(30)
    finally:
        broker.close()
