"""Job events: order, attempts, terminal states and the bounded history."""

from __future__ import annotations

import random

import pytest

from rainbow.jobspec.request import Demand
from rainbow.models.job import BEGUN, HOLDABLE, RANK, TERMINAL, UNRUN, JobRecord
from rainbow_workers.stores.base import Store
from rainbow_workers.stores.testing.kit import ODD, Make, StoreFixtures, assignment, event, new_id


class EventContract(StoreFixtures):
    """Job events: order, attempts, terminal states and the bounded history."""

    def test_the_life_of_a_job(self, red: Store) -> None:
        id = new_id()
        red.jobs.record([event(id, "submitted", attempt=0, at=1.0, user="ann", name="x")])
        red.jobs.assign([assignment(id, at=2.0, name="x", answer={"n": 1})], 0)
        done = red.jobs.record(
            [
                event(id, "accepted", at=3.0, cluster="red", flux_id="ƒA"),
                event(id, "running", at=4.0, cluster="red"),
                event(id, "failed", at=5.0, cluster="red", returncode=3, code="exit", detail="said 3", output="out"),
            ]
        )
        assert [(r.record.state, r.applied, list(r.watchers)) for r in done] == [
            ("accepted", True, []),
            ("running", True, []),
            ("failed", True, []),
        ]
        record = red.jobs.get([id])[0]
        assert record == JobRecord(
            id=id,
            state="failed",
            attempt=1,
            cluster="red",
            user="ann",
            name="x",
            flux_id="ƒA",
            returncode=3,
            code="exit",
            detail="said 3",
            output="out",
            answer={"n": 1},
            times={"submitted": 1.0, "assigned": 2.0, "accepted": 3.0, "running": 4.0, "ended": 5.0},
            history=[
                {"state": "submitted", "attempt": 0, "at": 1.0},
                {"state": "assigned", "attempt": 1, "at": 2.0, "cluster": "red"},
                {"state": "accepted", "attempt": 1, "at": 3.0, "cluster": "red", "flux_id": "ƒA"},
                {"state": "running", "attempt": 1, "at": 4.0, "cluster": "red"},
                {
                    "state": "failed",
                    "attempt": 1,
                    "at": 5.0,
                    "cluster": "red",
                    "returncode": 3,
                    "code": "exit",
                    "detail": "said 3",
                },
            ],
        )
        assert done[-1].record == record.model_copy(update={"history": [], "answer": None})

    @pytest.mark.parametrize("state", sorted(RANK))
    def test_an_event_of_an_unknown_job_makes_its_record(self, store: Store, state: str) -> None:
        id = new_id()
        done = store.jobs.record([event(id, state, attempt=4, cluster="red", user="bob", answer={"a": [1, None]})])
        assert done[0].applied
        record = store.jobs.get([id])[0]
        assert record is not None
        assert (record.state, record.attempt, record.cluster, record.user) == (state, 4, "red", "bob")
        assert record.answer == {"a": [1, None]}

    @pytest.mark.parametrize("first", sorted(TERMINAL))
    def test_a_terminal_state_never_changes(self, red: Store, first: str) -> None:
        """S43: whatever is told afterwards, of whichever attempt."""
        id = new_id()
        red.jobs.record([event(id, first, attempt=1, cluster="red", code="why")])
        before = red.jobs.get([id])[0]
        assert before is not None
        later = [event(id, s, attempt=a, cluster="blue", code="other") for s in sorted(RANK) for a in (0, 1, 2, 7)]
        assert not any(r.applied for r in red.jobs.record(later))
        after = red.jobs.get([id])[0]
        assert after is not None
        assert after.model_copy(update={"history": []}) == before.model_copy(update={"history": []})
        assert all(entry.get("stale") for entry in after.history[1:])

    @pytest.mark.parametrize("state", sorted(RANK))
    def test_an_older_attempt_changes_nothing(self, red: Store, state: str) -> None:
        id = new_id()
        red.jobs.record([event(id, "running", attempt=2, cluster="blue", flux_id="f2")])
        done = red.jobs.record([event(id, state, attempt=1, cluster="red", flux_id="f1", answer={"old": 1})])[0]
        assert not done.applied
        assert (done.record.state, done.record.attempt, done.record.cluster) == ("running", 2, "blue")
        record = red.jobs.get([id])[0]
        assert record is not None
        assert (record.flux_id, record.answer) == ("f2", None)
        assert [entry.get("stale", False) for entry in record.history] == [False, True]

    def test_within_an_attempt_only_a_higher_rank_counts(self, store: Store) -> None:
        for a in RANK:
            for b in RANK:
                id = new_id()
                done = store.jobs.record([event(id, a), event(id, b)])
                wanted = a not in TERMINAL and RANK[b] > RANK[a] and not (a in BEGUN and b in UNRUN)
                wanted = wanted and (b != "held" or a in HOLDABLE)
                assert done[1].applied == wanted, (a, b)
                assert done[1].record.state == (b if wanted else a)

    def test_a_newer_attempt_advances_the_record(self, store: Store) -> None:
        id = new_id()
        store.jobs.record(
            [event(id, "running", cluster="red", user="ann", flux_id="f1", code="c", detail="d", returncode=1)]
        )
        done = store.jobs.record([event(id, "accepted", attempt=3, cluster="blue")])[0]
        assert done.applied
        r = done.record
        assert (r.state, r.attempt, r.cluster, r.user) == ("accepted", 3, "blue", "ann")
        assert (r.flux_id, r.code, r.detail, r.returncode, r.output) == (None, None, None, None, None)

    def test_fields_an_event_lacks_stay(self, store: Store) -> None:
        id = new_id()
        store.jobs.record([event(id, "accepted", cluster="red", user="ann", name="n", flux_id="f", answer={"x": 1})])
        store.jobs.record([event(id, "completed")])
        record = store.jobs.get([id])[0]
        assert record is not None
        assert (record.cluster, record.user, record.name, record.flux_id, record.answer) == (
            "red",
            "ann",
            "n",
            "f",
            {"x": 1},
        )

    def test_zero_and_empty_are_values(self, store: Store) -> None:
        id = new_id()
        store.jobs.record([event(id, "completed", returncode=0, detail="", output="", answer={})])
        record = store.jobs.get([id])[0]
        assert record is not None
        assert (record.returncode, record.detail, record.output, record.answer) == (0, "", "", {})

    def test_shuffled_duplicated_events_end_in_the_same_state(self, red: Store) -> None:
        rng = random.Random(5)
        for _ in range(30):
            id = new_id()
            life = [
                event(id, "assigned", 1, 1.0, cluster="red"),
                event(id, "rejected", 1, 2.0, cluster="red", code="busy"),
                event(id, "assigned", 2, 3.0, cluster="blue"),
                event(id, "accepted", 2, 4.0, cluster="blue", flux_id="f2"),
                event(id, "running", 2, 5.0, cluster="blue"),
                event(id, "completed", 2, 6.0, cluster="blue", returncode=0),
            ]
            twice = life * 2
            rng.shuffle(twice)
            applied = [r for e in twice for r in red.jobs.record([e]) if r.applied]
            record = red.jobs.get([id])[0]
            assert record is not None
            assert (record.state, record.attempt, record.cluster, record.returncode) == ("completed", 2, "blue", 0)
            assert len(record.history) == 12
            assert sum("stale" not in entry for entry in record.history) == len(applied)

    def test_an_adopted_job_cannot_be_assigned_elsewhere(self, red: Store) -> None:
        id = new_id()
        red.jobs.record([event(id, "running", attempt=2, cluster="blue")])
        record = red.jobs.assign([assignment(id, attempt=1)], 0).outcomes[0]
        assert record is not None
        assert (record.state, record.attempt, record.cluster) == ("running", 2, "blue")

    def test_the_order_of_a_batch_is_kept(self, store: Store) -> None:
        first, second = new_id(), new_id()
        done = store.jobs.record([event(first, "submitted"), event(second, "running"), event(first, "running")])
        assert [(r.record.id, r.record.state) for r in done] == [
            (first, "submitted"),
            (second, "running"),
            (first, "running"),
        ]
        assert store.jobs.record([]) == []

    def test_the_history_is_bounded_and_keeps_both_ends(self, make: Make) -> None:
        store = make(max_history=8)
        id = new_id()
        for start in range(0, 30, 3):
            store.jobs.record([event(id, "running", at=float(at)) for at in range(start, start + 3)])
        record = store.jobs.get([id])[0]
        assert record is not None
        assert [entry["at"] for entry in record.history] == [0, 1, 24, 25, 26, 27, 28, 29]
        store.close()

    def test_a_batch_longer_than_the_history(self, make: Make) -> None:
        store = make(max_history=4)
        id = new_id()
        store.jobs.record([event(id, "held", at=float(at)) for at in range(50)])
        record = store.jobs.get([id])[0]
        assert record is not None
        assert [entry["at"] for entry in record.history] == [0, 47, 48, 49]
        store.close()

    @pytest.mark.parametrize("odd", ODD)
    def test_odd_texts_come_back(self, red: Store, odd: str) -> None:
        id = new_id() + odd
        red.jobs.assign([assignment(id, user=odd, name=odd, answer={odd: odd})], 0)
        red.jobs.record([event(id, "failed", flux_id=odd, code=odd, detail=odd, output=odd)])
        record = red.jobs.get([id])[0]
        assert record is not None
        assert (record.id, record.user, record.name, record.answer) == (id, odd, odd, {odd: odd})
        assert (record.flux_id, record.code, record.detail, record.output) == (odd, odd, odd, odd)
        assert red.clusters.changes(0).reserved == {"red": Demand()}
        assert [r.id for r in red.jobs.find(state="failed", cluster="red", user=odd, limit=5)] == [id]
        assert red.jobs.find(state=None, cluster=None, user=odd + "x", limit=5) == []

    def test_odd_numbers_do_not_stop_a_batch(self, store: Store) -> None:
        ids = [new_id() for _ in range(3)]
        done = store.jobs.record(
            [
                event(ids[0], "held", at=0.0),
                event(ids[1], "failed", returncode=10**30, answer={"n": 10**30, "x": [float("inf")]}),
                event(ids[2], "completed", detail="\ud800"),
            ]
        )
        assert all(r.applied for r in done)
        found = store.jobs.get(ids)
        assert all(r is not None for r in found)
        assert found[1] is not None
        assert found[1].answer == {"n": 10**30, "x": [float("inf")]}
