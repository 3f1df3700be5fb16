"""YAML text to plain values, built from the parser's events without recursion.

Building from events is faster than PyYAML's own loader and leaves nothing to guess: tags, duplicate keys,
values that JSON has not, and aliases that would multiply are refused; dates stay the text they were.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import yaml
from yaml import events

from rainbow.jobspec.dialects.limits import MAX_INT_DIGITS, MAX_VALUES
from rainbow.jobspec.problems import invalid, shown

# The C parser is many times faster, yet not in every build of PyYAML.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_PREFIX = "tag:yaml.org,2002:"
_COLLECTIONS = {"!", f"{_PREFIX}map", f"{_PREFIX}seq"}


def read_yaml(text: str, max_depth: int) -> Any:
    """The one document in `text`. Raises InvalidJobspec, naming line and column."""
    loader = None
    try:
        loader = _Loader(text)
        return _Builder(loader, max_depth).document()
    except yaml.YAMLError as exc:
        raise invalid("", f"neither JSON nor YAML: {_reason(exc)}") from None
    except (ValueError, OverflowError, RecursionError) as exc:
        raise invalid("", f"a YAML value cannot be read: {exc}") from None
    finally:
        if loader is not None:
            loader.dispose()


class _Builder:
    def __init__(self, loader: Any, max_depth: int) -> None:
        self.loader = loader
        self.max_depth = max_depth
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.values = 0

    def document(self) -> Any:
        found: list[Any] = []
        while self.loader.check_event():
            event = self.loader.get_event()
            if isinstance(event, events.NodeEvent):
                found.append(self._tree(event))
        if len(found) != 1:
            raise invalid("", f"one document is needed, and there are {len(found)}")
        return found[0]

    def _tree(self, event: Any) -> Any:
        """The value that starts with `event`. Open collections wait on a stack."""
        stack: list[_Open] = []
        while True:
            kind = type(event)
            if kind is events.ScalarEvent:
                value = self._scalar(event, bool(stack) and stack[-1].expects_key())
            elif kind is events.AliasEvent:
                value = self._alias(event)
            elif kind is events.MappingStartEvent or kind is events.SequenceStartEvent:
                if event.tag is not None and event.tag not in _COLLECTIONS:
                    raise invalid("", f"the tag {shown(event.tag)} {_where(event)} is not taken; remove it")
                if len(stack) >= self.max_depth:
                    raise invalid("", f"nested deeper than {self.max_depth} levels {_where(event)}")
                stack.append(_Open(kind is events.MappingStartEvent, event.anchor, self._count(event)))
                event = self.loader.get_event()
                continue
            else:  # the end of a collection
                closed = stack.pop()
                value = closed.finish()
                if closed.anchor is not None:
                    self.anchors[closed.anchor] = (value, self.values - closed.before)
            if not stack:
                return value
            stack[-1].add(value, event)
            event = self.loader.get_event()

    def _count(self, event: Any, more: int = 1) -> int:
        before = self.values
        self.values += more
        if self.values > MAX_VALUES:
            raise invalid("", f"aliases make more than {MAX_VALUES} values {_where(event)}")
        return before

    def _alias(self, event: Any) -> Any:
        try:
            value, size = self.anchors[event.anchor]
        except KeyError:
            raise invalid("", f"the alias *{event.anchor} {_where(event)} stands before its anchor ends") from None
        self._count(event, size)
        return value

    def _scalar(self, event: Any, is_key: bool) -> Any:
        self._count(event)
        tag = event.tag
        if tag is None or tag == "!":
            tag = self.loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        tag = tag.removeprefix(_PREFIX)
        # A key is the text it was written as, as in JSON: `no: x` means "no", `1: x` means "1".
        value = event.value if is_key and tag != "merge" else self._value(tag, event)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, 1)
        return value

    def _value(self, tag: str, event: Any) -> Any:
        text: str = event.value
        if tag == "str" or tag == "timestamp" or tag == "value":
            return text
        if tag == "merge":
            return _MERGE
        if tag not in ("int", "float", "bool", "null"):
            raise invalid("", f"the tag {shown(tag)} {_where(event)} is not taken; remove it")
        if tag == "null":
            return None
        if len(text) > 4 * MAX_INT_DIGITS:
            raise invalid("", f"a number of {len(text)} characters {_where(event)}")
        digits = text.lstrip("+-").replace("_", "")
        if ":" in text or (tag == "int" and len(digits) > 1 and digits[0] == "0" and digits.isdecimal()):
            kind = "base 60" if ":" in text else "octal"
            raise invalid("", f"YAML reads {shown(text)} {_where(event)} as {kind}; quote it, or write the number")
        node = yaml.ScalarNode(tag, text)
        if tag == "bool":
            value = self.loader.bool_values.get(text.lower())
            if value is None:
                raise invalid("", f"{shown(text)} {_where(event)} is neither true nor false")
            return value
        number = self.loader.construct_yaml_int(node) if tag == "int" else self.loader.construct_yaml_float(node)
        if not isfinite(number) or (tag == "int" and abs(number) >= 10**MAX_INT_DIGITS):
            raise invalid("", f"{shown(text)} {_where(event)} is not a finite number of at most 64 bits")
        return number


_MERGE = object()


class _Open:
    """A collection under construction."""

    __slots__ = ("anchor", "before", "is_mapping", "items", "key", "made", "merged")

    def __init__(self, is_mapping: bool, anchor: str | None, before: int) -> None:
        self.is_mapping = is_mapping
        self.anchor = anchor
        self.before = before
        self.made: dict[str, Any] = {}
        self.items: list[Any] = []
        self.key: Any = None
        self.merged: list[dict[str, Any]] = []

    def expects_key(self) -> bool:
        return self.is_mapping and self.key is None

    def add(self, value: Any, event: Any) -> None:
        if not self.is_mapping:
            if value is _MERGE:
                value = "<<"
            self.items.append(value)
        elif self.key is None:
            if value is not _MERGE and not isinstance(value, str):
                raise invalid("", f"the key {shown(value)} {_where(event)} is not text; quote it")
            if value in self.made:
                raise invalid(str(value), f"this key is given twice ({_where(event)}); keep one")
            self.key = value
        elif self.key is _MERGE:
            self.key = None
            parts = value if isinstance(value, list) else [value]
            if not all(isinstance(part, dict) for part in parts):
                raise invalid("<<", f"only mappings can be merged ({_where(event)})")
            self.merged += parts
        else:
            self.made[self.key] = "<<" if value is _MERGE else value
            self.key = None

    def finish(self) -> Any:
        if not self.is_mapping:
            return self.items
        for part in self.merged:
            for key, value in part.items():
                self.made.setdefault(key, value)
        return self.made


def _where(event: Any) -> str:
    mark = event.start_mark
    return f"at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""


def _reason(exc: yaml.YAMLError) -> str:
    mark = getattr(exc, "problem_mark", None)
    problem = getattr(exc, "problem", None) or getattr(exc, "reason", None) or "unreadable"
    return f"{problem} at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else str(problem)
