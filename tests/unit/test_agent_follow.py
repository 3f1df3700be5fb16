"""Journal against executor: what is found, released, ended, lost."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow_agents.executors.base import Ended, Found, Recovery, Started, SubmissionKey
from rainbow_agents.journal import Row
from rainbow_agents.reporting.reconciliation import Plan, compare

MARK = SubmissionKey("a", 1, "c1")
NOW = 10_000.0


def row(state: str = "accepted", *, released: bool = True, **more: Any) -> Row:
    fields: dict[str, Any] = {
        "id": "a",
        "attempt": 1,
        "state": state,
        "claim": "c1",
        "handle": "f1",
        "incarnation": "one",
        "released": released,
        "priority": 7,
        "user": None,
        "name": None,
        "cancel": None,
        "code": None,
        "detail": None,
        "changed_at": NOW - 10,
    }
    return Row(**{**fields, **more})


def plan(found: list[Found], known: Row | None) -> Plan:
    active = [known] if known is not None and known.state in ("accepted", "running") else []
    return compare(Recovery("one", tuple(found)), active, lambda _: known, NOW)


def found(phase: str = "held", mark: SubmissionKey = MARK, **more: Any) -> Found:
    return Found(mark, "f1", phase, **more)  # type: ignore[arg-type]


def test_released_and_still_held_is_released() -> None:
    (held,) = plan([found()], row()).release
    assert (held.handle, held.priority) == ("f1", 7)


def test_not_released_stays_held() -> None:
    made = plan([found()], row(released=False))
    assert (made.release, made.orphans, made.missing) == ([], [], [])


@pytest.mark.parametrize(
    "known",
    [None, row(claim="other"), row("cancelled"), row("rejected"), row("lost"), row("returned"), row("completed")],
    ids=["unknown", "another claim", "cancelled", "rejected", "lost", "returned", "completed"],
)
@pytest.mark.parametrize("phase", ["held", "queued"])
def test_held_and_nobodys_is_an_orphan(known: Row | None, phase: str) -> None:
    made = plan([found(phase)], known)
    assert [h.handle for h in made.orphans] == ["f1"]
    assert made.release == []


def test_an_orphan_that_runs_is_left_alone() -> None:
    """Nobody released it, so it is not one of ours in spirit: a person may have."""
    assert plan([found("running")], None) == Plan()


def test_being_submitted_is_left_to_its_agent_until_that_is_surely_dead() -> None:
    assert plan([found()], row("taken", handle=None)).orphans == []
    assert len(plan([found()], row("taken", handle=None, changed_at=NOW - 5000)).orphans) == 1


def test_an_end_that_was_missed_is_news_with_its_start() -> None:
    ended = Ended(MARK, "f1", NOW, "completed", 0)
    made = plan([found("ended", started_at=NOW - 1, ended=ended)], row())
    assert made.progress == [Started(MARK, "f1", NOW - 1), ended]


def test_a_start_that_was_missed_is_news() -> None:
    assert plan([found("running", started_at=5.0)], row()).progress == [Started(MARK, "f1", 5.0)]
    assert plan([found("running", started_at=5.0)], row("running")).progress == []


def test_a_cancel_that_did_not_arrive_is_repeated_and_nothing_is_released() -> None:
    made = plan([found()], row(cancel="stop"))
    assert [(h.handle, reason) for h, reason in made.cancel] == [("f1", "stop")]
    assert made.release == []


def test_what_the_executor_does_not_know_is_missing() -> None:
    assert plan([], row()).missing == [row()]
    assert plan([], row()).strangers == []


def test_of_a_fresh_instance_it_is_a_stranger() -> None:
    assert plan([], row(incarnation="before")).strangers == [row(incarnation="before")]


def test_found_again_by_its_mark_in_a_restarted_instance() -> None:
    made = plan([found("running")], row("running", incarnation="before"))
    assert (made.missing, made.strangers) == ([], [])


def test_the_same_handle_with_another_mark_is_not_ours() -> None:
    made = plan([found("running", SubmissionKey("b", 1, "c9"))], row())
    assert made.missing == [row()]
