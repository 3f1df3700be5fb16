"""Bids: would this cluster take a job, when would it start, what would it cost?

What would refuse the job when it came refuses it here: the jobspec, the site's admission rules, an executor that is
down. The ETA comes from the executor's queue (`forecast`), the price from the admin's values: `cost_per_node_hour`,
`cost_per_core_hour` and `cost_per_gpu_hour`, each times what the job takes and its time limit (an hour without one).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rainbow.errors import InvalidJobspec
from rainbow.jobspec import Jobspec
from rainbow.jobspec.request import Demand
from rainbow.models.job import Dispatch
from rainbow.models.requests import Bid, BidAsk
from rainbow_agents.executors.base import Executor, ExecutorDown, Forecasts
from rainbow_agents.intake.admission.policies import Load, Policy
from rainbow_agents.intake.forecast import Forecast
from rainbow_agents.intake.validation import Checks

log = logging.getLogger(__name__)

_HOUR = 3600.0
_PRICES = ("cost_per_node_hour", "cost_per_core_hour", "cost_per_gpu_hour")


class Bidder:
    """`why_not` says why no job is taken at all now (None when jobs are)."""

    def __init__(
        self,
        cluster: str,
        checks: Checks,
        executor: Executor,
        *,
        policy: Callable[[], Policy],
        load: Callable[[], Load],
        values: Callable[[], Mapping[str, Any]],
        why_not: Callable[[], str | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._executor = executor
        self._cluster = cluster
        self._checks = checks
        self._policy = policy
        self._load = load
        self._values = values
        self._why_not = why_not
        self._clock = clock

    def bid(self, asks: Sequence[BidAsk]) -> list[Bid]:
        """One for each, from one look at the queue."""
        closed = self._why_not()
        if closed is not None:
            return [_no(ask, "busy", closed) for ask in asks]
        executor = self._executor
        forecast: Forecast | None = None
        if isinstance(executor, Forecasts):
            try:
                forecast = Forecast(executor.outlook(), self._clock())
            except ExecutorDown as exc:
                return [_no(ask, "busy", str(exc)) for ask in asks]
        load, prices = self._load(), self._values()
        return [self._one(ask, forecast, load, prices) for ask in asks]

    def _one(self, ask: BidAsk, forecast: Forecast | None, load: Load, prices: Mapping[str, Any]) -> Bid:
        try:
            spec, units = self._checks.plan(ask.jobspec)
        except InvalidJobspec as exc:
            return _no(ask, "bad-spec", str(exc))
        refusal = self._policy().check(self._dispatch(ask), spec, load)
        if refusal is not None:
            return _no(ask, refusal.code, refusal.detail)
        if forecast is not None:
            if not forecast.fits(spec.demand):
                return _no(ask, "no-fit", "there is not as much here")
            if not forecast.fits_up(spec.demand):
                return _no(ask, "busy", "too many of its nodes are down or drained now")
            closed = forecast.closed(unit.document["attributes"]["system"].get("queue") for unit in units)
            if closed is not None:
                return _no(ask, "busy", closed)
        eta = forecast.eta(spec.demand, ask.priority) if forecast is not None else None
        return Bid(id=ask.id, will=True, eta=None if eta is None else round(eta, 3), cost=cost(spec, prices))

    def _dispatch(self, ask: BidAsk) -> Dispatch:
        """The job as it would come, for the rules to look at."""
        now = self._clock()
        return Dispatch(
            id=ask.id,
            attempt=ask.attempt,
            cluster=self._cluster,
            name=ask.name,
            jobspec=ask.jobspec,
            user=ask.user,
            priority=ask.priority,
            submitted_at=now,
            assigned_at=now,
        )


def cost(spec: Jobspec, prices: Mapping[str, Any]) -> float | None:
    """What the job costs by the site's prices, None where there are none. A node asked for is not free of its cores'
    price: a site names the prices that add up."""
    demand: Demand = spec.demand
    hours = (spec.duration or _HOUR) / _HOUR
    amounts = (max(1, demand.nodes), demand.cores, demand.gpus)
    given = ((prices.get(name), amount) for name, amount in zip(_PRICES, amounts, strict=True))
    costs = [price * amount * hours for price, amount in given if isinstance(price, int | float)]
    return round(sum(costs), 6) if costs else None


def _no(ask: BidAsk, code: str, detail: str) -> Bid:
    return Bid(id=ask.id, will=False, code=code, detail=detail[:200])
