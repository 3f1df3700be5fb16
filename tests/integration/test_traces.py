"""One trace a job, with the SDK's own exporter: in this process, on the memory broker and over HTTPS."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agentrig import Agents, shell
from rainbow import tracing
from rainbow.brokers import ConnectOptions, connect
from rainbow.cli.commands import checks
from rainbow.client import Client
from rainbow.errors import Unroutable
from rainbow.settings import Settings
from rainbow_agents.executors.base import Started, SubmissionKey, Submitted
from rainbow_agents.journal import Journal
from rig import Rig, eventually
from webserver import serve

THEIRS = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Spans:
    """What was recorded, by job."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def of(self, job: str) -> list[ReadableSpan]:
        found = [s for s in self.exporter.get_finished_spans() if (s.attributes or {}).get("rainbow.job") == job]
        return sorted(found, key=lambda span: (span.start_time or 0, span.end_time or 0))

    def until(self, job: str, *names: str) -> list[ReadableSpan]:
        """The spans of a job, once there are those of these names, in the order of their parents."""

        def look() -> list[ReadableSpan] | None:
            spans = self.of(job)
            return spans if sorted(s.name for s in spans) == sorted(names) else None

        return eventually(look)


def traceparent(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return f"00-{trace.format_trace_id(context.trace_id)}-{trace.format_span_id(context.span_id)}-01"


def parent(span: ReadableSpan) -> str | None:
    return None if span.parent is None else trace.format_span_id(span.parent.span_id)


def one(spans: list[ReadableSpan], name: str) -> ReadableSpan:
    [found] = [span for span in spans if span.name == name]
    return found


def follows(later: ReadableSpan, earlier: ReadableSpan) -> bool:
    return traceparent(earlier)[3:35] == traceparent(later)[3:35] and parent(later) == traceparent(earlier)[36:52]


@pytest.fixture
def spans() -> Iterator[Spans]:
    made = Spans()
    tracing.use(made.provider)
    yield made
    tracing.use(None)


@pytest.fixture
def rig() -> Iterator[Rig]:
    name = uuid.uuid4().hex
    with Rig(f"memory://{name}", f"memory://{name}") as made:
        yield made


@pytest.fixture
def client(rig: Rig) -> Iterator[Client]:
    with Client(broker=rig.connect("client"), token=rig.token, timeout=30) as made:
        yield made


def test_from_the_submitter_over_scheduler_and_agent_to_the_end(
    rig: Rig, client: Client, agents: Agents, spans: Spans
) -> None:
    agents.start(executor="local")
    job = client.submit(jobspec=shell("exit 3"))
    assert job.wait(60).state == "failed"
    found = spans.until(job.id, "rainbow.submit", "rainbow.schedule", "rainbow.accept", "rainbow.run")
    submit, schedule, accept, run = (one(found, f"rainbow.{n}") for n in ("submit", "schedule", "accept", "run"))
    assert submit.parent is None
    assert follows(schedule, submit)
    assert follows(accept, schedule)
    assert follows(run, schedule)
    assert dict(schedule.attributes or {}) == {
        "rainbow.job": job.id,
        "rainbow.attempt": 1,
        "rainbow.cluster": "blue",
        "rainbow.status": "assigned",
    }
    assert (run.attributes or {})["rainbow.returncode"] == 3
    assert [s.status.is_ok for s in (submit, schedule, accept, run)] == [True, True, True, False]
    record = client.status([job.id])[0]
    assert record is not None
    assert (run.end_time or 0) / 1e9 == pytest.approx(record.times["ended"], abs=1e-3)
    assert (run.start_time or 0) / 1e9 == pytest.approx(record.times["running"], abs=1e-3)


def test_each_job_of_many_belongs_to_the_callers_span(client: Client, rig: Rig, spans: Spans) -> None:
    rig.register("blue")
    with spans.provider.get_tracer("mine").start_as_current_span("sweep") as sweep:
        jobs = client.submit_many([{"command": ["true"]} for _ in range(3)])
    for job in jobs:
        assert job.answer.cluster == "blue"
        submit = one(spans.until(job.id, "rainbow.submit", "rainbow.schedule"), "rainbow.submit")
        assert submit.parent == sweep.get_span_context()


def test_a_job_that_waits_and_is_refused_stays_in_its_trace(
    rig: Rig, client: Client, agents: Agents, spans: Spans
) -> None:
    job = client.submit(jobspec=shell("true"), hold=60)
    assert job.answer.status == "held"
    agents.start("blue", executor="local", allowed_users=["somebody-else"])
    agents.start("red", executor="local")
    assert job.wait(60).cluster == "red"
    eventually(lambda: any(span.name == "rainbow.run" for span in spans.of(job.id)))
    found = spans.of(job.id)
    assert {traceparent(span)[3:35] for span in found} == {traceparent(found[0])[3:35]}
    told = [
        (
            span.name,
            attributes.get("rainbow.status") or attributes.get("rainbow.code"),
            attributes.get("rainbow.cluster"),
        )
        for span in found
        if (attributes := span.attributes or {})
    ]
    assert told[:2] == [("rainbow.submit", None, None), ("rainbow.schedule", "held", None)]
    assert ("rainbow.schedule", "assigned", "red") in told
    if ("rainbow.accept", "policy", "blue") in told:  # it was offered to blue first
        assert not next(s for s in found if (s.attributes or {}).get("rainbow.code") == "policy").status.is_ok
    assert told[-1] == ("rainbow.run", None, "red")


def test_what_is_not_submitted_is_an_error_in_its_trace(spans: Spans) -> None:
    broker = connect(ConnectOptions(f"memory://{uuid.uuid4().hex}"))  # no queue is declared there
    job = str(uuid.uuid4())
    with Client(broker=broker, token="t", timeout=5) as client, pytest.raises(Unroutable):
        client.submit(id=job, command=["true"])
    broker.close()
    [span] = spans.of(job)
    assert (span.name, span.status.is_ok) == ("rainbow.submit", False)
    assert "no queue" in (span.status.description or "")


def test_over_https(rig: Rig, agents: Agents, spans: Spans) -> None:
    agents.start(executor="local")
    for url in serve(Settings.model_validate({"broker": {"url": rig.broker_url}})):
        with Client(settings=Settings.model_validate({"broker": {"url": url}}), token=rig.token, timeout=30) as client:
            job = client.submit(command=["true"])
            assert job.wait(60).state == "completed"
        found = spans.until(job.id, "rainbow.submit", "rainbow.schedule", "rainbow.accept", "rainbow.run")
        assert follows(one(found, "rainbow.schedule"), one(found, "rainbow.submit"))
        headers = {"Authorization": f"Bearer {rig.token}", "traceparent": THEIRS}
        posted = httpx.post(f"{url}/v1/jobs", json={"command": ["true"]}, headers=headers)
        theirs = posted.json()["jobs"][0]["id"]
        found = spans.until(theirs, "rainbow.submit", "rainbow.schedule", "rainbow.accept", "rainbow.run")
        assert parent(one(found, "rainbow.submit")) == THEIRS[36:52]
        assert {traceparent(span)[3:35] for span in found} == {THEIRS[3:35]}


def test_where_traces_are_off_the_header_goes_on_as_it_is(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_SDK", "not imported")
    assert not tracing.is_on()
    rig.register("blue")
    queue = rig.jobs_of("blue")
    rig.publish(b'{"token": "%s", "command": "true"}' % rig.token.encode(), headers={"traceparent": THEIRS})
    [delivery] = eventually(lambda: queue.take(1, 1.0))
    assert delivery.headers["traceparent"] == THEIRS
    queue.ack([delivery])
    for bad in ("00-" + "0" * 32 + "-00f067aa0ba902b7-01", "x" * 4000, 7):
        rig.publish(b'{"token": "%s", "command": "true"}' % rig.token.encode(), headers={"traceparent": bad})
        [delivery] = eventually(lambda: queue.take(1, 1.0))
        assert "traceparent" not in delivery.headers
        queue.ack([delivery])


OFF = """
import sys
import rainbow.cli.exits, rainbow.client, rainbow_workers.service, rainbow_agents.agent
from rainbow import tracing
from rainbow.brokers.base import Message
tracing.start("test", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"})
tracing.start("test", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"})
tracing.start("test", {})
message = Message("rainbow.submit", "submit", b"")
with tracing.Submitting([message]):
    pass
assert message.headers is None and not tracing.is_on()
assert tracing.ended("step", "parent", 1.0, 2.0) == "parent"
print(*(name for name in sys.modules if name.startswith("opentelemetry")))
"""


def test_off_imports_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", OFF], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


MISSING = """
import sys
sys.modules["opentelemetry"] = None
from rainbow import tracing
tracing.start("test", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"})
assert [tracing.ended("step", "parent", 1.0, 2.0) for _ in range(2)] == ["parent"] * 2
"""


def test_without_the_extra_that_is_said_once() -> None:
    done = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stderr.count("pip install 'rainbow-hpc[otel]'") == 1, done.stderr


def test_an_agent_that_starts_again_keeps_the_trace(tmp_path: Path) -> None:
    key = SubmissionKey("a", 1, "c")
    first = Journal(tmp_path / "j.sqlite", cluster="blue")
    first.take([(key, "alice", None, 16)], traces={key: THEIRS})
    first.decide([Submitted(key, "f1", "one")], [])
    first.progress([Started(key, "f1", 5.0)])
    first.close()
    second = Journal(tmp_path / "j.sqlite", cluster="blue")
    row = second.get("a", 1)
    second.close()
    assert row is not None
    assert (row.trace, row.started_at) == (THEIRS, 5.0)


def test_doctor_says_what_is_missing_for_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.model_validate({"scheduler": {"metrics": "127.0.0.1:9100"}})
    monkeypatch.setattr(tracing._state, "wanted", True)
    assert [(c.name, c.ok) for c in checks._extras(settings)] == [("metrics", True), ("traces", True)]
    monkeypatch.setattr(checks, "_importable", lambda module: False)
    assert [(c.name, c.advice) for c in checks._extras(settings)] == [
        ("metrics", "pip install 'rainbow-hpc[metrics]'"),
        ("traces", "pip install 'rainbow-hpc[otel]'"),
    ]
    monkeypatch.setattr(tracing._state, "wanted", False)
    assert list(checks._extras(Settings())) == []
