"""The contract of a store plugin: who the clusters are, and what became of each job.

Two tables, and three small ones. Every write is idempotent or a compare-and-set, since a
client library may send a write twice. Anything that cannot reach the store raises StoreUnavailable: the caller
learnt nothing, and asks again; a store that refuses our password or lacks a right raises BadCredentials.
Times are seconds since 1970. How long something lasts (`reserve_s`, `ttl`, `keep`) is counted on the store's own
clock, so that a sender with a wrong one can neither block a cluster nor lose a record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from rainbow.errors import Conflict
from rainbow.jobspec.request import Demand
from rainbow.models.cluster import ClusterRecord, ClusterState, Enrollment, Revocation, StateReport
from rainbow.models.job import JobEvent, JobRecord
from rainbow_workers.stores.dependencies import Dependencies
from rainbow_workers.stores.dependencies import Dependent as Dependent
from rainbow_workers.stores.dependencies import Progress as Progress


class Overtaken(Conflict):
    """A record is not what it was when it was read: somebody else wrote meanwhile, or it is gone. Look again."""


#: A position in a list of jobs: the time of a job's first event, and its id.
Cursor = tuple[float, str]


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs with the times of their first events, newest first. The list goes on after `next`; None: it ends here.

    `looked` is how many jobs were looked at.
    """

    jobs: list[tuple[float, JobRecord]]
    next: Cursor | None
    looked: int = 0


@dataclass(frozen=True, slots=True)
class Epoch:
    """The data of a store, from when it was created or may have lost writes until that happens again.

    `number` is another one for each epoch and rises. `at` is when it began, in seconds since 1970 on the caller's
    clock. `lost`: there was data before, and what was written last may be gone (restarted, failed over, restored). It
    is False for data that was created; whether other data was there before is not known then.
    """

    number: int = 0
    at: float = 0.0
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed since a version of the store's change counter. None in a mapping means "gone".

    `clusters` has a cluster's record when that changed, `states` its state when that did, `reserved` the sum of its
    reservations likewise: a heartbeat does not bring the summary again. A cluster that is new (also one deleted and
    registered again in between) is in all three, with an empty state and nothing reserved at first.
    `groups` and `revocations` are whole, and None when they did not change. `reset` says that the store is
    another one than before (emptied, restored, restarted, failed over): forget everything first; all that there is
    comes with it. Versions only ever rise, also across a reset. `epoch` always comes.
    """

    version: int
    clusters: Mapping[str, ClusterRecord | None] = field(default_factory=dict)
    states: Mapping[str, ClusterState] = field(default_factory=dict)
    reserved: Mapping[str, Demand] = field(default_factory=dict)
    groups: Mapping[str, frozenset[str]] | None = None
    revocations: Sequence[Revocation] | None = None
    reset: bool = False
    epoch: Epoch = field(default=Epoch(), compare=False)


@dataclass(slots=True)
class Assignment:
    """Job `id` goes to `cluster` as its attempt number `attempt`, and takes `demand` there until reported or
    `reserve_s` seconds have passed. `answer` is kept to answer the same id again, with what it has in common with
    those of other jobs (`looked`), which may be kept once for all of them. `at` is when it was decided, `submitted_at`
    when the job came in: they become `times` of the record. `registration` is the one of `cluster` that the attempt is
    given to: only that one may report it. `array` and `index` are those of an element of an array. `jobspec` is what
    was submitted: equal ones are kept once. Not to be changed.
    """

    id: str
    attempt: int
    cluster: str
    user: str
    name: str | None
    demand: Demand
    at: float
    submitted_at: float
    answer: Mapping[str, object]
    reserve_s: float = 60.0
    registration: str = ""
    looked: Mapping[str, object] = field(default_factory=dict)
    account: str | None = None
    array: str | None = None
    index: int | None = None
    jobspec: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Assigned:
    """Outcomes of a batch, one each: None when the assignment holds (also when the same one was made before by
    a try that died, see `repeated`), else the record that stands in its way, with its answer, without history.
    For a job nobody knows but whose cancel was asked for, that is a `submitted` one with `cancel_requested`.

    `changes` contains what this batch itself reserved, and `changes.reserved` names every registered cluster of the
    batch, also one whose total stayed: whoever deducted in advance gets the truth for all of them.

    `crowded`: nothing was done, there are no outcomes (see `Ledger.assigning`)."""

    outcomes: Sequence[JobRecord | None]
    repeated: frozenset[int]
    changes: Changes
    crowded: bool = False


@dataclass(slots=True)
class Assigning:
    """A batch on its way to the store: `wait` gives the outcome (once), `drop` says that nobody will ask for it. The
    store may have taken the batch all the same."""

    wait: Callable[[], Assigned]
    drop: Callable[[], None] = lambda: None


@dataclass(slots=True, eq=False)
class Recorded:
    """A job after an event. `applied` is False for an event that changed nothing: a repeat, or an older attempt's.
    `refused` is True for one whose sender was never given the attempt: nothing of it was kept. `watchers` are the
    addresses (reply_to, correlation_id) that want to know."""

    read: Callable[[], JobRecord]
    applied: bool
    watchers: Sequence[tuple[str, str]] = ()
    refused: bool = False

    @property
    def record(self) -> JobRecord:
        """Without history and answer (both can be long, and `get` has them). Read when asked for: most are not."""
        return self.read()


@dataclass(frozen=True, slots=True)
class Sender:
    """The registration of a cluster that an event comes from. `proven`: it showed the scheduler's grant for the
    attempt (`rainbow_workers.grants`)."""

    cluster: str
    registration: str
    proven: bool = False


class ClusterTable(Protocol):
    def changes(self, since: int) -> Changes:
        """All that changed after version `since` (0: everything there is)."""

    def wait(self, since: int, timeout: float) -> bool:
        """Block until something changed after version `since` that may make room for a job, at most `timeout` seconds.

        That is everything in `changes` except more reservations: reports, clusters, groups, revocations, and
        reservations that ended. Returns False after `timeout`."""

    def put(self, record: ClusterRecord, expect: str | None) -> None:
        """Write a cluster. `expect` is the `registration` it must have now (None: it must not exist). Raises Overtaken.

        Writing the same record again is fine, whatever `expect` says."""

    def delete(self, name: str) -> None:
        """Forget a cluster: record, state, reservations, memberships. Missing is fine. Job records stay: they are
        history, and go by their own time."""

    def report(self, reports: Sequence[StateReport], at: float) -> None:
        """Merge state values, note the heartbeat, end the reservations that are `included`. A report for a cluster
        that is not registered, or with another `registration` than its (None fits any), is dropped.

        `at` is the caller's clock. Reports may come out of order or twice: of two values for a key the one with the
        later `at` holds, and `at` and `heartbeat_at` of the state never go back."""

    def set_group(self, group: str, members: frozenset[str]) -> None:
        """Make a group exactly `members`; empty removes it. `group` is written with its ``@``."""

    def revoke(self, revocation: Revocation) -> None:
        """Add a revocation; dropped by itself after its `until`. Of two for a subject the later `before` holds."""


#: Who asked about a job: the subject of a submitter as ``user:SUB``, a cluster as ``cluster:NAME``, or ANYONE (for
#: administrators, and the workers themselves). Kept with what was asked, and compared with the job later on.
Asker = str
ANYONE: Asker = ""


def concerns(by: Asker, record: JobRecord) -> bool:
    """Whether a job is one that `by` may see."""
    kind, _, name = by.partition(":")
    return by == ANYONE or (record.cluster if kind == "cluster" else record.user) == name


class Tally(NamedTuple):
    """Jobs of one user in one account: those that are held, and those that are on a cluster (from assigned on)."""

    waiting: int = 0
    running: int = 0


class Ledger(Protocol):
    def assign(self, batch: Sequence[Assignment], since: int) -> Assigned:
        """Compare-and-set a batch of assignments and their reservations; with it, the changes after `since`.

        One round trip. An assignment holds when the job is unknown, or its record has attempt ``attempt - 1`` and is
        submitted, held, rejected or assigned (timed out), and no cancel was asked for. An identical assignment
        (same attempt and cluster) that stands already (still `assigned`, no cancel asked for) holds again and is
        `repeated`: it reserves nothing anew.

        One that holds makes the record `assigned` with its attempt, cluster, user, name, answer, times and an entry of
        the history, forgets what the attempt before left (flux_id, returncode, code, detail, output) and ends that
        one's reservation. Nothing is reserved on a cluster that is not registered.
        """

    def assigning(self, batch: Sequence[Assignment], since: int, room: Mapping[str, Demand]) -> Assigning:
        """`assign` in two steps, for whoever has something to do meanwhile. The store takes batches in the order in
        which they were sent, as a rule; whichever comes first, of two that name one job one is told of the other.

        `room` are clusters that are believed to have room now for all that the batch gives them, with their totals.
        When one of them has not (what it reported free, in `nodes_free`, `cores_free` and `gpus_free`, or else its
        total, minus all reservations), somebody else was faster: nothing is done, and the outcome is `crowded`. A batch
        with a job that is known already, or a cluster that is not, goes through all the same."""

    def record(
        self,
        events: Sequence[JobEvent],
        senders: Sequence[Sender | None] = (),
        jobspecs: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> list[Recorded]:
        """Apply events in order. `senders` has one for each event, None (or no senders at all) for the workers' own.
        `jobspecs` are what was submitted, by job; a job keeps the one that came with its first event or assignment.

        An event with a sender counts when the attempt that the record is in was assigned to that registration. An event
        of an older attempt that its sender was given before is kept as stale. Everything else is `refused` and leaves
        nothing behind, unless its sender is `proven`: then it also creates the record of an unknown job, advances the
        record to a later attempt, and moves the attempt to its cluster when it says that the job started there
        (`rainbow.models.job.STARTED`, and not `held`) and the record does not say that it started or ended elsewhere,
        where one that is only `held` has not started. So of two
        clusters that were given one attempt, since the store lost data, the first that reports a start has it.

        All events are fenced: a terminal state never changes, an older attempt changes nothing, and within
        an attempt only a higher `rainbow.models.job.RANK` counts, and what a scheduler says of a job that never ran
        (`UNRUN`) ends no attempt that was accepted. All are kept in the history (bounded: the first few and the last),
        those that changed nothing with ``stale: True``; those that name another user's job are not. A worker's event of
        an unknown job, or of a newer attempt than known, creates or advances the record. A
        `rejected` event, or a terminal one, ends the reservation of its attempt, also when it is stale.

        Fields that an event does not have keep their value, but a newer attempt starts without the flux_id, returncode,
        code, detail and output of the one before. `times` has the first time of each state, with ``ended`` for all
        terminal ones. An ended job is forgotten `StoreOptions.keep` seconds later.

        The record of an array counts its elements (`counts`, `exit_code`) in the step that changes the state of one, by
        events as by assignments. Elements of an array that ended, or whose cancel was asked for, are not assigned: the
        outcome is as for one whose own cancel was asked for, and what is recorded of them has `cancel_requested`."""

    def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        """Records with their history and answer, in the order asked; None for one that is unknown."""

    def jobspec(self, id: str) -> dict[str, Any] | None:
        """What was submitted as this job; None where that is not kept (see `StoreOptions.jobspec_bytes`)."""

    def page(
        self,
        *,
        state: str | None,
        cluster: str | None,
        user: str | None,
        limit: int,
        before: Cursor | None = None,
        array: str | None = None,
        text: str | None = None,
    ) -> Page:
        """The newest jobs (by the time of their first event; for an assignment, `submitted_at`) that fit all that is
        given, newest first, without history and answer: those that come after the position `before`. What one call
        looks at, and its time, are bounded, so a page may have fewer than `limit` and there may be more all the same.

        Elements of arrays are only in the list of their `array`. `text` is in the id, name, user or detail of a job."""

    def find(self, *, state: str | None, cluster: str | None, user: str | None, limit: int) -> list[JobRecord]:
        """The newest `limit` of these jobs, page by page."""

    def tally(self) -> Mapping[tuple[str, str], Tally]:
        """How many jobs have not ended, by account and user: of those whose record says whom they are charged to."""

    def watch(self, ids: Sequence[str], address: tuple[str, str], ttl: float, by: Asker = ANYONE) -> None:
        """For `ttl` seconds, name `address` among the watchers of these jobs, known or not. Again: a new `ttl`.

        It is among those of an event only if the job is, then, one that `by` may see."""

    def cancel(self, ids: Sequence[str], by: Asker | None = ANYONE) -> list[JobRecord | None]:
        """Mark jobs of `by` as to be cancelled, durably, and give their records (None: unknown, or not of `by`).

        An unknown one is marked as well, so that a submission of `by` that is still on its way is stopped: for a day,
        and the newest `MAX_MARKS` of each asker. With None, only known jobs are marked, whoever has them. Terminal
        ones are left alone. Repeating is harmless. Records come without history and answer."""


class Enrollments(Protocol):
    """Agents that ask to be let in (`rainbow.security.enrollment`): few, short-lived, by cluster and mark. `now` is the
    caller's clock; those whose `until` has passed are not there any more."""

    def put(self, enrollment: Enrollment) -> None:
        """Write one, in place of what was there for its cluster and mark."""

    def get(self, cluster: str, mark: str, now: float) -> Enrollment | None:
        """The one of this cluster and mark."""

    def all(self, now: float) -> list[Enrollment]:
        """All there are, in any order."""


#: Between the parts of a name in `Shares`: an account and its user, a user and a cluster.
BETWEEN = "\x1f"


def run_time_of(user: str, cluster: str) -> str:
    """Under which name is kept how long a user's jobs run on one cluster; the user's own is for all of them."""
    return f"{user}{BETWEEN}{cluster}"


class Shares(Protocol):
    """What users were charged lately, by period of time, how long their jobs run, and what an administrator set.

    Losing it loses no job. Periods are numbers that rise by one."""

    def charge(self, amounts: Mapping[str, float], period: int, keep: float) -> None:
        """Add to the sums of users in a period, which is forgotten `keep` seconds after its last charge at the
        earliest."""

    def usage(self, periods: Sequence[int]) -> list[dict[str, float]]:
        """The sums of users, for each of these periods."""

    def ran(self, seconds: Mapping[str, float]) -> None:
        """Set how long jobs of these users run, in seconds."""

    def run_times(self) -> dict[str, float]:
        """How long jobs run, in seconds, by user."""

    def submitted(self, name: str, count: int, window: int, seconds: float) -> int:
        """Note `count` more submissions of `name` in a window of so many seconds. Gives how many there were in it."""

    def put(self, name: str, terms: str | None) -> None:
        """Keep `terms` under `name`, in place of what was there; None forgets it."""

    def terms(self) -> dict[str, str]:
        """All that is kept so."""


class Store(Protocol):
    @property
    def clusters(self) -> ClusterTable: ...

    @property
    def enrollments(self) -> Enrollments: ...

    @property
    def jobs(self) -> Ledger: ...

    @property
    def shares(self) -> Shares: ...

    @property
    def dependencies(self) -> Dependencies: ...

    def warnings(self) -> list[str]:
        """What an operator should mend, a line each: an evicting policy, no persistence."""

    def close(self) -> None:
        """Let go of connections. The data stays."""
