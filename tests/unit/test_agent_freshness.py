"""Dispatches that may belong to another cluster by now are in doubt; all others start on their own."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.models.job import Dispatch
from rainbow_agents.contact import ALIVE_AFTER, Contact
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
    fresh = Freshness(lambda: 0, lambda: False, clock=lambda: NOW + age)
    assert (fresh.doubt(dispatch(lives=lives)) is not None) is doubtful


@pytest.mark.parametrize(
    ("epoch", "reported", "doubtful"), [(5, 5, False), (5, 6, True), (6, 5, False), (0, 6, False), (5, 0, False)]
)
def test_one_of_an_epoch_before_the_one_that_was_reported_for(epoch: int, reported: int, doubtful: bool) -> None:
    fresh = Freshness(lambda: reported, lambda: False, clock=lambda: NOW)
    assert (fresh.doubt(dispatch(epoch=epoch, lives=900.0)) is not None) is doubtful


@pytest.mark.parametrize(("epoch", "missed", "doubtful"), [(5, True, True), (5, False, False), (0, True, False)])
def test_one_that_was_taken_after_a_silence(epoch: int, missed: bool, doubtful: bool) -> None:
    fresh = Freshness(lambda: 5, lambda: missed, clock=lambda: NOW)
    assert (fresh.doubt(dispatch(epoch=epoch, lives=900.0)) is not None) is doubtful


def test_a_repeated_one() -> None:
    """Its earlier copy may have expired, and come back, long before this one does."""
    fresh = Freshness(lambda: 5, lambda: False, clock=lambda: NOW)
    assert fresh.doubt(dispatch(epoch=5, lives=900.0, repeated=True))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_silence_is_over_when_the_registrar_has_named_the_epoch_since() -> None:
    clock = Clock()
    contact = Contact(NOW - 5, clock, lambda: NOW)
    assert not contact.missed
    clock.now += 15
    contact.reported()
    clock.now += 15
    assert not contact.missed, "reports arrive"
    asked_at = contact.now()
    clock.now += 40
    assert contact.missed, "it may be suspended, or cut off"
    contact.reported()
    assert contact.missed, "a report alone says nothing of the store"
    contact.heard(asked_at, 20.0)
    assert contact.missed, "the answer is from before the silence"
    contact.heard(contact.now(), 20.0)
    assert not contact.missed
    clock.now += 15.5
    assert contact.missed, "three quarters of what the registrar gives"


@pytest.mark.parametrize("confirmed", [0.0, NOW - ALIVE_AFTER, NOW + 1])
def test_a_new_process_that_does_not_know_how_long_it_was_away(confirmed: float) -> None:
    contact = Contact(confirmed, Clock(), lambda: NOW)
    assert contact.missed
    contact.heard(contact.now(), None)
    assert not contact.missed
