"""The scheduler's side as programs, and the agents beside it, when what they need goes away, forgets, or comes late."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from faults.chaos_judge import Tap, bodies, judge
from faults.chaos_load import Load
from faults.chaos_yard import CLUSTERS, Program, Yard
from rainbow import topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.errors import RainbowError
from servers import Private, RabbitServer, RedisServer, wait_until

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def yard(
    private_rabbitmq: Private[RabbitServer], private_redis: Private[RedisServer], tmp_path: Path
) -> Iterator[Yard]:
    """All programs running, a submitter ready; what is left over when the test ends is judged as by `chaos`."""
    made = Yard(tmp_path, private_rabbitmq, private_redis)
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def load(yard: Yard) -> Iterator[Load]:
    """Jobs come in while the test does its harm; afterwards none may be lost, and none may have run twice."""
    tap = Tap(yard)
    load = Load(yard, seed=1)
    load.start()
    time.sleep(2.0)  # a queue is not to be killed while it is being declared
    yield load
    yard.heal()
    load.stop()
    verdict = judge(yard, load, tap, lambda _: None)
    tap.close()
    assert not verdict.problems + load.problems, verdict.facts
    assert verdict.facts["ran"] > 0


def more_jobs(load: Load, count: int, timeout: float = 60.0) -> None:
    """Until so many further jobs were confirmed to the submitter."""
    wanted = len(load.jobs) + count
    wait_until(lambda: len(load.jobs) >= wanted, timeout, what="further jobs are confirmed")


def ran(yard: Yard) -> int:
    return len(bodies(yard.folder)[0])


def ran_in_the_end(yard: Yard) -> int:
    """Once the agents are killed: the jobs that they had started come to their first line without them."""
    counts = [-1, ran(yard)]
    while counts[-1] != counts[-2]:
        time.sleep(5)
        counts.append(ran(yard))
    return counts[-1]


def more_runs(yard: Yard, count: int, timeout: float = 120.0) -> None:
    wanted = ran(yard) + count
    wait_until(lambda: ran(yard) >= wanted, timeout, every=0.2, what="further jobs run")


def workers(yard: Yard) -> list[Program]:
    return [p for name, p in yard.programs.items() if not name.startswith("agent-")]


def test_a_frozen_scheduler_wakes_up_among_others(yard: Yard, load: Load) -> None:
    """S53, S08: there is no lock to outlive its owner. What it held goes to the other; when it goes on where it
    stopped, the ledger and the broker know better."""
    for name in ("scheduler-1", "scheduler-2"):
        yard.programs[name].signal(signal.SIGSTOP)
        more_runs(yard, 20)
        time.sleep(12)  # three heartbeats
        yard.programs[name].signal(signal.SIGCONT)
        more_runs(yard, 5)


def test_all_of_ours_is_down_for_longer_than_a_lease(yard: Yard, load: Load) -> None:
    """S35: jobs run on, and none is ended, moved or run again for it; what ended meanwhile is told afterwards."""
    more_runs(yard, 10)
    for program in workers(yard):
        program.kill()
    yard.redis.kill()
    time.sleep(20)  # twice `alive_after`
    yard.redis.start()
    for program in workers(yard):
        program.launch()
    more_runs(yard, 10)


def test_the_store_forgets_everything(yard: Yard, load: Load) -> None:
    """S51: queued jobs go on, agents come back by themselves, and running jobs are taken over from what they report."""
    with redis.Redis.from_url(yard.redis.server.url) as admin, yard.client() as client:
        for _ in range(3):
            more_runs(yard, 5)
            yard.forgotten.append(time.time())
            admin.flushall()
            wait_until(lambda: len(_alive(client)) == len(CLUSTERS), 60, what="all clusters are registered again")
    more_runs(yard, 10)


def _alive(client: Any) -> list[str]:
    try:
        return [c.name for c in client.clusters() if c.alive]
    except RainbowError:
        return []


@pytest.mark.slow
def test_broker_and_store_restart_again_and_again(
    yard: Yard, load: Load, private_rabbitmq: Private[RabbitServer], private_redis: Private[RedisServer]
) -> None:
    """S54: after each restart, also of both at once, a new job gets through: nobody is alive and deaf."""
    for round_ in range(6):
        if round_ % 3 != 1:
            private_rabbitmq.restart()
        if round_ % 3 != 0:
            private_redis.restart()
        more_jobs(load, 5)
        more_runs(yard, 5)


def test_jobs_wait_in_the_broker_while_agents_are_away(
    yard: Yard, load: Load, private_rabbitmq: Private[RabbitServer]
) -> None:
    """S25: no queue goes with its last consumer, and none with the broker's process."""
    agents = [p for name, p in yard.programs.items() if name.startswith("agent-")]
    for program in agents:
        program.kill()
    before = ran_in_the_end(yard)
    more_jobs(load, 20)
    private_rabbitmq.restart()
    more_jobs(load, 5)
    assert ran(yard) == before
    for program in agents:
        program.launch()
    more_runs(yard, 20)


@pytest.mark.slow
def test_rolling_restarts_of_everything(yard: Yard, load: Load) -> None:
    """S61: SIGTERM, one after the other under load: each ends with 0 within its grace, and nothing is lost."""
    for _ in range(2):
        for program in yard.programs.values():
            program.terminate()
            program.launch()
            more_runs(yard, 2)


@pytest.mark.slow
def test_short_losses_of_contact_restart_nothing(yard: Yard, load: Load) -> None:
    """S34: each outage is counted from its own beginning: many short ones do not add up to a long one."""
    agent = yard.programs["agent-blue"]
    with yard.client() as client:
        for _ in range(5):
            agent.broker.refuse()
            time.sleep(5)  # `alive_after` is 8
            assert client.cluster("blue").alive
            agent.broker.heal()
            wait_until(lambda: time.time() - (client.cluster("blue").heartbeat_at or 0) < 3, 30, what="it is back")


@pytest.mark.slow
def test_clocks_are_stepped(yard: Yard, load: Load) -> None:
    """S55: by less than the leeway, forth and back, under way: nothing is refused, expired or lost for it."""
    for seconds in (45.0, -45.0, 0.0):
        for program in yard.programs.values():
            program.step_clock(seconds)
            seconds = -seconds
        more_runs(yard, 10)


def test_programs_started_before_what_they_need(
    private_rabbitmq: Private[RabbitServer], private_redis: Private[RedisServer], tmp_path: Path
) -> None:
    """They say what they wait for, and go on by themselves once it is there; told to stop meanwhile, they do."""
    yard = Yard(tmp_path, private_rabbitmq, private_redis)
    try:
        for proxy in yard.proxies:
            proxy.refuse()
        for program in yard.programs.values():
            program.launch()
        log = tmp_path / "scheduler-1.log"
        wait_until(lambda: "not started yet" in log.read_text(), 60, every=0.5, what="it says what it waits for")
        for program in yard.programs.values():
            assert program.process is not None
            assert program.process.poll() is None, f"{program.name}: {yard.site.logs()[-2000:]}"
        yard.programs["scheduler-2"].terminate()
        assert yard.programs["scheduler-2"].ended == []
        for proxy in yard.proxies:
            proxy.heal()
        with yard.client() as client:
            wait_until(lambda: len(_alive(client)) == len(CLUSTERS), 120, every=0.5, what="all is well")
            assert client.submit(command=["true"], hold=60).wait(60).state == "completed"
    finally:
        yard.close()


def test_a_full_broker_refuses_submissions_at_once_and_drains(yard: Yard, load: Load) -> None:
    """S16: what is submitted under a memory alarm fails fast and says so; consuming goes on, and all of it recovers."""
    more_runs(yard, 5)
    yard.rabbit.server.ctl("set_vm_memory_high_watermark", "0.0000001")
    try:
        with yard.client(timeout=30.0) as client:
            wait_until(lambda: _refused_in_time(client), 60, what="a submission is refused")
        # What is queued is taken all the same. (RabbitMQ answers nothing on a connection that it blocks.)
        looking = connect(ConnectOptions(yard.rabbit.server.vhost_url(yard.vhost)))
        wait_until(lambda: looking.stats(topology.SCHEDULER_QUEUE).messages == 0, 60, what="the queue is drained")
        looking.close()
    finally:
        yard.rabbit.server.ctl("set_vm_memory_high_watermark", "0.6")
    began = time.monotonic()
    more_jobs(load, 1)
    assert time.monotonic() - began < 20
    more_runs(yard, 5)


def _refused_in_time(client: Any) -> bool:
    began = time.monotonic()
    try:
        client.submit_many([{"command": ["true"]}], timeout=20.0)
    except RainbowError as exc:
        assert time.monotonic() - began < 15
        return "low on memory" in str(exc) or "blocked" in str(exc)
    return False
