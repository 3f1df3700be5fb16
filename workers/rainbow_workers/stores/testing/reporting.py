"""The contract: who may report an attempt of a job."""

from __future__ import annotations

import pytest

from rainbow.models.job import REPORTED, STARTED, TERMINAL
from rainbow_workers.stores.base import Sender, Store
from rainbow_workers.stores.testing.kit import StoreFixtures, assignment, event, new_id


class ReportingContract(StoreFixtures):
    """An event counts from the registration that was given the attempt, or with the scheduler's proof."""

    @pytest.mark.parametrize("state", sorted(REPORTED))
    def test_the_registration_that_was_given_the_attempt_reports_it(self, red: Store, state: str) -> None:
        id = new_id()
        red.jobs.assign([assignment(id)], 0)
        done = red.jobs.record([event(id, state, cluster="red")], [Sender("red", "r1")])[0]
        assert (done.applied, done.refused, done.record.state) == (True, False, state)

    @pytest.mark.parametrize("state", sorted(REPORTED))
    @pytest.mark.parametrize(
        ("who", "attempt"),
        [(("blue", "r1"), 1), (("red", "r2"), 1), (("red", "r1"), 2), (("red", "r1"), 100_000), (("red", "r1"), 0)],
    )
    def test_nobody_else_reports_it(self, red: Store, state: str, who: tuple[str, str], attempt: int) -> None:
        """Another cluster, another registration, an attempt that no scheduler started."""
        id = new_id()
        red.jobs.assign([assignment(id)], 0)
        red.jobs.watch([id], ("queue", "c"), 60.0)
        before, reserved = red.jobs.get([id]), red.clusters.changes(0).reserved
        done = red.jobs.record([event(id, state, attempt, cluster=who[0], code="x")], [Sender(*who)])[0]
        assert (done.applied, done.refused, list(done.watchers)) == (False, True, [])
        assert red.jobs.get([id]) == before
        assert red.clusters.changes(0).reserved == reserved

    @pytest.mark.parametrize("state", sorted(REPORTED))
    def test_nobody_reports_a_job_that_was_never_assigned(self, red: Store, state: str) -> None:
        unknown, held = new_id(), new_id()
        red.jobs.record([event(held, "held", 1, cluster="red")])
        sender = Sender("red", "r1")
        done = red.jobs.record([event(i, state, 1, cluster="red") for i in (unknown, held)], [sender, sender])
        assert [(r.applied, r.refused) for r in done] == [(False, True)] * 2
        assert red.jobs.get([unknown]) == [None]
        assert red.jobs.find(state=None, cluster=None, user=None, limit=9)[0].id == held

    def test_a_batch_takes_what_counts_and_refuses_the_rest(self, red: Store) -> None:
        ids = [new_id(), new_id()]
        red.jobs.assign([assignment(ids[0]), assignment(ids[1], to="blue", registration="b1")], 0)
        events = [event(id, "accepted", cluster="red") for id in ids] + [event(ids[0], "running", cluster="red")]
        done = red.jobs.record(events, [Sender("red", "r1")] * 3)
        assert [(r.applied, r.refused) for r in done] == [(True, False), (False, True), (True, False)]

    def test_an_attempt_that_is_over_is_reported_by_who_had_it(self, red: Store) -> None:
        id = new_id()
        red.jobs.assign([assignment(id)], 0)
        red.jobs.assign([assignment(id, 2, "blue", registration="b1")], 0)
        old = event(id, "completed", 1, cluster="red")
        done = red.jobs.record([old, old, old], [Sender("red", "r1"), Sender("red", "r0"), Sender("green", "g1")])
        assert [(r.applied, r.refused) for r in done] == [(False, False), (False, True), (False, True)]
        record = red.jobs.get([id])[0]
        assert record is not None
        assert (record.state, record.attempt, record.cluster) == ("assigned", 2, "blue")
        assert [e.get("stale", False) for e in record.history] == [False, False, True]

    def test_a_scheduler_that_advances_a_job_takes_it_from_its_cluster(self, red: Store) -> None:
        id = new_id()
        red.jobs.assign([assignment(id)], 0)
        red.jobs.record([event(id, "held", 2)])
        assert red.jobs.record([event(id, "running", 2, cluster="red")], [Sender("red", "r1")])[0].refused

    @pytest.mark.parametrize("state", sorted(REPORTED))
    def test_a_proof_recreates_what_was_lost(self, red: Store, state: str) -> None:
        id = new_id()
        said = event(id, state, 3, cluster="red", user="ann", name="n")
        done = red.jobs.record([said], [Sender("red", "r1", proven=True)])[0]
        assert (done.applied, done.refused) == (True, False)
        record = red.jobs.get([id])[0]
        assert record is not None
        assert (record.state, record.attempt, record.cluster, record.user) == (state, 3, "red", "ann")
        if state not in TERMINAL:
            last = red.jobs.record([event(id, "completed", 3, cluster="red")], [Sender("red", "r1")])[0]
            assert last.applied, "from then on the ledger knows it"

    def test_a_proof_advances_a_record_that_is_older(self, red: Store) -> None:
        id = new_id()
        red.jobs.assign([assignment(id)], 0)
        done = red.jobs.record([event(id, "running", 2, cluster="blue")], [Sender("blue", "b1", proven=True)])[0]
        assert done.applied
        assert red.jobs.record([event(id, "completed", 1, cluster="red")], [Sender("red", "r1")])[0].refused is False
        assert red.jobs.record([event(id, "completed", 2, cluster="blue")], [Sender("blue", "b1")])[0].applied

    @pytest.mark.parametrize("state", sorted(REPORTED))
    @pytest.mark.parametrize("stands", ["assigned", "rejected", "accepted", "running", "completed", "cancelled"])
    def test_of_two_that_were_given_one_attempt_the_first_that_started_has_it(
        self, red: Store, stands: str, state: str
    ) -> None:
        """The store lost an assignment and the attempt was given away again."""
        id = new_id()
        red.jobs.assign([assignment(id)], 0)
        if stands != "assigned":
            red.jobs.record([event(id, stands, cluster="red")], [Sender("red", "r1")])
        done = red.jobs.record([event(id, state, cluster="blue")], [Sender("blue", "b1", proven=True)])[0]
        assert done.applied == (state in STARTED and stands in ("assigned", "rejected"))
        assert not done.refused
        record = red.jobs.get([id])[0]
        assert record is not None
        assert record.cluster == ("blue" if done.applied else "red")
        late = red.jobs.record([event(id, "failed", cluster="red")], [Sender("red", "r1")])[0]
        assert late.refused is done.applied

    def test_one_that_only_holds_the_attempt_does_not_take_it_nor_keep_it(self, red: Store) -> None:
        """Its job has not started: another one that reports a start, with proof, has the attempt."""
        id = new_id()
        red.jobs.assign([assignment(id)], 0)
        blue = Sender("blue", "b1", proven=True)
        assert not red.jobs.record([event(id, "accepted", cluster="blue", held=True)], [blue])[0].applied
        assert red.jobs.record([event(id, "accepted", cluster="red", held=True)], [Sender("red", "r1")])[0].applied
        assert red.jobs.record([event(id, "accepted", cluster="blue")], [blue])[0].applied
        assert red.jobs.record([event(id, "running", cluster="red")], [Sender("red", "r1")])[0].refused
        assert not red.jobs.record([event(id, "running", cluster="red")], [Sender("red", "r1", proven=True)])[0].applied

    def test_a_proof_never_changes_an_end_nor_the_job_of_somebody_else(self, red: Store) -> None:
        over, other = new_id(), new_id()
        red.jobs.assign([assignment(over), assignment(other)], 0)
        red.jobs.record([event(over, "completed", cluster="red")], [Sender("red", "r1")])
        proven = Sender("blue", "b1", proven=True)
        events = [event(over, "running", 9, cluster="blue"), event(other, "running", 1, cluster="blue", user="bob")]
        assert [r.applied for r in red.jobs.record(events, [proven, proven])] == [False, False]
