"""Which queues an exchange puts a message into, for brokers that do it themselves."""

from __future__ import annotations

import re
from functools import cache


@cache
def topic_pattern(pattern: str) -> re.Pattern[str]:
    """A binding key of a topic exchange as a regular expression: ``*`` is one word, ``#`` any number of them."""
    words = pattern.split(".")
    if all(w == "#" for w in words):
        return re.compile(r".*", re.DOTALL)
    out = ""
    first = True
    for word in words:
        if word == "#":
            # Takes the dot of the words it stands for with it, so that none at all is fine too.
            out += r"(?:[^.]*(?:\.[^.]*)*\.)?" if first else r"(?:\.[^.]*)*"
            continue
        out += ("" if first else r"\.") + (r"[^.]*" if word == "*" else re.escape(word))
        first = False
    return re.compile(out)


def matches(exchange_type: str | None, pattern: str, key: str) -> bool:
    """Whether a binding of an exchange routes the key: ``*`` is one word of a topic, ``#`` any number of words."""
    return topic_pattern(pattern).fullmatch(key) is not None if exchange_type == "topic" else pattern == key
