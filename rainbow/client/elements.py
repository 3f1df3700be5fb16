"""Elements of arrays, named ``ID[INDEX]``. One may not be sent to the schedulers yet: then its array says how it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rainbow.errors import InvalidInput
from rainbow.models.arrays import read_array
from rainbow.models.ids import element_id, read_element
from rainbow.models.job import JobRecord


def named(ids: Sequence[str]) -> dict[str, tuple[str, int]]:
    """The array and the index of each element that is named, by the element's own id. Raises InvalidInput."""
    try:
        found = [element for job_id in ids if job_id.endswith("]") and (element := read_element(job_id)) is not None]
    except ValueError as exc:
        raise InvalidInput(f"the id of an array {exc}") from None
    return {element_id(*element): element for element in found}


def plain(ids: Sequence[str]) -> list[str]:
    """The ids of jobs, of elements their own. Raises InvalidInput."""
    return [next(iter(named([job_id])), job_id) for job_id in ids]


def unsent(array: JobRecord | None, index: int) -> JobRecord | None:
    """An element of which nothing is recorded; None if its array is not known, or has no such index."""
    if array is None or array.indices is None or index not in read_array(array.indices):
        return None
    return JobRecord(
        id=element_id(array.id, index),
        state="cancelled" if array.terminal else "submitted",
        user=array.user,
        name=array.name,
        array=array.id,
        index=index,
        detail="its array was cancelled" if array.terminal else "it is not sent yet",
        cancel_requested=array.cancel_requested,
    )


def followed(
    ids: Sequence[str],
    follow: Callable[[Sequence[str]], Iterator[JobRecord]],
    status: Callable[[Sequence[str]], list[JobRecord | None]],
) -> Iterator[JobRecord]:
    """Follow jobs and elements: each record when it changes, until all have ended.

    An element whose array ends without it has ended with it.
    """
    elements = named(ids)
    left = dict.fromkeys(plain(ids))
    seen: set[str] = set()
    for record in follow(list(dict.fromkeys((*left, *(array for array, _ in elements.values()))))):
        changed = [record] if record.id in left else []
        if record.indices is not None and record.terminal:
            late = [i for i, (array, _) in elements.items() if array == record.id and i in left and i not in seen]
            found = status([f"{record.id}[{elements[i][1]}]" for i in late])
            changed += [one for one in found if one is not None and one.terminal]
        for one in changed:
            seen.add(one.id)
            yield one
            if one.terminal:
                left.pop(one.id, None)
        if not left:
            return
