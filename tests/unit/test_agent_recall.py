"""Jobs that an agent took are taken back before they start: what the journal says, compared with the executor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rainbow.models.job import JobEvent
from rainbow_agents.executors.base import Ended, Found, Phase, Recovery, Started, SubmissionKey, Submitted
from rainbow_agents.journal import RECALLED, Journal, Row
from rainbow_agents.reporting.reconciliation import compare

MARK = SubmissionKey("a", 1, "c1")
CANCELLED = Ended(MARK, "f1", 5.0, "cancelled", None, "cancel", "another cluster has room")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "j.sqlite", cluster="blue", clock=lambda: 1000.0)
    yield journal
    journal.close()


def accept(journal: Journal, *, release: bool = True) -> None:
    journal.take([(MARK, "alice", None, 16)])
    decided = journal.decide([Submitted(MARK, "f1", "one")], [])
    if release:
        journal.release([MARK], [pending for _, pending in decided.accepted])


def row(journal: Journal) -> Row:
    found = journal.get("a", 1)
    assert found is not None
    return found


def events(journal: Journal) -> list[str]:
    return [pending.event.state for pending in journal.outbox.due(10)]


def test_one_that_ends_unstarted_is_as_if_it_had_never_been_taken(journal: Journal) -> None:
    accept(journal)
    assert [r.mark for r in journal.recalls.begin([("a", 1), ("b", 1)])] == [MARK]
    assert journal.progress([CANCELLED]) == (1, [])
    assert (row(journal).state, row(journal).cancel) == ("returned", None)
    assert events(journal) == []
    refused = JobEvent(id="a", attempt=1, cluster="blue", state="rejected", at=6.0, code="recalled", detail="why")
    assert [p.event.code for p in journal.decide([], [(refused, None)]).refused] == ["recalled"]
    assert row(journal).state == "rejected"


def test_one_that_was_given_back_may_be_taken_again(journal: Journal) -> None:
    """The agent died before it could say so, and the delivery came again."""
    accept(journal)
    journal.recalls.begin([("a", 1)])
    journal.progress([CANCELLED])
    again = SubmissionKey("a", 1, "c2")
    assert journal.take([(again, "alice", None, 16)]) == {again}


def test_one_that_starts_first_goes_on(journal: Journal) -> None:
    accept(journal)
    journal.recalls.begin([("a", 1)])
    journal.progress([Started(MARK, "f1", 4.0), Ended(MARK, "f1", 5.0, "failed", 1)])
    assert (row(journal).state, row(journal).cancel) == ("failed", None)
    assert events(journal) == ["running", "failed"]


def test_one_that_cannot_be_started_has_failed(journal: Journal) -> None:
    accept(journal)
    journal.recalls.begin([("a", 1)])
    journal.progress([Ended(MARK, "f1", 5.0, "failed", 1, "exec", "no such file")])
    assert (row(journal).state, row(journal).detail) == ("failed", "no such file")


def test_a_cancel_goes_before_a_recall(journal: Journal) -> None:
    accept(journal)
    journal.recalls.begin([("a", 1)])
    journal.cancel([("a", 1, "changed my mind")])
    assert journal.recalls.begin([("a", 1)]) == []
    journal.progress([CANCELLED])
    assert (row(journal).state, row(journal).detail) == ("cancelled", "changed my mind")
    assert events(journal) == ["cancelled"]


def test_only_what_may_start_is_recalled(journal: Journal) -> None:
    accept(journal, release=False)
    assert journal.recalls.begin([("a", 1)]) == []
    journal.release([MARK], [])
    journal.progress([Started(MARK, "f1", 4.0)])
    assert journal.recalls.begin([("a", 1)]) == []


@pytest.mark.parametrize(
    ("phase", "later", "stays"), [("queued", 10.0, False), ("queued", 40.0, True), ("held", 0.0, True)]
)
def test_a_recall_that_nobody_follows_up_is_over(journal: Journal, phase: Phase, later: float, stays: bool) -> None:
    """Its agent died, or the executor did, before it ended the job: it may be held there."""
    accept(journal)
    journal.recalls.begin([("a", 1)])
    recovery = Recovery("one", (Found(MARK, "f1", phase),))
    plan = compare(recovery, journal.active(), lambda _: journal.get("a", 1), 1000.0 + later)
    assert plan.cancel == []
    assert [r.id for r in plan.keep] == (["a"] if stays else [])
    assert [held.mark for held in plan.release] == ([MARK] if stays else [])
    journal.recalls.drop(plan.keep)
    assert row(journal).cancel == (None if stays else RECALLED)
