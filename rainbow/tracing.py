"""OpenTelemetry traces: one for each job, from who submits it over scheduler and agent to its end.

A W3C ``traceparent`` travels with the job: in the AMQP header of that name, over HTTPS in the field or the HTTP header
of that name. A program that has traces off hands it on unchanged. Programs trace when the standard variables say where
to (``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT``, ``OTEL_TRACES_EXPORTER``), and so does a
program that uses the client and has set up the SDK itself. Else nothing of OpenTelemetry is imported.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Protocol, Self

log = logging.getLogger(__name__)

HEADER = "traceparent"
_VALID = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_SDK = "opentelemetry.sdk.trace"

#: What the jobs that are submitted here belong to, unless a span of OpenTelemetry's is current.
_parent: ContextVar[str | None] = ContextVar("rainbow-traceparent", default=None)


class _State:
    """Whether this process traces, and with what. The tracer is made with the first span."""

    def __init__(self) -> None:
        self.program = "rainbow"
        self.wanted = False
        self.tracer: Any = None
        self.lock = threading.Lock()


_state = _State()


def start(program: str, environment: Mapping[str, str] = os.environ) -> None:
    """For a program, as it starts: trace if the variables in `environment` ask for it, under this name."""
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    asked = exporter == "otlp" or (not exporter and any(environment.get(name) for name in _ENDPOINTS))
    _state.program = program
    _state.wanted = asked and environment.get("OTEL_SDK_DISABLED", "").lower() != "true"


def use(provider: Any) -> None:
    """Trace with this `TracerProvider`; None: not any more."""
    _state.tracer = None if provider is None else provider.get_tracer("rainbow")


def is_wanted() -> bool:
    """Whether the variables ask for traces."""
    return _state.wanted


def is_on() -> bool:
    """Whether spans are recorded here."""
    return _state.tracer is not None or _state.wanted or _SDK in sys.modules


def parent_of(headers: Mapping[str, Any] | None) -> str | None:
    """The valid ``traceparent`` among headers, or None."""
    value = headers.get(HEADER) if headers else None
    return value if isinstance(value, str) and _VALID.fullmatch(value) else None


@contextmanager
def within(parent: str | None) -> Iterator[None]:
    """What is submitted in this context belongs to the trace `parent`."""
    before = _parent.set(parent)
    try:
        yield
    finally:
        _parent.reset(before)


class Span:
    """A step of a job. `traceparent` is for what follows from it."""

    def __init__(self, name: str, parent: str | None, at: float | None, attributes: Mapping[str, Any]) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = {} if parent is None else {HEADER: parent}
        propagator = TraceContextTextMapPropagator()
        self._span = _tracer().start_span(
            name,
            propagator.extract(carrier) if carrier else None,
            start_time=None if at is None else int(at * 1e9),
            attributes={f"rainbow.{key}": value for key, value in attributes.items() if value is not None},
        )
        from opentelemetry.trace import set_span_in_context

        propagator.inject(carrier, set_span_in_context(self._span))
        self.traceparent = carrier.get(HEADER, parent)

    def end(self, error: str | None = None, at: float | None = None) -> None:
        """Record it. `error` says that it went wrong, and how; `at` is seconds since 1970."""
        if error is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end(None if at is None else int(at * 1e9))


def span(name: str, parent: str | None, at: float | None = None, **attributes: Any) -> Span | None:
    """Begin a step, at `at` (seconds since 1970) or now, that follows from `parent`; None where nothing is traced."""
    return Span(name, parent, at, attributes) if is_on() and _tracer() is not None else None


def ended(
    name: str, parent: str | None, begun: float, at: float, error: str | None = None, **attributes: Any
) -> str | None:
    """Record a step that is over; gives the ``traceparent`` for what follows, `parent` where nothing is traced."""
    step = span(name, parent, begun, **attributes)
    if step is None:
        return parent
    step.end(error, at)
    return step.traceparent


class _Message(Protocol):
    message_id: str | None
    headers: dict[str, Any] | None


class Submitting:
    """The steps in which messages are published: each message gets its ``traceparent``.

    They end with the context, in which the broker takes the messages, or an error says why not.
    """

    def __init__(self, messages: Sequence[_Message]) -> None:
        self._spans: list[Span] = []
        parent = _parent.get()
        if parent is None and not is_on():
            return
        for message in messages:
            if HEADER in (message.headers or ()):
                continue
            step = span("rainbow.submit", parent, job=message.message_id)
            value = parent if step is None else step.traceparent
            if step is not None:
                self._spans.append(step)
            if value is not None:
                message.headers = {**(message.headers or {}), HEADER: value}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for step in self._spans:
            step.end(None if error is None else str(error))


def _tracer() -> Any:
    """The tracer of this process; None when it cannot be had, which is said once."""
    if _state.tracer is None:
        with _state.lock:
            if _state.tracer is None and _state.wanted:
                try:
                    _state.tracer = _made(_state.program).get_tracer("rainbow")
                except ImportError as exc:
                    _state.wanted = False
                    log.warning(
                        "no traces: %s is missing: pip install 'rainbow-hpc[otel]', or OTEL_SDK_DISABLED=true",
                        exc.name,
                        extra={"action": "trace"},
                    )
    if _state.tracer is None and _SDK in sys.modules:
        from opentelemetry import trace

        return trace.get_tracer("rainbow")
    return _state.tracer


def _made(program: str) -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    name = os.environ.get("OTEL_SERVICE_NAME") or program
    made = TracerProvider(resource=Resource.create({"service.name": name}))
    # The end of a short program waits for the exporter: no longer than this, unless OTEL_EXPORTER_OTLP_TIMEOUT says so.
    patience = None if os.environ.get("OTEL_EXPORTER_OTLP_TIMEOUT") else 3.0
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=patience)))
    return made
