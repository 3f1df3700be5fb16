"""One job over the real programs: its trace at a collector, and its story in the logs, found by its id alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from processes import Site
from rainbow.client import Client
from rainbow.errors import RainbowError
from rainbow.settings import load
from rig import eventually
from servers import free_ports
from traces import Collector, collector


@pytest.fixture
def spans() -> Iterator[Collector]:
    with collector() as made:
        yield made


def alive(client: Client) -> bool:
    try:
        return any(cluster.alive for cluster in client.clusters())
    except RainbowError:  # no scheduler yet
        return False


def story(folder: Path, job: str) -> list[str]:
    """What `grep JOB *.log` finds, in the order of time, and without what is said twice."""
    found = sorted(line for log in folder.glob("*.log") for line in log.read_text().splitlines() if job in line)
    return list(dict.fromkeys(line.partition("action=")[2].split()[0] for line in found))


def has_run(spans: Collector, job: str) -> bool:
    return any(span.name == "rainbow.run" for span in spans.of(job))


def test_its_trace_and_its_logs(
    amqp_url: str, redis_url: str, redis_prefix: str, tmp_path: Path, spans: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", spans.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    with Site(tmp_path, amqp_url, redis_url, redis_prefix) as site:
        site.scheduler()
        site.agent("blue", executor="local", options={}, report_every=1.0)
        with Client(settings=load(site.config, {})) as admin:
            eventually(lambda: alive(admin))
        [port] = free_ports(1)
        site.start("web", "rainbow.cli", "web", "--listen", f"127.0.0.1:{port}")
        eventually(lambda: "is up" in (tmp_path / "web.log").read_text())
        mine = site.settings_of("alice")
        job = site.cli("submit", "sh", "-c", "exit 3", config=mine).stdout.splitlines()[0]
        over_https = site.write("afar", {"broker": {"url": f"http://127.0.0.1:{port}"}, "token": site.token("bob")})
        other = site.cli("submit", "true", config=over_https).stdout.splitlines()[0]
        for each in (job, other):
            eventually(partial(has_run, spans, each))
            steps = {step.name.removeprefix("rainbow."): step for step in spans.of(each)}
            assert {name: step.service for name, step in steps.items()} == {
                "submit": "rainbow",
                "schedule": "rainbow-scheduler",
                "accept": "rainbow-agent",
                "run": "rainbow-agent",
            }
            assert {step.trace for step in steps.values()} == {steps["submit"].trace}
            parents = [steps[name].parent for name in ("submit", "schedule", "accept", "run")]
            assert parents == ["", steps["submit"].id, steps["schedule"].id, steps["schedule"].id]
            assert steps["run"].failed == (each == job)
        assert story(tmp_path, job) == ["assign", "accept", "start", "end"]
        # The web program logs a submission once the broker has it: the scheduler may be faster.
        first, second, *rest = story(tmp_path, other)
        assert {first, second} == {"submit", "assign"}
        assert rest == ["accept", "start", "end"]
