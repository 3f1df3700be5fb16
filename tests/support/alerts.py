"""The alert rules of the documents, evaluated over samples: parsed as Prometheus does, computed for what they use."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import httpx
import promql_parser as promql
import yaml
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.parser import text_string_to_metric_families

MONITORING = Path(__file__).resolve().parents[2] / "docs" / "deploy" / "monitoring"
ALERTS: dict[str, str] = {
    rule["alert"]: rule["expr"]
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
}
_OPERATORS: dict[str, Callable[[float, float], bool]] = {"==": operator.eq, ">": operator.gt, "<": operator.lt}

Samples = list[tuple[str, dict[str, str], float]]


def samples_of(registry: CollectorRegistry) -> Samples:
    return _samples(registry.collect())


def scraped(port: int) -> Samples:
    """The samples of a program's ``/metrics``; none while it does not answer."""
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=20)
    except httpx.TransportError:
        return []
    return _samples(text_string_to_metric_families(answer.text))


def _samples(families: Iterable[Metric]) -> Samples:
    return [(s.name, s.labels, s.value) for family in families for s in family.samples]


def fires(expression: str, now: Samples, before: Samples, bound: float | None = None) -> bool:
    """Is an alert's expression true? It compares a metric, or its increase since `before`, with its bound.

    With `bound`, that stands in the place of the rule's.
    """
    parsed = promql.parse(expression)
    assert isinstance(parsed, promql.BinaryExpr), f"the test cannot evaluate {expression!r}"
    left, right = parsed.lhs, parsed.rhs
    assert isinstance(right, promql.NumberLiteral)
    increase = False
    chosen = left
    if (
        isinstance(left, promql.Call)
        and left.func.name == "increase"
        and isinstance(left.args[0], promql.MatrixSelector)
    ):
        chosen, increase = left.args[0].vector_selector, True
    assert isinstance(chosen, promql.VectorSelector), f"the test cannot evaluate {expression!r}"
    wanted = {matcher.name: matcher.value for matcher in chosen.matchers.matchers}
    old = {(name, tuple(sorted(labels.items()))): value for name, labels, value in before}
    for name, labels, value in now:
        if name == chosen.name and wanted.items() <= labels.items():
            base = old.get((name, tuple(sorted(labels.items()))), 0.0) if increase else 0.0
            if _OPERATORS[str(parsed.op)](value - base, right.val if bound is None else bound):
                return True
    return False


def lasting(alert: str, port: int, *, seconds: float = 2.0, bound: float | None = None) -> Callable[[], bool]:
    """Tells, each time it is called, whether `alert` was true in each scrape for so many seconds: a short `for`."""
    since: float | None = None

    def look() -> bool:
        nonlocal since
        if not fires(ALERTS[alert], scraped(port), [], bound):
            since = None
            return False
        since = since or time.monotonic()
        return time.monotonic() - since >= seconds

    return look
