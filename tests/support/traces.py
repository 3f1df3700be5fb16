"""Spans that programs export, received as a collector of OpenTelemetry does: over OTLP."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Step:
    """A span as it was exported. Times are seconds since 1970."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    start: float
    end: float
    failed: bool
    about: dict[str, Any]


@dataclass
class Collector:
    """`url` is for OTEL_EXPORTER_OTLP_ENDPOINT."""

    url: str
    steps: list[Step] = field(default_factory=list)

    def of(self, job: str) -> list[Step]:
        """The steps of one job, in the order in which they began."""
        return sorted((s for s in self.steps if s.about.get("rainbow.job") == job), key=lambda s: s.start)


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            made.steps += _steps(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


def _steps(request: Any) -> Iterator[Step]:
    for resource in request.resource_spans:
        [service] = [a.value.string_value for a in resource.resource.attributes if a.key == "service.name"]
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            about = {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}
            ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
            times = (span.start_time_unix_nano / 1e9, span.end_time_unix_nano / 1e9)
            yield Step(service, span.name, *ids, *times, span.status.code == 2, about)
