"""The agent with its broker cut off or silent, its executor late, its disk full: nothing starts twice or is lost."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from agentrig import Agents, ended, shell, submit
from faults.proxy import Proxy
from rainbow import topology
from rainbow_agents.executors.base import Context, Ended, Held, Listener, Started, Submitted, Work
from rainbow_agents.executors.dry_run import DryRunExecutor
from rig import Rig, eventually, resources
from servers import Private, RabbitServer

WIDE = resources(nodes=16, cores=16)


class Counting(DryRunExecutor):
    """dry-run that counts what it lets start, and may answer late or be told to do something at a submission."""

    made: list[Counting]

    def __init__(self, context: Context, listener: Listener, *, act: Callable[[Counting], None] | None = None) -> None:
        self.starts: Counter[str] = Counter()
        self.submissions: Counter[str] = Counter()
        self.act = act
        super().__init__(context, listener)

    def submit(self, works: Any) -> None:
        self.submissions.update(w.mark.id for w in works)
        super().submit(works)
        if self.act is not None:
            self.act(self)

    def release(self, jobs: Any) -> None:
        with self._alarm:
            fresh = [h for h in jobs if h.handle in self._jobs and self._jobs[h.handle].phase == "held"]
        self.starts.update(h.mark.id for h in fresh)
        super().release(jobs)


@pytest.fixture
def rig(amqp_url: str) -> Iterator[Rig]:
    with Rig(amqp_url, f"memory://{uuid.uuid4()}") as rig:
        yield rig


@pytest.fixture
def proxy(amqp_url: str) -> Iterator[Proxy]:
    parts = urlsplit(amqp_url)
    proxy = Proxy(parts.hostname or "127.0.0.1", parts.port or 5672)
    yield proxy
    proxy.close()


def through(proxy: Proxy, url: str) -> str:
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{proxy.port}"))


def start(agents: Agents, rig: Rig, proxy: Proxy | None = None, act: Any = None, **given: Any) -> Counting:
    made: list[Counting] = []

    def executor(context: Context, listener: Listener) -> Counting:
        made.append(Counting(context, listener, act=act))
        return made[-1]

    url = through(proxy, rig.broker_url) if proxy is not None else None
    parts = {"executor": executor, **given.pop("parts", {})}
    agents.start(graph=WIDE, url=url, parts=parts, **given)
    return made[-1]


def check(rig: Rig, executor: Counting, ids: list[str]) -> None:
    records = ended(rig, ids, 120)
    assert {r["state"] for r in records.values()} == {"completed"}
    assert {r["attempt"] for r in records.values()} == {1}
    assert executor.starts == Counter(ids)


def test_cut_between_submit_and_ack(rig: Rig, agents: Agents, proxy: Proxy) -> None:
    """The delivery is lost just after the executor took the job: it comes again, and the job still starts once."""
    cuts = iter([True, True, True])

    def cut(_: Counting) -> None:
        if next(cuts, False):
            proxy.cut()

    executor = start(agents, rig, proxy, act=cut)
    ids: list[str] = []
    for _ in range(3):
        ids += submit(rig, 1, lambda _: shell("true"))
        check(rig, executor, ids)
    assert next(cuts, None) is None


def test_cut_again_and_again_under_load(rig: Rig, agents: Agents, proxy: Proxy) -> None:
    executor = start(agents, rig, proxy)
    stop = threading.Event()

    def cut() -> None:
        while not stop.wait(random.uniform(0.1, 1.0)):
            proxy.cut()

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        ids = submit(rig, 200, lambda _: shell("true"))
        time.sleep(5)
    finally:
        stop.set()
        thread.join()
    check(rig, executor, ids)


def test_confirms_that_never_come(rig: Rig, agents: Agents, proxy: Proxy) -> None:
    """S14: the link goes silent right after the submission. Nothing starts before the broker has `accepted`."""
    silent = iter([True])

    def swallow(_: Counting) -> None:
        if next(silent, False):
            proxy.swallow()

    executor = start(agents, rig, proxy, act=swallow)
    ids = submit(rig, 5, lambda _: shell("true"))
    eventually(lambda: sum(executor.submissions.values()), 60)
    time.sleep(1)
    assert not executor.starts
    proxy.heal()
    check(rig, executor, ids)


def test_an_outage_restarts_nothing_and_events_arrive_after(rig: Rig, agents: Agents, proxy: Proxy) -> None:
    """S34: jobs run on while the broker is away; their ends are told when it is back."""
    executor = start(agents, rig, proxy, options={"run_s": 2.0})
    ids = submit(rig, 20, lambda _: shell("true"))
    for job in ids:
        rig.until(job, "running", 60)
    proxy.refuse()
    time.sleep(4)
    proxy.heal()
    check(rig, executor, ids)


def _epoch(agents: Agents) -> object:
    """Which channel the agent consumes on."""
    parts = agents.running[0].parts
    return parts.intake.epoch if parts is not None else None


def test_queue_deleted_and_declared_again(rig: Rig, agents: Agents) -> None:
    """S02: the consumer notices, and work goes on without a restart.

    Not declared again at once: RabbitMQ 3.10 then loses what is confirmed into the new quorum queue (seen here).
    """
    executor = start(agents, rig, report_every=0.5)
    check(rig, executor, submit(rig, 3, lambda _: shell("true")))
    epoch = _epoch(agents)
    rig.broker.delete([topology.jobs_queue("blue")])
    eventually(lambda: _epoch(agents) != epoch, 30)
    time.sleep(2)
    rig.broker.declare(topology.cluster("blue", rig.options.limits))
    ids = submit(rig, 3, lambda _: shell("true"))
    records = ended(rig, ids, 60)
    assert {r["state"] for r in records.values()} == {"completed"}


def test_without_the_right_to_read_its_queue_it_says_so_and_goes_on_once_it_has_it(
    private_rabbitmq: Private[RabbitServer],
    private_amqp_url: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S58, S54: refused for good reason, it is neither silent nor busy, and not taken for healthy."""
    monkeypatch.setattr("rainbow.brokers.rabbitmq.consumer.SAY_AGAIN", 2.0)
    ctl, vhost = private_rabbitmq.server.ctl, urlsplit(private_amqp_url).path.lstrip("/")
    ctl("add_user", "agent-blue", "secret-of-blue")
    ctl("set_permissions", "-p", vhost, "agent-blue", "", ".*", "amq\\.")
    url = urlunsplit(
        urlsplit(private_amqp_url)._replace(
            netloc=f"agent-blue:secret-of-blue@127.0.0.1:{private_rabbitmq.server.port}"
        )
    )
    with Rig(private_amqp_url, f"memory://{uuid.uuid4()}") as rig:
        agents = Agents(rig, tmp_path)
        try:
            agent = agents.start(graph=WIDE, url=url, taking=False)
            eventually(lambda: "ACCESS_REFUSED" in agent.health().detail, 60)
            assert agent.state == "paused"
            agents.known("blue")
            ids = submit(rig, 3, lambda _: shell("true"))
            health = agent.health()
            assert not health.ok
            assert "right to read" in health.detail

            def said() -> list[str]:
                found = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
                return [text for text in found if "not consuming from rainbow.jobs.blue" in text]

            eventually(lambda: len(said()) >= 2, 60)  # again after a while, and not at each try
            ctl("set_permissions", "-p", vhost, "agent-blue", "", ".*", ".*")
            assert {r["state"] for r in ended(rig, ids, 60).values()} == {"completed"}
            eventually(lambda: agent.health().ok, 30)
            assert agent.failure is None
            assert len(said()) < 20
        finally:
            agents.close()


def test_a_slow_executor_costs_no_connection(rig: Rig, agents: Agents) -> None:
    """S01, S07: a call that blocks for several heartbeats loses no delivery, and reports go on."""
    slow = iter([True])

    def block(_: Counting) -> None:
        if next(slow, False):
            time.sleep(15)

    executor = start(agents, rig, act=block, report_every=0.5)
    ids = submit(rig, 10, lambda _: shell("true"))
    check(rig, executor, ids)
    assert executor.submissions == Counter(ids)


class Late(Counting):
    """Answers the first submission of each job far too late, and holds the job all the while."""

    def __init__(self, context: Context, listener: Listener) -> None:
        self.late: list[Submitted] = []
        self._real = listener
        self._seen: set[str] = set()
        super().__init__(context, self._filter)

    def _filter(self, happening: Any) -> None:
        if isinstance(happening, Submitted) and happening.mark.id not in self._seen:
            self._seen.add(happening.mark.id)
            self.late.append(happening)
        else:
            self._real(happening)


def test_an_answer_that_comes_too_late_starts_nothing(rig: Rig, agents: Agents) -> None:
    """S45: the delivery goes back in bounded time; what the first try left is ended, the second one starts, once."""
    made: list[Late] = []

    def executor(context: Context, listener: Listener) -> Late:
        made.append(Late(context, listener))
        return made[-1]

    agents.start(graph=WIDE, parts={"executor": executor, "settle_within": 1.0, "reconcile_every": 1.0})
    ids = submit(rig, 3, lambda _: shell("true"))
    check(rig, made[0], ids)
    assert len(made[0].late) == 3
    for happening in made[0].late:
        made[0]._real(happening)
    eventually(lambda: made[0].usage().jobs_running == 0 and not made[0]._jobs, 30)
    assert made[0].starts == Counter(ids)


def test_a_full_disk_stops_the_taking_and_heals(rig: Rig, agents: Agents) -> None:
    """The journal cannot grow: nothing starts that is not written down; it says so, and goes on when there is room."""
    made: list[Counting] = []

    def executor(context: Context, listener: Listener) -> Counting:
        made.append(Counting(context, listener))
        return made[-1]

    agent = agents.start(graph=WIDE, parts={"executor": executor}, report_every=0.5)
    ids = submit(rig, 5, lambda _: shell("true"))
    check(rig, made[0], ids)
    with agent.journal.file.lock:
        agent.journal.file.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages = agent.journal.file.connection.execute("PRAGMA page_count").fetchone()[0]
        agent.journal.file.connection.execute(f"PRAGMA max_page_count={pages}")
    more = submit(rig, 200, lambda _: shell("true"), name="x" * 1000)
    eventually(lambda: agent.state == "paused", 60)
    assert agent.failure is None
    with agent.journal.file.lock:
        agent.journal.file.connection.execute("PRAGMA max_page_count=1000000")
    check(rig, made[0], ids + more)


def test_held_and_forgotten_jobs_are_ended(rig: Rig, agents: Agents) -> None:
    """S45: a held job that no agent wrote down (killed in between) is ended by the sweep."""
    executor = start(agents, rig, parts={"reconcile_every": 0.5})
    from rainbow.jobspec.request import Demand
    from rainbow_agents.executors.base import SubmissionKey

    mark = SubmissionKey(str(uuid.uuid4()), 1, "0" * 16)
    DryRunExecutor.submit(executor, [Work(mark, (), Demand(0, 1, 0))])
    eventually(lambda: all(f.mark != mark for f in executor.recover([]).jobs), 30)
    assert mark.id not in executor.starts
    assert Held(mark, "x").mark == mark


class Deaf(Counting):
    """Tells only some of what happens."""

    def __init__(self, context: Context, listener: Listener) -> None:
        self._heard = listener
        self._chance = random.Random(3)
        self.untold = 0
        super().__init__(context, self._some)

    def _some(self, happening: Any) -> None:
        if isinstance(happening, Started | Ended) and self._chance.random() < 0.3:
            self.untold += 1
        else:
            self._heard(happening)


def test_what_the_executor_did_not_tell_is_found_out(rig: Rig, agents: Agents) -> None:
    """S48: of starts and ends a third is lost on the way; comparing closes all gaps."""
    made: list[Deaf] = []

    def executor(context: Context, listener: Listener) -> Deaf:
        made.append(Deaf(context, listener))
        return made[-1]

    agents.start(graph=WIDE, parts={"executor": executor, "reconcile_every": 1.0})
    ids = submit(rig, 200, lambda _: shell("true"))
    check(rig, made[0], ids)
    assert made[0].untold > 50


def test_a_job_that_ended_unseen_and_was_purged_is_lost_and_not_run_again(rig: Rig, agents: Agents) -> None:
    """S42: that the executor has no trace of it left is no reason to think that it never ran."""
    executor = start(agents, rig, options={"run_s": 60.0})
    ids = submit(rig, 3, lambda _: shell("true"))
    for job in ids:
        rig.until(job, "running", 60)
    agents.running.pop().stop()
    after = start(agents, rig, parts={"reconcile_every": 1.0})  # one that knows of nothing
    records = ended(rig, ids, 60)
    assert {(r["state"], r["attempt"]) for r in records.values()} == {("lost", 1)}
    assert executor.starts == Counter(ids)
    assert not after.starts
