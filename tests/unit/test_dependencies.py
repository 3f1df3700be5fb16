"""What a job waits for: as it is written, and when it is met."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.errors import InvalidInput, InvalidJobspec
from rainbow.jobspec import read
from rainbow.models.dependencies import MAX_DEPENDENCIES, judge, read_dependencies, written
from rainbow.models.job import TERMINAL

A, B = "6f9619ff-8b86-d011-b42d-00cf4fc964ff", "7f9619ff-8b86-d011-b42d-00cf4fc964ff"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f"afterok:{A}", [f"afterok:{A}"]),
        (f"after:{A.upper()}, afterany:{B}", [f"after:{A}", f"afterany:{B}"]),
        (f"afternotok:{A}:{B}", [f"afternotok:{A}", f"afternotok:{B}"]),
        ([f"afterok:{A}", f"afterok:{A}", f"afterok:{B}"], [f"afterok:{A}", f"afterok:{B}"]),
    ],
)
def test_dependencies_as_flux_and_slurm_write_them(value: Any, expected: list[str]) -> None:
    assert written(read_dependencies(value)) == expected


@pytest.mark.parametrize(
    "value", ["", "afterok", "afterok:", "afterok:12", f"aftercorr:{A}", f"afterok:{A}?afterok:{B}"]
)
def test_others_are_refused_in_one_line(value: str) -> None:
    with pytest.raises(InvalidInput, match=r"^dependency ") as found:
        read_dependencies(value)
    assert "\n" not in str(found.value)


def test_too_many_are_refused() -> None:
    many = [f"afterok:{number:08x}-8b86-d011-b42d-00cf4fc964ff" for number in range(1, MAX_DEPENDENCIES + 2)]
    with pytest.raises(InvalidInput, match="too many"):
        read_dependencies(many)


def test_when_they_are_met() -> None:
    schemes = ("after", "afterany", "afternotok", "afterok")

    def all_of(state: str, **how: bool) -> list[bool | None]:
        return [judge(scheme, state, **how) for scheme in schemes]

    assert all_of("accepted", started=False, ended=False) == [None] * 4
    assert all_of("running", started=True, ended=False) == [True, None, None, None]
    assert all_of("completed", started=True, ended=True) == [True, True, False, True]
    for state in TERMINAL - {"completed"}:
        assert all_of(state, started=False, ended=True) == [True, True, True, False]


def test_what_a_jobspec_waits_for_is_taken_out_and_all_else_stays() -> None:
    group = {"name": "g", "depends_on": ["t", B], "tasks": [{"command": ["x"], "depends_on": A}]}
    document = {
        "version": 1,
        "resources": {"a": {"type": "node", "count": 1}},
        "tasks": [{"command": ["true"], "resources": "a", "name": "t"}, {"group": "g", "resources": "a"}],
        "groups": [group],
    }
    spec = read(document)
    assert set(spec.after) == {("afterok", A), ("afterok", B)}
    assert spec.document["groups"][0]["depends_on"] == ["t"]
    assert spec.document["groups"][0]["tasks"][0]["depends_on"] == []
    assert group["depends_on"] == ["t", B], "what was given is not changed"
    plain = {**document, "groups": [{**group, "depends_on": ["t"], "tasks": []}]}
    assert read(plain).document is plain


def test_a_begin_time_that_is_none_is_refused() -> None:
    document = {
        "version": 1,
        "resources": [{"type": "slot", "label": "t", "count": 1, "with": [{"type": "core", "count": 1}]}],
        "tasks": [{"command": ["true"], "slot": "t", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0, "dependencies": [{"scheme": "begin-time", "value": "5"}]}},
    }
    assert read(document).begin == 5.0
    document["attributes"]["system"]["dependencies"][0]["value"] = "soon"  # type: ignore[index]
    with pytest.raises(InvalidJobspec, match="begin-time"):
        read(document)
