"""`rainbow bulk`: every line of a file becomes a job, once, whatever is wrong with its neighbours."""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from rainbow import topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.client import Client
from running import Rainbow, Shell, alone, eventually, in_force


@pytest.fixture
def rainbow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, amqp_url: str, redis_url: str, redis_prefix: str
) -> Iterator[Rainbow]:
    alone(monkeypatch, tmp_path)
    monkeypatch.delenv("RAINBOW_KEYRING")
    made = Rainbow(tmp_path, amqp_url, redis_url, redis_prefix)
    yield from in_force(made, monkeypatch)


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def known(ids: list[str]) -> list[str | None]:
    with Client() as client:
        names: list[str | None] = eventually(
            lambda: (found := client.status(ids)) and all(found) and [r.name for r in found if r]
        )
        return names


def test_every_line_is_a_job_in_order(rainbow: Rainbow, sh: Shell, tmp_path: Path) -> None:
    mine = str(uuid.uuid4())
    jobs = [{"command": ["true"], "name": f"j{n}"} for n in range(1200)]
    written(tmp_path / "jobs.jsonl", *jobs, "", {"command": "true", "name": "mine", "id": mine})
    said = sh("bulk jobs.jsonl")
    ids = said.out.split()
    assert (len(ids), len(set(ids)), ids[-1]) == (1201, 1201, mine)
    assert known([ids[0], ids[700], mine]) == ["j0", "j700", "mine"]
    assert "1201 submitted" in said.err


def test_the_same_run_again_is_the_same_jobs(rainbow: Rainbow, sh: Shell, tmp_path: Path) -> None:
    written(tmp_path / "jobs.jsonl", *[{"command": ["true"]} for _ in range(5)])
    run = uuid.uuid4()
    first = json.loads(sh(f"bulk jobs.jsonl --run {run} --json").out)
    assert (first["run"], first["submitted"], first["refused"]) == (str(run), 5, [])
    assert sh(f"bulk jobs.jsonl --run {run}").out.split() == first["ids"]
    assert sh(f"bulk jobs.jsonl --run {run} --skip 3").out.split() == first["ids"][3:]
    assert not set(sh("bulk jobs.jsonl").out.split()) & set(first["ids"])


def test_lines_that_cannot_be_read_keep_no_other_from_going(rainbow: Rainbow, sh: Shell, tmp_path: Path) -> None:
    written(
        tmp_path / "jobs.jsonl",
        {"command": ["true"]},
        "not json",
        {"command": ["true"], "node": 1},
        '{"command": ["true"], "command": ["false"]}',
        {"nodes": 2},
        {"command": ["true"], "satisfy_only": True},
        {"command": ["x" * (1 << 20)]},
        {"command": ["true"]},
    )
    said = sh("bulk jobs.jsonl", code=2)
    assert len(said.out.split()) == 2
    for number, what in ((2, "not JSON"), (3, "'node'"), (4, "twice"), (5, "command"), (6, "satisfy"), (7, "bytes")):
        assert any(line.startswith(f"line {number}:") and what in line for line in said.err.splitlines()), said.err
    document = json.loads(sh("bulk jobs.jsonl --json", code=2).out)
    assert [item["line"] for item in document["refused"]] == [2, 3, 4, 5, 6, 7]


def test_what_cannot_begin(rainbow: Rainbow, sh: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cannot be read" in sh("bulk nowhere.jsonl", code=2).err
    written(tmp_path / "jobs.jsonl", {"command": ["true"]})
    monkeypatch.delenv("RAINBOW_TOKEN")
    assert "no token" in sh("bulk jobs.jsonl", code=3).err
    monkeypatch.setenv("RAINBOW_TOKEN", rainbow.token())
    monkeypatch.setenv("RAINBOW_BROKER_URL", "amqp://guest:guest@127.0.0.1:1/")
    assert "cannot reach the broker" in sh("bulk jobs.jsonl", code=4).err


def test_a_full_queue_says_so_and_the_rest_can_be_sent_later(
    rainbow: Rainbow, sh: Shell, tmp_path: Path, amqp_url: str
) -> None:
    """Nobody takes submissions, and the queue keeps few (S26): nothing is lost, and the error says how to go on."""
    rainbow.end()
    broker = connect(ConnectOptions(amqp_url))
    broker.delete([q.name for q in topology.core().queues])
    broker.declare(topology.core(topology.Limits(max_submissions=50)))
    written(tmp_path / "jobs.jsonl", *[{"command": ["true"]} for _ in range(2000)])
    said = sh("bulk jobs.jsonl --timeout 5", code=4)
    assert "as many submissions wait as the broker keeps: try again after some seconds" in said.err
    again = re.search(r"go on with `(rainbow bulk \S+ --run (\S+) --skip (\d+))`", said.err)
    assert again is not None
    assert len(said.out.split()) == int(again[3])
    waiting = broker.stats(topology.SCHEDULER_QUEUE).messages
    assert 0 < waiting < 2000
    assert "try again" in sh("submit true --timeout 5", code=4).err

    # Room again: the same run goes on, and every line is one job.
    taken: set[str] = set()
    consumer = broker.consume(topology.SCHEDULER_QUEUE, prefetch=1000)
    stop = threading.Event()

    def drain() -> None:
        while not stop.is_set():
            for delivery in consumer.take(500, 0.1):
                taken.add(delivery.message_id or "")
                consumer.ack([delivery])

    thread = threading.Thread(target=drain)
    thread.start()
    try:
        line = again[1].removeprefix("rainbow ")
        for _ in range(200):
            said = sh(f"{line} --timeout 20", code=None)
            if said.code == 0:
                break
            again = re.search(r"`rainbow (bulk \S+ --run \S+ --skip \d+)`", said.err)
            assert again is not None, said.err
            line = again[1]
        assert said.code == 0
        eventually(lambda: len(taken) >= 2000)
        assert len(taken) == 2000
    finally:
        stop.set()
        thread.join()
        broker.close()
