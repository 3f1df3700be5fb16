"""Following jobs: what a registrar may do wrong, or the way to it, and what is made of it."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rainbow import topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Broker, Delivery, Message
from rainbow.client import Client, watching
from rainbow.errors import Denied, NotFound, TimedOut
from rainbow.settings import Settings

Reply = dict[str, Any] | None


class Registrar:
    """Answers with what the test says, and keeps what it was asked."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.asked: list[dict[str, Any]] = []
        self.answer: Callable[[dict[str, Any]], Reply] = lambda _: None
        self._stop = threading.Event()
        self._consumer = broker.consume(topology.CONTROL_QUEUE, prefetch=10)
        self._last: Delivery | None = None
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._stop.is_set():
            for delivery in self._consumer.take(1, 0.05):
                self._last = delivery
                request = json.loads(delivery.body)
                self.asked.append(request)
                reply = self.answer(request)
                if reply is not None:
                    self.send(reply, delivery)
                self._consumer.ack([delivery])

    def send(self, reply: dict[str, Any], to: Delivery | None = None) -> None:
        """An answer, or a later push to whoever asked last."""
        to = to or self._last
        assert to is not None
        assert to.reply_to is not None
        body = json.dumps(reply).encode()
        self.broker.publish([Message("", to.reply_to, body, correlation_id=to.correlation_id)]).check(5)

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


def job(job_id: str, state: str, attempt: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": job_id, "state": state, "attempt": attempt, "cluster": "blue", **more}


def jobs(*records: dict[str, Any] | None) -> dict[str, Any]:
    return {"ok": True, "result": {"jobs": list(records)}}


ID = str(uuid.uuid4())


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = connect(ConnectOptions(url=f"memory://{uuid.uuid4().hex}"))
    made.declare(topology.core())
    yield made
    made.close()


@pytest.fixture
def registrar(broker: Broker) -> Iterator[Registrar]:
    made = Registrar(broker)
    yield made
    made.end()


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(settings=Settings(), token="t", broker=broker, timeout=2.0) as made:
        yield made


def test_an_ended_job_is_told_once(client: Client, registrar: Registrar) -> None:
    registrar.answer = lambda _: jobs(job(ID, "completed", returncode=0))
    assert [r.state for r in client.events([ID])] == ["completed"]
    assert client.wait([ID])[0].returncode == 0
    request = registrar.asked[0]
    assert (request["op"], request["ids"], request["token"]) == ("watch", [ID], "t")


def test_pushes_are_told_and_repeats_and_old_news_are_not(client: Client, registrar: Registrar) -> None:
    def answer(_: dict[str, Any]) -> Reply:
        for record in (
            job(ID, "assigned"),
            job(ID, "assigned", history=[{"state": "assigned"}]),  # the same, as a status has it
            job(ID, "assigned", attempt=2),
            job(ID, "running", attempt=1),  # overtaken on the way
            job(ID, "running", attempt=2),
            job(ID, "accepted", attempt=2),
            job(str(uuid.uuid4()), "completed"),  # not asked for
            job(ID, "completed", attempt=2),
            job(ID, "failed", attempt=2),
        ):
            registrar.send(jobs(record))
        return None

    registrar.answer = answer
    told = [(r.state, r.attempt) for r in client.events([ID])]
    assert told == [("assigned", 1), ("assigned", 2), ("running", 2), ("completed", 2)]


def test_a_lost_push_is_made_up_for(client: Client, registrar: Registrar, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch is asked for anew before it runs out, and the answer says what was missed."""
    monkeypatch.setattr(watching, "TTL", 0.6)
    states = iter(["running", "running", "completed"])
    registrar.answer = lambda _: jobs(job(ID, next(states)))
    assert [r.state for r in client.events([ID], timeout=20)] == ["running", "completed"]
    assert {request["ttl"] for request in registrar.asked} == {0.6}


def test_a_job_not_known_yet_is_asked_for_soon_again(client: Client, registrar: Registrar) -> None:
    def answer(_: dict[str, Any]) -> Reply:
        return jobs(None) if len(registrar.asked) < 3 else jobs(job(ID, "completed"))

    registrar.answer = answer
    assert client.wait([ID])[0].state == "completed"


def test_a_job_nobody_knows(client: Client, registrar: Registrar) -> None:
    registrar.answer = lambda _: jobs(None)
    with pytest.raises(NotFound, match=ID):
        client.wait([ID])
    with pytest.raises(TimedOut, match=r"not ended after 2\.5 s"):  # one's own is waited for
        list(client.events([ID], timeout=2.5, patient=True))


def test_nobody_answers(client: Client) -> None:
    began = time.monotonic()
    with pytest.raises(TimedOut, match="is rainbow-scheduler running"):
        client.wait([ID])
    assert time.monotonic() - began < 10


def test_the_limit_holds_while_the_job_runs(client: Client, registrar: Registrar) -> None:
    registrar.answer = lambda _: jobs(job(ID, "running"))
    with pytest.raises(TimedOut, match=r"the job has not ended after 0\.5 s"):
        client.wait([ID], timeout=0.5)


def test_a_refusal_is_told(client: Client, registrar: Registrar) -> None:
    registrar.answer = lambda _: {"ok": False, "code": "denied", "error": "the token was revoked"}
    with pytest.raises(Denied, match="revoked"):
        client.wait([ID])


def test_a_registrar_that_goes_away_later_is_waited_for(
    client: Client, registrar: Registrar, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "TTL", 0.4)

    def answer(_: dict[str, Any]) -> Reply:
        if 1 < len(registrar.asked) < 6:  # silent for a while, longer than the client's limit for a first answer
            return None
        return jobs(job(ID, "running" if len(registrar.asked) == 1 else "completed"))

    registrar.answer = answer
    assert client.wait([ID], timeout=30)[0].state == "completed"


def test_many_jobs_are_asked_for_in_parts(client: Client, registrar: Registrar) -> None:
    ids = [str(uuid.uuid4()) for _ in range(2500)]
    registrar.answer = lambda request: jobs(*(job(i, "completed") for i in request["ids"]))
    assert [r.id for r in client.wait(ids)] == ids
    assert [len(request["ids"]) for request in registrar.asked[:3]] == [1000, 1000, 500]


def test_a_part_that_is_answered_late_misses_no_job(client: Client, registrar: Registrar) -> None:
    """A job is unknown only once the part that asks for it was answered without it."""
    ids = [str(uuid.uuid4()) for _ in range(1500)]

    def answer(request: dict[str, Any]) -> Reply:
        if len(request["ids"]) == 500:
            time.sleep(2.5)
        return jobs(*(job(i, "completed") for i in request["ids"]))

    registrar.answer = answer
    assert [r.id for r in client.wait(ids)] == ids


def test_each_token_sees_its_own(broker: Broker, registrar: Registrar) -> None:
    mine, theirs = str(uuid.uuid4()), str(uuid.uuid4())
    owner = {"a": mine, "b": theirs}

    def answer(request: dict[str, Any]) -> Reply:
        if request["token"] == "c":
            return {"ok": False, "code": "denied", "error": "revoked"}
        return jobs(*(job(i, "completed") if owner[request["token"]] == i else None for i in request["ids"]))

    registrar.answer = answer
    settings = Settings.model_validate({"clusters": [{"name": n, "token": n} for n in ("c", "a", "b")]})
    with Client(settings=settings, broker=broker, timeout=5) as client:
        assert [r.id for r in client.wait([theirs, mine])] == [theirs, mine]


# -- one's own submission ----------------------------------------------------------------------------------


def test_an_answer_lost_on_its_way_is_found_in_the_record(
    client: Client, registrar: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody serves the scheduler's queue here: the answer never comes, but the registrar knows it."""
    monkeypatch.setattr("rainbow.client.job._LOOK_AFTER", 0.2)
    made = client.submit(command="hostname")
    answer = {"id": made.id, "status": "assigned", "cluster": "blue", "attempt": 1}
    registrar.answer = lambda _: jobs(job(made.id, "assigned", answer=answer))
    assert made.answer.cluster == "blue"
    assert made.answer is made.answer  # kept


def test_no_answer_says_that_the_job_is_kept(client: Client, registrar: Registrar) -> None:
    registrar.answer = lambda _: jobs(None)
    made = client.submit(command="hostname")
    with pytest.raises(TimedOut, match=f"job {made.id} waits in the queue"):
        made.wait_answer(0.3)
    with pytest.raises(TimedOut):
        made.wait(0.3)
    with pytest.raises(NotFound):
        made.status()


@pytest.mark.parametrize("state", ["no-match", "unsatisfiable", "expired"])
def test_an_answer_that_ends_the_job_is_its_record(client: Client, broker: Broker, state: str) -> None:
    made = client.submit(command="hostname")
    answered(broker, {"id": made.id, "status": state, "error": "why"})
    record = made.wait(5)
    assert (record.id, record.state, record.detail) == (made.id, state, "why")


@pytest.mark.parametrize("status", ["denied", "invalid"])
def test_an_answer_that_is_an_error_raises(client: Client, broker: Broker, status: str) -> None:
    made = client.submit(command="hostname")
    answered(broker, {"id": made.id, "status": status, "error": "why not"})
    with pytest.raises(Exception, match="why not") as caught:
        made.wait(5)
    assert caught.value.code == status  # type: ignore[attr-defined]
    assert made.wait_answer().status == status


def answered(broker: Broker, answer: dict[str, Any]) -> None:
    consumer = broker.consume(topology.SCHEDULER_QUEUE, prefetch=1)
    (delivery,) = consumer.take(1, 5)
    assert delivery.reply_to is not None
    body = json.dumps(answer).encode()
    broker.publish([Message("", delivery.reply_to, body, correlation_id=delivery.correlation_id)]).check(5)
    consumer.ack([delivery])
    consumer.cancel()
