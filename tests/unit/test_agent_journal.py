"""The journal: who may start a job, what is remembered, what happens on a full disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from rainbow.errors import InvalidSettings
from rainbow.models.job import JobEvent
from rainbow_agents.executors.base import Ended, Started, SubmissionKey, Submitted
from rainbow_agents.journal import Journal, JournalDown, Row


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(tmp_path: Path, clock: Clock) -> Iterator[Journal]:
    journal = Journal(tmp_path / "j.sqlite", cluster="blue", clock=clock)
    yield journal
    journal.close()


def mark(job: str = "a", attempt: int = 1, claim: str = "c1") -> SubmissionKey:
    return SubmissionKey(job, attempt, claim)


def take(journal: Journal, *marks: SubmissionKey) -> set[SubmissionKey]:
    return journal.take([(m, "alice", None, 16) for m in marks])


def submitted(m: SubmissionKey, handle: str = "f1") -> Submitted:
    return Submitted(m, handle, "one")


def accept(journal: Journal, m: SubmissionKey, handle: str = "f1") -> Row:
    """Take, submit, accept and let start."""
    take(journal, m)
    decided = journal.decide([submitted(m, handle)], [])
    (row,) = journal.release([m], [p for _, p in decided.accepted])
    return row


def rejected(m: SubmissionKey, code: str = "no-fit") -> JobEvent:
    return JobEvent(id=m.id, attempt=m.attempt, cluster="blue", state="rejected", at=1.0, code=code, detail="why")


def state(journal: Journal, job: str = "a", attempt: int = 1) -> str | None:
    row = journal.get(job, attempt)
    return row.state if row else None


def events(journal: Journal) -> list[tuple[str, str]]:
    return [(p.event.id, p.event.state) for p in journal.outbox.due(100)]


class TestTaking:
    def test_the_way_of_a_job(self, journal: Journal) -> None:
        row = accept(journal, mark())
        assert (row.handle, row.incarnation, row.state) == ("f1", "one", "accepted")
        journal.progress([Started(mark(), "f1", 5.0)])
        journal.progress([Ended(mark(), "f1", 6.0, "completed", 0, output="hi")])
        assert state(journal) == "completed"
        assert events(journal) == [("a", "running"), ("a", "completed")]

    def test_an_accepted_job_cannot_be_taken_again(self, journal: Journal) -> None:
        accept(journal, mark())
        assert take(journal, mark(claim="c2")) == set()

    def test_the_last_claim_counts(self, journal: Journal) -> None:
        """Two agents with the same delivery: whoever claimed first stands down."""
        take(journal, mark(claim="c1"))
        assert take(journal, mark(claim="c2")) == {mark(claim="c2")}
        decided = journal.decide([submitted(mark(claim="c1")), submitted(mark(claim="c2"), "f2")], [])
        assert [s.handle for s in decided.superseded] == ["f1"]
        assert [s.handle for s, _ in decided.accepted] == ["f2"]

    def test_what_was_given_back_is_not_accepted_late(self, journal: Journal) -> None:
        take(journal, mark())
        journal.returned([mark()])
        assert [s.mark for s in journal.decide([submitted(mark())], []).superseded] == [mark()]

    def test_a_cancel_without_a_reason_is_one(self, journal: Journal) -> None:
        take(journal, mark())
        journal.cancel([("a", 1, "")])
        decided = journal.decide([submitted(mark())], [])
        assert (decided.accepted, len(decided.cancelled)) == ([], 1)
        assert state(journal) == "cancelled"

    def test_only_an_accepted_claim_is_released(self, journal: Journal) -> None:
        take(journal, mark())
        assert journal.release([mark()], []) == []
        journal.decide([submitted(mark())], [])
        assert journal.release([mark(claim="other")], []) == []
        assert [r.mark for r in journal.release([mark()], [])] == [mark()]

    def test_a_newer_attempt_fences_the_older(self, journal: Journal) -> None:
        take(journal, mark())
        journal.decide([submitted(mark())], [])
        take(journal, mark(attempt=2, claim="c2"))
        assert journal.release([mark()], []) == []
        view = journal.look([("a", 1), ("a", 2), ("b", 1)])
        assert view["a", 1].newest == 2
        assert view["a", 2].older is not None
        assert view["b", 1].row is None

    def test_a_newer_attempt_fences_a_late_acceptance(self, journal: Journal) -> None:
        take(journal, mark())
        take(journal, mark(attempt=2, claim="c2"))
        assert [s.mark for s in journal.decide([submitted(mark())], []).superseded] == [mark()]


class TestTries:
    def test_counted_until_there_is_an_outcome(self, journal: Journal) -> None:
        for claim in ("c1", "c2"):
            take(journal, mark(claim=claim))
        assert journal.look([("a", 1)])["a", 1].tries == 2
        journal.decide([submitted(mark(claim="c2"))], [])
        assert journal.look([("a", 1)])["a", 1].tries == 0

    def test_counted_over_attempts_of_the_job(self, journal: Journal) -> None:
        take(journal, mark())
        take(journal, mark(attempt=2, claim="c2"))
        assert journal.look([("a", 2)])["a", 2].tries == 2

    def test_a_planned_return_does_not_count(self, journal: Journal) -> None:
        take(journal, mark(), mark("b"))
        journal.returned([mark(), mark("b", claim="not-that")])
        view = journal.look([("a", 1), ("b", 1)])
        assert (view["a", 1].tries, view["b", 1].tries) == (0, 1)
        assert take(journal, mark(claim="c2")) == {mark(claim="c2")}

    def test_a_refusal_is_an_outcome(self, journal: Journal) -> None:
        take(journal, mark())
        journal.decide([], [(rejected(mark()), mark())])
        assert journal.look([("a", 1)])["a", 1].tries == 0
        assert state(journal) == "rejected"


class TestCancels:
    def test_before_the_job_arrives(self, journal: Journal) -> None:
        assert journal.cancel([("a", 1, "changed my mind")]) == []
        view = journal.look([("a", 1), ("a", 2)])
        assert view["a", 1].cancel == "changed my mind"
        assert view["a", 2].cancel is None

    def test_any_attempt(self, journal: Journal) -> None:
        journal.cancel([("a", 0, "all of it")])
        assert journal.look([("a", 7)])["a", 7].cancel == "all of it"

    def test_while_being_submitted(self, journal: Journal) -> None:
        take(journal, mark())
        journal.cancel([("a", 1, "stop")])
        decided = journal.decide([submitted(mark())], [])
        assert decided.accepted == []
        assert [s.mark for s, _ in decided.cancelled] == [mark()]
        assert state(journal) == "cancelled"

    def test_while_running_names_the_handle_and_the_end_is_cancelled(self, journal: Journal) -> None:
        accept(journal, mark())
        (row,) = journal.cancel([("a", 1, "stop")])
        assert row.handle == "f1"
        journal.progress([Ended(mark(), "f1", 6.0, "failed", 143)])
        (pending,) = journal.outbox.due(10)
        assert (pending.event.state, pending.event.detail) == ("cancelled", "stop")

    def test_a_job_that_completed_all_the_same_completed(self, journal: Journal) -> None:
        accept(journal, mark())
        journal.cancel([("a", 1, "stop")])
        journal.progress([Ended(mark(), "f1", 6.0, "completed", 0)])
        assert state(journal) == "completed"

    def test_never_an_attempt_that_is_over_or_another(self, journal: Journal) -> None:
        accept(journal, mark())
        journal.progress([Ended(mark(), "f1", 6.0, "completed", 0)])
        assert journal.cancel([("a", 1, "late")]) == []
        accept(journal, mark(attempt=2, claim="c2"), "f2")
        assert journal.cancel([("a", 1, "late")]) == []
        assert state(journal) == "completed"

    def test_twice_is_harmless(self, journal: Journal) -> None:
        accept(journal, mark())
        journal.cancel([("a", 1, "first")])
        (row,) = journal.cancel([("a", 1, "second")])
        assert row.id == "a"
        assert journal.look([("a", 1)])["a", 1].cancel == "first"


class TestFollowing:
    def test_news_twice_changes_once(self, journal: Journal) -> None:
        accept(journal, mark())
        news: list[Started | Ended] = [Started(mark(), "f1", 5.0), Ended(mark(), "f1", 6.0, "completed", 0)]
        assert journal.progress(news)[0] == 2
        assert journal.progress(news)[0] == 0
        assert events(journal) == [("a", "running"), ("a", "completed")]

    def test_a_start_after_the_end_changes_nothing(self, journal: Journal) -> None:
        accept(journal, mark())
        journal.progress([Ended(mark(), "f1", 6.0, "completed", 0)])
        assert journal.progress([Started(mark(), "f1", 5.0)])[0] == 0

    def test_news_of_another_claim_is_unknown(self, journal: Journal) -> None:
        accept(journal, mark())
        other = Ended(mark(claim="c9"), "f1", 6.0, "failed", 1)
        assert journal.progress([other]) == (0, [other])
        assert state(journal) == "accepted"

    def test_lost_when_it_had_started_and_takeable_again_when_not(self, journal: Journal) -> None:
        started = accept(journal, mark())
        take(journal, mark("b"))
        journal.decide([submitted(mark("b"), "f2")], [])
        held = journal.get("b", 1)
        current = journal.get("a", 1)
        assert held is not None
        assert current is not None
        assert {r.id for r in journal.lose([current, held], "gone")} == {"a", "b"}
        assert (state(journal), state(journal, "b")) == ("lost", "returned")
        assert events(journal) == [("a", "lost")]
        assert journal.lose([started], "gone") == []

    def test_what_changed_meanwhile_is_not_lost(self, journal: Journal) -> None:
        accept(journal, mark())
        before = journal.get("a", 1)
        assert before is not None
        journal.progress([Started(mark(), "f1", 5.0)])
        assert journal.lose([before], "gone") == []

    def test_dropped_without_a_word(self, journal: Journal) -> None:
        take(journal, mark())
        journal.decide([submitted(mark())], [])
        row = journal.get("a", 1)
        assert row is not None
        assert len(journal.drop([row], "went elsewhere")) == 1
        assert (state(journal), events(journal)) == ("lost", [])


class TestOutbox:
    def test_events_outlive_the_process(self, tmp_path: Path, clock: Clock) -> None:
        first = Journal(tmp_path / "j", cluster="blue", clock=clock)
        accept(first, mark())
        first.progress([Ended(mark(), "f1", 6.0, "completed", 0)])
        first.close()
        second = Journal(tmp_path / "j", cluster="blue", clock=clock)
        assert events(second) == []  # left to the other agent for a while, it may be alive
        clock.now += 20
        assert events(second) == [("a", "completed")]
        second.outbox.sent(second.outbox.due(10))
        assert second.outbox.waiting() == 0
        second.close()

    def test_decisions_go_out_with_their_delivery_only(self, journal: Journal) -> None:
        take(journal, mark())
        decided = journal.decide([submitted(mark())], [(rejected(mark("b")), None)])
        assert events(journal) == []
        assert len(decided.refused) == 1
        journal.release([mark()], [decided.accepted[0][1], *decided.refused])
        assert events(journal) == []

    def test_a_redelivery_has_its_event_again(self, journal: Journal) -> None:
        journal.decide([], [(rejected(mark()), None)])
        row = journal.get("a", 1)
        assert row is not None
        (again,) = journal.outbox.repeat([row])
        assert (again.event.state, again.event.code, again.event.detail) == ("rejected", "no-fit", "why")

    def test_old_jobs_are_forgotten_but_not_their_unsent_events(self, journal: Journal, clock: Clock) -> None:
        for job in ("a", "b"):
            accept(journal, mark(job))
            journal.progress([Ended(mark(job), "f1", 6.0, "completed", 0)])
        journal.outbox.sent([p for p in journal.outbox.due(10) if p.event.id == "a"])
        clock.now += 100
        assert journal.prune(50) == 1
        assert (state(journal, "a"), state(journal, "b")) == (None, "completed")


class TestTrouble:
    def test_a_full_disk_changes_nothing_and_heals(self, journal: Journal) -> None:
        take(journal, mark())
        pages = journal.file.connection.execute("PRAGMA page_count").fetchone()[0]
        journal.file.connection.execute(f"PRAGMA max_page_count={pages}")
        marks = [mark(f"{n:0200d}") for n in range(2000)]
        with pytest.raises(JournalDown, match="full"):
            take(journal, *marks)
        assert journal.counts() == {"taken": 1}
        journal.file.connection.execute("PRAGMA max_page_count=100000")
        assert len(take(journal, *marks)) == 2000

    def test_of_another_version_is_refused(self, tmp_path: Path) -> None:
        db = sqlite3.connect(tmp_path / "j")
        db.execute("PRAGMA user_version=99")
        db.close()
        with pytest.raises(InvalidSettings, match="version 99"):
            Journal(tmp_path / "j", cluster="blue")

    def test_no_journal_at_all_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "j").write_bytes(b"this is no database, and long enough to be seen as none" * 20)
        with pytest.raises(JournalDown):
            Journal(tmp_path / "j", cluster="blue")

    def test_two_agents_write_one_journal(self, tmp_path: Path) -> None:
        one = Journal(tmp_path / "j", cluster="blue")
        two = Journal(tmp_path / "j", cluster="blue")
        take(one, mark())
        take(two, mark(claim="c2"))
        assert one.decide([submitted(mark())], []).superseded
        assert two.decide([submitted(mark(claim="c2"))], []).accepted
        one.close()
        two.close()

    def test_readable_by_its_owner_only(self, tmp_path: Path, journal: Journal) -> None:
        assert (tmp_path / "j.sqlite").stat().st_mode & 0o077 == 0


class TestTellingAgain:
    """After the scheduler's side forgot everything."""

    def test_what_runs_and_what_ended_lately(self, journal: Journal, clock: Clock) -> None:
        for job in ("old", "done", "runs", "waits"):
            accept(journal, mark(job))
        for job in ("old", "done", "runs"):
            journal.progress([Started(mark(job), "f1", clock.now)])
        journal.progress([Ended(mark("old"), "f1", clock.now, "completed", 0)])
        clock.now += 500
        journal.progress([Ended(mark("done"), "f1", clock.now, "failed", 3, detail="why")])
        journal.outbox.sent(journal.outbox.due(100))
        assert events(journal) == []
        assert journal.outbox.republish(300.0) == 3
        assert sorted(events(journal)) == [("done", "failed"), ("runs", "running"), ("waits", "accepted")]
        told = {p.event.id: p.event for p in journal.outbox.due(100)}
        assert (told["done"].returncode, told["done"].detail, told["done"].user) == (3, "why", "alice")
        assert told["waits"].flux_id == "f1"
        assert journal.outbox.republish(300.0) == 0  # it is under way already

    def test_not_what_may_go_on_elsewhere(self, journal: Journal, clock: Clock) -> None:
        take(journal, mark("held"), mark("refused"), mark("dropped"))
        journal.decide(
            [submitted(mark("held")), submitted(mark("dropped"))], [(rejected(mark("refused")), mark("refused"))]
        )
        (row,) = [r for r in journal.active() if r.id == "dropped"]
        journal.drop([row], "its attempt is over")
        assert journal.outbox.republish(300.0) == 1
        [told] = journal.outbox.due(100)
        assert (told.event.id, told.event.state, told.event.held) == ("held", "accepted", True)

    def test_what_was_accepted_and_not_confirmed_is_told_once(self, journal: Journal) -> None:
        """Its event may have arrived for all that, and its delivery with it have been settled: it never comes again."""
        take(journal, mark("a"))
        journal.decide([submitted(mark("a"))], [])
        assert journal.outbox.due(100) == []
        assert [journal.outbox.republish(300.0) for _ in range(2)] == [1, 0]
        assert events(journal) == [("a", "accepted")]

    def test_a_journal_of_an_earlier_release(self, tmp_path: Path) -> None:
        Journal(tmp_path / "old", cluster="blue").close()
        with sqlite3.connect(tmp_path / "old") as db:
            db.execute("ALTER TABLE jobs DROP COLUMN returncode")
        db.close()
        journal = Journal(tmp_path / "old", cluster="blue")
        accept(journal, mark())
        journal.progress([Ended(mark(), "f1", 6.0, "failed", 7)])
        row = journal.get("a", 1)
        assert row is not None
        assert row.returncode == 7
        journal.close()
