"""Pages of jobs of several tokens, as one list."""

from __future__ import annotations

import random

import pytest

from rainbow.client.views import merged
from rainbow.errors import InvalidInput
from rainbow.models.job import JobRecord
from rainbow.models.requests import JobPage, position, read_position

Place = tuple[float, str]


def page_of(places: list[Place], before: str | None, size: int) -> JobPage:
    """What the registrar gives of jobs at these places."""
    at = None if before is None else read_position(before)
    left = sorted((p for p in places if at is None or p < at), reverse=True)
    jobs = [JobRecord(id=id, state="held") for _, id in left[:size]]
    end = position(*left[size - 1]) if len(left) > size else None
    return JobPage(jobs=jobs, at=[time for time, _ in left[:size]], next=end)


@pytest.mark.parametrize("seed", range(20))
def test_several_lists_are_one_list_without_gap_or_repeat(seed: int) -> None:
    chance = random.Random(seed)
    places = [(float(chance.randrange(10)), f"j{number}") for number in range(40)]
    lists = [[p for p in places if chance.random() < share] for share in (0.2, 0.7, 1.0)]
    seen: list[Place] = []
    before: str | None = None
    while True:
        page = merged([page_of(some, before, chance.randrange(1, 9)) for some in lists], 6)
        seen += [read_position(page.position(i)) for i in range(len(page.jobs))]
        before = page.next
        if before is None:
            break
    assert seen == sorted(places, reverse=True)


@pytest.mark.parametrize("text", ["", "_", "1.5", "1.5_", "x_1", "nan_j", "inf_j", "-_-"])
def test_a_position_that_is_none(text: str) -> None:
    with pytest.raises(InvalidInput, match="before is a position"):
        read_position(text)


def test_a_position_comes_back_as_it_was() -> None:
    for at in (0.0, 1e-7, 1764414000.123457, 1e11):
        assert read_position(position(at, "a_b")) == (at, "a_b")
