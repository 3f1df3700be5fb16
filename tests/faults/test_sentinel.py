"""The store behind Redis Sentinel: failovers, demoted primaries, Sentinels that are away, servers that do not fit."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import redis

from clusters import SERVICE, SentinelSet, start_from_file
from rainbow.brokers import Tls
from rainbow.errors import InvalidSettings, StoreUnavailable
from rainbow_workers.stores import StoreOptions, open_store
from rainbow_workers.stores.base import Store
from security.certificates import Authority
from servers import Private, RedisServer, free_ports, start_redis, wait_until


@pytest.fixture
def store(sentinel_set: SentinelSet) -> Iterator[Store]:
    made = open_store(StoreOptions(sentinel_set.url, prefix=f"{uuid.uuid4().hex}:", timeout=2.0))
    yield made
    made.close()


def write(store: Store, *members: str) -> None:
    store.clusters.set_group("@g", frozenset(members))


def members(store: Store) -> frozenset[str]:
    groups = store.clusters.changes(0).groups
    assert groups is not None
    return groups.get("@g", frozenset())


def takes_writes(store: Store, *members: str) -> bool:
    try:
        write(store, *members)
    except StoreUnavailable:
        return False
    return True


def test_a_failover_is_followed(sentinel_set: SentinelSet, store: Store) -> None:
    write(store, "before")
    wait_until(lambda: _on_replicas(sentinel_set), what="the replicas are in step")
    sentinel_set.fail_over()
    wait_until(lambda: takes_writes(store, *members(store), "after"), 60)
    assert members(store) == {"before", "after"}


def _on_replicas(sentinel_set: SentinelSet) -> bool:
    with redis.Redis.from_url(sentinel_set.primary.server.url) as client:
        return bool(client.execute_command("WAIT", 2, 100) == 2)


def test_what_no_replica_had_is_lost_and_nothing_is_stuck(sentinel_set: SentinelSet, store: Store) -> None:
    write(store, "before")
    wait_until(lambda: _on_replicas(sentinel_set), what="the replicas are in step")
    sentinel_set.fail_over(lambda: write(store, "before", "lost"))
    wait_until(lambda: takes_writes(store, *members(store), "after"), 60)
    assert members(store) == {"before", "after"}


def test_a_demoted_primary_is_left_at_once(sentinel_set: SentinelSet, store: Store) -> None:
    """It goes on answering on the connections it has, as a replica: the first call after that finds the new one."""
    write(store, "before")
    begun = store.jobs.assigning([], 0, {})  # a call sent to the primary of then, whose reply is read later
    sentinel_set.switch()
    begun.drop()
    write(store, "before", "after")
    assert members(store) == {"before", "after"}


def test_a_frozen_primary_is_left(sentinel_set: SentinelSet, store: Store) -> None:
    write(store, "before")
    sentinel_set.primary.freeze()
    wait_until(lambda: takes_writes(store, "after"), 30)
    assert members(store) == {"after"}


def test_a_sentinel_that_is_away_is_passed(sentinel_set: SentinelSet) -> None:
    sentinel_set.sentinels[0].kill()
    sentinel_set.sentinels[1].freeze()
    store = open_store(StoreOptions(sentinel_set.url, prefix=f"{uuid.uuid4().hex}:"))
    try:
        write(store, "a")
        assert members(store) == {"a"}
    finally:
        store.close()


def test_what_cannot_be_is_one_plain_error(sentinel_set: SentinelSet) -> None:
    url = sentinel_set.url
    for wrong in (url.replace(f"/{SERVICE}/0", ""), url.replace("/0", "/zero"), url.replace(",", ",,", 1)):
        with pytest.raises(InvalidSettings) as refused:
            open_store(StoreOptions(wrong))
        assert "redis+sentinel://" in refused.value.message
    unknown = open_store(StoreOptions(url.replace(SERVICE, "other"), timeout=2.0))
    with pytest.raises(StoreUnavailable, match=r"^no Sentinel of redis\+sentinel://.*/other/0 answers with a primary"):
        write(unknown, "a")
    unknown.close()
    at_sentinel = open_store(StoreOptions(f"redis://127.0.0.1:{sentinel_set.sentinels[0].server.port}/0"))
    with pytest.raises(InvalidSettings, match=r"is a Sentinel: use redis\+sentinel://"):
        write(at_sentinel, "a")
    at_sentinel.close()


def test_doctor_looks_at_it(sentinel_set: SentinelSet, tmp_path: Path) -> None:
    def store_check(url: str) -> dict[str, object]:
        file = tmp_path / "c.json"
        file.write_text(json.dumps({"broker": {"url": "amqp://127.0.0.1:1/v"}, "store": {"url": url}}))
        command = [sys.executable, "-m", "rainbow.cli", "doctor", "--json", "--config", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        found: dict[str, object]
        (found,) = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "store"]
        return found

    good = store_check(sentinel_set.url)
    assert good["ok"] is True, good
    nowhere = store_check("redis+sentinel://127.0.0.1:1,127.0.0.1:2/rainbow/0")
    assert nowhere["ok"] is False
    assert "nothing listens at 127.0.0.1:1; nothing listens at 127.0.0.1:2" in str(nowhere["detail"])


def test_redis_cluster_is_refused(tmp_path: Path) -> None:
    server = Private(lambda folder: start_redis(folder, "--cluster-enabled", "yes"), tmp_path)
    store = open_store(StoreOptions(server.server.url))
    try:
        with pytest.raises(InvalidSettings, match="is a Redis Cluster, which is not supported: use one primary"):
            write(store, "a")
    finally:
        store.close()
        server.end()


def _start(name: str, folder: Path) -> RedisServer:
    return start_from_file(f"{name}.conf", folder, *(["--sentinel"] if name == "sentinel" else []))


def test_logins_and_tls(tmp_path: Path) -> None:
    """Servers and Sentinels with passwords of their own, reached through TLS, their names checked."""
    authority = Authority(tmp_path / "tls")
    certificate, key = authority.issue("server")
    port, sentinel_port, plain_port, plain_sentinel = free_ports(4)
    tls = (
        f"tls-ca-cert-file {authority.ca}\ntls-cert-file {certificate}\ntls-key-file {key}\n"
        "tls-auth-clients no\ntls-replication yes\n"
    )
    running: list[Private[RedisServer]] = []
    texts = {
        "redis": f"tls-port {port}\nrequirepass first-secret\n",
        "sentinel": f"tls-port {sentinel_port}\nrequirepass second-secret\nsentinel resolve-hostnames yes\n"
        f"sentinel announce-hostnames yes\nsentinel monitor {SERVICE} localhost {port} 1\n"
        f"sentinel auth-pass {SERVICE} first-secret\n",
    }
    try:
        for (name, text), plain in zip(texts.items(), (plain_port, plain_sentinel), strict=True):
            home = tmp_path / name
            home.mkdir()
            (home / "port").write_text(str(plain))
            (home / f"{name}.conf").write_text(f"bind 127.0.0.1\nport {plain}\ndir {home}\n{tls}{text}")
            running.append(Private(partial(_start, name), home))
        url = f"rediss+sentinel://:first-secret@localhost:{sentinel_port}/{SERVICE}/0?sentinel_password=second-secret"
        store = open_store(StoreOptions(url, tls=Tls(ca=str(authority.ca))))
        wait_until(lambda: takes_writes(store, "a"), 60)
        assert members(store) == {"a"}
        store.close()
        for wrong, words in (
            (url.replace("first-secret", "wrong"), "refused"),
            (url.replace("second-secret", "wrong"), "no Sentinel"),
        ):
            refused = open_store(StoreOptions(wrong, tls=Tls(ca=str(authority.ca))))
            with pytest.raises(Exception, match=words) as caught:
                write(refused, "a")
            assert "secret" not in str(caught.value)
            refused.close()
    finally:
        for server in reversed(running):
            server.end()
