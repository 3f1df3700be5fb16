"""Deciding: where a job goes, as a pure function of the job, the world and the time. No broker, no store.

Every decision returns its reasons; nothing else knows why a cluster was or was not chosen.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

from rainbow.jobspec.request import Jobspec, Request
from rainbow.models.arrays import Array, Element
from rainbow.models.dependencies import Dependency
from rainbow.models.job import Reason
from rainbow.models.shares import DEFAULT_ACCOUNT
from rainbow.resources.backends.base import GraphMatches
from rainbow_workers.clusters.cache import ClusterCache, hindrance
from rainbow_workers.scheduling.contention import Contention
from rainbow_workers.scheduling.looked import MAX_NAMED, seen
from rainbow_workers.selection import Selections
from rainbow_workers.selection.base import Asking, Choice, JobView, Offer, Selection

#: Codes of clusters that have too much to do: a job that met nothing else waits for as long as it takes.
_FULL = frozenset({"busy", "queue-full"})
#: Whom a job is charged to: an account, and in it a user.
Payer = tuple[str, str]
#: Up to as many candidates are kept in a list of their own; more stay in the index.
FEW = 1000


@dataclass(slots=True)
class Job:
    """A job to be placed. `allowed` is what its tokens cover (names, ``@groups``, ``*``), `restrict` what it asked
    for itself; `tried` holds the clusters that refused it, with their reasons. `attempt` is the number this
    assignment would have. `own` is what its first token covers; `others` are the further ones (jti, subject, time of
    issue, clusters). It does not start before `begin_at`, nor before what it waits for (`after`): that is settled once,
    at `freed_at` (0: not yet), with `unmet` why it can never happen. An `array` is not placed: its elements are, which
    know which `element` they are."""

    id: str
    user: str
    jobspec: Jobspec
    allowed: frozenset[str]
    submitted_at: float
    jti: str = ""
    token_issued_at: float = 0.0
    own: frozenset[str] = frozenset()
    others: tuple[tuple[str, str, float, tuple[str, ...]], ...] = ()
    account: str = DEFAULT_ACCOUNT
    name: str | None = None
    image: str | None = None
    restrict: tuple[str, ...] | None = None
    selection: tuple[str, Mapping[str, Any]] | None = None
    priority: int = 16
    expires_at: float | None = None
    hold_until: float = 0.0
    after: tuple[Dependency, ...] = ()
    begin_at: float = 0.0
    freed_at: float = 0.0
    unmet: str = ""
    satisfy_only: bool = False
    array: Array | None = None
    element: Element | None = None
    attempt: int = 1
    tried: dict[str, Reason] = field(default_factory=dict)
    #: What clusters said that were asked for a bid; None before any was.
    offers: dict[str, Offer] | None = None

    @property
    def payer(self) -> Payer:
        return self.account, self.user

    def view(self) -> JobView:
        spec = self.jobspec
        return JobView(
            self.id,
            self.user,
            self.name,
            self.priority,
            spec.demand,
            spec.duration,
            spec.parameters,
            self.offers or {},
            spec.preferences,
        )


#: `bidding`: the clusters are to be heard first (`rainbow_workers.bidding.bidder`).
Status = Literal["assigned", "satisfied", "no-match", "held", "expired", "unsatisfiable", "bidding"]


@dataclass(slots=True)
class Decision:
    """What to do with a job. `retry_in` (s) and, if not for a cluster, `code` come with held; `terms` with assigned."""

    status: Status
    cluster: str | None = None
    clusters: Sequence[str] = ()
    total_clusters: int = 0
    total_matches: int = 0
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    terms: Mapping[str, Any] = field(default_factory=dict)
    retry_in: float = 0.0
    #: It waits for an event (room, a cluster), and for `retry_in` seconds at most if that is not 0.
    waits: bool = False
    #: That event is an end of a job of its user or account, which has as many on clusters as it may.
    limited: bool = False
    #: It is held since a cluster may have it, of which the store lost the record.
    in_doubt: bool = False
    code: str = ""
    detail: str | None = None
    #: `seen` of all this, when it is there already because nothing in it is of this job alone.
    looked: Mapping[str, Any] | None = None
    #: It is a probe of a throttled cluster, which gets no other one before this time (seconds since 1970).
    probe_until: float = 0.0


@dataclass(slots=True)
class _Candidates:
    """Clusters that match and are open to a kind of job.

    `names` are those served best (`ClusterCache.by_service`), `later` the others, for a job that all before them
    refused for good. `looked` is what an answer says of all this. `probes` could run it too, but are throttled.
    """

    request: Request
    generation: int
    matching: Sequence[str]
    names: Sequence[str]
    reasons: Mapping[str, Reason]
    looked: Mapping[str, Any]
    probes: Sequence[str] = ()
    #: At this `ClusterCache.relief` no others than `room` had room: that is worked out once, not for each job.
    room_at: int = -1
    room: list[str] = field(default_factory=list)
    later: Sequence[Sequence[str]] = ()


_Key = tuple[int, frozenset[str], tuple[str, ...] | None, str | None]
"""Request, rights, clusters asked for, queue."""


class Decider:
    """Decides on one world. Remembers candidates by request and rights, so that a known kind of job is looked up."""

    def __init__(
        self,
        world: ClusterCache,
        *,
        selection: str = "least-loaded",
        options: Mapping[str, Any] | None = None,
        retry_after: float = 5.0,
        max_attempts: int = 20,
        probe_every: float = 10.0,
        contention: Contention | None = None,
        cache: int = 4096,
    ) -> None:
        self._world = world
        self._default = (selection, options or {})
        self._retry_after = retry_after
        self._max_attempts = max_attempts
        self._probe_every = probe_every
        self._contention = Contention() if contention is None else contention
        self._selections = Selections()
        self._asking: dict[type, bool] = {}
        self._selections.get(*self._default)  # a wrong default is found at start, not with the first job
        self._cache: OrderedDict[_Key, _Candidates] = OrderedDict()
        self._cache_size = cache

    def check(self, selection: tuple[str, Mapping[str, Any]]) -> None:
        """Raise UnknownPlugin or InvalidInput for a selection that a job asks for and that cannot be had."""
        self._selections.get(*selection)

    def decide(self, job: Job, now: float, rng: random.Random, *, early: bool = False, limit: str = "") -> Decision:
        """Where `job` goes. Changes nothing: the caller reserves what the decision takes, and notes its probe.

        Args:
            now: Seconds since 1970; deadlines are compared with it.
            rng: The only source of chance.
            early: Bind the job also where it has to wait.
            limit: Why it may not be bound now wherever there is room; empty if it may.
        """
        world = self._world
        found = self._candidates(job)
        total, matching = len(world.clusters), found.matching
        if job.expires_at is not None and now > job.expires_at:
            return Decision("expired", None, (), total, 0, {}, detail=f"not assigned {now - job.expires_at:.0f} s ago")
        if job.satisfy_only:
            status: Status = "satisfied" if found.names else "no-match"
            return Decision(status, None, found.names, total, len(found.names), found.reasons)
        names = found.names
        if job.tried:
            names = [n for n in names if n not in job.tried] or self._next(job, found)
        if not names:
            return self._nowhere(job, found, total, now)
        if limit:
            stands = {**found.reasons, **job.tried}
            return Decision("held", None, names, total, len(matching), stands, waits=True, limited=True, detail=limit)
        name, options = job.selection or self._default
        view = job.view()
        selection = self._selections.get(name, options)
        if self._asks(selection) and self._unheard(job, names, rng):
            return Decision("bidding", None, names, total, len(matching), found.reasons)
        probe = self._probe(found.probes, job, now) if found.probes else None
        if probe is not None:
            choice = Choice(probe, {"probe": True})
        elif early or self._asks(selection):
            choice = selection.choose(names, world, view, rng)
        else:
            chosen = self._choose(job, found, names, selection, view, rng)
            if chosen is None:
                full = f"waits for room: each cluster that can run it is busy ({len(names)})"
                reasons = {**found.reasons, **job.tried} if job.tried else found.reasons
                return Decision("held", None, names, total, len(matching), reasons, waits=True, detail=full)
            choice = chosen
        reasons = found.reasons
        looked = None if choice.dropped or job.tried else found.looked
        if choice.dropped:
            reasons = {**reasons, **{c: Reason(code="selection", detail=why) for c, why in choice.dropped.items()}}
        if job.tried:
            reasons = {**reasons, **job.tried}
        if choice.cluster is None:
            return self._wait_or(job, "no-match", reasons, total, len(matching), now)
        terms = {"selection": name, **choice.terms}
        decision = Decision("assigned", choice.cluster, names, total, len(matching), reasons, terms, looked=looked)
        if probe is not None:
            decision.probe_until = now + self._probe_every
        return decision

    def _choose(
        self,
        job: Job,
        found: _Candidates,
        names: Sequence[str],
        selection: Selection,
        view: JobView,
        rng: random.Random,
    ) -> Choice | None:
        """The cluster for `job` among those that can start it now or very soon; None when there is none."""
        world, demand, contention = self._world, view.demand, self._contention
        usual = not contention and not job.tried
        free = found.room if usual and found.room_at == world.relief else None
        if free is None:
            choice = selection.choose(names, world, view, rng)
            if choice.cluster is None or (world.has_room(choice.cluster, demand) and choice.cluster not in contention):
                return choice
            free = [n for n in names if n not in contention and world.has_room(n, demand)]
            if usual:
                found.room, found.room_at = free, world.relief
        while free:
            choice = selection.choose(free, world, view, rng)
            if choice.cluster is None or world.has_room(choice.cluster, demand):
                return choice
            free.remove(choice.cluster)  # jobs before this one took it
        return None

    @staticmethod
    def _next(job: Job, found: _Candidates) -> Sequence[str]:
        """Clusters that are served less well, once all before them refused for good: busy is better than dead."""
        tried = found.names
        for group in found.later:
            if any(job.tried[name].retryable for name in tried):
                return ()
            names = [name for name in group if name not in job.tried]
            if names:
                return names
            tried = group
        return ()

    def _probe(self, throttled: Sequence[str], job: Job, now: float) -> str | None:
        """A throttled cluster that is due to get a job, so that it shows when it is well again."""
        due = self._world.probe_at
        return next((n for n in throttled if now >= due.get(n, 0.0) and n not in job.tried), None)

    def candidates(self, job: Job) -> Sequence[str]:
        """The clusters that could run `job`. More than `FEW` are not kept in a list."""
        return self._candidates(job).names

    def shortlist(self, job: Job, rng: random.Random) -> tuple[Asking, list[str]] | None:
        """Whom to ask next for `job`, and by which selection; None when it is decided without asking."""
        selection = self._selections.get(*(job.selection or self._default))
        if not isinstance(selection, Asking):
            return None
        names = [n for n in self._candidates(job).names if n not in job.tried]
        return selection, selection.shortlist(names, self._world, job.view(), rng) if names else []

    def _unheard(self, job: Job, names: Sequence[str], rng: random.Random) -> bool:
        """Were none of these clusters asked yet, though they could be? One may have been unknown a moment ago."""
        if job.offers is None:
            return True
        if any(name in job.offers for name in names):
            return False
        asked = self.shortlist(job, rng)
        return asked is not None and bool(asked[1])

    def _asks(self, selection: Selection) -> bool:
        kind = type(selection)
        if kind not in self._asking:
            self._asking[kind] = isinstance(selection, Asking)
        return self._asking[kind]

    # -- no cluster -------------------------------------------------------------------------------------

    def _nowhere(self, job: Job, found: _Candidates, total: int, now: float) -> Decision:
        """All matching clusters refused it already, or none matches."""
        if not found.names:
            status: Status = "unsatisfiable" if job.tried else "no-match"
            return self._wait_or(job, status, {**found.reasons, **job.tried}, total, 0, now)
        served = chain(found.names, *found.later)
        again = [n for n in served if n in job.tried and job.tried[n].retryable]
        reasons = {**found.reasons, **job.tried}
        busy = all(job.tried[n].code in _FULL for n in again)
        if again and (busy or job.attempt <= self._max_attempts):
            # They may take it later: wait longer each time, and ask all of them again. Another one may have room first.
            delay = min(300.0, self._retry_after * 2 ** min(20, max(0, job.attempt - 2)))
            return Decision("held", None, found.names, total, len(found.names), reasons, retry_in=delay, waits=True)
        return self._wait_or(job, "unsatisfiable", reasons, total, len(found.names), now)

    def _wait_or(
        self, job: Job, status: Status, reasons: Mapping[str, Reason], total: int, matches: int, now: float
    ) -> Decision:
        left = job.hold_until - now
        missing = len(self._world.missing)
        if missing:
            # Our loss, not the job's: no is not said before the clusters had time to come back.
            why = f"the store lost its data, and {missing} cluster(s) are not back yet"
            return Decision(
                "held", None, (), total, matches, reasons, retry_in=self._retry_after, waits=True, detail=why
            )
        if left > 0:
            return Decision("held", None, (), total, matches, reasons, retry_in=left, waits=True)
        return Decision(status, None, (), total, matches, reasons)

    # -- candidates -------------------------------------------------------------------------------------

    def _candidates(self, job: Job) -> _Candidates:
        request = job.jobspec.request
        queue = job.jobspec.queue if self._world.closed.queues else None
        key = (id(request), job.allowed, job.restrict, queue)
        found = self._cache.get(key)
        if found is not None and found.generation == self._world.generation and found.request is request:
            return found
        found = self._look(request, job.allowed, job.restrict, self._world.closed.of(queue))
        self._cache[key] = found
        self._cache.move_to_end(key)
        if len(self._cache) > self._cache_size:
            self._cache.popitem(last=False)
        return found

    def _look(
        self, request: Request, allowed: frozenset[str], restrict: tuple[str, ...] | None, closed: Mapping[str, str]
    ) -> _Candidates:
        world = self._world
        matches = world.graphs.query(request)
        reasons: dict[str, Reason] = {}
        wanted = None if restrict is None else world.members(restrict)
        open_to = None if "*" in allowed else world.members(sorted(allowed))
        matching: Sequence[str] = matches.candidates
        if wanted is not None or open_to is not None:
            matching = [n for n in matching if (wanted is None or n in wanted) and (open_to is None or n in open_to)]
        names: Sequence[str] = matching
        if len(matching) <= FEW:
            names = list(matching)  # is asked for single ones often
        if world.drained:
            names = [n for n in names if n not in world.drained]
        names, *later = world.by_service(names, closed) or [()]
        probes: Sequence[str] = ()
        if world.throttled:
            probes = [n for n in names if n in world.throttled]
            # What can go nowhere else goes there: it may be the jobs that are broken.
            names = [n for n in names if n not in world.throttled] or names
        in_play = world.clusters if wanted is None else sorted(wanted)
        for name in in_play:
            if len(reasons) >= MAX_NAMED:
                break
            reason = self._why_not(name, matches, open_to, closed)
            if reason is not None:
                reasons[name] = reason
        looked = seen(names, len(world.clusters), len(matching), reasons)
        return _Candidates(request, world.generation, matching, names, reasons, looked, probes, later=tuple(later))

    def _why_not(
        self, name: str, matches: GraphMatches, open_to: frozenset[str] | None, closed: Mapping[str, str]
    ) -> Reason | None:
        world = self._world
        cluster = world.clusters.get(name)
        if cluster is None:
            return Reason(code="unknown-cluster", detail="no cluster of this name is registered")
        if open_to is not None and name not in open_to:
            return Reason(code="denied", detail="the token does not cover this cluster")
        unmet = matches.unmet(name)
        if unmet:
            first = unmet[0]
            return Reason(code=first.code, detail=f"{first.path}: {first.detail}" if first.path else first.detail)
        return hindrance(world, name, closed)
