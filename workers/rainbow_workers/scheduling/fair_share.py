"""Fair share: whose waiting job is next, by weights and by what each account and user had lately.

A job costs its dominant share (of the cores, GPUs or nodes of all clusters, whichever it takes most of) times the
seconds that it is expected to run: the mean of the user's recent jobs on its cluster, else on all, else of all users'
jobs, else its time limit. The cost is charged when the job is dispatched, to its account and in it to its user; what
was only guessed is put right once jobs of the user have ended there. What was charged decays with a half-life. The
account with the lowest usage for its weight is next, and in it the user with the lowest for its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rainbow.jobspec import Jobspec
from rainbow.jobspec.request import Demand
from rainbow.models.shares import DEFAULT_ACCOUNT
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.scheduling.decide import Job, Payer
from rainbow_workers.scheduling.share_terms import SharePolicy, ShareTable
from rainbow_workers.stores.base import BETWEEN, Store, run_time_of

#: Half-lives for which usage counts: the rest is less than 2 % of it.
PERIODS = 6
#: Seconds that a job is expected to run of which nothing is known.
_UNKNOWN = 60.0
#: Guesses remembered, to be put right.
_GUESSES = 20_000
#: Seconds between two exchanges with the store.
_EVERY = 1.0
#: Usage for its weight, of an account and of the user in it: the lowest is next.
Standing = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Usage:
    """What was charged lately, decayed: shares of everything, times seconds."""

    users: Mapping[Payer, float] = field(default_factory=dict)
    accounts: Mapping[str, float] = field(default_factory=dict)


class FairShare:
    """The usage of all accounts and users, as this process knows it. Used by several threads.

    The store has the sums that all schedulers charge; losing them makes all users equal again, and loses no job.
    """

    def __init__(
        self, store: Store, world: ClusterCache, policy: SharePolicy, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._world = world
        self._policy = policy
        self._clock = clock
        self._lock = threading.Lock()
        self._users: dict[Payer, float] = {}
        self._accounts: dict[str, float] = {}
        self._new: dict[Payer, float] = {}
        #: Shares of everything, and what was charged for them, of jobs whose run time was a guess.
        self._guessed: dict[tuple[Payer, str], tuple[float, float]] = {}
        self._run_times: Mapping[str, float] = {}
        self._run_time = 0.0
        self._totals = self._largest = Demand()
        #: What jobs of one kind cost, until the next exchange with the store.
        self._known: dict[tuple[int, str, str | None], tuple[float, float, bool, Jobspec]] = {}
        self._next = 0.0
        #: What is set for whom.
        self.table = ShareTable(policy)

    @property
    def half_life(self) -> float:
        return self._policy.half_life

    def cost(self, job: Job, cluster: str | None = None) -> float:
        """What a job is charged on `cluster`: share of everything there is, times seconds."""
        part, seconds, _, _ = self._terms(job, cluster)
        return part * seconds

    def charge(self, dispatched: Sequence[tuple[Job, str]]) -> None:
        """These jobs were dispatched to these clusters. Those of a kind are charged in one step."""
        kinds: dict[tuple[int, str, str, str], list[tuple[Job, str]]] = {}
        for job, cluster in dispatched:
            kinds.setdefault((id(job.jobspec), job.account, job.user, cluster), []).append((job, cluster))
        for listed in kinds.values():
            self._charge(*listed[0], len(listed))

    def _charge(self, job: Job, cluster: str, jobs: int) -> None:
        payer = job.payer
        part, seconds, measured, _ = self._terms(job, cluster)
        part *= jobs
        cost = part * seconds
        with self._lock:
            self._add(payer, cost)
            if not measured and len(self._guessed) < _GUESSES:
                parts, charged = self._guessed.get((payer, cluster), (0.0, 0.0))
                self._guessed[payer, cluster] = parts + part, charged + cost

    def refund(self, job: Job, cluster: str) -> None:
        """The dispatch to `cluster` came back: the job did not run there."""
        payer = job.payer
        part, seconds, _, _ = self._terms(job, cluster)
        with self._lock:
            parts, charged = self._guessed.get((payer, cluster), (0.0, 0.0))
            # What was charged is what was guessed then, on average of the jobs whose run time is still a guess.
            cost = part * charged / parts if parts else part * seconds
            if parts - part > 0:
                self._guessed[payer, cluster] = parts - part, charged - cost
            else:
                self._guessed.pop((payer, cluster), None)
            self._add(payer, -cost)

    def _add(self, payer: Payer, cost: float) -> None:
        account, _ = payer
        self._new[payer] = self._new.get(payer, 0.0) + cost
        self._users[payer] = self._users.get(payer, 0.0) + cost
        self._accounts[account] = self._accounts.get(account, 0.0) + cost

    def _terms(self, job: Job, cluster: str | None) -> tuple[float, float, bool, Jobspec]:
        """The job's share of all clusters, how long it is expected to run, and whether that was measured."""
        key = (id(job.jobspec), job.user, cluster)
        known = self._known.get(key)
        if known is None:
            # The jobspec is kept with it: its id is of no other for as long.
            known = self._known[key] = (self._part(job, self._totals), *self._seconds(job, cluster), job.jobspec)
        return known

    def size_of(self, job: Job) -> float:
        """How much of the largest cluster the job takes, 0 to 1."""
        return min(1.0, self._part(job, self._largest))

    @staticmethod
    def _part(job: Job, totals: Demand) -> float:
        """The job's dominant share of `totals`."""
        demand = job.jobspec.demand
        pairs = [(demand.cores, totals.cores), (demand.gpus, totals.gpus)]
        if not demand.cores and not demand.gpus:
            pairs = [(demand.nodes, totals.nodes)]
        return max((wanted / there for wanted, there in pairs if wanted and there), default=0.0)

    def _seconds(self, job: Job, cluster: str | None) -> tuple[float, bool]:
        """How long it is expected to run there, and whether that was measured."""
        known = self._run_times.get
        measured = known(run_time_of(job.user, cluster)) if cluster is not None else None
        guess = known(job.user) or self._run_time or job.jobspec.duration or _UNKNOWN
        return measured or guess, measured is not None

    def run_time(self, user: str) -> float:
        """How many seconds jobs of this user, or else of all, ran lately; 0 if none has ended."""
        return self._run_times.get(user) or self._run_time

    def usage(self) -> Usage:
        """The sums as they are now."""
        with self._lock:
            return Usage(dict(self._users), dict(self._accounts))

    def standing(self, payer: Payer, account_more: float = 0.0, user_more: float = 0.0) -> Standing:
        """How much `payer` had for its weight, with so much more charged to its account and its user."""
        account, user = payer
        return (
            (self._accounts.get(account, 0.0) + account_more) / self.table.weight("account", account),
            (self._users.get(payer, 0.0) + user_more) / self.table.weight("user", user),
        )

    def sync(self, *, at_once: bool = False) -> None:
        """Exchange with the store what was charged and set, at most once a second but when it has to be `at_once`.

        Raises StoreUnavailable.
        """
        now = self._clock()
        if now < self._next and not at_once:
            return
        self._next = now + _EVERY
        shares, half_life = self._store.shares, self._policy.half_life
        period = int(now // half_life)
        with self._lock:
            charges, self._new = self._new, {}
        try:
            named = {BETWEEN.join(payer): cost for payer, cost in charges.items()}
            shares.charge(named, period, PERIODS * half_life)
            sums = shares.usage([period - age for age in range(PERIODS)])
            run_times, terms = shares.run_times(), shares.terms()
        except Exception:
            with self._lock:
                for payer, cost in charges.items():
                    self._new[payer] = self._new.get(payer, 0.0) + cost
            raise
        self.table.follow(terms)
        usage: dict[Payer, float] = {}
        for age, found in enumerate(sums):
            # The middle of a period stands for all of it.
            middle = (period - age + 0.5) * half_life
            faded = 0.5 ** max(0.0, (now - middle) / half_life)
            for name, cost in found.items():
                payer = _payer(name)
                usage[payer] = usage.get(payer, 0.0) + cost * faded
        with self._world.lock:
            totals = [c.total for c in self._world.clusters.values()]
        with self._lock:
            self._put_right(run_times)
            for payer, cost in self._new.items():
                usage[payer] = usage.get(payer, 0.0) + cost
            self._users, self._accounts = usage, _by_account(usage)
            self._known = {}
            self._run_times = run_times
            of_users = [seconds for name, seconds in run_times.items() if BETWEEN not in name]
            self._run_time = sum(of_users) / len(of_users) if of_users else 0.0
            self._totals = Demand(
                sum(t.nodes for t in totals), sum(t.cores for t in totals), sum(t.gpus for t in totals)
            )
            self._largest = Demand(
                max((t.nodes for t in totals), default=0),
                max((t.cores for t in totals), default=0),
                max((t.gpus for t in totals), default=0),
            )

    def _put_right(self, run_times: Mapping[str, float]) -> None:
        """Charge the difference where a guess was made of what is known now."""
        for (payer, cluster), (parts, charged) in list(self._guessed.items()):
            seconds = run_times.get(run_time_of(payer[1], cluster))
            if seconds is not None:
                del self._guessed[payer, cluster]
                self._new[payer] = self._new.get(payer, 0.0) + parts * seconds - charged


def _payer(name: str) -> Payer:
    account, between, user = name.partition(BETWEEN)
    return (account, user) if between else (DEFAULT_ACCOUNT, name)


def _by_account(usage: Mapping[Payer, float]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for (account, _), cost in usage.items():
        sums[account] = sums.get(account, 0.0) + cost
    return sums
