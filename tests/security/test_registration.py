"""Registering: the same place may repeat it, a stranger may not; a crash after any step leaves nothing that the next
try does not mend; deleting leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from rainbow import topology
from rainbow.client.rpc import Rpc
from rainbow.errors import Conflict, Denied, NotFound, RainbowError
from rainbow.security.tokens import KeyRing
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually, resources
from servers import Private, RabbitServer, RedisServer, wait_until


def ask(rig: Rig, cluster: str = "blue", identity: str = "the-place-of-blue", **more: Any) -> dict[str, Any]:
    return rig.rpc.call({"op": "register", "cluster": cluster, "identity": identity, "graph": resources(), **more})


def test_again_from_the_same_place(rig: Rig) -> None:
    first = ask(rig)
    second = ask(rig, graph=resources(nodes=8))
    assert (first["created"], second["created"]) == (True, False)
    assert first["keys"] == second["keys"]
    assert first["registration"] == second["registration"]
    assert rig.rpc.call({"op": "clusters"})["clusters"][0]["totals"]["node"] == 8


def test_a_stranger_with_the_same_name(rig: Rig) -> None:
    ask(rig)
    with pytest.raises(Conflict, match="somebody else"):
        ask(rig, identity="another-place")
    for role in ("agent", "register"):
        with pytest.raises(Conflict):
            ask(rig, identity="another-place", token=rig.issue("mallory", role, ("blue",)))


@pytest.mark.parametrize("name", ["BLUE-1", "b1ue-1", "bIue-1", "blue_l", "blue-I"])
def test_a_name_that_looks_like_another(rig: Rig, name: str) -> None:
    ask(rig, "blue-1")
    with pytest.raises(Conflict, match="looks like 'blue-1'"):
        ask(rig, name)
    assert [c["name"] for c in rig.rpc.call({"op": "clusters"})["clusters"]] == ["blue-1"]
    assert ask(rig, "blue-2")["created"]


def test_who_may_register(rig: Rig) -> None:
    for token, why in (
        (rig.issue("alice", "submit"), "role submit"),
        (rig.issue("site", "register", ("red",)), "does not cover"),
        (rig.issue("agent-red", "agent", ("red",)), "does not cover"),
    ):
        with pytest.raises(Denied, match=why):
            ask(rig, token=token)
    assert ask(rig, token=rig.issue("site", "register", ("blue",)))["created"]


def test_a_token_to_register_any_cluster_is_none_to_spoil_others(rig: Rig) -> None:
    """It may make new ones, and change those it made; others' it must name one by one."""
    mine, other = rig.issue("site-a", "register"), rig.issue("site-b", "register")
    ask(rig, token=mine)
    for request in (
        {"op": "delete", "cluster": "blue"},
        {"op": "drain", "cluster": "blue"},
        {"op": "subsystem-set", "cluster": "blue", "name": "io", "graph": {}},
        {"op": "state", "report": {"cluster": "blue", "values": {"nodes_free": 0}, "heartbeat": False}},
    ):
        with pytest.raises(Denied, match="somebody else"):
            rig.rpc.call({**request, "token": other})
    rig.rpc.call({"op": "drain", "cluster": "blue", "token": mine})
    rig.rpc.call({"op": "resume", "cluster": "blue", "token": rig.issue("site-b", "register", ("blue",))})
    rig.rpc.call({"op": "delete", "cluster": "blue", "token": mine})


def test_the_shared_secret_is_off_unless_allowed(rig: Rig) -> None:
    anonymous = Rpc(rig.broker, timeout=10.0)
    request = {"op": "register", "cluster": "blue", "identity": "the-place-of-blue", "graph": resources()}
    with pytest.raises(Denied, match="no registration secret"):
        anonymous.call({**request, "secret": "peanutbutta"})
    with Rig(rig.broker_url + "2", rig.broker_url + "2", options=ServiceOptions(secret="peanutbutta")) as open_rig:
        allowed = Rpc(open_rig.broker, timeout=10.0)
        with pytest.raises(Denied, match="wrong"):
            allowed.call({**request, "secret": "jelly"})
        assert allowed.call({**request, "secret": "peanutbutta"})["created"]
        with pytest.raises(Denied, match="no token"):
            allowed.call({"op": "delete", "cluster": "blue"})


def test_a_cluster_comes_back_with_its_keys_after_the_store_was_lost(rig: Rig) -> None:
    before = ask(rig)
    rig.store.clusters.delete("blue")
    assert ask(rig, token=before["secret"])["keys"] == before["keys"]


def test_deleting_leaves_nothing(amqp_url: str, redis_url: str, redis_prefix: str) -> None:
    with Rig(amqp_url, redis_url, prefix=redis_prefix) as rig:
        with redis.Redis.from_url(redis_url) as client:
            ask(rig, "red", "the-place-of-red")
            rig.registrations["blue"] = ask(rig)
            rig.rpc.call({"op": "group-set", "group": "@all", "clusters": ["blue", "red"]})
            rig.report("blue", nodes_free=3)
            job = rig.submit(command=["true"], clusters=["blue"], hold=60)
            rig.rpc.call({"op": "delete", "cluster": "blue"})
            for queue in topology.cluster_queues("blue"):
                with pytest.raises(NotFound):
                    rig.broker.stats(queue)
            assert rig.rpc.call({"op": "groups"}) == {"groups": {"@all": ["red"]}}
            assert [c["name"] for c in rig.rpc.call({"op": "clusters"})["clusters"]] == ["red"]
            assert not rig.store.clusters.changes(0).reserved.get("blue")
            left = [
                (key, field)
                for key in client.scan_iter(match=f"{redis_prefix}*")
                # Jobs are history; which clusters were deleted is remembered for readers that were away.
                if not key.removeprefix(redis_prefix.encode()).startswith((b"job", b"deleted"))
                for field in _names(client, key)
                if b"blue" in field and not field.startswith((b"c:", b"s:", b"r:"))  # tombstones for other readers
            ]
            assert left == []
            with pytest.raises(NotFound):
                rig.rpc.call({"op": "delete", "cluster": "blue"})
            # The job that waited in its queue was given back, and not lost.
            rig.register("blue")
            consumer = rig.jobs_of("blue")
            (delivery,) = eventually(lambda: consumer.take(1, 1.0), 60)
            assert (rig.open(delivery)["id"], rig.open(delivery)["attempt"]) == (job["id"], 2)


def _names(client: Any, key: bytes) -> list[bytes]:
    kind = client.type(key)
    if kind == b"hash":
        return list(client.hkeys(key))
    if kind == b"zset":
        return list(client.zrange(key, 0, -1))
    return [key]


# -- crashes ------------------------------------------------------------------------------------------------

#: A registrar of its own, which ends itself like a power cut at one step: before or after one call of broker or store.
PROGRAM = textwrap.dedent(
    """
    import os, signal, sys, time
    from pathlib import Path
    from rainbow.brokers import ConnectOptions, connect
    from rainbow.security.tokens import KeyRing
    from rainbow_workers.service import Service, ServiceOptions
    from rainbow_workers.stores import StoreOptions, open_store

    amqp, redis_url, prefix, keys, step = sys.argv[1:]

    def dying(owner, name, when):
        method = getattr(owner, name)
        def call(*args, **kwargs):
            if when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = method(*args, **kwargs)
            os.kill(os.getpid(), signal.SIGKILL)
        setattr(owner, name, call)

    broker = connect(ConnectOptions(amqp, name="mortal"))
    store = open_store(StoreOptions(redis_url, prefix=prefix))
    service = Service(broker, store, KeyRing.load(Path(keys)), ServiceOptions(workers=("registrar",)))
    service.start()
    if step != "none":
        owner, name, when = step.split(".")
        dying(broker if owner == "broker" else store.clusters, name, when)
    sys.stdout.write("ready\\n"); sys.stdout.flush()
    while True:
        time.sleep(1)
    """
)

REGISTER_STEPS = [
    "broker.declare.before",
    "broker.declare.after",
    "clusters.put.before",
    "clusters.put.after",
    "broker.publish.before",
    "broker.publish.after",
]
DELETE_STEPS = [
    "clusters.delete.before",
    "clusters.delete.after",
    "broker.consume.before",
    "broker.consume.after",
    "broker.delete.before",
    "broker.delete.after",
    "broker.publish.after",
]


class Mortal:
    """Registrars that die at a step, one after the other, on one broker and store."""

    def __init__(self, amqp: str, redis_url: str, prefix: str, folder: Path) -> None:
        self.rig = Rig(amqp, redis_url, prefix=prefix, options=ServiceOptions(workers=("returns",)), start=False)
        self.keys = folder / "keys.json"
        self.rig.ring.save(self.keys)
        self.args = (amqp, redis_url, prefix, str(self.keys))

    def start(self, step: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *self.args, step], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def dies(self, step: str, request: dict[str, Any]) -> None:
        """`request` is asked of a registrar that dies at `step`."""
        process = self.start(step)
        slot_error: RainbowError | None = None
        try:
            self.rig.rpc.call(request, 2.0)
        except RainbowError as exc:
            slot_error = exc
        try:
            assert process.wait(30) == -signal.SIGKILL, slot_error
        finally:
            _end(process)

    def lives(self) -> subprocess.Popen[str]:
        return self.start("none")


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    process.wait(30)
    if process.stdout is not None:
        process.stdout.close()


@pytest.fixture
def mortal(amqp_url: str, redis_url: str, redis_prefix: str, tmp_path: Path) -> Iterator[Mortal]:
    mortal = Mortal(amqp_url, redis_url, redis_prefix, tmp_path)
    yield mortal
    mortal.rig.close()


def register_request() -> dict[str, Any]:
    return {"op": "register", "cluster": "blue", "identity": "the-place-of-blue", "graph": resources()}


@pytest.mark.parametrize("known", [True, False])
def test_a_cluster_that_changes_while_it_registers_is_registered(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """The store forgets it, or another registrar writes it, after it was looked up: that is no conflict with its agent,
    which would end of one."""
    made = ask(rig)
    record = rig.store.clusters.changes(0).clusters["blue"]
    assert record is not None
    if not known:
        rig.store.clusters.delete("blue")
    real, first = topology.cluster, iter([True])

    def meanwhile(cluster: str, limits: topology.Limits) -> topology.Topology:
        if next(first, False):
            if known:
                rig.store.clusters.delete("blue")
            else:
                rig.store.clusters.put(record, None)
        return real(cluster, limits)

    monkeypatch.setattr(topology, "cluster", meanwhile)
    again = ask(rig)
    assert next(first, None) is None
    assert [c["name"] for c in rig.rpc.call({"op": "clusters"})["clusters"]] == ["blue"]
    assert again["keys"] == made["keys"]


@pytest.mark.parametrize("step", REGISTER_STEPS)
def test_registering_survives_the_death_of_the_registrar(mortal: Mortal, step: str) -> None:
    """S59: asked again after dying at any step, it makes one whole cluster with the same keys."""
    rig = mortal.rig
    mortal.dies(step, register_request())
    process = mortal.lives()
    try:
        made = rig.rpc.call(register_request(), 20)
        assert rig.rpc.call(register_request(), 20)["keys"] == made["keys"]
        with pytest.raises(Conflict):
            rig.rpc.call({**register_request(), "identity": "somebody-else"}, 20)
        assert len(rig.rpc.call({"op": "clusters"}, 20)["clusters"]) == 1
        for queue in topology.cluster_queues("blue"):
            rig.broker.stats(queue)
    finally:
        _end(process)


@pytest.mark.parametrize("step", DELETE_STEPS)
def test_deleting_survives_the_death_of_the_registrar(mortal: Mortal, step: str) -> None:
    """S59: asked again after dying at any step, nothing of the cluster is left."""
    rig = mortal.rig
    process = mortal.lives()
    try:
        rig.rpc.call(register_request(), 20)
    finally:
        _end(process)
    mortal.dies(step, {"op": "delete", "cluster": "blue"})
    process = mortal.lives()
    try:
        with contextlib.suppress(NotFound):  # the request that died was delivered again and done
            rig.rpc.call({"op": "delete", "cluster": "blue"}, 20)
        assert rig.rpc.call({"op": "clusters"}, 20)["clusters"] == []
        for queue in topology.cluster_queues("blue"):
            with pytest.raises(NotFound):
                rig.broker.stats(queue)
        assert rig.rpc.call(register_request(), 20)["created"]
    finally:
        _end(process)


def test_registering_waits_for_the_store(amqp_url: str, private_redis: Private[RedisServer]) -> None:
    with Rig(amqp_url, private_redis.server.url, prefix=f"{uuid.uuid4().hex}:") as rig:
        private_redis.kill()
        with pytest.raises(RainbowError):
            rig.rpc.call(register_request(), 2.0)
        private_redis.start()
        assert rig.rpc.call(register_request(), 30)["cluster"] == "blue"
        assert len(rig.rpc.call({"op": "clusters"}, 20)["clusters"]) == 1


@pytest.mark.slow
def test_registering_waits_for_the_broker(
    private_amqp_url: str, private_rabbitmq: Private[RabbitServer], redis_url: str, redis_prefix: str
) -> None:
    with Rig(private_amqp_url, redis_url, prefix=redis_prefix) as rig:
        private_rabbitmq.kill()
        with pytest.raises(RainbowError):
            rig.rpc.call(register_request(), 2.0)
        private_rabbitmq.start()
        wait_until(lambda: rig.broker.status.connected, what="connected again")
        assert rig.rpc.call(register_request(), 60)["cluster"] == "blue"


# -- enrollment ----------------------------------------------------------------------------------------------


def enroll(rig: Rig, identity: str = "an-identity-of-an-agent", cluster: str = "blue") -> dict[str, Any]:
    return Rpc(rig.broker, timeout=10.0).call({"op": "enroll", "cluster": cluster, "identity": identity, "place": "n1"})


@pytest.fixture(params=["memory", "servers"])
def any_rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    if request.param == "memory":
        yield request.getfixturevalue("rig")
        return
    urls = request.getfixturevalue("amqp_url"), request.getfixturevalue("redis_url")
    with Rig(*urls, prefix=request.getfixturevalue("redis_prefix")) as rig:
        yield rig


def test_an_agent_asks_an_admin_approves_it_gets_its_token(any_rig: Rig) -> None:
    rig = any_rig
    asked = enroll(rig)
    assert asked["status"] == "pending"
    assert "token" not in asked
    assert enroll(rig)["code"] == asked["code"]
    (listed,) = rig.rpc.call({"op": "enrollments"})["enrollments"]
    assert (listed["code"], listed["cluster"], listed["place"]) == (asked["code"], "blue", "n1")
    assert "mark" not in listed
    typed = asked["code"].lower().replace("-", " ")
    assert rig.rpc.call({"op": "enrollment-decide", "code": typed, "approve": True})["by"] == "root"
    token = enroll(rig)["token"]
    made = ask(rig, identity="an-identity-of-an-agent", token=token)
    assert made["created"]
    with pytest.raises(Denied):
        ask(rig, "red", token=token)


def test_denied(rig: Rig) -> None:
    asked = enroll(rig)
    rig.rpc.call({"op": "enrollment-decide", "code": asked["code"], "approve": False})
    with pytest.raises(Denied, match="denied"):
        enroll(rig)


def test_who_knows_the_code_alone_gets_nothing(rig: Rig) -> None:
    asked = enroll(rig)
    rig.rpc.call({"op": "enrollment-decide", "code": asked["code"], "approve": True})
    assert "token" not in enroll(rig, identity="the-identity-of-a-stranger")


def test_only_an_admin_decides(rig: Rig) -> None:
    asked = enroll(rig)
    for role in ("submit", "agent", "register"):
        token = rig.issue("x", role)
        with pytest.raises(Denied):
            rig.rpc.call({"op": "enrollments", "token": token})
        with pytest.raises(Denied):
            rig.rpc.call({"op": "enrollment-decide", "code": asked["code"], "approve": True, "token": token})
    with pytest.raises(NotFound):
        rig.rpc.call({"op": "enrollment-decide", "code": "AAAA-AAAA-AAAA", "approve": True})


def test_not_for_a_cluster_that_is_somebody_elses(rig: Rig) -> None:
    ask(rig)
    with pytest.raises(Conflict):
        enroll(rig)


def test_askers_are_bounded(rig: Rig) -> None:
    for number in range(20):
        enroll(rig, identity=f"identity-of-somebody-{number}")
    assert enroll(rig, identity="identity-of-one-more")["status"] == "pending"
    assert enroll(rig, cluster="red")["status"] == "pending"
    listed = rig.rpc.call({"op": "enrollments"})["enrollments"]
    assert len([e for e in listed if e["cluster"] != "red"]) == 20, "the one that asked the longest ago is gone"


def test_an_approval_is_void_once_the_agent_is_revoked(rig: Rig) -> None:
    asked = enroll(rig)
    rig.rpc.call({"op": "enrollment-decide", "code": asked["code"], "approve": True})
    assert enroll(rig)["token"]
    rig.rpc.call({"op": "revoke", "sub": "agent-blue"})
    with pytest.raises(Denied, match="revoked"):
        enroll(rig)


def test_keys_of_a_ring_do_not_depend_on_the_process(rig: Rig) -> None:
    """A second registrar with the same ring gives out the same keys."""
    made = ask(rig)
    name = uuid.uuid4()
    ring = KeyRing(rig.ring.keys)
    with Rig(f"memory://{name}", f"memory://{name}", ring=ring) as other:
        assert ask(other)["keys"] == made["keys"]
