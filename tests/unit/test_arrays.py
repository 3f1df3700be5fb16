"""Job arrays as text, the ids of their elements, and what an element gets."""

from __future__ import annotations

import random
import time
import uuid
from collections import deque
from typing import Any

import pytest

from rainbow import codec
from rainbow.errors import InvalidInput
from rainbow.jobspec import read
from rainbow.jobspec.flux.elements import for_element
from rainbow.jobspec.flux.v1 import V1Translator
from rainbow.models.arrays import MAX_INDEX, read_array
from rainbow.models.ids import element_id, read_element, read_id
from rainbow.models.job import JobRecord, SubmitRequest
from rainbow.models.wire import parse
from rainbow_workers.scheduling.array_progress import Ends, Progress, of_route

ID = "6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11"


@pytest.mark.parametrize(
    ("text", "indices", "limit"),
    [
        ("7", [7], None),
        ("0-3", [0, 1, 2, 3], None),
        ("1,3,5-7", [1, 3, 5, 6, 7], None),
        ("0-15:4", [0, 4, 8, 12], None),
        ("1-4%2", [1, 2, 3, 4], 2),
        ("5,1-3", [1, 2, 3, 5], None),
        ("1-3,2-5,4", [1, 2, 3, 4, 5], None),
        (" 0-8:4 , 1 ", [0, 1, 4, 8], None),
    ],
)
def test_forms_of_slurm(text: str, indices: list[int], limit: int | None) -> None:
    array = read_array(text)
    assert (array.size, list(array.indices(0)), array.limit) == (len(indices), indices, limit)
    for start in range(len(indices) + 2):
        assert list(array.indices(start)) == indices[start:]
    assert [index for index in range(20) if index in array] == indices


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'' is no index or range"),
        ("1,,2", "'' is no index or range"),
        ("a-b", "'a-b' is no index or range"),
        ("-1", "'-1' is no index or range"),
        ("1-5:0", "the step in '1-5:0' is 0"),
        ("5-1", "the range '5-1' falls"),
        ("1-5%0", "%0 is no number of elements"),
        ("1-5%", "% is no number of elements"),
        ("1-5%x", "%x is no number of elements"),
        (f"0-{MAX_INDEX + 1}", f"index {MAX_INDEX + 1} is above {MAX_INDEX}"),
        ("0-9999999,5", "its ranges overlap"),
        ("9" * 5000, "is no index or range"),
    ],
)
def test_what_is_none_is_one_line(text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(SubmitRequest, {"command": "true", "array": text})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_array_is_for_jobs_only() -> None:
    with pytest.raises(InvalidInput, match="array and satisfy_only do not go together"):
        parse(SubmitRequest, {"command": "true", "array": "1-2", "satisfy_only": True})


def test_the_size_costs_nothing() -> None:
    begun = time.process_time()
    array = read_array(f"0-{MAX_INDEX}:2%100")
    assert array.size == (MAX_INDEX + 1) // 2
    assert next(array.indices(10**9)) == 2 * 10**9
    assert array.element(ID, 4).max == MAX_INDEX - 1
    assert time.process_time() - begun < 1.0


def test_ids_of_elements() -> None:
    assert read_id(f"{ID}[7]") == element_id(ID, 7) == read_id(f"{ID.upper()}[07]")
    assert uuid.UUID(element_id(ID, 7)).version == 5
    assert read_element(f"{ID}[7]") == (ID, 7)
    assert read_element(ID) is None
    for wrong in (f"{ID}[]", f"{ID}[-1]", f"{ID}[1", "x" * 36 + "[1]", f"{ID}[12345678901]"):
        with pytest.raises(ValueError, match="must be a UUID"):
            read_id(wrong)


def test_counts_name_all_elements() -> None:
    record = JobRecord(id=ID, state="running", indices="1-10", counts={"completed": 3, "running": 2})
    assert record.elements == {"submitted": 5, "running": 2, "completed": 3}
    assert record.model_copy(update={"state": "cancelled"}).elements == {"running": 2, "completed": 3, "cancelled": 5}
    assert JobRecord(id=ID, state="running").elements == {}


def _spec(**options: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "resources": [{"type": "slot", "label": "t", "count": 1, "with": [{"type": "core", "count": 1}]}],
        "tasks": [{"command": ["run", "{{array.index}}", "{{id}}"], "slot": "t", "count": {"per_slot": 1}}],
        "attributes": {
            "system": {"duration": 0, "environment": {"A": "b"}, **({"shell": {"options": options}} if options else {})}
        },
    }


def test_what_an_element_gets() -> None:
    output = {"stdout": {"type": "file", "path": "out-{{array.id}}_{{array.index}}.txt"}}
    jobs = V1Translator().translate(read(_spec(output=output, verbose=1)))
    [job] = for_element(jobs, read_array("2-8:3").element(ID, 5))
    system = job.document["attributes"]["system"]
    assert system["environment"] == {
        "A": "b",
        "RAINBOW_ARRAY_ID": ID,
        "RAINBOW_ARRAY_INDEX": "5",
        "FLUX_JOB_CC": "5",
        "SLURM_ARRAY_JOB_ID": ID,
        "SLURM_ARRAY_TASK_ID": "5",
        "SLURM_ARRAY_TASK_COUNT": "3",
        "SLURM_ARRAY_TASK_MIN": "2",
        "SLURM_ARRAY_TASK_MAX": "8",
        "SLURM_ARRAY_TASK_STEP": "3",
        "PBS_ARRAY_INDEX": "5",
        "PBS_ARRAYID": "5",
        "LSB_JOBINDEX": "5",
    }
    assert system["shell"]["options"] == {
        "output": {"stdout": {"type": "file", "path": f"out-{ID}_5.txt"}},
        "verbose": 1,
    }
    assert job.document["tasks"][0]["command"] == ["run", "5", "{{id}}"]
    assert jobs[0].document["tasks"][0]["command"] == ["run", "{{array.index}}", "{{id}}"], "the array's stays"
    [plain] = for_element(V1Translator().translate(read(_spec())), read_array("1").element(ID, 1))
    assert "shell" not in plain.document["attributes"]["system"]


def test_how_far_an_array_is_goes_with_its_message() -> None:
    array = read_array("0-18:2")
    progress = Progress(array, epoch=7)
    assert progress.following(4) == [(0, 0), (1, 2), (2, 4), (3, 6)]
    progress.took(4)
    progress.ended(1, ("failed", 3))
    progress.ended(0, ("completed", 0))
    read = of_route(array, codec.decode(codec.encode_msgpack(progress.as_route()), codec.MSGPACK))
    assert (read.next, read.sent, read.epoch) == (4, 4, 7)
    assert read.open == progress.open == {2: 4, 3: 6}
    assert [read.ends.get(position) for position in range(4)] == [("completed", 0), ("failed", 3), None, None]
    assert len(read.ends) == 2


def test_gaps_are_sent_before_what_follows() -> None:
    progress = Progress(read_array("1-10"), next=7, gaps=deque([range(1, 3), range(5, 6)]), epoch=7)
    assert progress.sent == 4
    order: list[tuple[int, int]] = []
    while progress.sent < 10:
        found = progress.following(2)
        order += found
        progress.took(len(found))
        if len(order) == 2:
            # Others are to look at it again: the first that is missing, and no epoch.
            route = progress.as_route()
            assert (route["released"], route["array"]["epoch"]) == (5, 0)
    assert [position for position, _ in order] == [1, 2, 5, 7, 8, 9]
    assert progress.following(2) == []
    progress.move_to(3)
    assert progress.next == 10


def test_ends_that_are_too_many_to_tell_apart() -> None:
    """A million, each ended in one of three ways by chance, do not fit a header: that they ended does."""
    chance, ends = random.Random(3), Ends()
    for position in range(1_000_000):
        ends.add(position, (chance.choice(("completed", "failed", "cancelled")), None))
    kinds, packed = ends.packed()
    assert len(packed) < 80_000
    read = Ends(kinds, packed, 1_000_000)
    assert len(read) == 1_000_000
    assert read.get(999_999) == ("lost", None)


def test_ends_with_more_exit_codes_than_are_kept() -> None:
    ends = Ends()
    for code in range(256):
        ends.add(code, ("failed", code))
        ends.add(256 + code, ("completed", 0))
    read = Ends(*ends.packed(), 1000)
    assert read.get(0) == ("failed", 0)
    assert read.get(255) == ("failed", None)
    assert read.get(511) == ("completed", 0)
    assert len(read) == 512
