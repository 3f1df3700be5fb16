"""The files for Prometheus and Grafana beside the metrics that exist, and alerts fired by a fault.

Those that need the real programs are in test_alerts.
"""

from __future__ import annotations

import json
import re
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import promql_parser as promql
import pytest
import yaml
from prometheus_client import CollectorRegistry

from alerts import ALERTS, MONITORING, Samples, fires, samples_of
from rainbow import topology
from rainbow.brokers.base import Message
from rainbow.models.job import JobEvent
from rainbow.settings import Settings
from rainbow.web.app import Metrics
from rainbow_agents import metrics as agent_metrics
from rainbow_agents.agent import Agent
from rainbow_agents.metrics import Collector as AgentCollector
from rainbow_workers.metrics import Collector, Depths
from rainbow_workers.scheduling.durations import STAGES
from rig import Rig, eventually, resources
from servers import Private, RabbitServer, RedisServer
from webserver import serve


class Watched:
    """The metrics of a rig's workers."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.depths = Depths(rig.service)
        self.depths.EVERY = 0.2
        self.depths.start()
        self.registry = CollectorRegistry()
        self.registry.register(Collector(rig.service, self.depths, users=True))
        self.before = samples_of(self.registry)

    def fired(self) -> set[str]:
        now = samples_of(self.registry)
        return {alert for alert, expression in ALERTS.items() if fires(expression, now, self.before)}

    def until(self, alert: str) -> None:
        eventually(lambda: alert in self.fired(), 60)


@pytest.fixture
def watched(
    private_rabbitmq: Private[RabbitServer],
    private_amqp_url: str,
    private_redis: Private[RedisServer],
    redis_prefix: str,
) -> Iterator[Watched]:
    rig = Rig(private_amqp_url, private_redis.server.url, prefix=redis_prefix)
    made = Watched(rig)
    eventually(lambda: not made.fired(), 60)
    yield made
    made.depths.stop()
    private_redis.healed()
    private_rabbitmq.healed()
    rig.close()


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"rainbow_\w+", expression))


def test_every_metric_that_is_named_exists(tmp_path: Path) -> None:
    name = uuid.uuid4().hex
    with Rig(f"memory://{name}", f"memory://{name}") as rig:
        watched = Watched(rig)
        watched.depths.stop()
        web = Metrics()
        web.requests.labels("v1", "2xx").inc()
        web.seconds.labels("v1").observe(1)
        agent = CollectorRegistry()
        agent.register(AgentCollector(lone_agent(tmp_path)))
        known = {n for registry in (watched.registry, web.registry, agent) for n, _, _ in samples_of(registry)}
        for family in watched.registry.collect():
            endings = {"counter": ("_total",), "summary": ("_sum", "_count")}.get(family.type, ())
            known |= {f"{family.name}{ending}" for ending in endings}
        known |= {f.name for f in watched.registry.collect()} | {"rainbow_queue_messages", "rainbow_jobs_total"}
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    used = {n for e in ALERTS.values() for n in names_in(e)}
    for panel in dashboard["panels"]:
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            promql.parse(target["expr"])
        used |= {n for target in panel["targets"] for n in names_in(target["expr"])}
    assert used <= known, used - known
    page = (MONITORING.parents[1] / "reference" / "metrics.md").read_text()
    documented = set(re.findall(r"^\| `(rainbow_\w+)`", page, re.MULTILINE))
    families = {re.sub(r"_(created|bucket|count|sum)$", "", n) for n in known}
    assert documented <= families | {"rainbow_web_requests_total"}
    assert {n for n in families if not n.endswith("_created") and f"{n}_total" not in families} <= documented | {
        "rainbow_web_requests"
    }


def test_every_rule_says_what_to_do() -> None:
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("page", "ticket")
            assert rule["annotations"]["summary"].endswith(".")
            assert rule["annotations"]["action"]


def test_the_broker_is_down(watched: Watched, private_rabbitmq: Private[RabbitServer]) -> None:
    private_rabbitmq.server.ctl("stop_app")
    try:
        watched.until("RainbowBrokerUnreachable")
    finally:
        private_rabbitmq.server.ctl("start_app")


def test_the_store_freezes(watched: Watched, private_redis: Private[RedisServer]) -> None:
    private_redis.freeze()
    watched.until("RainbowWorkerNotConsuming")
    watched.until("RainbowStoreAway")


def test_dead_letters_and_events_that_are_refused(watched: Watched) -> None:
    rig = watched.rig
    rig.publish(b"{nonsense")
    watched.until("RainbowDeadLetters")
    rig.register("blue")
    rig.event("blue", str(uuid.uuid4()), 1, "running")
    watched.until("RainbowEventsRefused")


def test_a_cluster_on_which_jobs_fail(watched: Watched) -> None:
    rig = watched.rig
    rig.register("blue", resources())
    rig.report("blue", nodes_free=4, failing=0.95)
    watched.until("RainbowClusterThrottled")


def test_submissions_pile_up() -> None:
    name = uuid.uuid4().hex
    with Rig(f"memory://{name}", f"memory://{name}", start=False) as rig:  # no scheduler takes them
        watched = Watched(rig)
        many = [Message(topology.SUBMIT, "submit", b"{}") for _ in range(10_000)]
        rig.submitter.publish(many).check(60)
        eventually(lambda: watched.depths.known.get(topology.SCHEDULER_QUEUE) == 10_000)
        assert "RainbowSubmissionsWait" not in watched.fired()
        rig.publish(b"{}")
        watched.until("RainbowSubmissionsWait")
        watched.depths.stop()


def test_jobs_that_wait_are_counted() -> None:
    name = uuid.uuid4().hex
    with Rig(f"memory://{name}", f"memory://{name}") as rig:
        rig.register("blue", resources(nodes=1))
        assert rig.submit(command=["true"], nodes=2, hold=600)["status"] == "held"
        watched = Watched(rig)
        eventually(lambda: 0 < dict(values(watched, "rainbow_waiting_oldest_seconds"))[""] < 3600)
        eventually(lambda: dict(values(watched, "rainbow_jobs_now")) == {"waiting": 1, "running": 0})
        assert dict(values(watched, "rainbow_user_jobs"))["defaultalicewaiting"] == 1
        silent = CollectorRegistry()
        silent.register(Collector(rig.service, watched.depths))
        assert "alice" not in {value for _, labels, _ in samples_of(silent) for value in labels.values()}
        watched.depths.stop()


def values(watched: Watched, metric: str) -> list[tuple[str, float]]:
    """The samples of a metric, by their label."""
    return [("".join(labels.values()), v) for name, labels, v in samples_of(watched.registry) if name == metric]


def test_what_happens_to_jobs_is_counted_by_cluster_and_reason() -> None:
    name = uuid.uuid4().hex
    with Rig(f"memory://{name}", f"memory://{name}") as rig:
        watched = Watched(rig)
        rig.register("blue", resources(nodes=4, cores=8))
        rig.report("blue", nodes_free=3, cores_free=24, jobs_pending=5)
        queue = rig.jobs_of("blue")
        jobs = [rig.submit(command=["true"])["id"] for _ in range(2)]
        for job in jobs:
            [delivery] = eventually(lambda: queue.take(1, 1.0))
            grant = {"grant": rig.open(delivery)["grant"]}
            rig.event("blue", job, 1, "accepted", **grant)
            rig.event("blue", job, 1, "running", **grant)
            queue.ack([delivery])
        rig.event("blue", jobs[0], 1, "failed", returncode=1)
        rig.event("blue", rig.submit(command=["true"])["id"], 1, "rejected", code="policy", detail="no")
        rig.event("blue", rig.submit(command=["true"])["id"], 1, "rejected", code="of-its-own", detail="no")
        eventually(lambda: dict(values(watched, "rainbow_refusals_total")) == {"policy": 1, "other": 1})
        assert dict(values(watched, "rainbow_accepted_total")) == {"1": 2}
        assert dict(values(watched, "rainbow_ends_total")) == {"failed": 1}
        assert dict(values(watched, "rainbow_cluster_start_seconds_count")) == {"blue": 2}
        assert dict(values(watched, "rainbow_start_seconds_bucket"))["+Inf"] == 2
        assert 0.25 <= dict(values(watched, "rainbow_cluster_used_ratio"))["blue"] < 0.5
        assert dict(values(watched, "rainbow_cluster_jobs_pending"))["blue"] >= 5
        assert dict(values(watched, "rainbow_store_answers")) == {"": 1}
        watched.depths.stop()


def lone_agent(folder: Path) -> Agent:
    """An agent whose broker cannot be reached."""
    (folder / "blue.json").write_text(json.dumps(resources()))
    given = {
        "broker": {"url": "amqp://127.0.0.1:9/", "connect_timeout": 0.3},
        "cluster": {"name": "blue"},
        "agent": {"state_dir": str(folder), "executor": "dry-run", "graph": str(folder / "blue.json")},
        "token": "x",
    }
    return Agent(Settings.model_validate(given))


def test_an_agent_without_a_broker(tmp_path: Path) -> None:
    agent = lone_agent(tmp_path)
    agent.start()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    stop = agent_metrics.serve(agent, f"127.0.0.1:{port}")
    try:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
        assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=60).status_code == 200
        ready = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=60)
        assert ready.status_code == 503
        assert ready.text.strip(), "it says why"
    finally:
        stop()
        agent.stop(1.0)
    figures = re.findall(r"^(rainbow_agent_\w+) (\S+)$", text, re.MULTILINE)
    found: list[tuple[str, dict[str, str], float]] = [(name, {}, float(value)) for name, value in figures]
    assert fires(ALERTS["RainbowAgentNotWorking"], found, [])
    assert re.search(r'^rainbow_agent_state\{state="[a-z-]+"\} 1.0$', text, re.MULTILINE)


def test_events_pile_up_on_an_agent(tmp_path: Path) -> None:
    agent = lone_agent(tmp_path)
    registry = CollectorRegistry()
    registry.register(AgentCollector(agent))
    assert not fires(ALERTS["RainbowAgentEventsWait"], samples_of(registry), [])
    outbox = agent.journal.outbox
    with agent.journal.file.write() as db:  # of jobs that ran while the broker was away
        for _ in range(10_001):
            event = JobEvent(id=str(uuid.uuid4()), attempt=1, cluster="blue", state="running", at=1.0)
            outbox.put(db, event, 1.0)
    assert fires(ALERTS["RainbowAgentEventsWait"], samples_of(registry), [])
    agent.journal.close()


def test_stages_of_scheduling_are_counted_by_job() -> None:
    name = uuid.uuid4().hex
    with Rig(f"memory://{name}", f"memory://{name}") as rig:
        rig.register("blue", resources())
        for _ in range(5):
            assert rig.submit(command=["true"])["status"] == "assigned"
        durations = eventually(lambda: d if sum((d := rig.service.durations()).counts["confirm"]) >= 5 else None, 60)
        for stage in STAGES:
            assert sum(durations.counts[stage]) == 5, stage
            assert durations.sums[stage] > 0
        registry = CollectorRegistry()
        registry.register(Collector(rig.service, Depths(rig.service)))
        counts = {
            labels["stage"]: value
            for sample, labels, value in samples_of(registry)
            if sample == "rainbow_stage_seconds_bucket" and labels["le"] == "+Inf"
        }
    assert counts == dict.fromkeys(STAGES, 5.0)


def test_the_web_program_without_a_broker() -> None:
    settings = Settings.model_validate(
        {"broker": {"url": "amqp://127.0.0.1:9/", "connect_timeout": 0.3}, "web": {"rate": 1000}}
    )
    for url in serve(settings):
        with httpx.Client(base_url=url, headers={"Authorization": "Bearer x"}, timeout=60) as client:
            for _ in range(11):
                assert client.get("/v1/clusters").status_code == 503
            text = client.get("/metrics").text
    count = float(re.findall(r'rainbow_web_requests_total\{area="v1",status="5xx"\} (\S+)', text)[0])
    now: Samples = [("rainbow_web_requests_total", {"area": "v1", "status": "5xx"}, count)]
    assert fires(ALERTS["RainbowWebErrors"], now, [])


def test_each_alert_is_fired_by_a_test() -> None:
    text = "".join(Path(__file__).with_name(name).read_text() for name in ("test_monitoring.py", "test_alerts.py"))
    assert [alert for alert in ALERTS if f'"{alert}"' not in text] == []
