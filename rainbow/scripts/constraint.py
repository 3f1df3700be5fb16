"""Constraint text as ``flux submit --requires`` takes it (RFC 35): properties, ``host:`` and ``rank:`` terms."""

from __future__ import annotations

import re
from typing import Any

from rainbow.errors import InvalidInput

_TERM = re.compile(r"\s*(?:(\(|\))|(&&?|\|\|?)|(-?(?:[^\s()&|'\"]|'[^']*'|\"[^\"]*\")+)|(-))")
_OPERATORS = {"host": "hostlist", "hosts": "hostlist", "hostlist": "hostlist", "rank": "ranks", "ranks": "ranks"}


def read_text(text: str) -> dict[str, Any]:
    """A constraint object (RFC 31) from its text.

    >>> read_text("gpu,ssd|host:node[0-3]")
    {'or': [{'properties': ['gpu', 'ssd']}, {'hostlist': ['node[0-3]']}]}
    """
    terms = _terms(text)
    tree = _any(terms, text)
    if terms:
        raise _wrong(text, f"unexpected {terms[0]!r}")
    return tree


def _terms(text: str) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(text.rstrip()):
        match = _TERM.match(text, at)
        if match is None:
            raise _wrong(text, f"cannot be read from {text[at:].strip()!r} on")
        found.append(match[0].strip())
        at = match.end()
    return found


def _any(terms: list[str], text: str) -> dict[str, Any]:
    parts = [_all(terms, text)]
    while terms and terms[0] in ("|", "||", "or"):
        terms.pop(0)
        parts.append(_all(terms, text))
    return parts[0] if len(parts) == 1 else {"or": parts}


def _all(terms: list[str], text: str) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    while True:
        part = _one(terms, text)
        if parts and "properties" in part and "properties" in parts[-1]:
            parts[-1] = {"properties": parts[-1]["properties"] + part["properties"]}
        else:
            parts.append(part)
        if not terms or terms[0] in ("|", "||", "or", ")"):
            return parts[0] if len(parts) == 1 else {"and": parts}
        if terms[0] in ("&", "&&", "and"):
            terms.pop(0)


def _one(terms: list[str], text: str) -> dict[str, Any]:
    if not terms:
        raise _wrong(text, "something is missing at its end")
    term = terms.pop(0)
    if term in ("not", "-"):
        return {"not": [_one(terms, text)]}
    if term == "(":
        inner = _any(terms, text)
        if not terms or terms.pop(0) != ")":
            raise _wrong(text, "a parenthesis is not closed")
        return inner
    if term[0] in "&|)" or term in ("and", "or"):
        raise _wrong(text, f"unexpected {term!r}")
    if term.startswith("-"):
        return {"not": [_one([term[1:]], text)]}
    operator, colon, value = term.replace("'", "").replace('"', "").partition(":")
    if not colon:
        return {"properties": operator.split(",")}
    if operator not in _OPERATORS or not value:
        raise _wrong(text, f"{operator!r} is no operator: write PROPERTY, host:HOSTS or rank:IDS")
    return {_OPERATORS[operator]: [value]}


def _wrong(text: str, why: str) -> InvalidInput:
    return InvalidInput(f"the constraint {text!r}: {why}")
