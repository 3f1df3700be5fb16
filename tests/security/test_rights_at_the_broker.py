"""What RabbitMQ itself allows and refuses each role, tried with a hand-written pika client and no code of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ProbableAuthenticationError

from rainbow import topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.errors import InvalidInput
from rainbow.security import scopes, tokens
from rainbow.security.tokens import KeyRing, Role
from security.doors import Act, Door, consume, get, log_in, outcome, publish

CLUSTERS = ("blue", "red", "blue2")
REPLIES = "amq.rabbitmq.reply-to"


def declare(queue: str) -> Act:
    return lambda ch: ch.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})


def own_queue(ch: BlockingChannel) -> None:
    ch.queue_declare("", exclusive=True)


def delete(queue: str) -> Act:
    return lambda ch: ch.queue_delete(queue)


def purge(queue: str) -> Act:
    return lambda ch: ch.queue_purge(queue)


def bind(queue: str, exchange: str, key: str) -> Act:
    return lambda ch: ch.queue_bind(queue, exchange, key)


def new_exchange(ch: BlockingChannel) -> None:
    ch.exchange_declare("rainbow.mine", "topic")


def delete_exchange(ch: BlockingChannel) -> None:
    ch.exchange_delete(topology.EVENTS)


def listen_for_answers(ch: BlockingChannel) -> None:
    """Direct reply-to: no queue, no right, and nobody else's answers."""
    ch.basic_consume(REPLIES, lambda *_: None, auto_ack=True)


#: What nobody but an admin may do, whatever role the token has: name -> operation.
FORBIDDEN: dict[str, Act] = {
    "consume submissions": consume("rainbow.scheduler"),
    "consume events": consume("rainbow.records"),
    "consume requests": consume("rainbow.control"),
    "consume rejected": consume("rainbow.rejected"),
    "get dead letters": get("rainbow.dead"),
    "consume held": consume("rainbow.hold.5"),
    "consume red's jobs": consume("rainbow.jobs.red"),
    "get red's jobs": get("rainbow.jobs.red"),
    "consume red's commands": consume("rainbow.agent.red"),
    "consume a longer name's jobs": consume("rainbow.jobs.blue2"),
    "publish into blue's queue": publish(topology.JOBS, "blue"),
    "publish into red's queue": publish(topology.JOBS, "red"),
    "publish commands": publish(topology.AGENTS, "blue"),
    "publish rejected": publish(topology.REJECTED, "blue"),
    "publish dead letters": publish(topology.DEAD, "x"),
    "publish to hold": publish(topology.HOLD, "5"),
    "publish as red's agent": publish(topology.EVENTS, "job.red.running"),
    "publish as a longer name's agent": publish(topology.EVENTS, "job.blue2.running"),
    "publish as the scheduler": publish(topology.EVENTS, "job.-.denied"),
    "publish to the default exchange": publish("", "rainbow.jobs.blue"),
    "publish to somebody's answers": publish("", f"{REPLIES}.g1h2AA5yZXBseUA"),
    "declare a queue": declare("rainbow.jobs.mine"),
    "declare a private queue": own_queue,
    "declare an exchange": new_exchange,
    "delete blue's queue": delete("rainbow.jobs.blue"),
    "delete red's queue": delete("rainbow.jobs.red"),
    "delete the recorder's queue": delete("rainbow.records"),
    "delete an exchange": delete_exchange,
    "bind blue's queue to events": bind("rainbow.jobs.blue", topology.EVENTS, "#"),
    "bind blue's queue to red's jobs": bind("rainbow.jobs.blue", topology.JOBS, "red"),
    "bind red's queue to submissions": bind("rainbow.jobs.red", topology.SUBMIT, "#"),
    "purge red's queue": purge("rainbow.jobs.red"),
}

SUBMIT = publish(topology.SUBMIT, "submit")
CONTROL = publish(topology.CONTROL, "jobs")

#: What each role may do. What is in none of its lists and not in FORBIDDEN is refused it as well (see `table`).
ALLOWED: dict[str, dict[str, Act]] = {
    "submit": {"submit": SUBMIT, "ask the registrar": CONTROL, "listen for answers": listen_for_answers},
    "agent": {
        "consume blue's jobs": consume("rainbow.jobs.blue"),
        "consume blue's commands": consume("rainbow.agent.blue"),
        "publish blue's events": publish(topology.EVENTS, "job.blue.running"),
        "ask the registrar": CONTROL,
        "listen for answers": listen_for_answers,
    },
    "register": {"ask the registrar": CONTROL, "listen for answers": listen_for_answers},
}


def table() -> Iterator[Any]:
    everything = {name: act for acts in ALLOWED.values() for name, act in acts.items()} | FORBIDDEN
    for role, allowed in ALLOWED.items():
        for name, act in everything.items():
            yield pytest.param(role, act, name in allowed, id=f"{role}: {name}")


@pytest.fixture(scope="module")
def built(oauth_rabbit: tuple[Any, KeyRing], test_run: Any) -> Door:
    """One vhost with the whole topology and three clusters: no test here changes it."""
    server, ring = oauth_rabbit
    door = Door(server, ring, server.new_vhost(test_run.name))
    with closing(connect(ConnectOptions(url=door.url))) as broker:
        broker.declare(sum((topology.cluster(name) for name in CLUSTERS), topology.core()))
    return door


@pytest.mark.parametrize(("role", "act", "allowed"), list(table()))
def test_table(built: Door, role: Role, act: Act, allowed: bool) -> None:
    assert outcome(built, built.token(role, "blue"), act) == (0 if allowed else 403)


@pytest.mark.parametrize("name", [n for n in FORBIDDEN if n.startswith(("consume", "get", "publish"))])
def test_an_admin_may(built: Door, name: str) -> None:
    """All but the default exchange, with which one writes into any queue of the vhost, and as anybody's answer."""
    refused = name in (
        "publish to the default exchange",
        "publish to somebody's answers",
    )
    assert outcome(built, built.token("admin"), FORBIDDEN[name]) == (403 if refused else 0)


def test_an_admin_declares_binds_and_deletes_what_is_ours_only(built: Door) -> None:
    token = built.token("admin")
    for act in (
        declare("rainbow.jobs.green"),
        bind("rainbow.jobs.green", topology.JOBS, "green"),
        bind("rainbow.jobs.green", topology.EVENTS, "job.green.#"),
        purge("rainbow.jobs.green"),
        delete("rainbow.jobs.green"),
    ):
        assert outcome(built, token, act) == 0
    assert outcome(built, token, declare("another-application")) == 403


def test_workers_answer(built: Door) -> None:
    token = tokens.issue(built.ring, sub="workers", role="admin", ttl=60, scope=scopes.for_workers(built.vhost))
    assert outcome(built, token, publish("", f"{REPLIES}.g1h2AA5yZXBseUA")) == 0
    assert outcome(built, token, publish("", "rainbow.dead")) == 0


def test_an_agent_of_all_clusters(built: Door) -> None:
    token = built.token("agent", "*")
    assert outcome(built, token, consume("rainbow.jobs.red")) == 0
    assert outcome(built, token, publish(topology.EVENTS, "job.red.running")) == 0
    assert outcome(built, token, consume("rainbow.records")) == 403
    assert outcome(built, token, publish(topology.JOBS, "red")) == 403


def test_groups_open_the_queues_of_their_members(built: Door) -> None:
    groups = {"@gpu": frozenset({"blue", "red"})}
    scope = scopes.for_token("agent", ["@gpu", "@unknown"], built.vhost, groups)
    token = tokens.issue(built.ring, sub="a", role="agent", clusters=["@gpu"], ttl=60, scope=scope)
    assert outcome(built, token, consume("rainbow.jobs.red")) == 0
    assert outcome(built, token, consume("rainbow.jobs.blue2")) == 403


def test_answers_reach_who_asked_and_nobody_else(built: Door) -> None:
    """A stranger can neither read an address of direct reply-to nor write to it."""
    with closing(log_in(built, built.token("submit", sub="alice"))) as alice:
        channel = alice.channel()
        channel.basic_consume(REPLIES, lambda *_: None, auto_ack=True)
        channel.confirm_delivery()
        channel.basic_publish(
            topology.SUBMIT, "submit", b"?", pika.BasicProperties(reply_to=REPLIES, correlation_id="1")
        )
        with closing(connect(ConnectOptions(url=built.url))) as workers:
            consumer = workers.consume("rainbow.scheduler", prefetch=100)
            address = None
            while address is None:
                for delivery in consumer.take(100, 10.0):
                    address = delivery.reply_to or address
            consumer.cancel()
        assert address.startswith(f"{REPLIES}.")
        mallory = built.token("submit", sub="mallory")
        assert outcome(built, mallory, consume(address)) in (403, 404)
        assert outcome(built, mallory, get(address)) in (403, 404, 405)
        assert outcome(built, mallory, publish("", address)) == 403


# -- who comes in at all ------------------------------------------------------------------------------------


def other_vhost(door: Door) -> str:
    return tokens.issue(
        door.ring, sub="a", role="admin", ttl=60, scope=scopes.for_token("admin", ["*"], f"{door.vhost}-other")
    )


def stale(door: Door) -> str:
    scope = scopes.for_token("admin", ["*"], door.vhost)
    return tokens.issue(door.ring, sub="a", role="admin", ttl=60, scope=scope, now=1_700_000_000)


def foreign_key(door: Door) -> str:
    kid, _ = door.ring.signing
    ring = KeyRing(((kid, b"x" * 32),))
    return tokens.issue(ring, sub="a", role="admin", ttl=60, scope=scopes.for_token("admin", ["*"], door.vhost))


def unsigned(door: Door) -> str:
    import jwt

    claims = jwt.decode(door.token("admin"), options={"verify_signature": False})
    kid, _ = door.ring.signing
    return jwt.encode(claims, "", algorithm="none", headers={"kid": kid})


def other_algorithm(door: Door) -> str:
    import jwt

    claims = jwt.decode(door.token("admin"), options={"verify_signature": False})
    kid, key = door.ring.signing
    return jwt.encode(claims, key + key, algorithm="HS512", headers={"kid": kid})


def other_audience(door: Door) -> str:
    import jwt

    claims = jwt.decode(door.token("admin"), options={"verify_signature": False})
    kid, key = door.ring.signing
    return jwt.encode({**claims, "aud": "other"}, key, algorithm="HS256", headers={"kid": kid})


def no_scope(door: Door) -> str:
    return tokens.issue(door.ring, sub="a", role="admin", ttl=60)


def unknown_kid(door: Door) -> str:
    return tokens.issue(
        KeyRing.generate(), sub="a", role="admin", ttl=60, scope=scopes.for_token("admin", ["*"], door.vhost)
    )


@pytest.mark.parametrize(
    "make",
    [other_vhost, stale, foreign_key, unsigned, other_algorithm, other_audience, no_scope, unknown_kid],
    ids=lambda f: f.__name__,
)
def test_stays_outside(built: Door, make: Callable[[Door], str]) -> None:
    with pytest.raises(AMQPError) as caught:
        log_in(built, make(built)).close()
    assert isinstance(caught.value, ProbableAuthenticationError) or "refused" in repr(caught.value)


def test_a_long_token_still_comes_in(built: Door) -> None:
    """As long as a token may be that opens the broker: the login must fit into AMQP's smallest frame."""

    def names(count: int) -> list[str]:
        return [f"cluster-with-a-name-{i:02}" for i in range(count)]

    def length(count: int) -> int:
        try:
            return len(built.token("agent", *names(count)))
        except InvalidInput as exc:
            if "too long to open the broker" not in str(exc):
                raise
            return 0

    most = max(range(1, 50), key=length)
    assert length(most) > tokens.MAX_BROKER_BYTES * 0.9
    assert length(most + 1) == 0
    log_in(built, built.token("agent", *names(most)), user="a" * 255).close()
