"""A client whose connection is cut, swallowed or stalled: a submission is done only when the broker said so, and runs
once however often it had to be sent."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from faults.proxy import Proxy
from rainbow.client import Client
from rainbow.errors import TimedOut, Unavailable
from rainbow.settings import Settings
from running import Rainbow, completes, eventually


@pytest.fixture
def rainbow(amqp_url: str, redis_url: str, redis_prefix: str, tmp_path: Path) -> Iterator[Rainbow]:
    made = Rainbow(tmp_path, amqp_url, redis_url, redis_prefix)
    yield made
    made.end()


@pytest.fixture
def proxy(amqp_url: str) -> Iterator[Proxy]:
    parts = urlsplit(amqp_url)
    made = Proxy(parts.hostname or "127.0.0.1", parts.port or 5672)
    yield made
    made.close()


@pytest.fixture
def client(rainbow: Rainbow, proxy: Proxy) -> Iterator[Client]:
    parts = urlsplit(rainbow.url)
    account = f"{parts.username}:{parts.password}@" if parts.username else ""
    url = urlunsplit(parts._replace(netloc=f"{account}127.0.0.1:{proxy.port}"))
    settings = Settings.model_validate({"broker": {"url": url, "connect_timeout": 60, "publish_timeout": 5}})
    with Client(settings=settings, token=rainbow.token(), timeout=30) as made:
        yield made


def _ran(rainbow: Rainbow) -> list[str]:
    """The ids of the jobs that really run on a new cluster. As an agent's journal does, it knows an attempt again:
    the scheduler may hand out the same one twice."""
    ran: list[str] = []
    journal: set[tuple[str, int]] = set()

    def act(dispatch: Any) -> list[dict[str, Any]]:
        if (dispatch.id, dispatch.attempt) not in journal:
            journal.add((dispatch.id, dispatch.attempt))
            ran.append(dispatch.id)
        return completes(dispatch)

    rainbow.cluster("blue", nodes=100, cores=64, act=act)
    return ran


def test_a_dead_link_is_never_success(rainbow: Rainbow, proxy: Proxy, client: Client) -> None:
    """The idle connection was dropped silently (S12): an error that may be repeated, with the same id, and one run."""
    ran = _ran(rainbow)
    client.submit(command="hostname").wait(30)
    job = str(uuid.uuid4())
    proxy.swallow()
    with pytest.raises((Unavailable, TimedOut)):
        client.submit_many([{"id": job, "command": "hostname"}], timeout=2)
    proxy.heal()

    def again() -> Any:
        return client.submit(id=job, command="hostname").wait(30)

    assert eventually(again, 60).state == "completed"
    assert ran.count(job) == 1


def test_cuts_while_many_are_submitted_lose_none_and_double_none(
    rainbow: Rainbow, proxy: Proxy, client: Client
) -> None:
    ran = _ran(rainbow)
    client.submit(command="hostname").wait(30)
    stop = threading.Event()

    def cut() -> None:
        while not stop.wait(0.15):
            proxy.cut()

    ids = [str(uuid.uuid4()) for _ in range(300)]
    thread = threading.Thread(target=cut)
    thread.start()
    try:
        for start in range(0, len(ids), 30):
            part = ids[start : start + 30]
            # Given up for now is an answer too: then it is sent again, with the same ids.
            while True:
                try:
                    client.submit_many([{"id": i, "command": "hostname"} for i in part], timeout=5)
                    break
                except (Unavailable, TimedOut):
                    pass
                if len(ids) - start <= 270:
                    stop.set()  # enough cuts: what was begun is finished in peace
    finally:
        stop.set()
        thread.join()
    with rainbow.client() as direct:
        assert {record.state for record in direct.wait(ids, timeout=90)} == {"completed"}
    wanted = set(ids)
    assert sorted(i for i in ran if i in wanted) == sorted(ids)


def test_an_end_that_was_told_to_a_cut_connection_is_still_heard(
    rainbow: Rainbow, proxy: Proxy, client: Client
) -> None:
    taken: list[Any] = []

    def accept(dispatch: Any) -> list[dict[str, Any]]:
        taken.append(dispatch)
        return [{"state": "accepted"}]

    cluster = rainbow.cluster("blue", act=accept)
    job = client.submit(command="hostname")
    assert job.answer.cluster == "blue"
    eventually(lambda: job.status().state == "accepted")
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(job.wait(60)))
    thread.start()
    time.sleep(1.0)
    proxy.refuse()  # nobody is there to hear it
    cluster.tell(taken[0], {"state": "completed", "returncode": 0})
    eventually(lambda: rainbow.client().job(job.id).status().state == "completed")
    began = time.monotonic()
    proxy.heal()
    thread.join(60)
    assert [record.state for record in ended] == ["completed"]
    assert time.monotonic() - began < 25  # asked for anew on reconnecting, not only when the watch would run out
