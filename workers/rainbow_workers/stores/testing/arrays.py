"""Job arrays: an array's record counts its elements."""

from __future__ import annotations

from typing import Any

from rainbow.models.ids import element_id
from rainbow.models.job import JobRecord
from rainbow_workers.stores.base import Assignment, Store
from rainbow_workers.stores.testing.kit import StoreFixtures, assignment, event, new_id, until


def _element(array: str, index: int, **fields: Any) -> Assignment:
    return assignment(element_id(array, index), array=array, index=index, **fields)


def _counts(store: Store, array: str) -> dict[str, int]:
    [record] = store.jobs.get([array])
    assert record is not None
    return record.counts


def _array(store: Store) -> str:
    array = new_id()
    store.jobs.record([event(array, "held", 0, user="ann", account="a", code="array", indices="1-5%2")])
    return array


class ArraysContract(StoreFixtures):
    """An array's record counts its elements, and stops them."""

    def test_every_way_in_which_an_element_changes_is_counted_once(self, red: Store) -> None:
        array = _array(red)
        ids = [element_id(array, index) for index in range(6)]
        whose: dict[str, Any] = {"user": "ann", "account": "a", "array": array}
        red.jobs.record([event(ids[0], "held", 0, index=0, **whose), event(ids[1], "held", 0, index=1, **whose)])
        assert _counts(red, array) == {"held": 2}
        first = [_element(array, 2), _element(array, 3)]
        assert list(red.jobs.assigning(first, 0, {}).wait().outcomes) == [None, None]
        assert _counts(red, array) == {"held": 2, "assigned": 2}
        again = [_element(array, 0), _element(array, 2), _element(array, 4)]
        assert list(red.jobs.assign(again, 0).outcomes) == [None, None, None]
        assert _counts(red, array) == {"held": 1, "assigned": 4}
        ended = [
            event(ids[2], "running", user="ann"),
            event(ids[2], "failed", user="ann", returncode=3),
            event(ids[3], "failed", user="ann", returncode=-9),
            event(ids[4], "completed", user="ann", returncode=0),
            event(ids[4], "completed", user="ann", returncode=0),
        ]
        red.jobs.record(ended)
        red.jobs.record(ended)
        assert _counts(red, array) == {"held": 1, "assigned": 1, "failed": 2, "completed": 1}
        [record, element] = red.jobs.get([array, ids[2]])
        assert record is not None
        assert element is not None
        assert (record.state, record.indices, record.exit_code) == ("held", "1-5%2", 137)
        assert record.elements == {"held": 1, "assigned": 1, "completed": 1, "failed": 2}
        assert (element.array, element.index, element.counts) == (array, 2, {})
        assert [r.counts for r in red.jobs.find(state=None, cluster=None, user="ann", limit=9)] == [record.counts]

    def test_elements_are_in_the_list_of_their_array_alone(self, red: Store) -> None:
        array = _array(red)
        red.jobs.assigning([_element(array, index, submitted_at=1000.0 + index) for index in (1, 2)], 0, {}).wait()
        held = element_id(array, 3)
        red.jobs.record([event(held, "held", 0, at=2003.0, user="ann", account="a", array=array, index=3)])
        ids = [element_id(array, index) for index in (3, 2, 1)]

        def listed(**wanted: str | None) -> list[str]:
            given: dict[str, Any] = {"state": None, "cluster": None, "user": None, **wanted}
            return [record.id for _, record in red.jobs.page(**given, limit=10).jobs]

        assert listed() == listed(user="ann") == [array]
        assert listed(cluster="red") == listed(state="assigned") == []
        assert listed(array=array) == ids
        assert listed(array=array, state="assigned") == ids[1:]
        assert listed(array=array, state="held", user="ann") == ids[:1]
        red.jobs.record([event(ids[2], "completed", user="ann")])
        assert listed(array=array, state="completed") == ids[2:]
        assert listed(array=array) == ids

    def test_an_array_itself_is_not_counted_as_a_job(self, red: Store) -> None:
        array = _array(red)
        assert red.jobs.tally() == {}
        red.jobs.assign([_element(array, 1, account="a")], 0)
        assert {payer: tuple(tally) for payer, tally in red.jobs.tally().items()} == {("a", "ann"): (0, 1)}

    def test_no_element_of_a_cancelled_array_starts(self, red: Store) -> None:
        array = _array(red)
        held, fresh = element_id(array, 1), element_id(array, 2)
        red.jobs.record([event(held, "held", 0, user="ann", array=array, index=1)])
        red.jobs.cancel([array], "user:ann")
        standing = red.jobs.assigning([_element(array, 1), _element(array, 2)], 0, {}).wait().outcomes
        assert [isinstance(r, JobRecord) and r.cancel_requested for r in standing] == [True, True]
        [late] = red.jobs.record([event(fresh, "held", 0, user="ann", array=array, index=2)])
        assert late.record.cancel_requested
        red.jobs.record([event(array, "cancelled", 0, user="ann")])
        [standing_one] = red.jobs.assign([_element(array, 3)], 0).outcomes
        assert standing_one is not None
        assert standing_one.cancel_requested

    def test_elements_are_counted_before_their_array_is_known(self, red: Store) -> None:
        array = new_id()
        red.jobs.record([event(element_id(array, 1), "completed", user="ann", array=array, index=1, returncode=0)])
        assert red.jobs.get([array]) == [None]
        red.jobs.record([event(array, "held", 0, user="ann", indices="1-2")])
        assert _counts(red, array) == {"completed": 1}

    def test_changes_are_told(self, red: Store) -> None:
        array, alone = _array(red), new_id()
        since, nothing = red.dependencies.moved("", 0.0, arrays=True)
        assert nothing == []
        red.jobs.record([event(alone, "held", 0, user="ann")])
        red.jobs.assigning([_element(array, 1), assignment(new_id())], 0, {}).wait()
        since, moved = red.dependencies.moved(since, 5.0, arrays=True)
        assert moved == [array]
        red.jobs.record([event(element_id(array, 1), "completed", user="ann")])
        since, moved = red.dependencies.moved(since, 5.0, arrays=True)
        assert moved == [array]
        red.jobs.cancel([array], "user:ann")
        until(lambda: red.dependencies.moved(since, 0.1, arrays=True)[1] == [array])
