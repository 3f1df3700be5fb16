"""Choosing, sorting and formatting jobs for `rainbow jobs` and `rainbow cancel`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from string import Formatter
from typing import TYPE_CHECKING, Any

from rainbow.cli.render import output, records
from rainbow.errors import InvalidInput
from rainbow.models.job import STATES, TERMINAL

if TYPE_CHECKING:
    from rainbow.client import Client
    from rainbow.models.job import JobRecord

#: Jobs in a page at most; and in one of those that are looked through for what is wanted.
MOST = 10_000
_PAGE = 2000
#: Names for several states.
GROUPS: Mapping[str, frozenset[str]] = {
    "active": frozenset(STATES) - TERMINAL,
    "ended": TERMINAL,
}


@dataclass(frozen=True)
class Choice:
    """Which jobs are wanted: all of what is given holds. `since` is in seconds since 1970.

    With `array` these are elements of it.
    """

    states: frozenset[str] = frozenset()
    clusters: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    name: str | None = None
    since: float | None = None
    array: str | None = None

    def __bool__(self) -> bool:
        return self != Choice()

    def takes(self, job: JobRecord) -> bool:
        return (
            (not self.states or job.state in self.states)
            and (not self.clusters or job.cluster in self.clusters)
            and (not self.users or job.user in self.users)
            and (self.name is None or fnmatchcase(job.name or "", self.name))
            and (self.since is None or (records.began(job) or 0.0) >= self.since)
        )

    def walk(self, rainbow: Client, before: str | None = None, size: int = _PAGE) -> Iterator[tuple[str, JobRecord]]:
        """Give all jobs that are wanted, newest first, each with its position in the list.

        Args:
            rainbow: asked page by page, as far as it is read.
            before: where to begin: after this position.
            size: how many jobs a page has.
        """
        one = {
            name: next(iter(values))
            for name, values in (("state", self.states), ("cluster", self.clusters), ("user", self.users))
            if len(values) == 1
        }
        one |= {} if self.array is None else {"array": self.array}
        while True:
            page = rainbow.job_page(**one, limit=size, before=before)
            for index, job in enumerate(page.jobs):
                if self.takes(job):
                    yield page.position(index), job
            before = page.next
            if before is None or (self.since is not None and page.at and page.at[-1] < self.since):
                return

    def find(self, rainbow: Client, limit: int, before: str | None = None) -> tuple[list[JobRecord], str | None]:
        """Return the newest `limit` jobs that are wanted, newest first, and the position at which they end; None when
        there are no more."""
        found: list[JobRecord] = []
        last: str | None = None
        for place, job in self.walk(rainbow, before, _PAGE if self.some_by_hand else min(limit + 1, MOST)):
            if len(found) == limit:
                return found, last
            found.append(job)
            last = place
        return found, None

    @property
    def some_by_hand(self) -> bool:
        """Whether there are jobs that the registrar gives and that are not wanted."""
        several = (self.states, self.clusters, self.users)
        return self.name is not None or self.since is not None or any(len(values) > 1 for values in several)


def choice(
    states: Sequence[str] | None,
    clusters: Sequence[str] | None,
    users: Sequence[str] | None,
    name: str | None,
    since: str | None,
) -> Choice:
    """Read the options of a command. Raises InvalidInput."""
    wanted: set[str] = set()
    for word in _listed(states):
        if word not in STATES and word not in GROUPS:
            raise InvalidInput(f"no state {word!r}: choose of active, ended, {', '.join(STATES)}")
        wanted |= GROUPS.get(word, {word})
    return Choice(
        frozenset(wanted),
        frozenset(_listed(clusters)),
        frozenset(_listed(users)),
        name,
        moment_ago(since) if since else None,
    )


def warn_of_strangers(rainbow: Client, wanted: Choice) -> None:
    """Say which of the clusters that jobs are wanted of are not there."""
    known = {cluster.name for cluster in rainbow.clusters()}
    for name in sorted(wanted.clusters - known):
        output.note(f"there is no cluster {name!r}{f': choose of {chr(44).join(sorted(known))}' if known else ''}")


def _listed(words: Sequence[str] | None) -> list[str]:
    return [part for word in words or () for part in word.split(",") if part]


def moment_ago(text: str) -> float:
    """Return the time that ``2h`` ago was, or that of a date, in seconds since 1970. Raises InvalidInput."""
    from rainbow.cli.values import moment, seconds

    try:
        return moment(text, "--since")
    except InvalidInput:
        return time.time() - seconds(text, "--since")


# -- columns -------------------------------------------------------------------------------------------


#: What `--format` and `--sort` know of a job.
FIELDS: Mapping[str, Callable[[JobRecord], Any]] = {
    "id": lambda j: j.id,
    "index": lambda j: j.index,
    "short": lambda j: j.id[:8],
    "name": lambda j: j.name,
    "state": lambda j: j.state,
    "cluster": records.where,
    "attempt": lambda j: j.attempt,
    "user": lambda j: j.user,
    "flux_id": lambda j: j.flux_id,
    "returncode": lambda j: j.returncode,
    "code": lambda j: j.code,
    "detail": records.why,
    "age": lambda j: output.age(records.began(j)),
    "submitted": lambda j: output.stamp(records.began(j)),
    "started": lambda j: output.stamp(j.times.get("running")),
    "ended": lambda j: output.stamp(records.ended(j)),
    "runtime": lambda j: None if (seconds := records.run_time(j)) is None else output.span(seconds),
}
#: Fields that are sorted by another value than is shown.
_ORDER: Mapping[str, Callable[[JobRecord], Any]] = {
    "age": lambda j: -(records.began(j) or 0.0),
    "submitted": records.began,
    "started": lambda j: j.times.get("running"),
    "ended": records.ended,
    "runtime": records.run_time,
}


def ordered(jobs: Sequence[JobRecord], key: str) -> list[JobRecord]:
    """Return `jobs` sorted by a field, descending with a ``-`` before it; those without a value come last."""
    name = key.removeprefix("-")
    if name not in FIELDS:
        raise InvalidInput(f"--sort {key!r}: choose of {', '.join(FIELDS)}")
    value = _ORDER.get(name, FIELDS[name])
    known = [job for job in jobs if value(job) is not None]
    return sorted(known, key=value, reverse=key.startswith("-")) + [job for job in jobs if value(job) is None]


def formatter(text: str) -> Callable[[JobRecord], str]:
    """Return what shows a job as `text` says: ``{id} {state:<10} {name}``. Raises InvalidInput."""
    try:
        parts = list(Formatter().parse(text))
    except ValueError as exc:
        raise InvalidInput(f"--format {text!r}: {exc}") from None
    for _, name, spec, conversion in parts:
        if name is not None and (name not in FIELDS or conversion or "{" in (spec or "")):
            raise InvalidInput(f"--format: no field {name!r}: choose of {', '.join(FIELDS)}")

    def show(job: JobRecord) -> str:
        pieces = []
        for literal, name, spec, _ in parts:
            pieces.append(literal)
            if name is None:
                continue
            value = FIELDS[name](job)
            try:
                pieces.append(format("-" if value is None else value if not spec else str(value), spec or ""))
            except ValueError as exc:
                raise InvalidInput(f"--format {{{name}:{spec}}}: {exc}") from None
        return "".join(pieces)

    return show


def counted(jobs: Iterable[JobRecord]) -> dict[str, int]:
    """Return how many jobs are in each state, in the order of a job's life."""
    numbers: Counter[str] = Counter(job.state for job in jobs)
    return {state: numbers[state] for state in STATES if numbers[state]}
