"""The table of access, walked cell by cell: operation, role, whose object; also of what does not exist yet."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, get_args

import pytest
import redis

from rainbow import codec, topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Message
from rainbow.errors import Denied, NotFound, RainbowError
from rainbow.models import control
from rainbow.security import access, scopes, signing, tokens
from rainbow.security.access import GRANTS, RULES, Grant, Rule
from rainbow.security.tokens import Role
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.service import ServiceOptions
from rainbow_workers.stores.history import MAX_MARKS
from rainbow_workers.stores.memory import MemoryStore
from rig import Rig, eventually, resources
from security.doors import Door, consume, outcome, publish

ROLES: tuple[Role, ...] = get_args(Role)


@pytest.fixture(params=["memory", "servers"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    name = uuid.uuid4()
    urls, prefix = (f"memory://{name}", f"memory://{name}"), "rainbow:"
    if request.param == "servers":
        urls = request.getfixturevalue("amqp_url"), request.getfixturevalue("redis_url")
        prefix = request.getfixturevalue("redis_prefix")
    with Rig(*urls, prefix=prefix, options=ServiceOptions(retry_after=1.0)) as rig:
        yield rig


def test_every_operation_has_one_rule() -> None:
    models = get_args(control.AnyRequest)
    ops = [op for model in models for op in get_args(model.model_fields["op"].annotation)]
    assert sorted([*ops, "submit"]) == sorted(rule.op for rule in RULES)


def test_what_is_not_in_the_table_is_refused() -> None:
    for role in ROLES:
        with pytest.raises(Denied):
            access.allowed("no such operation", role)
    assert not any("enroll" in rule.roles for rule in RULES), "the pass for enrollment opens nothing"


class Walk:
    """Alice's job on cluster blue and bob's on red; for each role a token that has to do with alice and blue alone."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        for cluster in ("blue", "red"):
            rig.register(cluster)
        self.job = {
            cluster: str(rig.submit(token=rig.issue(user), command=["true"], clusters=[cluster])["id"])
            for user, cluster in (("alice", "blue"), ("bob", "red"))
        }
        self.records = {cluster: rig.until(job, "assigned") for cluster, job in self.job.items()}

    def token(self, role: Role) -> str:
        sub = {"submit": "alice", "agent": "agent-blue", "register": "root"}.get(role, "whoever")
        clusters = {"admin": ("*",), "enroll": ()}.get(role, ("blue",))
        return self.rig.issue(sub, role, clusters)

    def request(self, op: str, cluster: str, job: str) -> dict[str, Any]:
        more: dict[str, dict[str, Any]] = {
            "register": {"cluster": cluster, "identity": f"identity-of-{cluster}", "graph": resources()},
            "subsystem-set": {"cluster": cluster, "name": "io", "graph": _io()},
            "subsystem-remove": {"cluster": cluster, "name": "io"},
            "state": {"report": {"cluster": cluster, "values": {"x": 1}, "heartbeat": False}},
            "clusters": {"name": cluster},
            "group-set": {"group": "@g", "clusters": [cluster]},
            "queue": {"id": job},
            "share-set": {"user": "alice", "terms": {"weight": 1.5}},
            "status": {"ids": [job]},
            "watch": {"ids": [job], "ttl": 5.0},
            "cancel": {"ids": [job]},
            "logs": {"id": job},
            "jobspec": {"id": job},
            "answer": {"cluster": cluster, "reply": "none of ours", "body": {}},
            "revoke": {"sub": "nobody"},
            "dead-replay": {"keys": ["0"]},
            "dead-drop": {"keys": ["0"]},
            "enroll": {"cluster": "pink", "identity": f"identity-{uuid.uuid4()}"},
            "enrollment-decide": {"code": "AAAA-BBBB-CCCC", "approve": False},
            "drain": {"cluster": cluster},
            "resume": {"cluster": cluster},
            "delete": {"cluster": cluster},
        }
        return {"op": op, **more.get(op, {})}

    def ask(self, rule: Rule, role: Role, cluster: str, job: str) -> RainbowError | dict[str, Any]:
        if rule.op == "submit":
            answer = self.rig.submit(id=job, token=self.token(role), command=["true"], clusters=[cluster])
            refused = {"denied": Denied, "invalid": NotFound, "no-match": NotFound}.get(answer["status"])
            return refused(str(answer)) if refused else answer
        try:
            return self.rig.rpc.call({**self.request(rule.op, cluster, job), "token": self.token(role)})
        except RainbowError as exc:
            return exc


def _io() -> dict[str, Any]:
    edges = [{"source": "node0", "target": "io1"}]
    return {"graph": {"nodes": {"io1": {"metadata": {"type": "io"}}}, "edges": edges}}


def nothing(rule: Rule, found: RainbowError | dict[str, Any]) -> bool:
    """Was the caller told nothing, and allowed nothing?"""
    if isinstance(found, Denied | NotFound):
        return True
    return isinstance(found, dict) and rule.object == "job" and not any(found.get("jobs", [True]))


@pytest.mark.parametrize("role", ROLES)
def test_every_cell_of_the_registrar(rig: Rig, role: Role) -> None:
    walk = Walk(rig)
    # What ends something comes last.
    order = sorted(RULES, key=lambda rule: (rule.op in ("cancel", "delete"), rule.op == "delete"))
    for rule in order:
        whose = "any" if rule.open else rule.roles.get(role)
        for cluster, job in (("red", walk.job["red"]), ("green", str(uuid.uuid4())), ("blue", walk.job["blue"])):
            found = walk.ask(rule, role, cluster, job)
            cell = (rule.op, role, cluster, found)
            if whose is None:
                assert isinstance(found, Denied), cell
            elif whose == "own" and cluster == "red":
                if rule.op not in ("groups", "jobs", "shares"):
                    assert nothing(rule, found), cell
                assert "bob" not in str(found), cell
            elif cluster == "blue" and rule.op != "answer":  # which has an address in it, that only an agent was given
                assert not isinstance(found, Denied), cell
    if role != "admin":
        assert rig.job(walk.job["red"]) == walk.records["red"], "somebody else's job was changed"
        [red] = rig.rpc.call({"op": "clusters", "name": "red"})["clusters"]
        assert (red["drained"], red["subsystems"], red["state"].get("x")) == (None, [], None)


# -- what does not exist yet ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", [role for role in ROLES if role != "admin"])
def test_a_cancel_or_watch_before_a_job_is_there_leaves_nothing_behind(rig: Rig, role: Role) -> None:
    """Whoever knows the id in advance neither stops alice's job nor hears of it; alice herself does both."""
    walk = Walk(rig)
    job, hers = str(uuid.uuid4()), str(uuid.uuid4())
    stranger = rig.issue("mallory", role, () if role == "enroll" else ("*",))
    told: list[dict[str, Any]] = []
    for op in ("cancel", "watch"):
        with suppress(Denied):
            told += rig.rpc.call({**walk.request(op, "blue", job), "token": stranger})["jobs"]
    assert not any(told)
    alice = rig.issue("alice")
    rig.rpc.call({"op": "cancel", "ids": [hers], "token": alice})
    stream = rig.rpc.stream({"op": "watch", "ids": [job], "ttl": 60.0, "token": alice})
    next(stream)
    assert rig.submit(id=hers, token=alice, command=["true"])["status"] == "cancelled"
    assert rig.submit(id=job, token=alice, command=["true"], clusters=["blue"])["status"] == "assigned"
    rig.event("blue", job, 1, "accepted")
    assert eventually(lambda: next(stream))["result"]["jobs"][0]["user"] == "alice"
    record = rig.job(job)
    assert record is not None
    assert not record["cancel_requested"]


def test_news_of_a_job_end_when_it_is_not_the_watchers_any_more(rig: Rig) -> None:
    """An agent that watched a job of its cluster hears nothing once another cluster has it."""
    walk = Walk(rig)
    blue = rig.issue("agent-blue", "agent", ("blue",))
    stream = rig.rpc.stream({"op": "watch", "ids": [walk.job["blue"]], "ttl": 60.0, "token": blue})
    next(stream)
    rig.event("blue", walk.job["blue"], 1, "accepted")
    assert eventually(lambda: next(stream))["result"]["jobs"][0]["state"] == "accepted"
    for cluster, state in (("red", "held"), ("red", "running")):
        body = codec.encode_json(
            {
                "version": 1,
                "events": [
                    {
                        "id": walk.job["blue"],
                        "attempt": 2,
                        "cluster": cluster,
                        "state": state,
                        "at": time.time(),
                    }
                ],
            }
        )
        headers = {signing.HEADER: signing.sign(ClusterKeys(rig.ring).own, body)}
        rig.broker.publish([Message(topology.EVENTS, f"job.-.{state}", body, headers=headers)]).check(20)
    eventually(lambda: (rig.job(walk.job["blue"]) or {}).get("cluster") == "red")
    watched = [next(stream) for _ in range(3)]
    assert not any(watched)


def test_cancels_of_unknown_jobs_do_not_fill_the_store(rig: Rig) -> None:
    """The newest of each asker are kept; the oldest go, and stop nothing."""
    first = [str(uuid.uuid4()) for _ in range(1000)]
    rig.rpc.call({"op": "cancel", "ids": first, "token": rig.issue("mallory")})
    before = _size(rig)
    for _ in range(3):
        rig.rpc.call({"op": "cancel", "ids": [str(uuid.uuid4()) for _ in range(1000)], "token": rig.issue("mallory")})
    assert _size(rig) <= before + 5
    assert MAX_MARKS == 1000
    rig.register("blue")
    assert rig.submit(id=first[0], token=rig.issue("mallory"), command=["true"])["status"] == "assigned"


def _size(rig: Rig) -> int:
    """How much the store holds."""
    if isinstance(rig.store, MemoryStore):
        return len(rig.store.jobs._data.jobs)
    options = rig._store_options
    with redis.Redis.from_url(options.url) as client:
        return sum(1 for _ in client.scan_iter(match=f"{options.prefix}job:*", count=5000))


# -- at the broker -------------------------------------------------------------------------------------------------


def _act(grant: Grant, cluster: str) -> Any:
    name = grant.name.format(cluster=cluster).replace("*", "dead")
    key = (grant.key or "").format(cluster=cluster).replace("*", "completed")
    match grant.permission:
        case "write":
            return publish("" if name == "amq.default" else name, key or "nobody")
        case "read":
            return consume(name)
        case "configure":
            return lambda channel: channel.queue_declare(
                "rainbow.hold.1", durable=True, arguments=topology.core().queues[6].arguments()
            )


@pytest.mark.parametrize("grant", GRANTS, ids=lambda grant: grant.what)
def test_every_cell_at_the_broker(door: Door, grant: Grant) -> None:
    admin = connect(ConnectOptions(door.url))
    admin.declare(topology.core())
    for cluster in ("blue", "red"):
        admin.declare(topology.cluster(cluster))
    admin.close()
    for role in ROLES:
        token = door.token(role, *(() if role in ("submit", "admin", "enroll") else ("blue",)))
        mine = any(_covers(other, grant) and role in other.roles for other in GRANTS)
        assert (outcome(door, token, _act(grant, "blue")) == 0) is mine, (role, grant)
        if grant.per_cluster and role == "agent":
            assert outcome(door, token, _act(grant, "red")) == 403
    workers = tokens.issue(door.ring, sub="workers", role="admin", ttl=60, scope=scopes.for_workers(door.vhost))
    assert outcome(door, workers, _act(grant, "blue")) == 0


def _covers(one: Grant, other: Grant) -> bool:
    """Does the right `one` open what `other` is for?"""
    if one.permission != other.permission:
        return False
    if one == other or (one.name == "rainbow.*" and other.name.startswith("rainbow.")):
        return True
    return one.name == other.name and one.key == "*"
