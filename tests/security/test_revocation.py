"""Revoked means out, everywhere, within 5 s: on open connections, in queues, at the door; and nothing is let in
while it cannot be known who is revoked."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from rainbow import codec, topology
from rainbow.brokers.base import Message
from rainbow.errors import Conflict, Denied, RainbowError
from rainbow.security import tokens
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually, resources
from security.doors import Door
from security.guarded import Guarded
from servers import Private, RedisServer, wait_until

#: The bound that the documentation states, in seconds.
BOUND = 5.0


@pytest.fixture(params=["memory", "servers"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    name = uuid.uuid4()
    urls, prefix = (f"memory://{name}", f"memory://{name}"), "rainbow:"
    if request.param == "servers":
        urls = request.getfixturevalue("amqp_url"), request.getfixturevalue("redis_url")
        prefix = request.getfixturevalue("redis_prefix")
    with Rig(*urls, prefix=prefix, options=ServiceOptions(retry_after=1.0)) as rig:
        yield rig


def claims(token: str) -> dict[str, Any]:
    import jwt

    found: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return found


def test_a_submitter_is_out_within_the_bound(rig: Rig) -> None:
    rig.register("blue")
    assert rig.submit(command=["true"])["status"] == "assigned"
    rig.rpc.call({"op": "revoke", "sub": "alice"})
    begun = time.monotonic()
    eventually(lambda: rig.submit(command=["true"])["status"] == "denied", timeout=BOUND)
    assert time.monotonic() - begun < BOUND
    with pytest.raises(Denied, match="revoked"):
        rig.rpc.call({"op": "jobs", "token": rig.token})


def test_revoked_issued_anew_and_revoked_again(rig: Rig) -> None:
    """S57: the second revocation of the same user holds as the first did."""
    rig.register("blue")
    for _ in range(2):
        # `iat` has whole seconds: what is issued in the second of the revocation is revoked with it.
        rig.token = tokens.issue(rig.ring, sub="alice", role="submit", ttl=600, now=time.time() + 3)
        assert rig.submit(command=["true"])["status"] == "assigned"
        time.sleep(1.1)
        rig.rpc.call({"op": "revoke", "sub": "alice"})
        old = tokens.issue(rig.ring, sub="alice", role="submit", ttl=600, now=time.time() - 5)
        eventually(lambda t=old: rig.submit(command=["true"], token=t)["status"] == "denied", timeout=BOUND)  # type: ignore[misc]


def test_by_token_and_not_its_sibling(rig: Rig) -> None:
    rig.register("blue")
    other = rig.issue("alice")
    rig.rpc.call({"op": "revoke", "jti": claims(rig.token)["jti"]})
    eventually(lambda: rig.submit(command=["true"])["status"] == "denied", timeout=BOUND)
    assert rig.submit(command=["true"], token=other)["status"] == "assigned"


def test_what_is_queued_and_not_dispatched_is_refused(rig: Rig) -> None:
    """Held for a cluster that is not there yet, revoked meanwhile: it never gets there."""
    held = rig.submit(command=["true"], hold=60)
    assert held["status"] == "held"
    rig.rpc.call({"op": "revoke", "sub": "alice"})
    rig.register("blue")
    assert rig.until(held["id"], "denied", 30)["code"] == "denied"
    consumer = rig.jobs_of("blue")
    assert consumer.take(1, 1.0) == []


def test_a_dispatch_that_came_back_is_not_sent_on(rig: Rig) -> None:
    rig.register("blue")
    job = rig.submit(command=["true"])
    consumer = rig.jobs_of("blue")
    (delivery,) = eventually(lambda: consumer.take(1, 1.0))
    rig.rpc.call({"op": "revoke", "sub": "alice"})
    rig.register("red")
    time.sleep(1.2)  # the follower looks every second
    rig.event("blue", job["id"], 1, "rejected", code="policy")
    consumer.reject([delivery])
    assert rig.until(job["id"], "denied", 30)
    assert rig.jobs_of("red").take(1, 1.0) == []


def test_of_several_tokens_only_the_revoked_one_goes(rig: Rig) -> None:
    """As the first rainbow's settings have it: a token for each cluster, in one submission."""
    rig.register("blue")
    rig.register("red")
    pair = [rig.issue("of-blue", clusters=("blue",)), rig.issue("of-red", clusters=("red",))]
    rig.rpc.call({"op": "revoke", "sub": "of-red"})
    eventually(lambda: rig.submit(command=["true"], token=pair[1])["status"] == "denied", timeout=BOUND)
    for _ in range(4):
        job = rig.submit(command=["true"], token=None, tokens=pair)
        assert (job["status"], job["cluster"]) == ("assigned", "blue")


def test_a_dispatch_with_several_tokens_comes_back_without_the_revoked_one(rig: Rig) -> None:
    rig.register("blue")
    pair = [rig.issue("of-blue", clusters=("blue",)), rig.issue("of-red", clusters=("red",))]
    job = rig.submit(command=["true"], token=None, tokens=pair)
    consumer = rig.jobs_of("blue")
    (delivery,) = eventually(lambda: consumer.take(1, 1.0))
    rig.rpc.call({"op": "revoke", "sub": "of-red"})
    rig.register("red")
    time.sleep(1.2)
    rig.event("blue", job["id"], 1, "rejected", code="policy")
    consumer.reject([delivery])
    assert rig.until(job["id"], "unsatisfiable", 30)["attempt"] == 1


# -- agents ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["sub", "jti"])
def test_an_agent_is_put_out(rig: Rig, by: str) -> None:
    """Its queue is gone, what waited goes elsewhere, what it signs counts no more, its cluster gets nothing new."""
    rig.register("blue")
    old = rig.issue("site", "register", ("blue",))
    waiting = rig.submit(command=["true"])
    consumer = rig.jobs_of("blue")
    (taken,) = eventually(lambda: consumer.take(1, 1.0))
    rig.event("blue", waiting["id"], 1, "accepted")
    rig.event("blue", waiting["id"], 1, "running")
    rig.until(waiting["id"], "running")
    consumer.ack([taken])
    consumer.cancel()
    queued = rig.submit(command=["true"], hold=60)
    secret = rig.registrations["blue"]["secret"]
    value = claims(secret)[by]
    begun = time.monotonic()
    assert rig.rpc.call({"op": "revoke", by: value})["clusters"] == ["blue"]
    assert time.monotonic() - begun < BOUND
    with pytest.raises(RainbowError):
        rig.broker.stats(topology.jobs_queue("blue"))
    with pytest.raises(Denied):
        register(rig, secret)
    # Nor does the token it was registered with bring it back, nor a hand that resumes it.
    with pytest.raises(Denied, match="issued since"):
        register(rig, old)
    with pytest.raises(Conflict):
        rig.rpc.call({"op": "resume", "cluster": "blue"})
    rig.event("blue", waiting["id"], 1, "completed", returncode=0)
    letters = eventually(rig.dead_letters)
    assert letters[0].headers["rainbow-reason"] == "bad-signature"
    assert rig.until(waiting["id"], "lost", 30)["code"] == "lost"
    rig.register("red")
    elsewhere = rig.jobs_of("red")
    (moved,) = eventually(lambda: elsewhere.take(1, 1.0), timeout=30)
    assert rig.open(moved)["id"] == queued["id"]
    assert rig.submit(command=["true"], clusters=["blue"])["reasons"]["blue"]["code"] == "drained"

    # A new token lets it in again: it has other keys, and the old ones stay worth nothing.
    before = rig.keys("blue")
    new = tokens.issue(rig.ring, sub="site", role="register", clusters=["blue"], ttl=600, now=time.time() + 2)
    rig.registrations["blue"] = register(rig, new)
    assert not set(rig.keys("blue").values()) & set(before.values())
    assert rig.submit(command=["true"], clusters=["blue"])["status"] == "assigned"


def register(rig: Rig, token: str) -> dict[str, Any]:
    return rig.rpc.call(
        {"op": "register", "cluster": "blue", "identity": "identity-of-blue", "graph": resources(), "token": token}
    )


def test_repeating_the_revocation_of_an_agent_is_harmless(rig: Rig) -> None:
    rig.register("blue")
    assert rig.rpc.call({"op": "revoke", "sub": "agent-blue"})["clusters"] == ["blue"]
    epoch = rig.service.world.clusters["blue"].record.epoch
    assert rig.rpc.call({"op": "revoke", "sub": "agent-blue"})["clusters"] == ["blue"]
    assert rig.service.world.clusters["blue"].record.epoch == epoch == 1
    assert rig.rpc.call({"op": "revoke", "sub": "nobody"})["clusters"] == []


def test_a_revoked_agent_behind_the_door(door: Door, redis_url: str, redis_prefix: str, tmp_path: Path) -> None:
    """On the real broker: a hand-written client with the agent's good token is thrown off its queue at once, and
    cannot make itself a new one; our own agent ends with exit code 3."""
    rainbow = Guarded(door, redis_url, redis_prefix, tmp_path)
    try:
        agent = rainbow.agent("blue")
        token = agent.registrar.token()
        assert token is not None
        parameters = pika.ConnectionParameters(
            door.server.host, door.server.port, door.vhost, pika.PlainCredentials("x", token)
        )
        with closing(pika.BlockingConnection(parameters)) as connection:
            channel = connection.channel()
            cancelled: list[Any] = []
            channel.add_on_cancel_callback(cancelled.append)
            channel.basic_consume("rainbow.agent.blue", lambda *_: None)
            with rainbow.client(door.token("admin")) as admin:
                admin.revoke(sub="agent-blue")
            begun = time.monotonic()

            def out() -> bool:
                connection.process_data_events(0.1)
                return bool(cancelled)

            wait_until(out, BOUND, what="the hand-written consumer is cancelled")
            acts: tuple[Callable[[Any], object], ...] = (
                lambda ch: ch.basic_consume("rainbow.jobs.blue", lambda *_: None),
                lambda ch: ch.queue_declare("rainbow.jobs.blue", durable=True),
            )
            for act in acts:
                with pytest.raises(ChannelClosedByBroker) as refused:
                    act(connection.channel())
                assert refused.value.reply_code in (403, 404)
            assert time.monotonic() - begun < BOUND
        assert agent.wait(60)
        agent.stop(5)
        assert agent.exit_code == 3
    finally:
        rainbow.close()


# -- nobody knows who is revoked ----------------------------------------------------------------------------


def test_without_the_revocation_list_nothing_is_let_in_and_nothing_is_lost(
    amqp_url: str, private_redis: Private[RedisServer]
) -> None:
    """S57: Redis is gone, a token is about to be revoked: submissions wait in their queue until it can be known."""
    redis = private_redis.server
    with Rig(amqp_url, redis.url, prefix=f"{uuid.uuid4().hex}:") as rig:
        rig.register("blue")
        good, bad = rig.issue("good"), rig.issue("bad")
        assert rig.submit(command=["true"], token=bad)["status"] == "assigned"
        rig.rpc.call({"op": "revoke", "sub": "bad"})
        private_redis.kill()
        sent = {who: rig.send(command=["true"], token=token) for who, token in (("good", good), ("bad", bad))}
        time.sleep(3.0)  # long enough to have been let in
        assert rig._reply(sent["good"]) is None
        assert rig._reply(sent["bad"]) is None
        private_redis.start()
        assert rig.answer(sent["bad"], 30)["status"] == "denied"
        assert rig.answer(sent["good"], 30)["status"] == "assigned"
        # Restarted, it still knows.
        assert rig.submit(command=["true"], token=bad)["status"] == "denied"


def test_a_forged_dead_token_message_changes_nothing(rig: Rig) -> None:
    """Only an admin revokes."""
    for role in ("submit", "agent", "register"):
        with pytest.raises(Denied, match="admin"):
            rig.rpc.call({"op": "revoke", "sub": "root", "token": rig.issue("mallory", role)})
    body = codec.encode_json({"op": "revoke", "sub": "root", "token": "x.y.z"})
    rig.broker.publish([Message(topology.CONTROL, "revoke", body)]).check(10)
    assert rig.rpc.call({"op": "groups"}) == {"groups": {}}
