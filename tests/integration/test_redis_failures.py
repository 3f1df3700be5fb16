"""What the Redis store does when its server dies, freezes, forgets, refuses or loses a reply (S35, S49, S51)."""

from __future__ import annotations

import contextlib
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from rainbow.errors import RainbowError, StoreUnavailable
from rainbow.jobspec.request import Demand
from rainbow_workers.stores import StoreOptions, open_store
from rainbow_workers.stores.base import Store
from rainbow_workers.stores.testing import assignment, cluster, event, new_id
from servers import Private, RedisServer, free_ports, start_redis, wait_until

Redis = Private[RedisServer]


@pytest.fixture
def prefix() -> str:
    return f"{uuid.uuid4().hex}:"


@pytest.fixture
def store(private_redis: Redis, prefix: str) -> Iterator[Store]:
    store = open_store(StoreOptions(private_redis.server.url, prefix=prefix, timeout=2.0))
    store.clusters.put(cluster(), None)
    yield store
    store.close()


@pytest.fixture
def admin(private_redis: Redis) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(private_redis.server.url, decode_responses=True) as client:
        yield client


def patiently(call: Any, limit: float = 30.0) -> Any:
    """What `call` gives once the store can be reached: as every caller of a store does it."""
    end = time.monotonic() + limit
    while True:
        try:
            return call()
        except StoreUnavailable:
            assert time.monotonic() < end, "the store did not come back"
            time.sleep(0.05)


# -- restart, loss, restore --------------------------------------------------------------------------------


def test_a_restart_with_its_data(private_redis: Redis, store: Store, admin: redis.Redis) -> None:
    admin.config_set("appendfsync", "always")
    id = new_id()
    version = store.jobs.assign([assignment(id)], 0).changes.version
    private_redis.restart()
    changes = patiently(lambda: store.clusters.changes(version))
    # The last second before a crash may be lost, so a reader that was ahead of the disk has to look at all of it.
    assert changes.reset
    assert changes.version > version
    assert changes.clusters == {"red": cluster()}
    assert changes.reserved == {"red": Demand(1, 4, 2)}
    assert store.jobs.get([id])[0] is not None
    assert not store.clusters.changes(changes.version).reset


def test_every_reader_is_told_of_a_restart_once(private_redis: Redis, store: Store, prefix: str) -> None:
    others = [open_store(StoreOptions(private_redis.server.url, prefix=prefix)) for _ in range(3)]
    versions = [other.clusters.changes(0).version for other in others]
    private_redis.restart()
    patiently(lambda: store.clusters.set_group("@g", frozenset({"red"})))
    for other, version in zip(others, versions, strict=True):
        changes = patiently(lambda other=other, version=version: other.clusters.changes(version))
        assert changes.reset
        assert changes.groups == {"@g": frozenset({"red"})}
        assert not other.clusters.changes(changes.version).reset
        other.close()


def test_a_restart_from_an_older_state(private_redis: Redis, store: Store, admin: redis.Redis) -> None:
    """What was written after the last save is gone; the counter has passed the reader's version again by then."""
    admin.config_set("appendonly", "no")
    admin.save()
    saved = (private_redis.folder / "dump.rdb").read_bytes()
    store.clusters.put(cluster("lost"), None)
    version = store.clusters.changes(0).version
    assert list(store.clusters.changes(0).clusters) == ["red", "lost"]
    private_redis.kill()
    _forget(private_redis)
    (private_redis.folder / "dump.rdb").write_bytes(saved)
    # Only without an append-only file does Redis read the snapshot.
    without_aof = Private(lambda folder: start_redis(folder, "--appendonly", "no"), private_redis.folder)
    try:
        for i in range(20):
            patiently(lambda i=i: store.clusters.put(cluster(f"new{i}"), None))
        changes = store.clusters.changes(version)
        assert changes.reset
        assert "lost" not in changes.clusters
        assert len(changes.clusters) == 21
    finally:
        without_aof.kill()
        (private_redis.folder / "dump.rdb").unlink()


def _forget(private: Redis) -> None:
    """Take the data of a stopped server away."""
    shutil.rmtree(private.folder / "appendonlydir", ignore_errors=True)
    for name in ("appendonly.aof", "dump.rdb"):
        (private.folder / name).unlink(missing_ok=True)


def test_a_restart_without_data(private_redis: Redis, store: Store) -> None:
    version = store.jobs.assign([assignment(new_id())], 0).changes.version
    private_redis.kill()
    _forget(private_redis)
    private_redis.start()
    changes = patiently(lambda: store.clusters.changes(version))
    assert changes.reset
    assert changes.version > version
    assert (changes.clusters, changes.reserved, changes.groups) == ({}, {}, {})
    store.clusters.put(cluster(registration="r2"), None)
    later = store.clusters.changes(changes.version)
    assert not later.reset
    assert list(later.clusters) == ["red"]


def test_flushed_in_between(store: Store, admin: redis.Redis) -> None:
    id = new_id()
    version = store.jobs.assign([assignment(id)], 0).changes.version
    admin.flushall()
    changes = store.jobs.assign([assignment(new_id())], version).changes
    assert changes.reset
    assert changes.clusters == {}
    # The agent that runs the job tells of it, and it is known again; it is not given to another cluster.
    assert store.jobs.record([event(id, "running", cluster="red")])[0].applied
    assert store.jobs.assign([assignment(id)], 0).outcomes[0] is not None


def test_down_is_said_at_once_and_up_is_found(private_redis: Redis, store: Store) -> None:
    private_redis.kill()
    for call in (
        lambda: store.clusters.changes(0),
        lambda: store.clusters.put(cluster("blue"), None),
        lambda: store.jobs.assign([assignment("j")], 0),
        lambda: store.jobs.record([event("j", "held")]),
        lambda: store.jobs.get(["j"]),
        store.warnings,
    ):
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            call()
    private_redis.start()
    assert patiently(lambda: store.jobs.record([event("j", "held")]))[0].applied


# -- slow, frozen, lost replies ------------------------------------------------------------------------------


def test_a_frozen_server(private_redis: Redis, store: Store) -> None:
    id, other = new_id(), new_id()
    store.jobs.record([event(other, "held")])
    private_redis.freeze()
    begin = time.monotonic()
    with pytest.raises(StoreUnavailable, match="in time"):
        store.jobs.record([event(id, "held")])
    took = time.monotonic() - begin
    assert took < 10, "the limit was 2 s"
    private_redis.thaw()
    # Both tries have waited in the server's socket and are carried out now: they count as one.
    assert patiently(lambda: store.jobs.get([other]))[0] is not None
    records = patiently(lambda: store.jobs.get([id]))
    wait_until(lambda: store.jobs.get([id])[0] is not None, what="the late write is there")
    time.sleep(0.1)
    records = store.jobs.get([id])
    assert records[0] is not None
    assert len(records[0].history) == 1


class Relay:
    """A TCP relay to a server. `swallow` takes away so many of its coming replies, and the connection with each."""

    def __init__(self, port: int) -> None:
        self.to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.swallow = 0
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.to))
                self._sockets += [client, server]
                threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, replies: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if replies and self.swallow:
                    self.swallow -= 1
                    break
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._sockets:
            one.close()


@pytest.fixture
def relay(private_redis: Redis) -> Iterator[Relay]:
    relay = Relay(private_redis.server.port)
    yield relay
    relay.close()


@pytest.fixture
def relayed(relay: Relay, prefix: str) -> Iterator[Store]:
    """A store whose replies can be lost."""
    store = open_store(StoreOptions(f"redis://127.0.0.1:{relay.port}/0", prefix=prefix, timeout=4.0))
    store.clusters.put(cluster(), None)
    # The server knows every script now: no reply that gets lost is a NOSCRIPT, after which nothing was done.
    known = assignment(new_id())
    for _ in range(2):  # as a job nobody knows, and as one that is known
        store.jobs.assign([known], 0)
    store.jobs.record([event(known.id, "lost"), event("before", "lost")])
    store.jobs.cancel(["before"])
    store.clusters.delete("none")
    yield store
    store.close()


def test_a_lost_reply_does_nothing_twice(relay: Relay, relayed: Store) -> None:
    id, other = new_id(), new_id()

    relay.swallow = 1
    done = relayed.jobs.assign([assignment(id), assignment(other)], 0)
    assert relay.swallow == 0
    assert list(done.outcomes) == [None, None]
    assert done.repeated == frozenset()
    assert done.changes.reserved == {"red": Demand(2, 8, 4)}

    relay.swallow = 1
    told = relayed.jobs.record([event(id, "accepted"), event(id, "accepted"), event(other, "rejected")])
    assert relay.swallow == 0
    assert [r.applied for r in told] == [True, False, True]
    records = relayed.jobs.get([id, other])
    assert [len(r.history) for r in records if r is not None] == [3, 2]
    assert relayed.clusters.changes(0).reserved == {"red": Demand(1, 4, 2)}

    for call in (
        lambda: relayed.clusters.put(cluster("blue", "mine"), None),
        lambda: relayed.clusters.put(cluster("blue", "mine", drained="x"), "mine"),
        lambda: relayed.jobs.cancel([id]),
        lambda: relayed.clusters.delete("blue"),
    ):
        relay.swallow = 1
        call()
        assert relay.swallow == 0
    assert list(relayed.clusters.changes(0).clusters) == ["red"]


def test_replies_lost_for_good(relay: Relay, relayed: Store) -> None:
    id = new_id()
    relay.swallow = 2
    with pytest.raises(StoreUnavailable):
        relayed.jobs.assign([assignment(id)], 0)
    # The caller tries again later: it holds, as the one that was made.
    again = relayed.jobs.assign([assignment(id)], 0)
    assert list(again.outcomes) == [None]
    assert again.repeated == frozenset({0})
    assert again.changes.reserved == {"red": Demand(1, 4, 2)}


# -- failover ------------------------------------------------------------------------------------------------


def test_a_primary_that_became_a_replica(store: Store, admin: redis.Redis) -> None:
    """S49: refused writes are said to be so, and the same store object writes again once it may."""
    version = store.clusters.changes(0).version
    (nowhere,) = free_ports(1)
    batch = [assignment(new_id()) for _ in range(3)]
    assert list(store.jobs.assign(batch[:1], 0).outcomes) == [None]
    admin.replicaof("127.0.0.1", nowhere)
    try:
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="read-only replica"):
                store.jobs.assign(batch, version)
    finally:
        admin.replicaof("NO", "ONE")
    done = store.jobs.assign(batch, version)
    assert list(done.outcomes) == [None, None, None]
    assert done.repeated == frozenset({0})
    assert done.changes.reserved == {"red": Demand(3, 12, 6)}


def test_a_replica_takes_over_behind_the_same_address(
    private_redis: Redis, tmp_path: Path, relay: Relay, relayed: Store, admin: redis.Redis
) -> None:
    """S49: what the new primary never heard of is noticed, and nothing is decided on it."""
    admin.config_set("repl-diskless-sync-delay", "0")
    replica = Private(
        lambda folder: start_redis(folder, "--replicaof", f"127.0.0.1 {private_redis.server.port}"), tmp_path
    )
    try:
        with redis.Redis.from_url(replica.server.url) as second:
            kept = relayed.jobs.assign([assignment("kept")], 0)
            # WAIT looks at what its own connection wrote: something that comes after.
            wait_until(lambda: admin.set("after", "that") and admin.wait(1, 100) == 1, what="the replica has it")
            # Cut off, the replica does not hear of this one any more: replication is asynchronous.
            second.replicaof("NO", "ONE")
            ahead = relayed.jobs.assign([assignment("unheard")], kept.changes.version)
            assert list(ahead.outcomes) == [None]
            private_redis.kill()
            relay.to = replica.server.port
            changes = patiently(lambda: relayed.clusters.changes(ahead.changes.version))
            assert changes.reset
            assert changes.version > ahead.changes.version
            assert changes.reserved == {"red": Demand(1, 4, 2)}
            assert relayed.jobs.assign([assignment("kept")], 0).repeated == frozenset({0})
            assert relayed.jobs.assign([assignment("unheard")], 0).repeated == frozenset()
    finally:
        replica.end()


# -- out of memory, many jobs --------------------------------------------------------------------------------


def test_out_of_memory_is_not_the_end(store: Store, admin: redis.Redis) -> None:
    admin.config_set("maxmemory", "1mb")
    try:
        with pytest.raises(StoreUnavailable, match="out of memory"):
            store.jobs.record([event(new_id(), "held")])
    finally:
        admin.config_set("maxmemory", "0")
    assert store.jobs.record([event(new_id(), "held")])[0].applied


def test_ten_thousand_ended_jobs_leave_nothing(private_redis: Redis, prefix: str, admin: redis.Redis) -> None:
    store = open_store(StoreOptions(private_redis.server.url, prefix=prefix, keep=0.05))
    store.clusters.put(cluster(), None)

    def keys() -> list[str]:
        return [key for key in admin.scan_iter(match=f"{prefix}*", count=5000) if ":call:" not in key]

    before = sorted(keys())
    most = 0
    for start in range(0, 10_000, 200):
        ids = [new_id() for _ in range(200)]
        store.jobs.assign([assignment(id, user=f"user{start}") for id in ids], 0)
        store.jobs.record([event(id, "completed", cluster="red") for id in ids])
        if start % 2000 == 0:
            most = max(most, len(keys()))
    last = ids[-1]
    wait_until(lambda: store.jobs.get([last]) == [None], what="the last job is forgotten")
    # Each call forgets some; a hundred and more a call.
    for _ in range(100):
        store.jobs.get([new_id()])
    assert sorted(keys()) == before
    assert 200 < most < 5_000, "a key a job: most of the jobs before were forgotten meanwhile"
    store.close()


def test_many_threads_through_restarts(private_redis: Redis, store: Store, prefix: str) -> None:
    """One store object in four threads while the server is killed twice: every assignment is answered in the end."""
    stop = threading.Event()
    held: dict[str, int] = {}
    errors: list[RainbowError | AssertionError] = []

    def work(n: int) -> None:
        count = 0
        while not stop.is_set():
            id = f"{n}-{count}"
            count += 1
            try:
                done = patiently(lambda id=id: store.jobs.assign([assignment(id)], 0))
                assert list(done.outcomes) == [None]
            except (RainbowError, AssertionError) as exc:
                errors.append(exc)
                return
            held[id] = n

    def assigned(more_than: int) -> bool:
        return len(held) > more_than or bool(errors)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        seen = len(held)
        wait_until(partial(assigned, seen + 20), what="jobs are assigned")
        private_redis.restart()
    seen = len(held)
    wait_until(partial(assigned, seen + 20), what="jobs are assigned after the restart")
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
