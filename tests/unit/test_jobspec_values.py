"""Counts, durations, constraints, idsets and hostlists."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from rainbow.errors import InvalidInput, InvalidJobspec
from rainbow.jobspec.constraints import NEVER, read_constraint
from rainbow.jobspec.counts import read_count
from rainbow.jobspec.durations import as_number, read_duration, read_seconds
from rainbow.jobspec.request import Constraint, Count
from rainbow.ranges.hostlist import Hostlist
from rainbow.ranges.idset import IdSet


def ranged(low: int, high: int, operator: str, operand: int) -> dict[str, Any]:
    return {"min": low, "max": high, "operator": operator, "operand": operand}


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        (7, 7, 7),
        ({"min": 3}, 3, None),
        (ranged(2, 16, "*", 2), 2, 16),
        (ranged(2, 17, "+", 5), 2, 17),
        (ranged(2, 16, "+", 5), 2, 12),
        (ranged(3, 100, "*", 3), 3, 81),
        (ranged(2, 300, "^", 2), 2, 256),
        (ranged(2, 300, "^", 1000), 2, 2),
        ("4,9,16,25", 4, 25),
        ("25,4", 4, 25),
        ("7", 7, 7),
        ("3-30", 3, 30),
        ("[1-4:2]", 1, 3),
        ("2-16:2:*", 2, 16),
        ("3+", 3, None),
        ("[100+]", 100, None),
        ("2+:2:^", 2, None),
    ],
)
def test_counts(value: Any, low: int, high: int | None) -> None:
    assert read_count(value, "count") == Count(low, high)


@pytest.mark.parametrize(
    "value",
    [
        0, -1, True, 1.0, None, [1, 2], 2**60, "", "bar", "0", "0-3", "3-1", "-1", "01", "1,", "[1", "1 ", "5:2",
        "1-4:1:*", "1-9:2:^", "2-4:0", {}, {"max": 2}, {"min": 0}, {"min": "1"}, {"min": True}, {"min": 1, "max": 2},
        {"min": 1, "operator": "+", "operand": 1}, {"min": 1, "step": 2}, ranged(2, 1, "+", 1), ranged(1, 2, "+", 0),
        ranged(1, 2, "*", 1), ranged(1, 4, "^", 2), ranged(2, 4, "^", 1), ranged(1, 2, "-", 1),
        ranged(1, 2, "addition", 1), {"min": 1, "max": 2.0, "operator": "+", "operand": 1},
    ],
)  # fmt: skip
def test_bad_counts_name_the_place(value: Any) -> None:
    with pytest.raises(InvalidJobspec, match=r"^jobspec: here\.count"):
        read_count(value, ("here", "count"))


def test_equal_counts_are_one_object() -> None:
    assert read_count(12, "a") is read_count(12, "b")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (30, 30.0), (0, 0.0), (0.5, 0.5), ("30", 30.0), ("30s", 30.0), ("10m", 600.0), ("1.5h", 5400.0),
        ("2d", 172800.0), ("500ms", 0.5), (".5m", 30.0), ("1e3", 1000.0), ("5.", 5.0),
    ],
)  # fmt: skip
def test_durations(value: Any, seconds: float) -> None:
    assert read_duration(value) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value", ["", "s", "-1", "1 h", "1w", "1h30m", "h1", "nan", "inf", "1e999", "٣", -1, True, None, float("nan"), [1]]
)
def test_bad_durations(value: Any) -> None:
    with pytest.raises(InvalidJobspec, match="no duration"):
        read_duration(value)


def test_seconds_take_no_units() -> None:
    with pytest.raises(InvalidJobspec, match="300s"):
        read_seconds("300s", "x")
    assert as_number(90.0) == 90
    assert isinstance(as_number(90.0), int)
    assert as_number(0.5) == 0.5


# -- constraints ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [{}, {"and": []}, {"or": []}, {"properties": []}, {"and": [{}, {"or": []}]}, {"or": [{"properties": ["a"]}, {}]}],
)
def test_what_always_holds_is_none(value: Any) -> None:
    assert read_constraint(value, "c") is None


@pytest.mark.parametrize("value", [{"not": []}, {"not": [{}]}, {"not": [{"and": []}, {"or": [{}]}]}])
def test_what_never_holds(value: Any) -> None:
    assert read_constraint(value, "c") == NEVER == Constraint("not", ())


def test_constraints_are_brought_to_one_form() -> None:
    host = {"hostlist": ["n[0-3],n9"]}
    assert read_constraint({"and": [host, {}, host]}, "c") == read_constraint({"and": [host]}, "c")
    assert read_constraint({"ranks": [0, "2-3"]}, "c") == Constraint("ranks", ("0", "2-3"))
    assert read_constraint({"properties": ["^a", "+b", "amd@core", "foo$", "a\\b"]}, "c") == Constraint(
        "properties", ("^a", "+b", "amd@core", "foo$", "a\\b")
    )
    assert read_constraint({"not": [{"ranks": ["1"]}, {"properties": ["x"]}]}, "c") == Constraint(
        "not", (Constraint("ranks", ("1",)), Constraint("properties", ("x",)))
    )


@pytest.mark.parametrize(
    "value",
    [
        [], "x", None, {"and": {}}, {"foo": []}, {"and": [], "or": []}, {"and": ["x"]}, {"and": [{"badop": ["m"]}]},
        {"properties": "foo"}, {"properties": [1]}, {"properties": ["f^oo"]}, {"properties": ["^f^oo"]},
        {"properties": ["^"]}, {"properties": [""]}, {"properties": ["ar^m@core"]}, {"hostlist": "a"},
        {"hostlist": ["a[0-"]}, {"hostlist": ["a[3-1]"]}, {"hostlist": [1]}, {"ranks": ["x"]}, {"ranks": [-1]},
        {"ranks": ["3-1"]}, {"ranks": [True]}, {"ranks": [1.0]}, {"not": [[]]}, {"or": [{"and": {}}]},
        *({"properties": [f"a{char}b"]} for char in "!&'\"`|()"),
    ],
)  # fmt: skip
def test_bad_constraints(value: Any) -> None:
    with pytest.raises(InvalidJobspec, match=r"^jobspec: c"):
        read_constraint(value, "c")


# -- idsets and hostlists ------------------------------------------------------------------------


def test_idsets_are_never_expanded() -> None:
    huge = IdSet.parse("0-99999999,200000000-999999999")
    assert len(huge) == 900_000_000
    assert 150_000_000 not in huge
    assert huge.at(100_000_000) == 200_000_000
    assert huge.position(200_000_000) == 100_000_000
    assert str(huge - IdSet.parse("5")) == "0-4,6-99999999,200000000-999999999"
    assert pickle.loads(pickle.dumps(huge)) == huge
    assert (huge.first(), huge.last()) == (0, 999_999_999)


def test_idset_texts() -> None:
    assert str(IdSet.parse("[7,1-3,2-4]")) == "1-4,7"
    assert not IdSet.parse("")
    assert not IdSet.parse("[]")
    assert str(IdSet.span(4)) == "0-3"
    for text in (" 1", "1-", "-1", "1,,2", "01", "3-1", "a", "[1", "1]", "9" * 17, "9007199254740993"):
        with pytest.raises(InvalidInput, match="idset"):
            IdSet.parse(text)
    with pytest.raises(InvalidInput, match="ranges"):
        IdSet.parse("1," * 300_000)
    with pytest.raises(KeyError):
        IdSet.parse("1").position(2)
    with pytest.raises(IndexError):
        IdSet.parse("1").at(1)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("foo[1-3,5]", ["foo1", "foo2", "foo3", "foo5"]),
        ("[1-2]", ["1", "2"]),
        ("foo[0-2]-eth2", ["foo0-eth2", "foo1-eth2", "foo2-eth2"]),
        ("foo1,foo1", ["foo1", "foo1"]),
        ("[00-2]", ["00", "01", "02"]),
        ("foo[1,1,2,1]", ["foo1", "foo1", "foo2", "foo1"]),
        ("n[005,4,11-12]", ["n005", "n004", "n011", "n012"]),
        ("n[9-10],a,,b,", ["n9", "n10", "a", "b"]),
    ],
)
def test_hostlists(text: str, names: list[str]) -> None:
    hosts = Hostlist.parse(text)
    assert list(hosts) == names
    assert pickle.loads(pickle.dumps(hosts)) == hosts
    assert hash(Hostlist.parse([text])) == hash(hosts)


def test_hostlists_are_never_expanded() -> None:
    hosts = Hostlist.parse("n[0-99999999],fat[001-100]")
    assert len(hosts) == 100_000_100
    assert hosts[100_000_001] == "fat002"
    assert hosts.position("fat100") == 100_000_099
    assert "fat01" not in hosts
    assert "n0100" not in hosts
    with pytest.raises(KeyError):
        hosts.position("m1")
    with pytest.raises(IndexError):
        hosts[-1]
    one_by_one = Hostlist.parse(",".join(f"n{i:03d}" for i in range(2000)))
    assert len(one_by_one.pieces) == 1


def test_bad_hostlists() -> None:
    for text in ("a b", "a[", "a]", "a[1][2]", "a[1-2]b[1]", "a[]", "a[3-1]", "a[1,]", "ä", "a[x]", "x" * 2000):
        with pytest.raises(InvalidInput, match="hostlist"):
            Hostlist.parse(text)
    with pytest.raises(InvalidInput, match="separate names"):
        Hostlist.parse("a[" + "1," * 300_000 + "1]")
    with pytest.raises(InvalidInput, match="at most"):
        Hostlist.parse("a[0-999999999999999]")
