"""Metrics of an agent for Prometheus, read when they are asked for; ``/healthz`` and ``/readyz`` beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rainbow import monitoring
from rainbow.errors import InvalidSettings
from rainbow_agents.agent import Agent


def serve(agent: Agent, address: str) -> Callable[[], None]:
    """Answer on ``HOST:PORT``. Returns a function that stops it.

    Raises InvalidSettings without prometheus-client, or for an address that cannot be used.
    """
    try:
        from prometheus_client import CollectorRegistry
    except ImportError:
        raise InvalidSettings("metrics need prometheus-client: pip install 'rainbow-hpc[metrics]'") from None
    registry = CollectorRegistry()
    registry.register(Collector(agent))
    return monitoring.serve(
        address, "agent.metrics", registry, unhealthy=lambda: unhealthy(agent), unready=lambda: unready(agent)
    )


def unhealthy(agent: Agent) -> str | None:
    """Why the program should be restarted: one of its threads ended. None when it is well."""
    failure = agent.failure
    return None if failure is None else f"a thread ended: {type(failure).__name__}"


def unready(agent: Agent) -> str | None:
    """Why no jobs are taken now; None when they are."""
    health = agent.health()
    return None if health.ok else health.detail


class Collector:
    """What prometheus-client asks at each scrape. There are no labels but the state, which is one of six."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def collect(self) -> Iterator[Any]:
        """The families of metrics, read from the agent now."""
        from prometheus_client.core import GaugeMetricFamily

        health, parts = self._agent.health(), self._agent.parts
        gauges = {
            "working": ("1 while the agent does its work.", health.ok),
            "connected": ("1 while there is a connection to the broker.", health.connected),
            "registered": ("1 while the cluster is registered.", health.registered),
            "executor_up": ("1 while the executor answers.", parts is not None and parts.gate.is_up),
            "jobs_in_flight": ("Dispatches taken, and not settled yet.", parts.intake.in_flight if parts else 0),
            "events_waiting": ("Events of jobs that the broker has not confirmed.", health.events_waiting),
            "last_report_timestamp_seconds": ("When a report of the cluster arrived last.", health.last_report),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"rainbow_agent_{name}", text, value=float(value))
        state = GaugeMetricFamily("rainbow_agent_state", "1 for the state that the agent is in.", labels=["state"])
        state.add_metric([health.state], 1.0)
        yield state
