"""Intake: deliveries read into tickets. Submissions from anywhere, and dispatches that came back.

Bad input becomes a refusal with one plain line, never an exception that leaves this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any
from uuid import UUID, uuid4, uuid5

from rainbow import codec, plugins, topology
from rainbow.brokers.base import Delivery
from rainbow.errors import BadSignature, Denied, InvalidInput, RainbowError
from rainbow.jobspec import Jobspec, read_cached
from rainbow.models.arrays import Element
from rainbow.models.job import Dispatch, Reason, SubmitRequest, read_id
from rainbow.models.shares import DEFAULT_ACCOUNT
from rainbow.models.wire import parse
from rainbow.security import access, signing
from rainbow.security.tokens import LEEWAY, KeyRing, Principal, Verifier, check_body, revoked
from rainbow_workers.headers import AUTHORIZATION, BID_DISPATCH, HELD_DISPATCH, KIND, ORIGIN, REGISTRATION, ROUTE
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.scheduling.decide import Job
from rainbow_workers.scheduling.failover import LOST
from rainbow_workers.scheduling.job_templates import template_of
from rainbow_workers.scheduling.parse_cache import Known, ParseCache
from rainbow_workers.scheduling.pending_job import PendingJob, Refusal
from rainbow_workers.scheduling.wishes import after, array_of, bank, jobspec_of

#: Bytes of a submission that are decoded for anybody.
_SMALL = 64 << 10


class SubmissionReader:
    """Reads with a verifier for tokens and the keys of the clusters. `check_selection` raises for an unknown one.
    `accounts` gives the accounts for which something is set: what an administrator may charge."""

    def __init__(
        self,
        verifier: Verifier,
        keys: ClusterKeys,
        *,
        check_selection: Callable[[tuple[str, Mapping[str, Any]]], None],
        accounts: Callable[[], Collection[str]] = lambda: (),
        max_bytes: int = codec.MAX_BYTES,
        max_depth: int = codec.MAX_DEPTH,
        keep: float = 7 * 86400.0,
        max_array: int = 1_000_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._verifier = verifier
        self._keys = keys
        self._check_selection = check_selection
        self._accounts = accounts
        self._max_bytes = max_bytes
        self._max_depth = max_depth
        self._keep = keep
        self._max_array = max_array
        self._clock = clock
        self._repeats = ParseCache()

    def read(self, delivery: Delivery) -> PendingJob:
        """What a delivery on the scheduler's queue is."""
        kind = delivery.headers.get(KIND)
        if kind in (HELD_DISPATCH, BID_DISPATCH):
            # In the waiting room it stays known who refused it: that room decides when they are asked again.
            waited = kind == HELD_DISPATCH and not delivery.queue.startswith(f"{topology.WAITING}.")
            return self.returned(delivery, None, waited=waited)
        return self._submission(delivery)

    # -- submissions --------------------------------------------------------------------------------------

    def _submission(self, delivery: Delivery) -> PendingJob:
        reply_to = delivery.reply_to if topology.may_be_answered(delivery.reply_to) else None
        ticket = PendingJob(delivery, "", reply_to=reply_to, correlation_id=delivery.correlation_id)
        ticket.fresh = True
        bearer = delivery.headers.get(AUTHORIZATION)
        if isinstance(bearer, str):
            # It must be shown again when the submission comes out of a hold queue.
            ticket.hold_headers = {AUTHORIZATION: bearer}
        found = self._repeats.find(delivery.body) if _may_repeat(delivery) else None
        known: Known | None = None
        if found is not None:
            job_id, known = found
        else:
            try:
                data = self._decoded(delivery)
            except Denied as exc:
                ticket.id = _uuid_or_none(delivery.message_id) or str(uuid4())
                ticket.refusal = Refusal("denied", exc.message, exc.code, dead=ticket.reply_to is None)
                return ticket
            except InvalidInput as exc:
                ticket.id = _uuid_or_none(delivery.message_id) or str(uuid4())
                ticket.refusal = Refusal("invalid", exc.message, exc.code, dead=True)
                return ticket
            job_id = _uuid_or_none(data.get("id"))
        named = job_id or _uuid_or_none(delivery.message_id)
        ticket.id = named or str(uuid4())
        try:
            if known is None:
                ticket.job = self._job(ticket, parse(SubmitRequest, data), None, delivery, named is not None)
                return ticket
            if known.template is not None and named:
                ticket.job = known.template.job(ticket, self._verifier, self._clock())
            if ticket.job is None:
                ticket.job = self._job(ticket, known.request, known.jobspec, delivery, named is not None)
                known.template = template_of(ticket, known.request)
        except Denied as exc:
            ticket.refusal = Refusal("denied", exc.message, exc.code)
        except RainbowError as exc:
            # Without an answer to send, the dead letter is where its sender's operator finds it.
            ticket.refusal = Refusal("invalid", exc.message, exc.code, dead=ticket.reply_to is None)
        return ticket

    def _decoded(self, delivery: Delivery) -> dict[str, Any]:
        """The submission's fields. A large body is decoded only for somebody whose good token is in it."""
        body = delivery.body
        codec.check_size(body, self._max_bytes)
        if len(body) > _SMALL and not self._verifier.somebody(body, delivery.headers.get(AUTHORIZATION)):
            raise Denied("no good token in a submission of this size: it is not read")
        return codec.decode(body, delivery.content_type, max_bytes=self._max_bytes, max_depth=self._max_depth)

    def _job(
        self, ticket: PendingJob, request: SubmitRequest, jobspec: Jobspec | None, delivery: Delivery, named: bool
    ) -> Job:
        now = self._clock()
        route = held_route(self._verifier.ring, delivery.headers, ticket.id)
        # Only a route that we sealed says that it has been here before.
        if route:
            ticket.id, ticket.progress = route["id"], {n: route[n] for n in ("released", "array") if n in route}
            ticket.element = Element(**route["element"]) if "element" in route else None
        ticket.again, ticket.fresh = bool(route and route.get("again")) or delivery.redelivered, route is None
        submitted_at = route["submitted_at"] if route else now
        # A job that was let in and then held by us does not run out of its token while it waits.
        principals = self._principals(request, delivery, submitted_at)
        first = ticket.who = principals[0]
        if not named and delivery.message_id:
            # Not a UUID, but a name that its sender gave: the same again is the same job.
            ticket.id = str(uuid5(_NAMED, f"{first.sub}\0{delivery.message_id}"))
        if route and route.get("unknown"):
            raise InvalidInput(route["unknown"])
        self._check_plugins(request)
        if jobspec is None:
            jobspec = jobspec_of(request)
            if _may_repeat(delivery):
                self._repeats.add(delivery.body, request, jobspec)
        if not jobspec.tasks and not request.satisfy_only:
            raise InvalidInput("the jobspec has no tasks: say what to run, or ask with satisfy_only")
        freed_at = route.get("freed_at", 0.0) if route else 0.0
        waits_for = () if freed_at or request.satisfy_only else after(ticket.id, request, jobspec)
        # The time to wait for a cluster begins when one may be asked.
        begin_at = max(request.begin_time or 0.0, jobspec.begin or 0.0)
        hold_until = max(submitted_at, freed_at, begin_at) + request.hold if request.hold else 0.0
        return Job(
            id=ticket.id,
            user=first.sub,
            jti=first.jti,
            token_issued_at=first.issued_at,
            others=tuple((p.jti, p.sub, p.issued_at, tuple(sorted(p.clusters))) for p in principals[1:]),
            jobspec=jobspec,
            allowed=first.clusters.union(*(p.clusters for p in principals[1:])),
            own=first.clusters,
            submitted_at=submitted_at,
            # What it was let in for stays, whatever is set meanwhile.
            account=route["account"] if route and "account" in route else self._account(request, jobspec, first),
            name=request.name or jobspec.name,
            image=request.image,
            restrict=None if request.clusters is None else tuple(request.clusters),
            selection=None if request.selection is None else (request.selection.name, request.selection.options),
            priority=request.priority,
            expires_at=request.expires,
            hold_until=hold_until,
            after=waits_for,
            begin_at=0.0 if request.satisfy_only else begin_at,
            freed_at=freed_at,
            unmet=route.get("unmet", "") if route else "",
            satisfy_only=request.satisfy_only,
            array=None if ticket.element or request.satisfy_only else array_of(request, jobspec, self._max_array),
            element=ticket.element,
            # Higher when it was assigned before, and no queue took it.
            attempt=route["attempt"] if route else 1,
        )

    def _account(self, request: SubmitRequest, jobspec: Jobspec, who: Principal) -> str:
        """What the job is charged to: the account that it names, or the bank of its jobspec if the token may charge
        that, or the first account of the token."""
        asked, covered = request.account, who.accounts
        if asked is None:
            named = bank(jobspec) if covered else None
            return named if named in covered else next(iter(covered), DEFAULT_ACCOUNT)
        if asked in covered or (asked == DEFAULT_ACCOUNT and not covered):
            return asked
        if who.role == "admin":
            if asked not in self._accounts():
                raise InvalidInput(f"no account {asked!r}: set its weight first (rainbow shares set --account)")
            return asked
        may = f"it may charge {', '.join(covered)}" if covered else "it names no account (claim account)"
        raise Denied(f"the token does not cover account {asked!r}: {may}")

    def _check_plugins(self, request: SubmitRequest) -> None:
        if request.selection is not None:
            self._check_selection((request.selection.name, request.selection.options))
        if request.match is not None:
            plugins.load("rainbow.match", request.match.name)

    def _principals(self, request: SubmitRequest, delivery: Delivery, moment: float) -> list[Principal]:
        """Everyone the tokens speak for. Of several tokens bad ones are dropped, as long as one is good."""
        tokens = [*([request.token] if request.token else []), *(request.tokens or ())]
        bearer = delivery.headers.get(AUTHORIZATION)
        if isinstance(bearer, str):
            tokens.append(bearer)
        if not tokens:
            raise Denied("no token: put one into `token`, or into the header `authorization: Bearer TOKEN`")
        good: list[Principal] = []
        problem: Denied | None = None
        for token in tokens:
            try:
                good.append(self._submitter(token, moment, delivery.body))
            except Denied as exc:
                problem = problem or exc
        if not good:
            assert problem is not None
            raise problem
        return good

    def _submitter(self, token: str, moment: float, body: bytes) -> Principal:
        principal = self._verifier.verify(token, now=moment)
        check_body(principal, body)
        access.allowed("submit", principal.role)
        return principal

    # -- dispatches that came back ------------------------------------------------------------------------

    def returned(self, delivery: Delivery, reason: Reason | None, *, waited: bool = True) -> PendingJob:
        """A dispatch that its cluster did not take, as a job for the next one.

        `reason` is why; None for one out of a queue of ours. When it `waited` there, clusters may be asked again.
        """
        ticket = PendingJob(delivery, _uuid_or_none(delivery.message_id) or "")
        try:
            dispatch, route = self.open_dispatch(delivery)
        except RainbowError as exc:
            ticket.refusal = Refusal("invalid", exc.message, exc.code, dead=True)
            return ticket
        ticket.id, ticket.element = dispatch.id, dispatch.element
        ticket.again = delivery.redelivered or bool(route.get("again"))
        tried = {str(c): Reason(code=str(code), detail=str(why)) for c, (code, why) in route["tried"].items()}
        if reason is not None:
            tried[dispatch.cluster] = reason
        ticket.failover = any(r.code in LOST for r in tried.values())
        if reason is None and waited:
            tried = {c: r for c, r in tried.items() if not r.retryable}
        ticket.hold_headers = {
            KIND: HELD_DISPATCH,
            ORIGIN: delivery.headers.get(ORIGIN),
            signing.HEADER: delivery.headers.get(signing.HEADER),
            REGISTRATION: delivery.headers.get(REGISTRATION),
        }
        selection = route["selection"]
        try:
            jobspec = read_cached(dispatch.jobspec)
        except InvalidInput as exc:
            ticket.refusal = Refusal("invalid", exc.message, exc.code, dead=True)
            return ticket
        ticket.job = Job(
            id=dispatch.id,
            user=dispatch.user,
            jti=route["jti"],
            token_issued_at=route["token_issued_at"],
            jobspec=jobspec,
            own=frozenset(route.get("own", ())),
            others=tuple((j, s, at, tuple(names)) for j, s, at, names in route.get("others", ())),
            allowed=self._still_allowed(route),
            submitted_at=dispatch.submitted_at,
            account=str(route.get("account", DEFAULT_ACCOUNT)),
            name=dispatch.name,
            image=dispatch.image,
            restrict=None if route["restrict"] is None else tuple(route["restrict"]),
            selection=None if selection is None else (selection[0], selection[1]),
            priority=dispatch.priority,
            expires_at=dispatch.expires_at,
            hold_until=route["hold_until"],
            element=dispatch.element,
            attempt=max(dispatch.attempt + 1, route.get("attempt", 0)),
            tried=tried,
        )
        return ticket

    def _still_allowed(self, route: Mapping[str, Any]) -> frozenset[str]:
        """What the job's tokens cover, without those that were revoked meanwhile. Placing refuses the job if its first
        one is among them."""
        others = route.get("others", ())
        if not others or not self._verifier.revocations:
            return frozenset(route["allowed"])
        names: set[str] = set(route["own"])
        for jti, sub, issued_at, clusters in others:
            if not revoked(jti, sub, issued_at, self._verifier.revocations):
                names.update(clusters)
        return frozenset(names)

    def open_dispatch(self, delivery: Delivery) -> tuple[Dispatch, dict[str, Any]]:
        """A dispatch of ours and its route. Raises BadSignature or InvalidInput."""
        # Not the signature for its cluster: with that key, an agent could send back a job that never left from here.
        signing.check(self._keys.origin, delivery.body, delivery.headers.get(ORIGIN))
        data = codec.decode(delivery.body, codec.MSGPACK, max_bytes=4 * self._max_bytes, max_depth=self._max_depth + 8)
        dispatch = parse(Dispatch, data)
        held = held_route(self._verifier.ring, delivery.headers, dispatch.id)
        if held is None and delivery.headers.get(KIND) in (HELD_DISPATCH, BID_DISPATCH):
            raise BadSignature("a dispatch on hold needs the route that a worker signed when it was put on hold")
        self._check_age(max(dispatch.assigned_at, float(held.get("held_at", 0.0)) if held else 0.0))
        try:
            route = signing.unseal(self._verifier.ring, dispatch.route)  # as it was sent before
        except BadSignature:
            route = dispatch.route
        return dispatch, held or codec.decode(route, codec.MSGPACK)

    def _check_age(self, signed_at: float) -> None:
        """A dispatch is good for as long as the ledger is certain to know its job: the record of an ended job stays for
        `keep` seconds. Later, a copy of it would be taken for a new job.

        Raises:
            BadSignature: when it was signed too long ago.
        """
        age = self._clock() - signed_at
        if age > max(self._keep - LEEWAY, self._keep / 2):
            raise BadSignature(
                f"the dispatch was signed {age:.0f} s ago, and records are kept for {self._keep:.0f} s (store.keep): "
                "submit the job again"
            )


def held_route(ring: KeyRing, headers: Mapping[str, Any], job_id: str) -> dict[str, Any] | None:
    """What we sealed into a message when we put it on hold; anything else in that header is ignored."""
    sealed = headers.get(ROUTE)
    if not isinstance(sealed, bytes):
        return None
    try:
        route = codec.decode(signing.unseal(ring, sealed), codec.MSGPACK)
    except RainbowError:
        return None
    # The submission that came with an element is that of the array.
    return route if job_id in (route.get("id"), (route.get("element") or {}).get("array")) else None


def route_of(job: Job) -> dict[str, Any]:
    """What a dispatch must carry, beside what its agent needs, so that its job can be placed elsewhere."""
    return {
        "account": job.account,
        "allowed": sorted(job.allowed),
        "own": sorted(job.own),
        "others": job.others,
        "restrict": job.restrict,
        "selection": job.selection,
        "hold_until": job.hold_until,
        "jti": job.jti,
        "token_issued_at": job.token_issued_at,
        "tried": {c: (r.code, r.detail) for c, r in job.tried.items()},
    }


#: Ids made of the sender and its `message_id`.
_NAMED = UUID("7a8b2f6e-5d0c-5b1e-9a43-0f4d1c7e2b90")


def _may_repeat(delivery: Delivery) -> bool:
    return delivery.content_type in (None, codec.JSON)


def _uuid_or_none(value: object) -> str | None:
    try:
        return read_id(value) if isinstance(value, str) else None
    except ValueError:
        return None
