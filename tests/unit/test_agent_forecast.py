from __future__ import annotations

import pytest

from rainbow.jobspec import read_cached
from rainbow.jobspec.request import Demand
from rainbow_agents.executors.base import Busy, Outlook, Waiting
from rainbow_agents.executors.testing import v1
from rainbow_agents.intake.bids import cost
from rainbow_agents.intake.forecast import Forecast

NOW = 1000.0
WHOLE = Demand(4, 32, 4)


def cores(count: int) -> Demand:
    return Demand(0, count, 0)


def eta(outlook: Outlook, demand: Demand, priority: int = 16) -> float | None:
    return Forecast(outlook, NOW).eta(demand, priority)


def test_at_once_where_there_is_room() -> None:
    assert eta(Outlook(WHOLE, WHOLE), Demand(4, 32, 4)) == 0


def test_when_enough_of_what_runs_is_over() -> None:
    busy = (Busy(cores(8), NOW + 10), Busy(cores(8), NOW + 20), Busy(cores(16), NOW + 30))
    full = Outlook(WHOLE, Demand(), busy)
    assert [eta(full, cores(n)) for n in (1, 8, 9, 16, 17, 32)] == [10, 10, 20, 20, 30, 30]
    assert eta(Outlook(WHOLE, Demand(), (Busy(Demand(1, 8, 1), NOW - 5),)), Demand(1, 8, 1)) == 0, "overdue: any moment"


def test_those_ahead_go_first_and_hold_what_they_take() -> None:
    full = Outlook(WHOLE, Demand(), (Busy(cores(32), NOW + 20),), (Waiting(cores(32), 100.0), Waiting(cores(16), 50.0)))
    assert eta(full, cores(16)) == 120
    assert eta(full, cores(17)) == 170
    # Strictly in order: a small one does not slip past a large one that waits.
    gap = Outlook(WHOLE, cores(8), (Busy(cores(24), NOW + 20),), (Waiting(cores(32), 100.0),))
    assert eta(gap, cores(1)) == 120


def test_priority_overtakes_the_queue() -> None:
    queue = (Waiting(cores(32), 100.0, 16), Waiting(cores(32), 100.0, 20))
    full = Outlook(WHOLE, Demand(), (Busy(cores(32), NOW + 20),), queue)
    forecast = Forecast(full, NOW)
    assert [forecast.eta(cores(1), p) for p in (31, 20, 18, 16, 1)] == [20, 120, 120, 220, 220]


def test_what_hangs_on_a_job_without_a_limit_is_not_known() -> None:
    assert eta(Outlook(WHOLE, Demand(), (Busy(cores(32), None),)), cores(1)) is None
    assert eta(Outlook(WHOLE, cores(1), (Busy(cores(31), None),)), cores(1)) == 0
    assert eta(Outlook(WHOLE, cores(32), (), (Waiting(cores(32), None),)), cores(1)) is None


def test_nodes_and_gpus_count_too() -> None:
    busy = (Busy(Demand(2, 16, 0), NOW + 10), Busy(Demand(2, 16, 4), NOW + 30))
    full = Outlook(WHOLE, Demand(0, 0, 0), busy)
    assert eta(full, Demand(2, 2, 0)) == 10
    assert eta(full, Demand(0, 1, 1)) == 30
    assert eta(full, Demand(3, 3, 0)) == 30


def test_asking_changes_nothing() -> None:
    forecast = Forecast(Outlook(WHOLE, cores(8), (Busy(cores(24), NOW + 20),)), NOW)
    assert [forecast.eta(cores(8)) for _ in range(3)] == [0, 0, 0]
    assert [forecast.eta(cores(9)) for _ in range(3)] == [20, 20, 20]


def test_a_long_queue_is_played_once() -> None:
    import time

    waiting = tuple(Waiting(cores(1), 60.0) for _ in range(5000))
    forecast = Forecast(Outlook(WHOLE, Demand(), tuple(Busy(cores(1), NOW + n) for n in range(32)), waiting), NOW)
    begun = time.perf_counter()
    answers = [forecast.eta(cores(1)) for _ in range(200)]
    assert time.perf_counter() - begun < 5
    assert answers == [answers[0]] * 200
    assert answers[0] == pytest.approx(5000 / 32 * 60, rel=0.05)


@pytest.mark.parametrize(
    ("prices", "amount"),
    [
        ({}, None),
        ({"cost_per_node_hour": "dear"}, None),
        ({"cost_per_node_hour": 3}, 1.5),
        ({"cost_per_core_hour": 0.5}, 4.0),
        ({"cost_per_node_hour": 1, "cost_per_core_hour": 0.5, "cost_per_gpu_hour": 9}, 4.5),
    ],
)
def test_half_an_hour_of_sixteen_cores_costs(prices: dict[str, object], amount: float | None) -> None:
    assert cost(read_cached(v1(["true"], cores=16, duration=1800)), prices) == amount


def test_without_a_time_limit_an_hour_is_paid() -> None:
    assert cost(read_cached(v1(["true"], cores=2)), {"cost_per_core_hour": 3}) == 6
