"""Random sequences of operations: Redis gives what the reference gives, answer by answer."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rainbow.errors import Conflict
from rainbow.jobspec.request import Demand
from rainbow.models.cluster import Revocation, StateReport
from rainbow.models.job import RANK, REPORTED, TERMINAL
from rainbow_workers.stores import StoreOptions, open_store
from rainbow_workers.stores.base import Assigned, Changes, Sender, Store
from rainbow_workers.stores.testing import assignment, cluster, event

#: What is done to a store: called with it and with the versions it gave so far.
Operation = Callable[[Store, list[int]], Any]

clusters = st.sampled_from(["red", "blue", "green"])
ids = st.sampled_from(["j1", "j 2", "j%d"])
attempts = st.sampled_from([1, 1, 1, 2, 2, 0, 3])
times = st.integers(1, 6).map(float)
registrations = st.sampled_from(["r1", "r2"])
demands = st.builds(Demand, st.integers(0, 3), st.integers(0, 9), st.integers(0, 2))
values = st.dictionaries(
    st.sampled_from(["a", "cores_free", "gpus_free"]),
    st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats(-1e18, 1e18),
)
rooms = st.dictionaries(clusters, demands.map(lambda d: Demand(2 * d.nodes, 2 * d.cores, 2 * d.gpus)), max_size=2)
FAR = 4e9


def versioned(store: Store, versions: list[int], changes: Changes) -> Changes:
    versions.append(changes.version)
    revocations = changes.revocations
    if revocations is not None:
        revocations = sorted(revocations, key=lambda r: (r.kind, r.value))
    return replace(changes, version=0, revocations=revocations)


def put(name: str, registration: str, expect: str | None, drained: str | None) -> Operation:
    return lambda s, _: s.clusters.put(cluster(name, registration, drained=drained), expect)


def changes(back: int) -> Operation:
    return lambda s, v: versioned(s, v, s.clusters.changes(v[-min(back, len(v))]))


def assign(batch: list[tuple[str, int, str, Demand]], back: int, room: dict[str, Demand]) -> Operation:
    made = [
        assignment(id, a, to, demand=d, user=to, submitted_at=float(a), reserve_s=600.0, looked={"of": a % 2})
        for id, a, to, d in batch
    ]

    def run(s: Store, v: list[int]) -> Assigned:
        done = s.jobs.assigning(made, v[-min(back, len(v))], room).wait()
        return replace(done, changes=versioned(s, v, done.changes))

    return run


def record(events: list[tuple[str, str, int, float, str | None, str | None]]) -> Operation:
    made = [
        event(id, state, a, at, cluster=where, code=code, user=code, answer=code and {"c": code})
        for id, state, a, at, where, code in events
    ]
    return lambda s, _: [(r.record, r.applied, sorted(r.watchers)) for r in s.jobs.record(made)]


def reported(events: list[tuple[str, str, int, float, str, str, bool]]) -> Operation:
    made = [event(id, state, a, at, cluster=where) for id, state, a, at, where, _, _ in events]
    senders = [Sender(where, registration, proven) for _, _, _, _, where, registration, proven in events]
    return lambda s, _: [(r.record, r.applied, r.refused) for r in s.jobs.record(made, senders)]


def report(name: str, registration: str | None, said: Any, included: Any, beat: bool, at: float) -> Operation:
    one = StateReport(cluster=name, registration=registration, values=said, included=included, heartbeat=beat)
    return lambda s, _: s.clusters.report([one], at)


codes = st.none() | st.sampled_from(["busy", "why"])
back = st.integers(1, 6)
operations = st.one_of(
    st.builds(put, clusters, registrations, st.none() | registrations, st.none() | st.just("repair")),
    st.builds(changes, back),
    st.builds(assign, st.lists(st.tuples(ids, attempts, clusters, demands), max_size=4), back, st.just({})),
    st.builds(assign, st.lists(st.tuples(ids, attempts, clusters, demands), max_size=4), back, rooms),
    st.builds(
        record,
        st.lists(
            st.tuples(ids, st.sampled_from(sorted(RANK)), attempts, times, st.none() | clusters, codes), max_size=5
        ),
    ),
    st.builds(
        record,
        st.lists(
            st.tuples(
                ids, st.sampled_from(sorted(RANK.keys() - TERMINAL)), attempts, times, st.none() | clusters, codes
            ),
            max_size=5,
        ),
    ),
    st.builds(
        reported,
        st.lists(
            st.tuples(ids, st.sampled_from(sorted(REPORTED)), attempts, times, clusters, registrations, st.booleans()),
            max_size=5,
        ),
    ),
    st.builds(
        report,
        clusters,
        st.none() | registrations,
        values,
        st.lists(st.tuples(ids, attempts), max_size=4),
        st.booleans(),
        times,
    ),
    st.builds(lambda name: lambda s, _: s.clusters.delete(name), clusters),
    st.builds(
        lambda group, members: lambda s, _: s.clusters.set_group(group, members),
        st.sampled_from(["@a", "@b"]),
        st.frozensets(clusters),
    ),
    st.builds(
        lambda kind, value, before, until: (
            lambda s, _: s.clusters.revoke(Revocation(kind=kind, value=value, before=before, until=FAR + until))
        ),
        st.sampled_from(["jti", "sub"]),
        st.sampled_from(["x", "y z"]),
        times,
        times,
    ),
    st.builds(lambda some: lambda s, _: s.jobs.cancel(some), st.lists(ids, max_size=3)),
    st.builds(lambda some: lambda s, _: s.jobs.get(some), st.lists(ids, max_size=3)),
    st.builds(
        lambda some, reply: lambda s, _: s.jobs.watch(some, (reply, "c"), 600.0),
        st.lists(ids, max_size=2),
        st.sampled_from(["w1", "w2"]),
    ),
)


def outcome(operation: Operation, store: Store, versions: list[int]) -> Any:
    try:
        return operation(store, versions)
    except Conflict as exc:
        return exc.message


def whole(store: Store, versions: list[int]) -> Any:
    """All that can be read of a store."""
    found = [
        store.jobs.find(state=state, cluster=where, user=user, limit=50)
        for state, where, user in itertools.product((None, "assigned", "failed"), (None, "red"), (None, "blue"))
    ]
    everything = versioned(store, versions, store.clusters.changes(0))
    return everything, store.jobs.get(["j1", "j 2", "j%d"]), found


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(sequence=st.lists(operations, min_size=4, max_size=30))
def test_redis_equals_the_reference(redis_url: str, redis_prefix: str, sequence: list[Operation]) -> None:
    mark = uuid.uuid4().hex
    reference = open_store(StoreOptions(f"memory://{mark}", max_history=4))
    store = open_store(StoreOptions(redis_url, prefix=f"{redis_prefix}{mark}:", max_history=4))
    try:
        stores: list[tuple[Store, list[int]]] = [(reference, [0]), (store, [0])]
        # Two clusters are there from the beginning: most of what can be done needs one.
        for name in ("red", "blue"):
            for s, _ in stores:
                s.clusters.put(cluster(name), None)
        for step, operation in enumerate(sequence):
            wanted, got = (outcome(operation, s, versions) for s, versions in stores)
            assert got == wanted, step
        wanted, got = (whole(s, versions) for s, versions in stores)
        assert got == wanted
    finally:
        store.close()
