"""Marker secrets in every URL, token, key, environment and settings file of the real programs; everything made to fail,
logged at debug level; and no marker in what they say, write, serve, answer, or show in the list of processes."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import redis
import yaml

from processes import Site
from rainbow import codec, topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Message
from rainbow.client import Client
from rainbow.errors import RainbowError
from rainbow.security.tokens import KeyRing
from rainbow.settings import load
from rig import resources
from security.markers import Found, Marks, Processes
from servers import Private, RabbitServer, RedisServer, Run, free_ports, wait_until

#: What holds secrets because it must: settings, keys, what registration left.
HOLDERS = (".yaml", "keys.json", "registration.json", "identity")
RABBIT_USER = REDIS_USER = "marked"


class Marked(Site):
    """A site whose every secret is a marker, in its files and in the environment of each of its programs."""

    marks: Marks
    extra: Mapping[str, str] = MappingProxyType({})

    def environment(self) -> dict[str, str]:  # type: ignore[override]
        return {**super().environment(), **self.extra}


@pytest.fixture
def marks() -> Marks:
    return Marks()


@pytest.fixture
def site(
    marks: Marks,
    private_rabbitmq: Private[RabbitServer],
    private_redis: Private[RedisServer],
    test_run: Run,
    tmp_path: Path,
) -> Iterator[Marked]:
    rabbit, store = private_rabbitmq.server, private_redis.server
    vhost = rabbit.new_vhost(test_run.name)
    passwords = {what: marks.new(what) for what in ("amqp", "redis")}
    with suppress(Exception):
        rabbit.ctl("delete_user", RABBIT_USER)
    rabbit.ctl("add_user", RABBIT_USER, passwords["amqp"])
    rabbit.ctl("set_permissions", "-p", vhost, RABBIT_USER, ".*", ".*", ".*")
    with redis.Redis.from_url(store.url) as admin:
        admin.acl_setuser(
            REDIS_USER, enabled=True, passwords=[f"+{passwords['redis']}"], keys="*", commands=["+@all"], reset=True
        )
    key = marks.new("key").encode().ljust(32, b"k")
    marks.add("key", key)
    ring = KeyRing((("kid-1", key),))
    metrics = free_ports(1)[0]
    made = Marked(
        tmp_path,
        f"amqp://{RABBIT_USER}:{passwords['amqp']}@{rabbit.host}:{rabbit.port}/{vhost}",
        f"redis://{REDIS_USER}:{passwords['redis']}@{store.host}:{store.port}/0",
        f"{uuid.uuid4().hex}:",
        ring=ring,
        scheduler={
            "metrics": f"127.0.0.1:{metrics}",
            "audit": str(tmp_path / "audit.jsonl"),
            "secret": marks.new("registration"),
            "allow_secret": True,
            "retry_after": 1.0,
        },
        log_level="debug",
        clusters=[{"name": "blue", "token": marks.new("clustertoken")}],
    )
    made.marks = marks
    made.extra = {
        "RAINBOW_DEBUG": "1",
        "RAINBOW_SCHEDULER_SECRET": marks.new("environment"),
        "AWS_SECRET_ACCESS_KEY": marks.new("foreign"),
    }
    marks.add_token("admin", load(made.config, {}).token.get_secret_value())  # type: ignore[union-attr]
    with made:
        yield made


def run(site: Marked, name: str, *arguments: str, config: Path | None, limit: float = 60.0, code: bool = False) -> str:
    """What a program says until it ends or the limit has passed; kept in a file of the folder, too."""
    command = [sys.executable, *(["-c"] if code else ["-m"]), *arguments]
    env = {**site.environment(), **({"RAINBOW_CONFIG": str(config)} if config else {})}
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.terminate()
        said, _ = process.communicate(timeout=30)
    (site.folder / f"{name}.out").write_text(said)
    return said


def test_the_search_finds_what_is_there(marks: Marks, tmp_path: Path) -> None:
    """In whatever spelling; and in the list of processes."""
    secret, _ = marks.new("secret?"), marks.new("secret?")
    marks.add_token("token", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl")
    for leak in (secret, secret.encode().hex(), f"x {secret.replace('?', '%3F')} y", "eyJh.c2lnbmF0dXJl"):
        (tmp_path / "a.log").write_text(leak)
        with pytest.raises(Found):
            marks.search_files(tmp_path)
    (tmp_path / "a.log").write_text("nothing")
    assert marks.search_files(tmp_path) == 7
    watched = Processes(marks)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)", secret]) as child:
        try:
            wait_until(lambda: watched.leaks, 60, what="the leak is seen")
        finally:
            child.kill()
    watched.end()


@pytest.mark.timeout(240)
def test_programs_that_work_tell_no_secret(site: Marked, marks: Marks, tmp_path: Path) -> None:
    watched = Processes(marks)
    site.scheduler()
    amqp = site.shared["broker"]["url"]
    with Client(settings=load(site.config, {}), timeout=60) as admin:
        wait_until(lambda: _answers(admin), 60, what="the scheduler answers")
        site.agent("blue", resources(), executor="local", options={}, health_file=str(tmp_path / "health"))
        marks.add_token("agent", load(tmp_path / "agent-blue.yaml", {}).token.get_secret_value())  # type: ignore[union-attr]
        wait_until(lambda: any(c.alive for c in admin.clusters()), 60, what="the agent runs")

        # A job looks at everything around it, and fails.
        own = "tr '\\0' '\\n' < /proc/$PPID/environ"
        look = f"{{ env; {own}; ps axww -o args; cat /proc/*/cmdline; }} > {tmp_path}/job.out 2>&1; env; {own}; exit 3"
        record = admin.submit(command=["/bin/sh", "-c", look]).wait(60)
        assert record.state == "failed"
        assert b"rainbow_agents" in (tmp_path / "job.out").read_bytes(), "it did look"
        assert "RAINBOW_JOB_ID" in (record.output or "")
        (tmp_path / "record.out").write_text(record.model_dump_json())
        for command in ("/no/such/program", "/etc/passwd", "/bin/false"):
            admin.submit(command=[command]).wait(60)

    # Whatever is wrong becomes a dead letter, a reply or a line of the log.
    token, alice = load(site.config, {}).token.get_secret_value(), site.token("alice")  # type: ignore[union-attr]
    marks.add_token("alice", alice)
    secret = load(site.config, {}).scheduler.secret.get_secret_value()  # type: ignore[union-attr]
    with closing(connect(ConnectOptions(amqp))) as broker:
        wrong: list[dict[str, Any]] = [
            {"token": token, "nonsense": 1},
            {"tokens": [token, alice], "command": ["a"], "nodes": 0},
            {"data": {"token": token, "list": [{"secret": secret}]}},
            {"Token": alice, "password": secret},
            {"op": "register", "secret": secret, "cluster": "!"},
            {"op": "revoke", "token": alice, "jti": "x"},
            {"token": token, "command": ["true"], "clusters": ["nowhere"], "hold": 1},
            {"token": alice[:-3], "command": ["true"]},
        ]
        bodies = [
            make(data)[: cut or None]
            for data in wrong
            for make in (codec.encode_json, codec.encode_msgpack)
            for cut in (0, -1)
        ]
        bodies += [token.encode(), f"token: {token}".encode(), amqp.encode()]
        for exchange in (topology.SUBMIT, topology.CONTROL, topology.EVENTS, topology.REJECTED):
            for body in bodies:
                for kind in (codec.JSON, codec.MSGPACK):
                    headers = {"authorization": f"Bearer {alice}"}
                    broker.publish([Message(exchange, "x", body, content_type=kind, headers=headers)]).check(20)
        broker.publish([Message(topology.AGENTS, "blue", b) for b in bodies]).check(20)
        broker.publish([Message(topology.JOBS, "blue", b) for b in bodies]).check(20)
        wait_until(lambda: broker.stats(topology.DEAD_QUEUE).messages > len(bodies) * 4, 60, what="dead letters")

    commands = [
        ["dead", "list", "--limit", "10000"],
        ["dead", "list", "--json", "--limit", "10000"],
        ["jobs"],
        ["status", record.id],
        ["explain", record.id],
        ["status", record.id, "--json"],
        ["clusters", "--json"],
        ["enroll", "list"],
        ["doctor"],
        ["config", "show"],
        ["config", "show", "--json"],
        ["token", "show"],
        ["token", "verify"],
        ["broker", "setup"],
    ]
    for number, words in enumerate(commands):
        assert run(site, f"cli-{number}", "rainbow.cli", *words, config=site.config)
    listed = json.loads(site.cli("dead", "list", "--json", "--limit", "10000").stdout)
    keys = [letter["key"] for letter in listed["letters"]]
    assert len(keys) > 100
    for key in keys[:: len(keys) // 12]:
        assert "reason" in run(
            site, f"dead-{key}", "rainbow.cli", "dead", "show", key, "--limit", "10000", config=site.config
        )
    run(site, "check", "rainbow_agents.cli", "check", config=tmp_path / "agent-blue.yaml")
    page = urllib.request.urlopen(f"http://{site.shared['scheduler']['metrics']}/metrics", timeout=10).read()
    assert b"rainbow_jobs" in page
    (tmp_path / "metrics.out").write_bytes(page)

    watched.end()
    assert any(b"rainbow_workers" in line for line in watched.seen)
    assert any(b"runner.py" in line for line in watched.seen)
    assert not watched.leaks
    assert marks.search_files(tmp_path, besides=HOLDERS) > 50_000
    with closing(connect(ConnectOptions(amqp))) as broker:
        consumer = broker.consume(topology.DEAD_QUEUE, prefetch=10_000)
        while got := consumer.take(1000, 1.0):
            for letter in got:
                marks.search(letter.body, f"a dead letter ({letter.headers.get('rainbow-detail')})")
                marks.search(repr(letter.headers), "the headers of a dead letter")
            consumer.ack(got)


@pytest.mark.timeout(240)
def test_programs_whose_credentials_end_tell_no_secret(
    site: Marked, marks: Marks, private_redis: Any, private_rabbitmq: Any, tmp_path: Path
) -> None:
    """Broker and store shut them out while they run; the key ring and settings turn to rubbish."""
    scheduler = site.scheduler()
    with Client(settings=load(site.config, {}), timeout=60) as admin:
        wait_until(lambda: _answers(admin), 60, what="the scheduler answers")
        agent = site.agent("blue", resources())
        wait_until(lambda: any(c.alive for c in admin.clusters()), 60, what="the agent runs")
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [{"kid": "x", "key": marks.new("shortkey")}]}))
    (tmp_path / "agent-blue.yaml").write_text(f"token: *{marks.new('yaml')}\n")
    agent.send_signal(1)
    log = tmp_path / "scheduler.log"
    wait_until(lambda: "the key ring stays as it was" in log.read_text(), 60)
    wait_until(lambda: "settings not read again" in (tmp_path / "agent-blue.log").read_text(), 60)
    with redis.Redis.from_url(private_redis.server.url) as admin_redis:
        admin_redis.acl_setuser(REDIS_USER, enabled=False)
        for connection in admin_redis.client_list():
            if connection.get("user") == REDIS_USER:
                admin_redis.client_kill(connection["addr"])
    assert scheduler.wait(60) == 3
    private_rabbitmq.server.ctl("change_password", RABBIT_USER, "another")
    private_rabbitmq.server.ctl("close_all_connections", "--global", "enough")
    # What the broker let in once is tried again: the agent names the refusal and waits.
    wait_until(lambda: "lets us in no more" in (tmp_path / "agent-blue.log").read_text(), 90)
    assert agent.poll() is None
    assert marks.search_files(tmp_path, besides=HOLDERS) > 2_000


FAILING: dict[str, Callable[[Marks, dict[str, Any]], Any]] = {}


def failing(make: Callable[[Marks, dict[str, Any]], Any]) -> Callable[[Marks, dict[str, Any]], Any]:
    FAILING[make.__name__] = make
    return make


def _broker(url: str) -> dict[str, Any]:
    return {"broker": {"url": url, "connect_timeout": 1.0, "publish_timeout": 1.0}}


def _store(url: str) -> dict[str, Any]:
    return {"store": {"url": url, "timeout": 1.0}}


@failing
def urls(m: Marks, good: dict[str, Any]) -> Any:
    amqp = good["broker"]["url"].rpartition("@")[2]
    closed = free_ports(1)[0]
    for url in (
        f"amqp://u:{m.new('a')}@{amqp}",
        f"amqp://u:{m.new('b')}@no-such-host.invalid/v",
        f"amqp://u:{m.new('c')}@127.0.0.1:{closed}/v",
        f"amqps://u:{m.new('d')}@{amqp}",
        f"amqp://u:{m.new('e')}#x@h/v",
        f"amqp://u:x/{m.new('f')}@h/v",
        f"amqp://u:{m.new('g')}?@h/v",
        f"amqp://u:{m.new('h')}@h:99999/v",
        f"amqp://u:{m.new('i')}\u2100@h/v",
        f"u:{m.new('j')}@h/v",
        f"kombu+nothing://u:{m.new('k')}@h",
        f"redis://:{m.new('l')}@127.0.0.1:{closed}/0",
        f"redis://127.0.0.1:{closed}/0?password={m.new('m')}",
        f"kombu+redis://u:{m.new('n')}@{good['store']['url'].rpartition('@')[2]}",
    ):
        yield _broker(url)


@failing
def stores(m: Marks, good: dict[str, Any]) -> Any:
    there = good["store"]["url"].rpartition("@")[2]
    for url in (
        f"redis://marked:{m.new('a')}@{there}",
        f"redis://u:{m.new('b')}@127.0.0.1:{free_ports(1)[0]}/0",
        f"rediss://u:{m.new('c')}@{there}",
        f"redis://u:{m.new('d')}#@h/0",
        f"redis://h/0?password={m.new('e')}&{m.new('f')}=1",
        f"nothing://u:{m.new('g')}@h/0",
    ):
        yield _store(url)


@failing
def files(m: Marks, good: dict[str, Any]) -> Any:
    """Settings that are no settings; what is in them is shown by no error about them."""
    for text in ("*{}", "!{} x", "!!{} x", "[{}", '"{}', "{{{}: 1}}", "[{}]", "@{}", "%{}", "{}: x: y"):
        yield "token: " + text.format(m.new("y")) + "\n"
    yield f"broker: amqp://u:{m.new('y')}@h\n"
    yield f"broker: {{amqp://u:{m.new('y')}@h: 1}}\n"
    yield {"cluster": {"name": "blue", "secret": [m.new("y")], "keys": {"k": [m.new("y")]}}}
    yield {"scheduler": {"secret": {"a": m.new("y")}}}
    yield {"scheduler": {"metrics": f"http://u:{m.new('y')}@127.0.0.1:9"}}
    yield {"clusters": [m.new("y")]}


@failing
def tokens_and_keys(m: Marks, good: dict[str, Any]) -> Any:
    folder = Path(good["keyring"]).parent
    for token in (m.new("t"), f"eyJhbGciOiJIUzI1NiJ9.e30.{m.new('t')}", f"{good['token'][:-8]}{m.new('t')}"):
        yield {"token": token}
    rings = [m.new("r"), json.dumps({"keys": [{"kid": "a", "key": m.new("r")}]}), json.dumps([m.new("r")])]
    rings.append(json.dumps({"keys": [{"kid": "a", "key": m.new("r").encode().hex()}]}))
    for number, text in enumerate(rings):
        path = folder / f"ring-{number}-keys.json"
        path.write_text(text)
        path.chmod(0o600)
        yield {"keyring": str(path)}
    readable = folder / "readable-keys.json"
    readable.write_text(Path(good["keyring"]).read_text())
    readable.chmod(0o644)
    yield {"keyring": str(readable)}


@failing
def plugins_and_tls(m: Marks, good: dict[str, Any]) -> Any:
    folder = Path(good["keyring"]).parent
    (folder / "no.pem.yaml").write_text(m.new("p"))
    amqp, store = (good[n]["url"].rpartition("@")[2] for n in ("broker", "store"))
    yield {"scheduler": {"algorithms": {"selection": {"name": "nothing", "options": {"password": m.new("o")}}}}}
    yield {"agent": {"executor": "nothing", "options": {"password": m.new("o")}}}
    yield {"broker": {"url": f"amqps://u:{m.new('q')}@{amqp}", "tls": {"ca": str(folder / "no.pem.yaml")}}}
    yield {"broker": {"url": f"amqp://u:{m.new('q')}@{amqp}", "tls": {"ca": str(folder / "none.pem")}}}
    yield {"store": {"url": f"rediss://u:{m.new('q')}@{store}", "tls": {"ca": str(folder / "no.pem.yaml")}}}
    yield {"store": {"url": f"redis://u:{m.new('q')}@{store}", "tls": {"cert": str(folder / "none.pem")}}}


PROGRAMS = {
    "scheduler": ("rainbow_workers.cli",),
    "agent": ("rainbow_agents.cli",),
    "enroll": ("rainbow_agents.cli", "enroll", "--timeout", "3"),
    "doctor": ("rainbow.cli", "doctor"),
    "jobs": ("rainbow.cli", "jobs", "--timeout", "3"),
}
#: Those that use what is wrong. Settings as a whole are read in one place.
READERS = {
    "urls": ("scheduler", "agent", "doctor", "jobs"),
    "stores": ("scheduler", "doctor"),
    "files": ("agent", "jobs"),
    "tokens_and_keys": ("scheduler", "agent", "enroll", "jobs"),
    "plugins_and_tls": tuple(PROGRAMS),
}


@pytest.mark.parametrize("kind", FAILING)
@pytest.mark.timeout(280)
def test_programs_that_fail_tell_no_secret(site: Marked, marks: Marks, tmp_path: Path, kind: str) -> None:
    graph = tmp_path / "graph.json"
    graph.write_text(json.dumps(resources()))
    good: dict[str, Any] = yaml.safe_load(site.config.read_text())
    good["scheduler"].pop("metrics")
    good |= {
        "cluster": {"name": "blue"},
        "agent": {"executor": "dry-run", "graph": str(graph), "state_dir": str(tmp_path / "state")},
    }
    cases = list(FAILING[kind](marks, good))
    watched = Processes(marks)

    def one(number: int, change: Any, program: str) -> str:
        name = f"{kind}-{number}-{program}"
        file = tmp_path / f"{name}.yaml"
        file.write_text(change if isinstance(change, str) else yaml.safe_dump({**good, **change}))
        return run(site, name, *PROGRAMS[program], config=file, limit=5.0)

    with ThreadPoolExecutor(6) as pool:  # most of them wait
        made = [pool.submit(one, n, change, p) for n, change in enumerate(cases) for p in READERS[kind]]
        said = [m.result() for m in made]
    watched.end()
    assert not watched.leaks
    assert sum(map(bool, said)) > len(said) * 0.7
    assert marks.search_files(tmp_path, besides=HOLDERS) > 2_000


#: Where the error comes up: (module of the program or None, class and method that raise it).
CRASHES = {
    "scheduler": ("rainbow_workers.cli", "rainbow_workers.service:Service.start"),
    "worker": ("rainbow_workers.cli", "rainbow_workers.scheduling.scheduler:Scheduler.ready"),
    "agent": ("rainbow_agents.cli", "rainbow_agents.agent:Agent.start"),
    "agent-thread": ("rainbow_agents.cli", "rainbow_agents.reporting.heartbeat:Heartbeat.run"),
    "cli": ("rainbow.cli", "rainbow.client:Client.__enter__"),
    "thread": (None, "threading:Thread.run"),
    "nobody": (None, None),
}

#: What a library might say in an error that nobody foresaw, with a secret in every local variable on the way.
BOOM = """
import sys
import threading
from importlib import import_module
from rainbow import logs, settings
_loaded = settings.load()
URL, TOKEN = _loaded.broker.url.get_secret_value(), _loaded.token.get_secret_value()
PASSWORD = URL.split(":")[2].split("@")[0]
def boom(*_, **__):
    password, token = PASSWORD, TOKEN
    raise RuntimeError(f"cannot log in at {URL} with {password!r}, Bearer {token}, {token}, redis://:{password}@h/0")
program, place, sys.argv = sys.argv[1], sys.argv[2], sys.argv[:1] + sys.argv[3:]
if place:
    module, _, name = place.partition(":")
    owner, _, method = name.partition(".")
    setattr(getattr(import_module(module), owner), method, boom)
if program:
    import_module(program).main()
else:
    logs.setup("debug", secrets=settings.secrets(_loaded))
    threading.Thread(target=print).start() if place else boom()
"""


@pytest.mark.parametrize("program", CRASHES)
def test_a_crash_tells_no_secret(site: Marked, marks: Marks, tmp_path: Path, program: str) -> None:
    graph = tmp_path / "graph.json"
    graph.write_text(json.dumps(resources()))
    config = site.write(
        "crash",
        {
            **yaml.safe_load(site.config.read_text()),
            "cluster": {"name": "blue"},
            "agent": {"executor": "dry-run", "graph": str(graph), "state_dir": str(tmp_path / "state")},
        },
    )
    module, place = CRASHES[program]
    arguments = [module or "", place or "", *(["jobs"] if program == "cli" else [])]
    said = run(site, program, BOOM, *arguments, config=config, limit=30.0, code=True)
    assert "cannot log in at amqp://marked:***@" in said, said
    assert "Traceback" in said
    marks.search_files(tmp_path, besides=HOLDERS)


def _answers(admin: Client) -> bool:
    try:
        return bool(admin.ping(timeout=2.0))
    except RainbowError:
        return False
