"""Dispatches that may belong to another cluster by now are in doubt; all others start on their own."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.models.job import Dispatch
from rainbow_agents.intake.freshness import Freshness

NOW = 10_000.0


def dispatch(**fields: Any) -> Dispatch:
    given: dict[str, Any] = {"id": "j", "attempt": 1, "cluster": "blue", "jobspec": {}, "user": "ann"}
    return Dispatch.model_validate({**given, "submitted_at": 0.0, "assigned_at": NOW, **fields})


@pytest.mark.parametrize(
    ("age", "lives", "doubtful"),
    [
        (0.0, 900.0, False),
        (839.0, 900.0, False),
        (841.0, 900.0, True),
        (2000.0, 900.0, True),
        (0.9, 2.0, False),
        (1.1, 2.0, True),
        (1e6, 0.0, False),
        (-300.0, 900.0, False),
    ],
)
def test_one_whose_time_in_the_queue_is_nearly_over(age: float, lives: float, doubtful: bool) -> None:
    fresh = Freshness(lambda: 0, clock=lambda: NOW + age)
    assert (fresh.doubt(dispatch(lives=lives)) is not None) is doubtful


@pytest.mark.parametrize(
    ("epoch", "reported", "doubtful"), [(5, 5, False), (5, 6, True), (6, 5, False), (0, 6, False), (5, 0, False)]
)
def test_one_of_an_epoch_before_the_one_that_was_reported_for(epoch: int, reported: int, doubtful: bool) -> None:
    fresh = Freshness(lambda: reported, clock=lambda: NOW)
    assert (fresh.doubt(dispatch(epoch=epoch, lives=900.0)) is not None) is doubtful
