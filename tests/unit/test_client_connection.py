"""Publishing with confirms, and finding out early that there is no broker."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any, cast

import pytest

from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Message, Receipt, Status
from rainbow.client import Client
from rainbow.client.connection import Connection
from rainbow.client.credentials import Credentials
from rainbow.client.job import Job
from rainbow.client.mailbox import Mailbox
from rainbow.client.reachability import endpoints, why_not
from rainbow.errors import (
    BadCredentials,
    BrokerBlocked,
    BrokerUnavailable,
    PublishFailed,
    QueueFull,
    RainbowError,
    TimedOut,
    Unroutable,
)
from rainbow.settings import Settings


class _Broker:
    """Gives each publish the outcomes that the test has written down."""

    def __init__(self, *rounds: Sequence[RainbowError | None]) -> None:
        self.rounds = list(rounds)
        self.published: list[list[str | None]] = []
        self.connected = True
        self.refused: BadCredentials | None = None

    @property
    def status(self) -> Status:
        return Status(self.connected)

    def publish(self, messages: Sequence[Message]) -> Receipt:
        if self.refused:
            raise self.refused
        receipt = Receipt(len(messages))
        if messages:
            self.published.append([m.message_id for m in messages])
            for i, outcome in enumerate(self.rounds.pop(0)):
                receipt.settle(i, outcome)
        return receipt

    def close(self) -> None:
        """Nothing to close."""


def connection(broker: Any, url: str = "memory://x", timeout: float = 5.0, **section: Any) -> Connection:
    settings = Settings.model_validate({"broker": {"url": url, **section}})
    return Connection(settings, Credentials(), broker=broker, timeout=timeout, name="test")


def messages(*ids: str) -> list[Message]:
    return [Message("x", "k", b"", message_id=i) for i in ids]


def test_confirmed_is_done() -> None:
    broker = _Broker([None, None])
    connection(broker).confirm(messages("a", "b"), 5)
    assert broker.published == [["a", "b"]]


def test_a_lost_connection_is_tried_again_with_the_same_ids_and_only_what_failed() -> None:
    lost = PublishFailed("the connection was lost")
    broker = _Broker([None, lost, lost], [lost, None], [None])
    connection(broker).confirm(messages("a", "b", "c"), 10)
    assert broker.published == [["a", "b", "c"], ["b", "c"], ["b"]]


@pytest.mark.parametrize("kind", [QueueFull, BrokerBlocked])
def test_what_trying_again_would_not_mend_fails_at_once_and_says_that_repeating_is_safe(
    kind: type[PublishFailed],
) -> None:
    broker = _Broker([kind("not now")])
    with pytest.raises(kind, match=r"not now.*; job a may be submitted again with the same id"):
        connection(broker).confirm(messages("a"), 5)
    assert len(broker.published) == 1


def test_without_a_queue_it_says_what_to_run() -> None:
    with pytest.raises(Unroutable, match="rainbow broker setup"):
        connection(_Broker([Unroutable("no queue")])).confirm(messages("a"), 5)


def test_trying_ends_with_the_time_limit() -> None:
    lost = PublishFailed("lost")
    began = time.monotonic()
    with pytest.raises(PublishFailed, match="lost; 2 jobs may be submitted again"):
        connection(_Broker(*[[lost, lost]] * 50)).confirm(messages("a", "b"), 0.5)
    assert time.monotonic() - began < 5


def test_no_confirm_is_no_success() -> None:
    """The broker holds the message and says nothing: never taken for done (S12)."""

    class Silent(_Broker):
        def publish(self, messages: Sequence[Message]) -> Receipt:
            return Receipt(len(messages))

    with pytest.raises(TimedOut):
        connection(Silent()).confirm(messages("a"), 0.2)


def test_a_closed_port_is_told_at_once() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    broker = _Broker()
    broker.connected = False
    with pytest.raises(BrokerUnavailable, match=rf"amqp://u:\*\*\*@127.0.0.1:{port}/v: nothing listens"):
        connection(broker, f"amqp://u:pw@127.0.0.1:{port}/v").ready()


def test_a_broker_that_never_lets_us_in() -> None:
    broker = _Broker()
    broker.connected = False
    with pytest.raises(BrokerUnavailable, match=r"did not let us in within 0\.2 s"):
        connection(broker, connect_timeout=0.2).ready()


def test_refused_credentials_are_told_at_once() -> None:
    broker = _Broker()
    broker.connected = False
    broker.refused = BadCredentials("refused user 'x'")
    with pytest.raises(BadCredentials):
        connection(broker).ready()


def test_a_connection_that_comes_is_waited_for() -> None:
    broker = _Broker()
    broker.connected = False
    threading.Timer(0.2, setattr, (broker, "connected", True)).start()
    connection(broker).ready()


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("amqp://h/v", [("h", 5672)]),
        ("amqps://u:p@h/v", [("h", 5671)]),
        ("amqp://h:99/v", [("h", 99)]),
        ("amqp://u:p,w@h,[::1]:99,g/v", [("h", 5672), ("::1", 99), ("g", 5672)]),
        ("amqp://u:p@h/v,amqps://g/v", [("h", 5672), ("g", 5671)]),
        ("redis://h/0", [("h", 6379)]),
        ("redis+sentinel://h,g:1/main/0", [("h", 26379), ("g", 1)]),
        ("kombu+redis://h/0", [("h", 6379)]),
        ("amqp:///v", [("127.0.0.1", 5672)]),
        ("memory://h", []),
        ("unix:///run/redis.sock", []),
        ("amqp://h:nonsense/v", []),
    ],
)
def test_where_a_url_leads(url: str, where: list[tuple[str, int]]) -> None:
    assert endpoints(url) == where


def test_nothing_listens_anywhere() -> None:
    said = why_not("amqp://127.0.0.1:1,127.0.0.1:2/v")
    assert said == "nothing listens at 127.0.0.1:1; nothing listens at 127.0.0.1:2"


def test_a_name_nobody_knows() -> None:
    assert why_not("amqp://no-such-host.invalid/v") == "host 'no-such-host.invalid' is not known"


# -- the mailbox -------------------------------------------------------------------------------------------


@pytest.fixture
def broker() -> Any:
    made = connect(ConnectOptions(url=f"memory://{uuid.uuid4().hex}"))
    yield made
    made.close()


def test_answers_find_who_waits_for_them(broker: Any) -> None:
    mailbox = Mailbox(broker)
    one, two = mailbox.open(), mailbox.open("two")
    both = mailbox.open(into=one)
    assert one.address == two.address
    for slot, body in ((two, b"2"), (one, b"1"), (both, b"3")):
        broker.publish([Message("", slot.address, body, correlation_id=slot.id)]).check(5)
    broker.publish([Message("", one.address, b"?", correlation_id="nobody")]).check(5)
    assert [d.body for d in (two.wait(5), one.wait(5), one.wait(5)) if d] == [b"2", b"1", b"3"]
    assert one.wait(0.05) is None
    mailbox.close()
    mailbox.close()
    with pytest.raises(RainbowError, match="closed"):
        mailbox.open()


def test_who_is_gone_is_forgotten(broker: Any) -> None:
    mailbox = Mailbox(broker)
    for _ in range(100):
        mailbox.open()
    assert len(mailbox._slots) == 0
    mailbox.close()


def test_nothing_is_sent_for_what_is_wrong(broker: Any) -> None:
    """Told before any broker is needed."""
    stub: Any = _Broker()
    with (
        Client(url="amqp://127.0.0.1:1/v", settings=Settings(), token="t", broker=stub) as client,
        pytest.raises(RainbowError, match="nodes"),
    ):
        client.submit(command="x", nodes=0)
    assert stub.published == []


def test_a_client_made_before_a_fork_says_so_at_once() -> None:
    here = connection(_Broker([None]))
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            here.close()  # ends nothing of the parent's
            try:
                here.ready()
            except RainbowError as exc:
                os._exit(42 if "make a Client in each process" in str(exc) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    here.ready()


def test_a_job_stays_with_its_client() -> None:
    with pytest.raises(TypeError, match=r"send its id, and use Client.job\(id\)"):
        pickle.dumps(Job(cast(Any, None), "6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11"))
