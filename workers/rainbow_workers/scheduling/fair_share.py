"""Fair share: whose waiting job is next, by weights and by what each user had lately.

A job costs its dominant share (of the cores, GPUs or nodes of all clusters, whichever it takes most of) times the
seconds that it is expected to run: the mean of the user's recent jobs, else of all users', else its time limit. The
cost is charged when the job is dispatched. What a user was charged decays with a half-life. The user with the lowest
usage for its weight is next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rainbow.jobspec.request import Demand
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.scheduling.decide import Job
from rainbow_workers.stores.base import Store

#: Half-lives for which usage counts: the rest is less than 2 % of it.
PERIODS = 6
#: Seconds that a job is expected to run of which nothing is known.
_UNKNOWN = 60.0
#: Seconds between two exchanges with the store.
_EVERY = 1.0


@dataclass(frozen=True, slots=True)
class SharePolicy:
    """Who gets how much.

    Attributes:
        weights: By user; 1 for the others.
        half_life: Seconds after which usage counts half.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    half_life: float = 3600.0


class FairShare:
    """The usage of all users, as this process knows it. Used by several threads.

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
        self._usage: dict[str, float] = {}
        self._new: dict[str, float] = {}
        self._run_times: Mapping[str, float] = {}
        self._run_time = 0.0
        self._totals = Demand()
        self._next = 0.0

    def cost(self, job: Job) -> float:
        """What a job is charged: share of everything there is, times seconds."""
        demand, totals = job.jobspec.demand, self._totals
        pairs = [(demand.cores, totals.cores), (demand.gpus, totals.gpus)]
        if not demand.cores and not demand.gpus:
            pairs = [(demand.nodes, totals.nodes)]
        shares = [wanted / there for wanted, there in pairs if wanted and there]
        seconds = self._run_times.get(job.user) or self._run_time or job.jobspec.duration or _UNKNOWN
        return max(shares, default=0.0) * seconds

    def charge(self, job: Job) -> None:
        """The job was dispatched."""
        cost = self.cost(job)
        with self._lock:
            self._new[job.user] = self._new.get(job.user, 0.0) + cost
            self._usage[job.user] = self._usage.get(job.user, 0.0) + cost

    def usage(self, user: str) -> float:
        """What the user was charged lately, decayed: shares of everything, times seconds."""
        return self._usage.get(user, 0.0)

    def weight(self, user: str) -> float:
        """The user's weight."""
        return self._policy.weights.get(user, 1.0)

    def sync(self) -> None:
        """Exchange charges with the store, at most once a second. Raises StoreUnavailable."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + _EVERY
        period = int(now // self._policy.half_life)
        with self._lock:
            charges, self._new = self._new, {}
        try:
            self._store.shares.charge(charges, period, PERIODS * self._policy.half_life)
            sums = self._store.shares.usage([period - age for age in range(PERIODS)])
            run_times = self._store.shares.run_times()
        except Exception:
            with self._lock:
                for user, cost in charges.items():
                    self._new[user] = self._new.get(user, 0.0) + cost
            raise
        usage: dict[str, float] = {}
        for age, found in enumerate(sums):
            # The middle of a period stands for all of it.
            middle = (period - age + 0.5) * self._policy.half_life
            faded = 0.5 ** max(0.0, (now - middle) / self._policy.half_life)
            for user, cost in found.items():
                usage[user] = usage.get(user, 0.0) + cost * faded
        with self._world.lock:
            totals = [c.total for c in self._world.clusters.values()]
        with self._lock:
            for user, cost in self._new.items():
                usage[user] = usage.get(user, 0.0) + cost
            self._usage, self._run_times = usage, run_times
            self._run_time = sum(run_times.values()) / len(run_times) if run_times else 0.0
            self._totals = Demand(
                sum(t.nodes for t in totals), sum(t.cores for t in totals), sum(t.gpus for t in totals)
            )
