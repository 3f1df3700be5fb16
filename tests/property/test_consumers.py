"""Any bytes into any consumer: each becomes one dead letter with a reason, or one clear reply; nothing stops, and the
next good message is served. On the memory broker for volume, and a sample on RabbitMQ.
"""

from __future__ import annotations

import json
import pickle
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rainbow import codec, topology
from rainbow.brokers.base import REPLIES, Message
from rainbow.security import signing
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually, resources

MIB = 1 << 20
OPTIONS = ServiceOptions(message_bytes=MIB, control_bytes=4 * MIB)

# -- what comes ---------------------------------------------------------------------------------------------

JSON = "application/json"
MSGPACK = "application/x-msgpack"
TYPES = st.sampled_from([JSON, MSGPACK, None, "", "text/plain", "application/xml", "application/json; charset=latin-1"])

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=True)
    | st.text(max_size=20)
    | st.sampled_from(["\x00", "\u2028", "😀" * 5, "1e999", "-0", "@all", "*", "../../etc/passwd", "${HOME}", "%s%n"])
)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
SUBMIT_FIELDS = [
    "version",
    "id",
    "token",
    "tokens",
    "jobspec",
    "command",
    "nodes",
    "tasks",
    "cores_per_task",
    "gpus_per_task",
    "duration",
    "cwd",
    "environment",
    "name",
    "image",
    "requires",
    "clusters",
    "match",
    "selection",
    "satisfy_only",
    "hold",
    "priority",
    "expires",
]
CONTROL_FIELDS = [
    "op",
    "version",
    "token",
    "cluster",
    "identity",
    "secret",
    "graph",
    "subsystems",
    "summary",
    "matcher",
    "name",
    "report",
    "reason",
    "group",
    "clusters",
    "ids",
    "state",
    "limit",
    "ttl",
    "jti",
    "sub",
    "code",
    "approve",
    "place",
]
EVENT_FIELDS = [
    "version",
    "id",
    "attempt",
    "cluster",
    "state",
    "at",
    "user",
    "name",
    "flux_id",
    "returncode",
    "code",
    "detail",
    "output",
    "answer",
    "events",
]
OPS = [
    "ping",
    "register",
    "delete",
    "subsystem-set",
    "subsystem-remove",
    "state",
    "clusters",
    "drain",
    "resume",
    "group-set",
    "groups",
    "status",
    "jobs",
    "watch",
    "cancel",
    "revoke",
    "enroll",
    "enrollments",
    "enrollment-decide",
]


def fields(names: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names) | st.text(max_size=8), trees, max_size=6)


def nested(opening: str, closing: str, depth: int) -> bytes:
    return (opening * depth + closing * depth).encode()


BOMBS: dict[str, bytes] = {
    "nothing": b"",
    "deep lists": nested("[", "]", 100_000),
    "deep mappings": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "just over the depth": b'{"command":' + nested("[", "]", 65) + b"}",
    "unclosed": b'{"command": ["a"',
    "duplicate key": b'{"command": ["a"], "command": ["b"]}',
    "not a number": b'{"command": ["a"], "hold": NaN}',
    "infinity": b'{"command": ["a"], "hold": -Infinity}',
    "a number without end": b'{"command": ["a"], "nodes": ' + b"9" * 100_000 + b"}",
    "a huge exponent": b'{"command": ["a"], "hold": 1e99999}',
    "latin-1": '{"command": ["ä"]}'.encode("latin-1"),
    "a lone surrogate": b'{"command": ["\\ud800"], "name": "\\udfff"}',
    "utf-16": '{"command": ["a"]}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "a list": b"[1, 2]",
    "text": b'"hello"',
    "null": b"null",
    "one byte too many": b'{"command": ["' + b"a" * (MIB - 16) + b'"]}',
    "msgpack extension": msgpack.packb({"a": msgpack.ExtType(5, b"x")}),
    "msgpack number keys": msgpack.packb({1: 2}),
    "msgpack deep": b"\x91" * 100_000 + b"\xc0",
    "msgpack claims four billion": b"\xdf\xff\xff\xff\xff",
    "msgpack twice the same": b"\x82\xa1a\x01\xa1a\x02",
    "a pickle": pickle.dumps({"command": ["a"]}),
}
assert len(BOMBS["one byte too many"]) == MIB + 1

YAML_BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)
JOBSPECS: dict[str, str] = {
    "a bomb of aliases": YAML_BOMB,
    "runs code": "!!python/object/apply:os.system ['touch /tmp/rainbow-was-here']",
    "another tag": "version: !!python/name:os.system\nresources: []\ntasks: []\n",
    "an alias of itself": "&a [*a]",
    "deep": "[" * 5000 + "]" * 5000,
    "deep by indent": "".join(" " * i + "a:\n" for i in range(400)),
    "several documents": "a: 1\n---\nb: 2\n",
    "merge keys": "x: &x {a: 1}\ny:\n  <<: *x\n",
    "a date": "version: 2020-01-01\n",
    "huge": "version: 9" + "9" * 5000,
    "a count bomb": json.dumps(
        {
            "version": 1,
            "resources": [{"type": "node", "count": 10**30, "with": [{"type": "slot", "label": "a", "count": 10**30}]}],
            "tasks": [{"command": ["a"], "slot": "a", "count": {"per_slot": 10**30}}],
            "attributes": {"system": {"duration": 1e308}},
        }
    ),
    "control characters": "\x00\x01\x02",
    "tabs": "a:\n\t- b\n",
}


# -- who consumes -------------------------------------------------------------------------------------------


class Fuzzed:
    """A rig whose consumers are all asked, after each bad message, whether they still work."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.cluster = rig.register("blue", resources(nodes=64))
        self.answers = rig.broker.consume(REPLIES, prefetch=1000)
        self.dead = rig.broker.consume(topology.DEAD_QUEUE, prefetch=1000)

    def outcome(self, exchange: str, key: str, body: bytes, *, reply: bool, **more: Any) -> tuple[str, str]:
        """How one message ended: ``("reply", status or code)`` or ``("dead", reason)``; exactly one of them."""
        correlation = str(uuid.uuid4())
        if reply:
            more["reply_to"] = self.answers.address
        self.rig.broker.publish(
            [Message(exchange, key, body, message_id=correlation, correlation_id=correlation, **more)]
        ).check(20)
        found: list[tuple[str, str]] = []

        def look() -> bool:
            self.working()
            for delivery in self.answers.take(100, 0.0):
                self.answers.ack([delivery])
                if delivery.correlation_id == correlation:
                    found.append(("reply", _word(codec.decode(delivery.body))))
            for delivery in self.dead.take(100, 0.0 if found else 0.01):
                self.dead.ack([delivery])
                if delivery.message_id == correlation:
                    assert delivery.headers["rainbow-detail"]
                    assert len(delivery.body) <= 256 << 10
                    found.append(("dead", delivery.headers["rainbow-reason"]))
            return bool(found)

        eventually(look, 10, every=0.001)
        self.working()
        assert len(found) == 1 or {kind for kind, _ in found} == {"reply", "dead"}, found
        return found[0]

    def working(self) -> None:
        assert self.rig.service.failed() is None, self.rig.service.failed()

    def next_good_one(self) -> None:
        """A job, a request and an event go through as ever."""
        rig = self.rig
        job = rig.submit(command=["true"])
        assert job["status"] == "assigned"
        rig.event("blue", job["id"], 1, "completed", returncode=0)
        assert rig.until(job["id"], "completed", 30)
        jobs = rig.jobs_of("blue", prefetch=1000)
        while got := jobs.take(1000, 0.05):
            jobs.ack(got)
        jobs.cancel()
        self.working()


def _word(answer: dict[str, Any]) -> str:
    if "ok" in answer:
        assert answer["ok"] or (answer["code"] and answer["error"])
        return "ok" if answer["ok"] else str(answer["code"])
    if answer["status"] in ("invalid", "denied"):
        assert answer["error"]
        assert "\n" not in answer["error"]
        assert len(answer["error"]) < 2000
    return str(answer["status"])


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Fuzzed]:
    name = uuid.uuid4()
    with Rig(f"memory://{name}", f"memory://{name}", options=OPTIONS) as rig:
        yield Fuzzed(rig)


@pytest.fixture
def on_servers(amqp_url: str, redis_url: str, redis_prefix: str) -> Iterator[Fuzzed]:
    with Rig(amqp_url, redis_url, prefix=redis_prefix, options=OPTIONS) as rig:
        yield Fuzzed(rig)


#: What was wrong is waited for: making it smaller would wait for each smaller one.
MANY = settings(
    max_examples=100,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def packed(value: Any, content_type: str | None) -> bytes:
    """As whoever sends nonsense would: NaN as JSON has it not, integers that msgpack has not as text."""
    if content_type == MSGPACK:
        try:
            return bytes(msgpack.packb(value, default=str, unicode_errors="surrogatepass"))
        except (OverflowError, ValueError):
            return bytes(msgpack.packb({k: str(v) for k, v in value.items()}, unicode_errors="surrogatepass"))
    return json.dumps(value).encode("utf-8", "surrogatepass")


# -- the scheduler ------------------------------------------------------------------------------------------


@MANY
@given(body=st.binary(max_size=300), content_type=TYPES, reply=st.booleans())
def test_scheduler_any_bytes(fuzzed: Fuzzed, body: bytes, content_type: str | None, reply: bool) -> None:
    """S19: any bytes at all get one answer that says why, and one dead letter."""
    _, word = fuzzed.outcome(topology.SUBMIT, "submit", body, reply=reply, content_type=content_type)
    assert word in ("invalid", "too-large", "denied", "invalid-jobspec", "unknown-plugin")


@MANY
@given(data=fields(SUBMIT_FIELDS), content_type=st.sampled_from([JSON, MSGPACK]), good=st.booleans())
def test_scheduler_wrong_fields(fuzzed: Fuzzed, data: dict[str, Any], content_type: str, good: bool) -> None:
    if good:
        data = {"command": ["true"], **data, "token": fuzzed.rig.token}
    _, word = fuzzed.outcome(topology.SUBMIT, "x", packed(data, content_type), reply=True, content_type=content_type)
    assert word in ("invalid", "denied", "assigned", "satisfied", "no-match", "held", "duplicate", "expired")


@pytest.mark.parametrize("name", BOMBS)
def test_scheduler_bombs(fuzzed: Fuzzed, name: str) -> None:
    content_type = MSGPACK if name.startswith("msgpack") else JSON
    begun = time.monotonic()
    _, word = fuzzed.outcome(topology.SUBMIT, "submit", BOMBS[name], reply=True, content_type=content_type)
    assert word in ("invalid", "denied", "too-large")
    assert time.monotonic() - begun < 10
    fuzzed.next_good_one()


@pytest.mark.parametrize("name", JOBSPECS)
def test_scheduler_jobspec_text(fuzzed: Fuzzed, name: str) -> None:
    body = json.dumps({"token": fuzzed.rig.token, "jobspec": JOBSPECS[name]}).encode()
    kind, word = fuzzed.outcome(topology.SUBMIT, "submit", body, reply=True)
    assert (kind, word) == ("reply", "invalid") or (name == "a count bomb" and word == "no-match")
    fuzzed.next_good_one()


# -- the registrar ------------------------------------------------------------------------------------------


@MANY
@given(body=st.binary(max_size=300), content_type=TYPES, reply=st.booleans())
def test_registrar_any_bytes(fuzzed: Fuzzed, body: bytes, content_type: str | None, reply: bool) -> None:
    kind, word = fuzzed.outcome(topology.CONTROL, "x", body, reply=reply, content_type=content_type)
    assert kind == ("reply" if reply else "dead")
    assert word == "invalid"


@MANY
@given(
    op=st.sampled_from(OPS),
    data=fields(CONTROL_FIELDS),
    content_type=st.sampled_from([JSON, MSGPACK]),
    role=st.sampled_from(["admin", "agent", "submit", "register", None]),
)
def test_registrar_wrong_fields(fuzzed: Fuzzed, op: str, data: dict[str, Any], content_type: str, role: Any) -> None:
    token = {"token": fuzzed.rig.issue("somebody", role)} if role else {}
    body = packed({**data, "op": op, **token}, content_type)
    kind, word = fuzzed.outcome(topology.CONTROL, "x", body, reply=True, content_type=content_type)
    assert kind == "reply"
    assert word in ("ok", "invalid", "invalid-graph", "denied", "not-found", "conflict", "too-large")


@pytest.mark.parametrize("name", BOMBS)
def test_registrar_bombs(fuzzed: Fuzzed, name: str) -> None:
    content_type = MSGPACK if name.startswith("msgpack") else JSON
    _, word = fuzzed.outcome(topology.CONTROL, "x", BOMBS[name], reply=True, content_type=content_type)
    assert word in ("invalid", "too-large", "denied")
    fuzzed.next_good_one()


@MANY
@given(graph=trees, summary=st.none() | st.binary(max_size=200))
def test_registrar_any_graph(fuzzed: Fuzzed, graph: Any, summary: bytes | None) -> None:
    request: dict[str, Any] = {
        "op": "register",
        "cluster": "odd",
        "identity": "the-place-of-odd",
        "token": fuzzed.rig.issue("root", "admin"),
    }
    request |= (
        {"summary": summary}
        if summary is not None
        else {"graph": graph if isinstance(graph, dict) else {"graph": graph}}
    )
    _, word = fuzzed.outcome(topology.CONTROL, "x", packed(request, MSGPACK), reply=True, content_type=MSGPACK)
    assert word in ("ok", "invalid", "invalid-graph")


# -- recorder and returns -----------------------------------------------------------------------------------


def signed(fuzzed: Fuzzed, body: bytes) -> dict[str, Any]:
    """Headers with which an agent that went mad would sign it."""
    return {
        signing.HEADER: signing.sign(fuzzed.rig.keys("blue"), body),
        "rainbow-cluster": "blue",
        "rainbow-registration": fuzzed.cluster["registration"],
    }


odd_headers = st.dictionaries(
    st.sampled_from(
        [
            signing.HEADER,
            "rainbow-cluster",
            "rainbow-registration",
            "rainbow-recorded",
            "rainbow-kind",
            "rainbow-route",
            "x-death",
            "authorization",
        ]
    ),
    st.text(max_size=10)
    | st.integers(0, 9)
    | st.binary(max_size=10)
    | st.booleans()
    | st.lists(st.integers(0, 3), max_size=2),
    max_size=4,
)


@MANY
@given(body=st.binary(max_size=200), headers=odd_headers, content_type=TYPES)
def test_recorder_unsigned(fuzzed: Fuzzed, body: bytes, headers: dict[str, Any], content_type: str | None) -> None:
    outcome = fuzzed.outcome(
        topology.EVENTS, "job.blue.running", body, reply=False, headers=headers, content_type=content_type
    )
    assert outcome == ("dead", "bad-signature")


@MANY
@given(body=st.binary(max_size=200), content_type=TYPES)
def test_recorder_signed_bytes(fuzzed: Fuzzed, body: bytes, content_type: str | None) -> None:
    outcome = fuzzed.outcome(
        topology.EVENTS, "job.blue.running", body, reply=False, headers=signed(fuzzed, body), content_type=content_type
    )
    assert outcome == ("dead", "invalid")


@MANY
@given(data=fields(EVENT_FIELDS))
def test_recorder_signed_fields(fuzzed: Fuzzed, data: dict[str, Any]) -> None:
    if data.get("events") == []:
        data["events"] = 1  # none at all is no mistake
    body = packed({**data, "state": "no-such-state"}, JSON)
    outcome = fuzzed.outcome(topology.EVENTS, "job.blue.running", body, reply=False, headers=signed(fuzzed, body))
    assert outcome[0] == "dead"
    assert outcome[1] in ("invalid", "bad-signature")


@MANY
@given(
    attempt=st.integers(-(2**70), 2**70),
    at=st.floats(allow_nan=True) | st.integers(-(2**70), 2**70),
    text=st.text(max_size=20),
    returncode=st.integers(-(2**70), 2**70),
)
def test_recorder_odd_but_true_events(fuzzed: Fuzzed, attempt: int, at: float, text: str, returncode: int) -> None:
    """Numbers and texts at the edge, of a job nobody knows: recorded or refused, and the store stays whole."""
    event = {
        "id": str(uuid.uuid4()),
        "attempt": attempt,
        "cluster": "blue",
        "state": "completed",
        "at": at,
        "detail": text,
        "returncode": returncode,
    }
    body = packed({"events": [event]}, JSON)
    message = Message(topology.EVENTS, "job.blue.completed", body, headers=signed(fuzzed, body))
    fuzzed.rig.broker.publish([message]).check(20)
    fuzzed.working()


@pytest.mark.parametrize("name", BOMBS)
def test_recorder_bombs(fuzzed: Fuzzed, name: str) -> None:
    content_type = MSGPACK if name.startswith("msgpack") else JSON
    headers = signed(fuzzed, BOMBS[name])
    kind, _ = fuzzed.outcome(
        topology.EVENTS, "job.blue.running", BOMBS[name], reply=False, headers=headers, content_type=content_type
    )
    assert kind == "dead"
    fuzzed.next_good_one()


@MANY
@given(body=st.binary(max_size=200), headers=odd_headers, content_type=TYPES)
def test_returns_any_bytes(fuzzed: Fuzzed, body: bytes, headers: dict[str, Any], content_type: str | None) -> None:
    outcome = fuzzed.outcome(topology.REJECTED, "blue", body, reply=False, headers=headers, content_type=content_type)
    assert outcome[0] == "dead"
    assert outcome[1] in ("invalid", "bad-signature")


@MANY
@given(body=st.binary(max_size=200), headers=odd_headers)
def test_scheduler_forged_holds(fuzzed: Fuzzed, body: bytes, headers: dict[str, Any]) -> None:
    """What claims to come out of our own hold queues."""
    forged = {**headers, "rainbow-kind": "held-dispatch"}
    outcome = fuzzed.outcome(topology.SUBMIT, "x", body, reply=False, headers=forged)
    assert outcome[0] == "dead"
    assert outcome[1] in ("invalid", "bad-signature")


@pytest.mark.parametrize("name", BOMBS)
def test_returns_bombs(fuzzed: Fuzzed, name: str) -> None:
    content_type = MSGPACK if name.startswith("msgpack") else JSON
    kind, _ = fuzzed.outcome(topology.REJECTED, "blue", BOMBS[name], reply=False, content_type=content_type)
    assert kind == "dead"
    fuzzed.next_good_one()


# -- on RabbitMQ and Redis ----------------------------------------------------------------------------------


def test_a_sample_on_real_servers(on_servers: Fuzzed) -> None:
    """All bombs into all consumers at once; then everything still works."""
    exchanges: dict[str, Callable[[bytes], dict[str, Any]]] = {
        topology.SUBMIT: lambda _: {},
        topology.CONTROL: lambda _: {},
        topology.EVENTS: lambda body: signed(on_servers, body),
        topology.REJECTED: lambda _: {},
    }
    messages = [
        Message(
            exchange,
            "x",
            body,
            headers=headers(body),
            message_id=f"{exchange} {name}",
            content_type=MSGPACK if name.startswith("msgpack") else JSON,
        )
        for exchange, headers in exchanges.items()
        for name, body in BOMBS.items()
    ]
    rig = on_servers.rig
    rig.broker.publish(messages).check(60)
    expected = {m.message_id for m in messages}
    found: set[str | None] = set()

    def look() -> bool:
        for delivery in on_servers.dead.take(100, 0.1):
            on_servers.dead.ack([delivery])
            assert delivery.headers["rainbow-reason"]
            found.add(delivery.message_id)
        return not expected - found

    # Good mappings without a token are answered `denied`, or recorded so, and are no dead letters.
    expected -= {f"{topology.SUBMIT} {n}" for n in ("a lone surrogate",)}
    eventually(look, 60)
    on_servers.next_good_one()
