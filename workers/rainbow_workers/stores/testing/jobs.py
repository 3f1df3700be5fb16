"""Job records: reading, retention, watches and cancellation."""

from __future__ import annotations

import itertools
import time

import pytest

from rainbow.jobspec.request import Demand
from rainbow.models.job import TERMINAL, JobRecord
from rainbow_workers.stores.base import Cursor, Store
from rainbow_workers.stores.testing.kit import Make, StoreFixtures, assignment, cluster, event, new_id, until


class JobContract(StoreFixtures):
    """Job records: reading, retention, watches and cancellation."""

    def test_get_keeps_the_order_and_says_none(self, store: Store) -> None:
        ids = [new_id() for _ in range(5)]
        store.jobs.record([event(id, "held") for id in ids[:4]])
        asked = [ids[2], ids[4], ids[0], ids[2]]
        assert [r.id if r else None for r in store.jobs.get(asked)] == [ids[2], None, ids[0], ids[2]]
        assert store.jobs.get([]) == []

    def test_find_is_newest_first_by_the_first_event(self, store: Store) -> None:
        ids = [new_id() for _ in range(6)]
        for at, id in enumerate(ids):
            store.jobs.record([event(id, "held", at=float(at))])
        store.jobs.record([event(ids[0], "running", at=100.0)])
        found = store.jobs.find(state=None, cluster=None, user=None, limit=100)
        assert [r.id for r in found] == ids[::-1]
        assert [r.id for r in store.jobs.find(state=None, cluster=None, user=None, limit=2)] == [ids[5], ids[4]]

    def test_find_leaves_out_history_and_answer(self, red: Store) -> None:
        red.jobs.assign([assignment(new_id())], 0)
        found = red.jobs.find(state="assigned", cluster=None, user=None, limit=1)[0]
        assert (found.history, found.answer, found.name) == ([], None, "hello")

    def test_find_by_all_filters(self, store: Store) -> None:
        made: list[tuple[str, str, str, str]] = []
        at = 0.0
        for made_state in ("held", "running", "completed", "failed"):
            for made_on in ("red", "blue"):
                for made_by in ("ann", "bob", "ann"):
                    at += 1
                    made.append((new_id(), made_state, made_on, made_by))
                    store.jobs.record([event(made[-1][0], made_state, at=at, cluster=made_on, user=made_by)])
        states, places, users = (None, "held", "completed", "lost"), (None, "red", "green"), (None, "bob", "eve")
        for asked in itertools.product(states, places, users):
            state, where, user = asked
            wanted = [id for id, *has in reversed(made) if all(a in (None, h) for a, h in zip(asked, has, strict=True))]
            found = store.jobs.find(state=state, cluster=where, user=user, limit=100)
            assert [r.id for r in found] == wanted, asked

    def test_find_follows_a_job_to_another_cluster(self, red: Store) -> None:
        id = new_id()
        red.jobs.assign([assignment(id)], 0)
        red.jobs.assign([assignment(id, attempt=2, to="blue")], 0)
        assert red.jobs.find(state=None, cluster="red", user=None, limit=5) == []
        assert len(red.jobs.find(state=None, cluster="blue", user=None, limit=5)) == 1

    def test_find_through_many(self, store: Store) -> None:
        ids = [new_id() for _ in range(1300)]
        for start in range(0, 1300, 100):
            store.jobs.record(
                [
                    event(id, "running", at=float(at), cluster="red", user="rare" if at % 400 == 0 else "ann")
                    for at, id in enumerate(ids[start : start + 100], start)
                ]
            )
        found = store.jobs.find(state="running", cluster="red", user=None, limit=1250)
        assert [r.id for r in found] == ids[:49:-1]
        rare = store.jobs.find(state="running", cluster="red", user="rare", limit=10)
        assert [r.id for r in rare] == [ids[1200], ids[800], ids[400], ids[0]]

    def test_find_text(self, store: Store) -> None:
        ids = [new_id() for _ in range(1200)]
        for start in range(0, 1200, 100):
            many = list(enumerate(ids[start : start + 100], start))
            store.jobs.record([event(i, "held", at=float(n), name=f"run-{n}.x", detail="full") for n, i in many])
        odd = new_id()
        store.jobs.record([event(odd, "held", at=7.0, detail="a%d odd [one")])

        def found(text: str, state: str | None = None) -> list[str]:
            page = store.jobs.page(state=state, cluster=None, user=None, limit=20, text=text)
            return [record.id for _, record in page.jobs]

        assert found("run-1.x") == [ids[1]]
        assert found("run-11") == ids[1199:1179:-1]
        assert found(ids[5][:13]) == [ids[5]]
        assert found("full", state="running") == []
        assert found("%d odd [") == [odd], "it is no pattern"
        assert found("state") == [], "not the words of the record itself"

    def test_pages_follow_each_other(self, store: Store) -> None:
        """Also where many came at one time, and jobs come and end between two pages."""
        ids = sorted(new_id() for _ in range(60))
        store.jobs.record([event(id, "running", at=float(at // 20)) for at, id in enumerate(ids)])
        seen: list[tuple[float, str]] = []
        before: Cursor | None = None
        while True:
            page = store.jobs.page(state=None, cluster=None, user=None, limit=7, before=before)
            assert len(page.jobs) <= 7
            seen += [(at, record.id) for at, record in page.jobs]
            before = page.next
            if before is None:
                break
            store.jobs.record([event(new_id(), "held", at=99.0), event(seen[-1][1], "completed", at=100.0)])
        assert seen == [(float(at // 20), id) for at, id in reversed(list(enumerate(ids)))]

    def test_a_page_begins_after_its_position_whether_that_job_is_there_or_not(self, store: Store) -> None:
        ids = sorted(new_id() for _ in range(9))
        store.jobs.record([event(id, "held", at=1.5) for id in ids if id != ids[4]])

        def listed(at: float, id: str, **filters: str) -> list[str]:
            wanted: dict[str, str | None] = {"state": None, "cluster": None, "user": None, **filters}
            return [r.id for _, r in store.jobs.page(**wanted, limit=20, before=(at, id)).jobs]

        assert listed(1.5, ids[4]) == ids[3::-1]
        assert listed(1.5, ids[5], state="held") == ids[3::-1]
        assert len(listed(1.6, ids[0])) == 8
        assert listed(1.4, ids[8]) == []

    def test_ended_jobs_are_forgotten_after_a_while(self, make: Make) -> None:
        store = make(keep=0.4)
        store.clusters.put(cluster(), None)
        ended, live = new_id(), new_id()
        store.jobs.assign([assignment(ended), assignment(live)], 0)
        store.jobs.record([event(ended, "completed"), event(live, "running")])
        until(lambda: store.jobs.get([ended]) == [None])
        for state, where, user in (("completed", None, None), (None, "red", None), (None, None, "ann"), (None,) * 3):
            found = store.jobs.find(state=state, cluster=where, user=user, limit=9)
            assert ended not in [r.id for r in found]
        assert store.jobs.get([live])[0] is not None
        again = store.jobs.record([event(ended, "running", cluster="red")])[0]
        assert again.applied
        record = store.jobs.get([ended])[0]
        assert record is not None
        assert len(record.history) == 1
        store.close()

    def test_stale_events_do_not_keep_a_job_longer(self, make: Make) -> None:
        store = make(keep=0.5)
        id = new_id()
        store.jobs.record([event(id, "completed")])
        # It applies again only when the job has been forgotten in spite of all of them.
        until(lambda: store.jobs.record([event(id, "running")])[0].applied)
        store.close()

    def test_watchers_are_told_with_every_event(self, store: Store) -> None:
        watched, other = new_id(), new_id()
        store.jobs.watch([watched], ("reply.1", "c1"), 60.0)
        store.jobs.watch([watched], ("reply.2", "%"), 60.0)
        store.jobs.watch([watched], ("reply.1", "c1"), 60.0)
        done = store.jobs.record([event(watched, "held"), event(other, "held"), event(watched, "held")])
        both = [("reply.1", "c1"), ("reply.2", "%")]
        assert [sorted(r.watchers) for r in done] == [both, [], both]
        assert store.jobs.get([new_id(), other])[0] is None

    def test_a_watch_ends(self, store: Store) -> None:
        id = new_id()
        store.jobs.watch([id], ("reply", "short"), 0.2)
        store.jobs.watch([id], ("reply", "long"), 60.0)

        def watchers() -> list[tuple[str, str]]:
            return list(store.jobs.record([event(id, "held")])[0].watchers)

        until(lambda: watchers() == [("reply", "long")])

    def test_a_watch_can_be_made_longer(self, store: Store) -> None:
        id = new_id()
        store.jobs.watch([id], ("reply", "c"), 0.1)
        store.jobs.watch([id], ("reply", "c"), 60.0)
        time.sleep(0.2)
        assert list(store.jobs.record([event(id, "held")])[0].watchers) == [("reply", "c")]

    def test_cancel_marks_and_gives_the_record(self, red: Store) -> None:
        id = new_id()
        red.jobs.assign([assignment(id)], 0)
        for _ in range(2):
            record = red.jobs.cancel([id])[0]
            assert record is not None
            assert (record.state, record.cancel_requested, record.cluster) == ("assigned", True, "red")
            assert (record.history, record.answer) == ([], None)
        found = red.jobs.get([id])[0]
        assert found is not None
        assert found.cancel_requested
        assert len(found.history) == 1

    @pytest.mark.parametrize("state", ["submitted", "held", "rejected", "assigned"])
    def test_a_cancelled_job_is_not_assigned(self, red: Store, state: str) -> None:
        id = new_id()
        red.jobs.record([event(id, state, cluster="red")])
        red.jobs.cancel([id])
        for attempt in (1, 2):
            record = red.jobs.assign([assignment(id, attempt=attempt)], 0).outcomes[0]
            assert record is not None
            assert record.cancel_requested
        assert red.clusters.changes(0).reserved == {"red": Demand()}

    def test_the_mark_survives_events(self, red: Store) -> None:
        id = new_id()
        red.jobs.record([event(id, "held", attempt=0)])
        red.jobs.cancel([id])
        assert red.jobs.record([event(id, "running", attempt=2)])[0].record.cancel_requested

    def test_the_cancel_of_an_unknown_job_stops_it(self, red: Store) -> None:
        id = new_id()
        assert red.jobs.cancel([id, id]) == [None, None]
        assert red.jobs.get([id]) == [None]
        assert red.jobs.find(state=None, cluster=None, user=None, limit=5) == []
        assert red.jobs.assign([assignment(id)], 0).outcomes == [
            JobRecord(id=id, state="submitted", cancel_requested=True)
        ]
        assert red.jobs.record([event(id, "submitted", attempt=0)])[0].record.cancel_requested
        assert red.jobs.assign([assignment(id)], 0).outcomes[0] is not None
        record = red.jobs.record([event(id, "cancelled", attempt=0)])[0].record
        assert (record.state, record.cancel_requested) == ("cancelled", True)

    @pytest.mark.parametrize("state", sorted(TERMINAL))
    def test_ended_jobs_are_not_marked(self, store: Store, state: str) -> None:
        id = new_id()
        store.jobs.record([event(id, state)])
        record = store.jobs.cancel([id])[0]
        assert record is not None
        assert (record.state, record.cancel_requested) == (state, False)

    def test_cancel_keeps_the_order(self, store: Store) -> None:
        ids = [new_id() for _ in range(3)]
        store.jobs.record([event(ids[0], "held"), event(ids[2], "completed")])
        assert [r.state if r else None for r in store.jobs.cancel(ids)] == ["held", None, "completed"]
        assert store.jobs.cancel([]) == []

    def test_the_jobspec_of_an_assignment(self, red: Store) -> None:
        document = {"version": 1, "tasks": [{"command": ["echo", "ü\x00"]}], "n": [1.5, None, True, {}]}
        one, two, none = new_id(), new_id(), new_id()
        batch = [assignment(one, jobspec=document), assignment(two, jobspec={**document}), assignment(none)]
        assert red.jobs.assign(batch, 0).outcomes == [None] * 3
        assert [red.jobs.jobspec(id) for id in (one, two, none, new_id())] == [document, document, None, None]
        red.jobs.assign([assignment(one, attempt=2, to="blue", jobspec={"other": 1})], 0)
        red.jobs.record([event(one, "running", 2, cluster="blue")])
        assert red.jobs.jobspec(one) == document, "the first stays"
        [record] = red.jobs.get([one])
        assert record is not None
        assert "echo" not in record.model_dump_json()

    def test_the_jobspec_of_a_job_that_is_not_assigned(self, red: Store) -> None:
        held, refused = new_id(), new_id()
        events = [event(held, "held", 0), event(refused, "unsatisfiable", 0)]
        red.jobs.record(events, (), {held: {"a": 1}, refused: {"b": 2}})
        red.jobs.record([event(held, "held", 0), event(refused, "denied", 0)], (), {held: {"c": 3}, refused: {"c": 3}})
        assert [red.jobs.jobspec(id) for id in (held, refused)] == [{"a": 1}, {"b": 2}]
        red.jobs.assign([assignment(held, jobspec={"a": 1})], 0)
        assert red.jobs.jobspec(held) == {"a": 1}
        late = new_id()
        red.jobs.record([event(late, "held", 0)])
        red.jobs.assign([assignment(late, jobspec={"a": 1})], 0)
        assert red.jobs.jobspec(late) == {"a": 1}

    def test_a_jobspec_goes_with_the_last_job_that_has_it(self, make: Make) -> None:
        store = make(keep=0.3)
        store.clusters.put(cluster("red"), None)
        live, ended = new_id(), new_id()
        store.jobs.assign([assignment(id, jobspec={"a": 1}) for id in (live, ended)], 0)
        store.jobs.record([event(ended, "completed", cluster="red")])
        until(lambda: store.jobs.get([ended]) == [None])
        assert [store.jobs.jobspec(id) for id in (live, ended)] == [{"a": 1}, None]
        store.jobs.record([event(live, "completed", cluster="red")])
        until(lambda: store.jobs.jobspec(live) is None)

    @pytest.mark.parametrize("limit", [0, 100])
    def test_a_large_jobspec_is_not_kept(self, make: Make, limit: int) -> None:
        store = make(jobspec_bytes=limit)
        store.clusters.put(cluster("red"), None)
        large, small = new_id(), new_id()
        noise = "".join(new_id() for _ in range(10))
        specs = {large: {"noise": noise}, small: {"zeros": "0" * 400}}
        store.jobs.assign([assignment(id, jobspec=spec) for id, spec in specs.items()], 0)
        assert store.jobs.jobspec(large) is None
        assert store.jobs.jobspec(small) == (specs[small] if limit else None)
