"""Ways to name a job on the command line: its id, the first digits of it, `@-` for the last one, or `%NAME`.

An index in brackets behind any of these names an element of that array.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from rainbow.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from rainbow.client import Client
    from rainbow.models.job import JobRecord

LAST = "@-"
_PREFIX = re.compile(r"[0-9a-f]{4,8}(?:-[0-9a-f-]{0,27})?")
#: Jobs that are looked through for a short name, the newest; the second number only if the first does not do.
_NEWEST = (500, 10_000)


def check(word: str) -> str:
    """Return `word` if it may name a job. Raises InvalidInput."""
    given, (word, _) = word, _split(word)
    if word in (LAST, "-") or (word.startswith("%") and len(word) > 1) or _PREFIX.fullmatch(word.lower()):
        return given
    if _whole(word) is None:
        raise InvalidInput(
            f"{word[:80]!r} is no job id: give the UUID that `rainbow submit` printed, its first 4 digits or more, "
            f"{LAST} for your last job, or %NAME"
        )
    return given


def resolve(rainbow: Client, words: Sequence[str]) -> list[str]:
    """Return the ids that `words` name, in order and each once, elements as ``ID[INDEX]``. ``-`` stands for ids on
    standard input.

    Raises:
        NotFound: no job among the newest ones is named so.
        InvalidInput: several jobs begin with these digits.
    """
    words = [check(word) for given in words for word in (_stdin() if given == "-" else [given])]
    parts = [_split(word) for word in words]
    words = [word for word, _ in parts]
    found = {word: whole for word in words if (whole := _whole(word)) is not None}
    for limit in _NEWEST:
        missing = [word for word in words if word not in found]
        if not missing:
            break
        jobs = rainbow.jobs(limit=limit)
        for word in missing:
            job = _named(word, jobs, rainbow.subjects)
            if job is not None:
                found[word] = job
    for word in words:
        if word not in found:
            which = "of yours" if word == LAST else f"named {word[1:]!r}" if word[0] == "%" else f"with id {word}..."
            raise NotFound(f"no job {which} among the newest {_NEWEST[-1]} that you may see")
    return list(dict.fromkeys(found[word] + index for word, index in parts))


def _split(word: str) -> tuple[str, str]:
    """A name, and the index in brackets behind it, with these; empty where there is none."""
    match = re.fullmatch(r"(.+?)(\[[0-9]{1,10}\])", word)
    return (match[1], match[2]) if match is not None else (word, "")


def _named(word: str, jobs: Sequence[JobRecord], subjects: frozenset[str]) -> str | None:
    if word == LAST:
        return next((job.id for job in jobs if not subjects or job.user in subjects), None)
    if word.startswith("%"):
        return next((job.id for job in jobs if job.name == word[1:]), None)
    alike = [job.id for job in jobs if job.id.startswith(word.lower())]
    if len(alike) > 1:
        raise InvalidInput(f"{len(alike)} jobs have an id that begins with {word}: give more of it")
    return alike[0] if alike else None


def _whole(word: str) -> str | None:
    try:
        return str(UUID(word))
    except ValueError:
        return None


def _stdin() -> list[str]:
    words = sys.stdin.read().split() if sys.stdin is not None else []
    if not words:
        raise InvalidInput("there are no job ids on standard input")
    return words
