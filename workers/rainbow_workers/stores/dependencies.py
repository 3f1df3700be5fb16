"""The part of the contract of a store that says who waits for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Dependent:
    """A job of `user` that waits for other jobs, by their ids."""

    id: str
    user: str
    after: Sequence[str]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is that others wait for."""

    state: str
    started: bool
    ended: bool


class Dependencies(Protocol):
    """Who waits for whom.

    A call of `Ledger.record` that records a start or an end of a job that others wait for says so in the same step (see
    `moved`).
    """

    def await_(self, dependents: Sequence[Dependent]) -> list[list[Progress | None]]:
        """How far the jobs are that each of these waits for; None for one that is unknown, or another user's.

        From now on they wait for it: its start and its end are told (`moved`), and its end stays known until `forget`,
        also when its record is forgotten. Asking again is harmless.
        """

    def forget(self, dependents: Sequence[Dependent]) -> None:
        """They do not wait any more. Those who are not known to wait are fine."""

    def moved(self, since: str, timeout: float, *, arrays: bool = False) -> tuple[str, list[str]]:
        """Ids of jobs that moved since `since`, oldest first, perhaps not all at once; and from where to go on.

        These are jobs that others wait for and that started or ended, and jobs that ended while they were held. With
        `arrays` they are arrays whose record changed, or that of an element.

        Blocks for at most `timeout` seconds while there is none. With an empty `since` it only says from where to go
        on. Old ones are dropped: those who wait look again from time to time.
        """
