"""Schedulers are killed, or the store loses its data, while arrays run: each element runs once."""

from __future__ import annotations

import random
import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
import redis

from agentrig import Agents
from processes import Site
from rainbow import topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.client import Client
from rainbow.errors import RainbowError
from rainbow.models.arrays import read_array
from rainbow.models.ids import element_id
from rainbow.models.job import TERMINAL
from rainbow.settings import load
from rainbow_workers.scheduling import arrays
from rainbow_workers.scheduling.array_progress import of_route
from rainbow_workers.scheduling.submissions import held_route
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually, resources
from servers import Private, RedisServer

pytestmark = pytest.mark.timeout(300)

CLUSTERS = ("blue", "red")
#: Of the second array at most so many elements may run at a time.
WIDE, LIMIT = 1500, 9
#: Clusters are not waited for longer than they take to report again.
SOON = ServiceOptions(alive_after=8.0)


def at_once(spans: Iterable[tuple[float, float]]) -> int:
    """How many of these (start, end) overlap at most; one that ends when another starts does not."""
    most = now = 0
    for _, change in sorted(edge for start, end in spans for edge in ((start, 1), (end, -1))):
        now += change
        most = max(most, now)
    return most


def test_each_element_runs_once_and_within_the_limit(
    amqp_url: str, redis_url: str, redis_prefix: str, tmp_path: Path
) -> None:
    chance = random.Random(23)
    wide, narrow = str(uuid.uuid4()), str(uuid.uuid4())
    indices = {wide: range(1, WIDE + 1), narrow: range(0, 480, 2)}
    with Site(tmp_path, amqp_url, redis_url, redis_prefix, log_level="warning") as site:
        schedulers = {name: site.scheduler(name=name) for name in ("one", "two")}
        for cluster in CLUSTERS:
            options = {"run_s": 0.05, "log": str(site.starts_file(cluster))}
            site.agent(cluster, resources(nodes=2, cores=16, host=cluster), options=options)
        with Client(settings=load(site.config, {})) as client:
            site.served(client, len(CLUSTERS))
            client.submit(command=["true"], id=wide, array=f"1-{WIDE}")
            client.submit(command=["true"], id=narrow, array=f"0-479:2%{LIMIT}")
            last = client.submit(command=["true"], dependency=f"afterok:{wide}:{narrow}")
            site.kill_schedulers(schedulers, chance, down=(0.1, 0.6), up=(0.8, 1.5))

            def completed() -> bool:
                try:
                    record = client.status([last.id])[0]
                except RainbowError:
                    return False
                return record is not None and record.state == "completed"

            eventually(completed, 200, every=0.5)
            for array, its in indices.items():
                record = client.job(array).status()
                assert (record.state, record.counts) == ("completed", {"completed": len(its)})
            records = client.status([element_id(narrow, index) for index in indices[narrow]])
            broker = connect(ConnectOptions(amqp_url))
            eventually(lambda: broker.stats(topology.ARRAYS_QUEUE).messages == 0, 60, every=0.2)
            broker.close()
        ran = Counter(job for job, _ in site.starts([*CLUSTERS]))
    expected = [element_id(array, index) for array, its in indices.items() for index in its]
    assert ran == Counter([*expected, last.id])
    assert at_once((r.times["running"], r.times["ended"]) for r in records if r is not None) <= LIMIT


def test_the_store_loses_its_data_while_an_array_runs(
    amqp_url: str, private_redis: Private[RedisServer], tmp_path: Path
) -> None:
    """Agents report what they have and had: it is counted again, and none runs twice."""
    log = tmp_path / "starts"
    with Rig(amqp_url, private_redis.server.url, prefix=f"{uuid.uuid4().hex}:", options=SOON) as rig:
        agents = Agents(rig, tmp_path)
        try:
            agents.start("blue", options={"run_s": 0.02, "log": str(log)}, report_every=0.5)
            array = rig.submit(command=["true"], array="1-100%5")["id"]
            eventually(lambda: (rig.job(array) or {})["counts"].get("completed", 0) >= 20, every=0.05)
            with redis.Redis.from_url(private_redis.server.url) as admin:
                admin.flushall()

            def ended() -> bool:
                record = rig.job(array)
                return record is not None and record["state"] in ("completed", "failed")

            eventually(ended, 200, every=0.5)
            counts = (rig.job(array) or {})["counts"]
        finally:
            agents.close()
    ran = Counter(line.split()[0] for line in log.read_text().splitlines())
    assert counts == {"completed": 100} == {"completed": len(ran)}
    assert set(ran.values()) == {1}


def test_all_schedulers_die_and_the_store_loses_its_data_while_arrays_run(
    amqp_url: str, private_redis: Private[RedisServer], tmp_path: Path
) -> None:
    """What those that start know of the arrays comes from their messages and from the clusters."""
    wide, narrow = str(uuid.uuid4()), str(uuid.uuid4())
    sizes = {wide: 1200, narrow: 120}
    prefix = f"{uuid.uuid4().hex}:"
    settings = {"alive_after": 8.0}
    with Site(tmp_path, amqp_url, private_redis.server.url, prefix, log_level="warning", scheduler=settings) as site:
        schedulers = {name: site.scheduler(name=name) for name in ("one", "two")}
        for cluster in CLUSTERS:
            options = {"run_s": 0.1, "log": str(site.starts_file(cluster))}
            site.agent(cluster, resources(nodes=1, cores=8, host=cluster), options=options, report_every=1.0)
        with Client(settings=load(site.config, {})) as client:
            site.served(client, len(CLUSTERS))
            client.submit(command=["true"], id=narrow, array=f"1-{sizes[narrow]}%{LIMIT}")
            client.submit(command=["true"], id=wide, array=f"1-{sizes[wide]}")

            def ended(*most: int) -> bool:
                """Whether so many elements of both have ended."""
                try:
                    records = client.status([*sizes])
                except RainbowError:
                    return False
                counts = [sum(r.counts.get(s, 0) for s in TERMINAL) if r is not None else 0 for r in records]
                return all(count >= least for count, least in zip(counts, most, strict=True))

            eventually(lambda: ended(60, 20), 60, every=0.05)
            assert not ended(sizes[wide], 0)
            for name in schedulers:
                site.kill(schedulers[name])
            with redis.Redis.from_url(private_redis.server.url) as admin:
                admin.flushall()
            for name in schedulers:
                schedulers[name] = site.scheduler(name=name)
            eventually(lambda: ended(*sizes.values()), 200, every=0.5)
            for array, size in sizes.items():
                record = client.job(array).wait(timeout=30)
                assert (record.state, record.counts) == ("completed", {"completed": size})
        ran = Counter(job for job, _ in site.starts([*CLUSTERS]))
    assert ran == Counter([element_id(array, index + 1) for array, size in sizes.items() for index in range(size)])


def test_elements_that_the_store_lost_with_a_cluster_that_is_away_wait_for_it(
    amqp_url: str, private_redis: Private[RedisServer], tmp_path: Path
) -> None:
    """The store comes back with older data while a cluster is frozen, for longer than until it counts as lost."""
    prefix, size = f"{uuid.uuid4().hex}:", 600
    settings = {"alive_after": 6.0}
    with Site(tmp_path, amqp_url, private_redis.server.url, prefix, log_level="warning", scheduler=settings) as site:
        site.scheduler()
        agents = {}
        for cluster in CLUSTERS:
            options = {"run_s": 0.2, "log": str(site.starts_file(cluster))}
            graph = resources(nodes=1, cores=8, host=cluster)
            agents[cluster] = site.agent(cluster, graph, options=options, report_every=1.0)
        with Client(settings=load(site.config, {})) as client:
            site.served(client, len(CLUSTERS))
            with redis.Redis.from_url(private_redis.server.url) as admin:
                admin.config_set("appendonly", "no")  # from here on nothing reaches the disk
            array = client.submit(command=["true"], array=f"1-{size}%40").id
            eventually(lambda: len(site.starts(["blue"])) >= 60, 60, every=0.05)
            agents["blue"].send_signal(signal.SIGSTOP)
            private_redis.kill()
            private_redis.start()
            eventually(lambda: "arrays wait for what clusters blue had" in site.logs(), 60, every=0.2)
            time.sleep(2 * settings["alive_after"])
            red = len(site.starts(["red"]))
            assert len(site.starts([*CLUSTERS])) < size
            agents["blue"].send_signal(signal.SIGCONT)
            eventually(lambda: len({job for job, _ in site.starts([*CLUSTERS])}) == size, 120, every=0.5)
            assert len(site.starts(["red"])) > red
            assert client.job(array).wait(timeout=60).counts == {"completed": size}
        ran = Counter(job for job, _ in site.starts([*CLUSTERS]))
    assert ran == Counter([element_id(array, index + 1) for index in range(size)])


def test_what_ended_long_before_the_store_lost_its_data_is_known_from_the_message(
    amqp_url: str, private_redis: Private[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster does not report it any more; one element was cancelled, and of no cluster."""
    monkeypatch.setattr(arrays, "_NOTE", 0.5)
    with Rig(amqp_url, private_redis.server.url, prefix=f"{uuid.uuid4().hex}:", options=SOON) as rig:
        rig.register("blue", resources(nodes=4, cores=8))
        array = rig.submit(command=["true"], array="1-30:3%4")["id"]

        def end(*indices: int) -> None:
            for index in indices:
                state = "failed" if index == 4 else "completed"
                rig.event("blue", element_id(array, index), 1, state, returncode=3 * (index == 4))

        def counts() -> dict[str, int]:
            found: dict[str, int] = (rig.job(array) or {}).get("counts", {})
            return found

        eventually(lambda: counts() == {"assigned": 4})
        rig.rpc.call({"op": "cancel", "ids": [f"{array}[22]"]})  # is not sent yet
        end(1, 4, 10)
        eventually(lambda: counts() == {"assigned": 4, "completed": 2, "failed": 1})
        end(7, 13, 16)
        eventually(lambda: counts().get("cancelled"))

        def noted() -> bool:
            rig.service.stop()
            consumer = rig.broker.consume(topology.ARRAYS_QUEUE, prefetch=1)
            [delivery] = eventually(lambda: consumer.take(1, 1.0))
            route = held_route(rig.ring, delivery.headers, array) or {}
            consumer.requeue([delivery])
            consumer.cancel()
            rig.restart()
            return len(of_route(read_array("1-30:3%4"), route).ends) == 7

        eventually(noted, every=1.5)
        rig.service.stop()
        with redis.Redis.from_url(private_redis.server.url) as admin:
            admin.flushall()
        rig.restart()
        rig.register("blue", resources(nodes=4, cores=8))
        epoch = rig.store.clusters.changes(0).epoch.number
        rig.says("blue", {"version": 1, "events": [], "epoch": epoch})
        # 19, 25 and 28 were with the cluster, and came back from there: it does not have them.
        eventually(lambda: counts() == {"assigned": 3, "completed": 5, "failed": 1, "cancelled": 1})
        assert (rig.job(f"{array}[4]") or {})["state"] == "failed"
        assert (rig.job(f"{array}[22]") or {})["state"] == "cancelled"
        end(19, 25, 28)
        record = rig.until(array, "failed")
        assert record["counts"] == {"completed": 8, "failed": 1, "cancelled": 1}
        assert record["exit_code"] == 3
