"""Constraints on nodes (RFC 31), checked and brought into their shortest form."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, cast

from rainbow.errors import InvalidInput
from rainbow.jobspec.problems import Path, invalid, shown
from rainbow.jobspec.request import Constraint
from rainbow.ranges.hostlist import Hostlist
from rainbow.ranges.idset import IdSet

_ILLEGAL = re.compile(r"[!&'\"^`|()]")

MAX_PIECES = 2000
"""Separate ranges and names in one hostlist: each cluster is searched for each of them."""

NEVER = Constraint("not", ())
"""What no node meets: the negation of an empty, hence true, conjunction."""


def read_constraint(value: Any, path: Path) -> Constraint | None:
    """Read a constraint object; None when it holds for every node.

    What always holds is left out, and repeated values are dropped, so that constraints that say the same
    in the same order compare equal.

    Raises:
        InvalidJobspec: an unknown operator, several in one object, values that are no list, property names
            with illegal characters, malformed hostlists or idsets.
    """
    if type(value) is not dict:
        raise invalid(path, f"{shown(value)} is no constraint; write a mapping of one operator to a list")
    if not value:
        return None
    if len(value) > 1:
        raise invalid(path, "a constraint has one operator; combine several with and or or")
    (operator, values), *_ = value.items()
    path = (path, operator)
    if operator not in ("and", "or", "not", "properties", "hostlist", "ranks"):
        raise invalid(path, "unknown operator; write and, or, not, properties, hostlist or ranks")
    if type(values) is not list:
        raise invalid(path, f"the values are {shown(values)}; write a list")
    if operator == "properties":
        return _leaf(operator, [_property(text, path) for text in values]) if values else None
    if operator == "hostlist":
        return _leaf(operator, [_hosts(text, path) for text in values])
    if operator == "ranks":
        return _leaf(operator, [_ranks(text, path) for text in values])
    inner = [read_constraint(item, (path, at)) for at, item in enumerate(values)]
    kept = list(dict.fromkeys(item for item in inner if item is not None))
    if operator == "or":
        # One alternative that always holds makes the whole hold; so does an empty list (RFC 31).
        return Constraint("or", tuple(kept)) if kept and None not in inner else None
    if operator == "and":
        return Constraint("and", tuple(kept)) if kept else None
    return Constraint("not", tuple(kept)) if kept else NEVER


def _leaf(operator: str, values: list[str]) -> Constraint:
    return Constraint(cast(Any, operator), tuple(dict.fromkeys(values)))


def _property(text: Any, path: Path) -> str:
    if type(text) is not str:
        raise invalid(path, f"{shown(text)} is no property name; write text")
    name = text.removeprefix("^")
    if not name or _ILLEGAL.search(name):
        raise invalid(path, f"{shown(text)} is no property name: it may not hold ! & ' \" ^ ` | ( )")
    return text


def _hosts(text: Any, path: Path) -> str:
    if type(text) is not str:
        raise invalid(path, f"{shown(text)} is no hostlist; write text such as node[0-3]")
    if problem := _hostlist_problem(text):
        raise invalid(path, problem)
    return text


def _ranks(text: Any, path: Path) -> str:
    if type(text) is int:  # not by the letter of RFC 31, yet flux-sched's own samples have plain numbers
        text = str(text)
    if type(text) is not str:
        raise invalid(path, f"{shown(text)} is no idset; write text such as 0-3")
    try:
        IdSet.parse(text)
    except InvalidInput as exc:
        raise invalid(path, str(exc)) from None
    return text


def _hostlist_problem(text: str) -> str | None:
    """What is wrong with a hostlist. Jobs name the same few hosts again and again: short ones are remembered."""
    return _remembered_problem(text) if len(text) <= 256 else _find_problem(text)


def _find_problem(text: str) -> str | None:
    try:
        hosts = Hostlist.parse(text)
    except InvalidInput as exc:
        return str(exc)
    if len(hosts.pieces) > MAX_PIECES:
        return f"{len(hosts.pieces)} separate names; at most {MAX_PIECES} are taken: write them as ranges"
    return None


_remembered_problem = lru_cache(maxsize=2048)(_find_problem)
