"""RabbitMQ servers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
import uuid
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pika
import pika.exceptions

from rainbow.topology import Queue, QueueKind
from servers.process import (
    START_LIMIT,
    VHOST_PREFIX,
    NoServer,
    answers,
    await_start,
    container_of,
    free_ports,
    spawn,
    started_at,
    wait_until,
)

#: Vhosts of one test process.
VHOSTS = 12
#: Files that a RabbitMQ must be allowed to open.
HANDLES = 8_000


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
        """Whether new queues, such as ours, take messages. RabbitMQ 3.10 that was killed while it declared one may
        answer 541 to everything that has to do with quorum queues from then on, also after a restart; and so does one
        whose dead-lettering ended.
        """
        name = f"probe-{uuid.uuid4().hex}"
        parameters = pika.URLParameters(f"{self.vhost_url('/')}?blocked_connection_timeout=20&socket_timeout=20")
        try:
            with contextlib.closing(pika.BlockingConnection(parameters)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                channel.exchange_declare(name, "topic", durable=True)
                kinds: tuple[QueueKind, ...] = ("classic", "quorum")
                for kind in kinds:
                    arguments = Queue("", dead_letter=name, kind=kind).arguments()
                    channel.queue_declare(f"{name}-{kind}", durable=True, arguments=arguments)
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


def check_handles(server: RabbitServer) -> None:
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
        # Threads of the Erlang VM that wait for work do not spin: other servers and the tests need the cores.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} "
        "+sbwt none +sbwtdcpu none +sbwtdio none",
    }
    # One shell holds both, so that one process group is all there is to end; epmd stays in the foreground.
    script = f'ulimit -n 16000 2>/dev/null; "{epmd}" -port {epmd_port} -address 127.0.0.1 & "{program}"; kill $!'
    process = spawn(["/bin/sh", "-c", script], folder, env)
    url = f"amqp://guest:guest@127.0.0.1:{port}"
    server = RabbitServer(url, ctl_env=env, group=process.pid, started=started_at(process.pid), folder=str(folder))
    await_start(process, "rabbitmq-server", folder, lambda: answers("127.0.0.1", port))
    return server


def rabbit_container(folder: Path) -> RabbitServer:
    ports: list[int] = [5672, 15672]
    ident, host, port = container_of(
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
