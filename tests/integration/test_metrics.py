"""The metrics of a scheduler, scraped as Prometheus does."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
import uuid

import pytest

from rainbow.errors import InvalidSettings
from rainbow_workers import metrics
from rig import Rig, eventually
from servers import Private, RedisServer, free_ports


def test_decisions_deliveries_clusters_and_queues_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics.Depths, "EVERY", 0.2)
    name, [port] = uuid.uuid4().hex, free_ports(1)
    with Rig(f"memory://{name}", f"memory://{name}") as rig:
        stop = metrics.serve(rig.service, f"127.0.0.1:{port}")
        try:
            rig.register("red")
            rig.register("blue")
            for _ in range(3):
                assert rig.submit(command=["a"])["status"] == "assigned"
            rig.submit(command=["a"], nodes=999)
            rig.submit(token="bad", command=["a"])
            rig.rpc.call({"op": "drain", "cluster": "blue"})

            def scrape() -> dict[str, float]:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                    text = answer.read().decode()
                return {k: float(v) for k, v in re.findall(r"^(rainbow_\S+) (\S+)$", text, re.MULTILINE)}

            found = eventually(lambda: scrape() if scrape().get('rainbow_clusters{state="drained"}') else None)
            dead = 'rainbow_queue_messages{queue="rainbow.dead"}'
            eventually(lambda: scrape().get(dead) == 0)
            rig.event("blue", str(uuid.uuid4()), 1, "running")
            eventually(lambda: scrape().get("rainbow_events_refused_total") == 1)
            rig.publish(b"{nonsense")
            eventually(lambda: scrape().get(dead) == 1)
        finally:
            stop()
    assert found['rainbow_jobs_total{outcome="assigned"}'] == 3
    assert found['rainbow_jobs_total{outcome="no-match"}'] == 1
    assert found['rainbow_jobs_total{outcome="denied"}'] == 1
    assert found['rainbow_deliveries_total{worker="scheduler"}'] == 5
    assert found['rainbow_clusters{state="open"}'] == 1
    assert found['rainbow_idle_seconds{worker="scheduler"}'] < 30


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:x"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    name = uuid.uuid4().hex
    with Rig(f"memory://{name}", f"memory://{name}") as rig, pytest.raises(InvalidSettings):
        metrics.serve(rig.service, address)


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as exc:
        return exc.code, exc.read().decode()


def test_probes_see_a_store_that_goes_away_and_a_worker_that_ends(
    amqp_url: str, private_redis: Private[RedisServer], redis_prefix: str
) -> None:
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with Rig(amqp_url, private_redis.server.url, prefix=redis_prefix) as rig:
        stop = metrics.serve(rig.service, f"127.0.0.1:{port}")
        try:
            eventually(lambda: get(f"{url}/readyz") == (200, "ok\n"))
            assert get(f"{url}/healthz") == (200, "ok\n")
            assert get(f"{url}/other")[0] == 404
            private_redis.freeze()
            eventually(lambda: get(f"{url}/readyz")[0] == 503, 60)
            assert "store" in get(f"{url}/readyz")[1]
            assert get(f"{url}/healthz")[0] == 200
            private_redis.thaw()
            eventually(lambda: get(f"{url}/readyz")[0] == 200, 60)
            rig.service.workers[0].error = RuntimeError("made by the test")
            assert get(f"{url}/healthz")[0] == 503
            assert "ended: RuntimeError" in get(f"{url}/healthz")[1]
            rig.service.workers[0].error = None
        finally:
            stop()
