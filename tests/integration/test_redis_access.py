"""Who the Redis store talks to: passwords, rights, TLS, and what it warns of (S51)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from rainbow.brokers import Tls
from rainbow.cli.commands import checks
from rainbow.errors import BadCredentials, InvalidSettings, StoreUnavailable
from rainbow_workers.stores import StoreOptions, open_store
from rainbow_workers.stores.redis.connection import explain
from rainbow_workers.stores.testing import assignment, cluster, event, new_id
from running import alone
from servers import NoServer, Private, RedisServer, free_ports, start_redis

SECRET = "s3cr3t-of-the-store"


@pytest.fixture
def admin(private_redis: Private[RedisServer]) -> Iterator[redis.Redis]:
    """An open connection that stays allowed, whatever is set; all of it is undone."""
    with redis.Redis.from_url(private_redis.server.url, decode_responses=True, single_connection_client=True) as client:
        client.ping()
        yield client
        client.config_set("requirepass", "")
        client.acl_deluser("rainbow")
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("save", "")
        client.config_set("appendonly", "yes")


def add_user(admin: redis.Redis, name: str, keys: str, *but: str) -> None:
    """A user with the password `pw` and all commands `but` some."""
    admin.acl_setuser(name, enabled=True, passwords="+pw", commands=["+@all", *but], keys=[keys])


def url_as(server: RedisServer, login: str) -> str:
    return f"redis://{login}@{server.host}:{server.port}/0"


# -- credentials ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("login", ["", f":wrong-{SECRET}@", f"nobody:wrong-{SECRET}@"])
def test_bad_credentials_are_said_without_them(
    private_redis: Private[RedisServer], admin: redis.Redis, login: str
) -> None:
    admin.config_set("requirepass", SECRET)
    server = private_redis.server
    store = open_store(StoreOptions(f"redis://{login}{server.host}:{server.port}/0"))
    for _ in range(2):
        with pytest.raises(BadCredentials, match=f"127.0.0.1:{server.port}") as caught:
            store.clusters.changes(0)
        assert SECRET not in str(caught.value)
    store.close()


def test_a_password_with_every_sign(private_redis: Private[RedisServer], admin: redis.Redis) -> None:
    admin.config_set("requirepass", "p@ss:w/rd?#%")
    store = open_store(StoreOptions(url_as(private_redis.server, ":p%40ss%3Aw%2Frd%3F%23%25")))
    assert store.clusters.changes(0).version > 0
    store.close()


def test_no_password_in_any_error(private_redis: Private[RedisServer]) -> None:
    store = open_store(StoreOptions(url_as(private_redis.server, f"ann:{SECRET}"), timeout=2.0))
    private_redis.kill()
    with pytest.raises(StoreUnavailable) as caught:
        store.clusters.changes(0)
    assert SECRET not in f"{caught.value} {caught.value.__cause__!r}"
    assert "ann:***@127.0.0.1" in str(caught.value)
    store.close()


@pytest.mark.parametrize(
    "url", [f"redis://ann:{SECRET}@host:port/0", f"redis://:{SECRET}@[::1/0", f"redis://:{SECRET}@h/0?socket_timeout=x"]
)
def test_a_url_that_cannot_be_read(url: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        open_store(StoreOptions(url))
    assert SECRET not in str(caught.value)


def test_a_user_without_rights(private_redis: Private[RedisServer], admin: redis.Redis) -> None:
    add_user(admin, "rainbow", "elsewhere:*")
    store = open_store(StoreOptions(url_as(private_redis.server, "rainbow:pw")))
    with pytest.raises(BadCredentials, match="lacks a right"):
        store.clusters.changes(0)
    store.close()


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ("rainbow:wrong@", "refused our user or password"),
        ("", "refused our user or password"),
        ("elsewhere:pw@", "lacks a right"),
    ],
)
def test_doctor_never_says_ok_to_a_store_that_refuses(
    private_redis: Private[RedisServer],
    admin: redis.Redis,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: str,
    words: str,
) -> None:
    add_user(admin, "rainbow", "*")
    add_user(admin, "elsewhere", "elsewhere:*")
    alone(monkeypatch, tmp_path)
    monkeypatch.setenv("RAINBOW_STORE_URL", f"redis://{user}{private_redis.server.host}:{private_redis.server.port}/0")
    if not user:
        admin.acl_setuser("default", enabled=False)
    try:
        found = [check for check in checks.run(None) if check.name == "store"]
    finally:
        if not user:
            admin.acl_setuser("default", enabled=True)
        admin.acl_deluser("elsewhere")
    assert [check.ok for check in found] == [False]
    assert words in found[0].detail


def test_a_user_with_no_more_than_needed(private_redis: Private[RedisServer], admin: redis.Redis) -> None:
    """Keys under the prefix, no look at the server: all works, and nothing is judged that cannot be seen."""
    add_user(admin, "rainbow", "few:*", "-@dangerous", "-@admin", "-info", "-config")
    admin.config_set("maxmemory-policy", "allkeys-lru")
    store = open_store(StoreOptions(url_as(private_redis.server, "rainbow:pw"), prefix="few:"))
    store.clusters.put(cluster(), None)
    id = new_id()
    store.jobs.assign([assignment(id)], 0)
    store.jobs.record([event(id, "completed")])
    assert store.jobs.get([id])[0] is not None
    assert store.jobs.find(state="completed", cluster=None, user=None, limit=1)
    assert store.warnings() == []
    store.close()


# -- warnings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random", "volatile-ttl"])
def test_an_evicting_policy_is_warned_of(private_redis: Private[RedisServer], admin: redis.Redis, policy: str) -> None:
    """S51: a store that throws records away under memory pressure is not taken silently."""
    store = open_store(StoreOptions(private_redis.server.url))
    assert store.warnings() == []
    admin.config_set("maxmemory-policy", policy)
    (line,) = store.warnings()
    assert policy in line
    assert "noeviction" in line
    store.close()


def test_no_persistence_is_warned_of(private_redis: Private[RedisServer], admin: redis.Redis) -> None:
    store = open_store(StoreOptions(private_redis.server.url))
    admin.config_set("appendonly", "no")
    (line,) = store.warnings()
    assert "appendonly yes" in line
    admin.config_set("save", "900 1")
    assert store.warnings() == []
    store.close()


# -- TLS -----------------------------------------------------------------------------------------------------


def certificate(folder: Path, name: str, subject: str, signer: str | None = None) -> None:
    """``NAME.crt`` and ``NAME.key`` for `subject` (``DNS:host`` or ``IP:address``), signed by `signer` or itself."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    command += ["-keyout", f"{name}.key", "-out", f"{name}.crt"]
    if signer is None:
        command += ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    else:
        command += ["-CA", f"{signer}.crt", "-CAkey", f"{signer}.key", "-addext", f"subjectAltName={subject}"]
        command += ["-addext", "basicConstraints=critical,CA:FALSE"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"openssl cannot make certificates here: {done.stderr[-200:]}")


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A Redis that speaks TLS only to clients with a certificate of our CA: the folder of the files, and its port."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on PATH")
    folder = tmp_path_factory.mktemp("tls")
    certificate(folder, "ca", "")
    certificate(folder, "other-ca", "")
    certificate(folder, "server", "IP:127.0.0.1", "ca")
    certificate(folder, "client", "DNS:client", "ca")
    (port,) = free_ports(1)
    options = ["--tls-port", str(port), "--tls-auth-clients", "yes", "--tls-ca-cert-file", str(folder / "ca.crt")]
    options += ["--tls-cert-file", str(folder / "server.crt"), "--tls-key-file", str(folder / "server.key")]
    try:
        server = Private(lambda place: start_redis(place, *options), tmp_path_factory.mktemp("tls-redis"))
    except NoServer as exc:
        pytest.skip(f"this Redis has no TLS: {exc}")
    yield folder, port
    server.end()


def tls_store(folder: Path, url: str, ca: str = "ca", client: str | None = "client") -> StoreOptions:
    pair = {} if client is None else {"cert": str(folder / f"{client}.crt"), "key": str(folder / f"{client}.key")}
    return StoreOptions(url, tls=Tls(ca=str(folder / f"{ca}.crt"), **pair), timeout=4.0)


def test_tls_with_both_certificates(tls_server: tuple[Path, int]) -> None:
    folder, port = tls_server
    store = open_store(tls_store(folder, f"rediss://127.0.0.1:{port}/0"))
    assert store.clusters.changes(0).version > 0
    store.close()


@pytest.mark.parametrize(
    ("host", "query", "ca", "client"),
    [
        ("127.0.0.1", "", "other-ca", "client"),
        ("localhost", "", "ca", "client"),
        ("127.0.0.1", "", "ca", None),
        ("localhost", "?ssl_check_hostname=false", "ca", "client"),
        ("127.0.0.1", "?ssl_cert_reqs=none", "other-ca", "client"),
    ],
)
def test_tls_that_does_not_fit(
    tls_server: tuple[Path, int], host: str, query: str, ca: str, client: str | None
) -> None:
    folder, port = tls_server
    store = open_store(tls_store(folder, f"rediss://{host}:{port}/0{query}", ca, client))
    with pytest.raises(StoreUnavailable):
        store.clusters.changes(0)
    store.close()


def test_tls_files_for_an_open_connection_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="rediss://"):
        open_store(StoreOptions("redis://127.0.0.1:1/0", tls=Tls(ca=str(tmp_path / "ca.crt"))))
    open_store(StoreOptions("redis://127.0.0.1:1/0", tls=Tls())).close()


# -- other addresses, and the words of servers -------------------------------------------------------------------


def test_a_unix_socket(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("s") / "r"
    server = Private(lambda folder: start_redis(folder, "--unixsocket", str(path)), tmp_path)
    try:
        store = open_store(StoreOptions(f"unix://{path}?db=0"))
        assert store.clusters.changes(0).version > 0
        store.close()
    finally:
        server.end()


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (redis.exceptions.BusyLoadingError("Redis is loading the dataset in memory"), "loading"),
        (redis.exceptions.ReadOnlyError("You can't write against a read only replica."), "read-only replica"),
        # As Redis 6.2 tells of an error inside a script.
        (redis.exceptions.ResponseError("Error running script: @user_script: 3: -READONLY You can't"), "read-only"),
        (redis.exceptions.ResponseError("MISCONF Redis is configured to save RDB snapshots"), "save to disk"),
        (redis.exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), "out of memory"),
        (redis.exceptions.ResponseError("NOREPLICAS Not enough good replicas to write."), "too few replicas"),
        (redis.exceptions.MasterDownError("Link with MASTER is down"), "without its primary"),
        (redis.exceptions.ResponseError("BUSY Redis is busy running a script."), "busy"),
        (redis.exceptions.ResponseError("ERR something else"), "something else"),
        (ConnectionResetError("reset by peer"), "cannot be reached"),
    ],
)
def test_what_may_pass_is_unavailable(reply: Exception, words: str) -> None:
    error = explain(reply, "redis://host/0")
    assert isinstance(error, StoreUnavailable)
    assert words in error.message
