"""Admission policy: each rule, and how they are made from settings."""

from __future__ import annotations

from datetime import time
from typing import Any

import pytest

from rainbow.errors import InvalidSettings, UnknownPlugin
from rainbow.jobspec import read
from rainbow.models.job import Dispatch
from rainbow.settings import AgentSettings
from rainbow_agents.intake.admission.policies import AllowedUsers, Load, MaxQueued, MaxRunning, Policy, TimeWindow

SPEC = read({"version": 1, "resources": {"a": {"type": "core", "count": 1}}, "tasks": [{"command": ["x"]}]})


def job(user: str = "alice") -> Dispatch:
    return Dispatch(id="a", attempt=1, cluster="blue", jobspec={}, user=user, submitted_at=0, assigned_at=0)


def test_who_waits_longest_gets_into_a_full_place_next() -> None:
    """S29: ever more room with age, and never more than twice as many."""
    now = 1000.0
    rule = MaxQueued(4, patience=100.0, clock=lambda: now)

    def let_in(age: float) -> int:
        aged = job().model_copy(update={"submitted_at": now - age})
        return sum(rule.check(aged, SPEC, Load(queued, 0)) is None for queued in range(50))

    assert [let_in(age) for age in (0, 24, 25, 50, 99, 100, 1e9, -1e9)] == [4, 4, 5, 6, 7, 8, 8, 4]
    assert MaxQueued(0, clock=lambda: 1e9).check(job(), SPEC, Load(0, 0)) is not None
    with pytest.raises(InvalidSettings):
        MaxQueued(1, patience=-1)


def test_max_queued() -> None:
    rule = MaxQueued(2, patience=0)
    assert rule.check(job(), SPEC, Load(queued=1, running=50)) is None
    refusal = rule.check(job(), SPEC, Load(queued=2, running=0))
    assert refusal is not None
    assert refusal.code == "busy"


def test_max_running_counts_all() -> None:
    rule = MaxRunning(3)
    assert rule.check(job(), SPEC, Load(1, 1)) is None
    refusal = rule.check(job(), SPEC, Load(1, 2))
    assert refusal is not None
    assert refusal.code == "busy"


def test_allowed_users() -> None:
    rule = AllowedUsers(["alice"])
    assert rule.check(job(), SPEC, Load(0, 0)) is None
    refusal = rule.check(job("mallory"), SPEC, Load(0, 0))
    assert refusal is not None
    assert (refusal.code, "mallory" in refusal.detail) == ("policy", True)


@pytest.mark.parametrize(("start", "end"), [("00:00", "23:59:59.999999"), ("12:00", "12:00")])
def test_time_window_by_the_clock(start: str, end: str) -> None:
    inside = TimeWindow(start, end).check(job(), SPEC, Load(0, 0)) is None
    assert inside is (start != end)


@pytest.mark.parametrize(
    ("start", "end", "now", "inside"),
    [
        ("08:00", "18:00", "08:00", True),
        ("08:00", "18:00", "18:00", False),
        ("20:00", "06:00", "23:59", True),
        ("20:00", "06:00", "05:59", True),
        ("20:00", "06:00", "12:00", False),
    ],
)
def test_time_window(start: str, end: str, now: str, inside: bool) -> None:
    assert TimeWindow(start, end).open_at(time.fromisoformat(now)) is inside


def test_time_window_needs_times() -> None:
    with pytest.raises(InvalidSettings, match="HH:MM"):
        TimeWindow("early", "late")


def test_the_first_refusal_counts() -> None:
    policy = Policy([AllowedUsers([]), MaxQueued(0)])
    refusal = policy.check(job(), SPEC, Load(9, 9))
    assert refusal is not None
    assert refusal.code == "policy"
    assert Policy().check(job(), SPEC, Load(9, 9)) is None


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"admission": [{"name": "no-such-rule"}]}, UnknownPlugin),
        ({"admission": [{"name": "max-queued", "options": {"limit": 1, "colour": 2}}]}, InvalidSettings),
        ({"admission": [{"name": "max-queued", "options": {"limit": -1}}]}, InvalidSettings),
    ],
)
def test_wrong_settings_are_told(settings: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Policy.from_settings(AgentSettings.model_validate(settings))


def test_from_settings() -> None:
    given = {
        "allowed_users": ["alice"],
        "max_queued": 1,
        "admission": [{"name": "max-queued", "options": {"limit": 9}}],
    }
    kinds = [type(r).__name__ for r in Policy.from_settings(AgentSettings.model_validate(given)).rules]
    assert kinds == ["AllowedUsers", "MaxQueued", "MaxQueued"]
