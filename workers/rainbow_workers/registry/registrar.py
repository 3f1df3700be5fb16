"""The registrar worker: requests on `rainbow.control` checked, carried out and answered."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rainbow import codec, topology
from rainbow.brokers.base import Broker, Consumer, Delivery, Message, Receipt
from rainbow.errors import Denied, InvalidInput, RainbowError, StoreUnavailable, Unavailable
from rainbow.models.cluster import StateReport
from rainbow.models.control import (
    AnyRequest,
    ControlReply,
    DecideEnrollment,
    Drain,
    Enroll,
    Register,
    RemoveSubsystem,
    Report,
    Revoke,
    SetGroup,
    SetShare,
    SetSubsystem,
    SettleDead,
    parse_request,
)
from rainbow.security import access
from rainbow.security.tokens import Principal, Verifier, check_body
from rainbow_workers import dead_letters
from rainbow_workers.audit import DONE, Audit
from rainbow_workers.clusters.cache import FAILING, REPORTED_EPOCH
from rainbow_workers.clusters.sync import CacheSync
from rainbow_workers.selection.bid import ERROR
from rainbow_workers.stores.base import Store
from rainbow_workers.worker import Task

log = logging.getLogger(__name__)

#: Bytes of a request that are decoded for anybody.
_SMALL = 64 << 10
#: Whose requests may hold a resource graph, and how many values that may have.
_REGISTERING = frozenset({"register", "agent", "admin"})
_GRAPH_ITEMS = 2_000_000
#: An operation: the request, who asks (None only for those that need no token), and the address for later news.
#: None when the answer comes from elsewhere.
Operation = Callable[[Any, Principal, "Address | None"], "dict[str, Any] | None"]
Address = tuple[str, str]


class _Unread(Denied):
    """A request that was not decoded: it had no good token, and is large."""


class Registrar(Task):
    name = "registrar"
    queue = topology.CONTROL_QUEUE

    def __init__(
        self,
        broker: Broker,
        store: Store,
        verifier: Verifier,
        follower: CacheSync,
        operations: Mapping[type, Operation],
        *,
        secret: str | None,
        max_bytes: int,
        max_depth: int,
        audit: Audit | None = None,
        chores: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._broker = broker
        self._store = store
        self._verifier = verifier
        self._follower = follower
        self._operations = operations
        self._secret = secret
        self._max_bytes = max_bytes
        self._max_depth = max_depth
        self._audit = audit or Audit()
        self._chores = chores
        self._clock = clock

    def ready(self) -> None:
        self._follower.follow()
        self._chores()

    def handle(self, deliveries: Sequence[Delivery], consumer: Consumer) -> None:
        if not deliveries:
            return
        reports: list[StateReport] = []
        messages: list[Message] = []
        for delivery in deliveries:
            try:
                reply = self._answer(delivery, reports)
            except StoreUnavailable:
                raise
            except RainbowError as exc:
                reply = ControlReply(ok=False, code=exc.code, error=exc.message)
                log.info("request refused", extra={"action": "refuse-request", "code": exc.code, "detail": exc.message})
                if isinstance(exc, InvalidInput | _Unread) and not topology.may_be_answered(delivery.reply_to):
                    messages.append(dead_letters.letter(delivery, exc.code, exc.message))
            if topology.may_be_answered(delivery.reply_to) and reply is not None:
                messages.append(
                    Message(
                        "",
                        delivery.reply_to or "",
                        codec.encode_json(reply.model_dump(exclude_none=True)),
                        correlation_id=delivery.correlation_id,
                        mandatory=False,
                    )
                )
        if reports:
            self._store.clusters.report(reports, self._clock())

        def settle(receipt: Receipt) -> None:
            lost = any(o is not None and m.mandatory for o, m in zip(receipt.outcomes, messages, strict=True))
            consumer.requeue(deliveries) if lost else consumer.ack(deliveries)

        self._broker.publish(messages).then(settle)

    def _answer(self, delivery: Delivery, reports: list[StateReport]) -> ControlReply | None:
        """None when who asks gets the answer from elsewhere."""
        try:
            request = parse_request(self._decoded(delivery))
        except (InvalidInput, Denied) as exc:
            self._audit.note(None, "request", None, exc.code, exc.message)
            raise
        caller: Principal | None = None
        try:
            if not access.rule(request.op).open:
                caller = self._caller(request, delivery)
                access.allowed(request.op, caller.role)
            result = self._carry_out(request, caller or NOBODY, delivery, reports)
        except StoreUnavailable:
            raise
        except RainbowError as exc:
            self._audit.note(caller, request.op, about(request), exc.code, exc.message, **how(request))
            if isinstance(exc, Unavailable):
                raise RainbowError(f"not done, ask again: {exc.message}") from None
            raise
        again = isinstance(request, Enroll) and result is not None and result.pop("again", False)
        if not access.rule(request.op).reads and not again:
            self._audit.note(caller, request.op, about(request), DONE, **how(request))
        return None if result is None else ControlReply(ok=True, result=result)

    def _decoded(self, delivery: Delivery) -> dict[str, Any]:
        """The request's fields. A large body is decoded only for somebody whose good token is in it, and one with a
        resource graph only for roles that register clusters: decoding takes many times its size."""
        body, limit, items = delivery.body, self._max_bytes, codec.MAX_ITEMS
        codec.check_size(body, limit)
        if len(body) > _SMALL:
            roles = {p.role for p in self._verifier.somebody(body, delivery.headers.get("authorization"))}
            if self._secret is not None and self._secret.encode() in body:
                roles.add("register")
            if not roles:
                raise _Unread("no good token in a request of this size: register with a token, or make it smaller")
            if _REGISTERING.isdisjoint(roles):
                limit = min(limit, codec.MAX_BYTES)
            else:
                items = _GRAPH_ITEMS
        return codec.decode(body, delivery.content_type, max_bytes=limit, max_depth=self._max_depth, max_items=items)

    def _carry_out(
        self, request: AnyRequest, caller: Principal, delivery: Delivery, reports: list[StateReport]
    ) -> dict[str, Any] | None:
        if isinstance(request, Report):
            # Reports are the bulk of what comes: they are checked here and written together.
            epochs = self._operations[Report](request, caller, None) or {}
            reports.append(measured_here(request.report, caller))
            return {"cluster": request.report.cluster, "values": request.report.values, **epochs}
        reply_to = delivery.reply_to
        address = (reply_to, delivery.correlation_id or "") if reply_to and topology.may_be_answered(reply_to) else None
        return self._operations[type(request)](request, caller, address)

    def _caller(self, request: AnyRequest, delivery: Delivery) -> Principal:
        token = request.token
        bearer = delivery.headers.get("authorization")
        if token is None and isinstance(bearer, str):
            token = bearer
        if token is not None:
            caller = self._verifier.verify(token)
            check_body(caller, delivery.body)
            return caller
        if isinstance(request, Register) and request.secret is not None:
            return self._by_secret(request)
        raise Denied("no token: put one into `token`, or into the header `authorization: Bearer TOKEN`")

    def _by_secret(self, request: Register) -> Principal:
        """The first rainbow's way to register: one secret for all clusters. Off unless the operator allows it."""
        if self._secret is None:
            raise Denied("this rainbow takes no registration secret: ask its operator for a token of role register")
        assert request.secret is not None
        if not hmac.compare_digest(request.secret.encode(), self._secret.encode()):
            raise Denied("the registration secret is wrong")
        now = self._clock()
        return Principal(f"cluster-{request.cluster}", "register", frozenset({request.cluster}), "", now, now + 60)


def measured_here(report: StateReport, caller: Principal) -> StateReport:
    """An agent's report without what is measured on this side, and is not for it to say."""
    if caller.role == "admin" or _MEASURED.isdisjoint(report.values):
        return report
    return report.model_copy(update={"values": {k: v for k, v in report.values.items() if k not in _MEASURED}})


_MEASURED = frozenset({ERROR, FAILING, REPORTED_EPOCH})


def about(request: AnyRequest) -> str | list[str] | None:
    """What a request is about, for the audit log."""
    for name in ("cluster", "group", "account", "user", "ids", "id", "jti", "sub", "code", "keys"):
        value = getattr(request, name, None)
        if value is not None:
            return value if isinstance(value, str) else [str(item) for item in value]
    return request.report.cluster if isinstance(request, Report) else None


def how(request: AnyRequest) -> dict[str, Any]:
    """What else matters of a request, for the audit log."""
    match request:
        case DecideEnrollment():
            return {"approve": request.approve}
        case SetGroup():
            return {"clusters": request.clusters[:20], "count": len(request.clusters)}
        case Drain():
            return {"reason": request.reason}
        case Revoke():
            return {"kind": "jti" if request.jti is not None else "sub"}
        case SetSubsystem() | RemoveSubsystem():
            return {"subsystem": request.name}
        case SetShare():
            return {"terms": request.terms.model_dump(exclude_none=True), "unset": request.unset}
        case SettleDead():
            return {"count": len(request.keys)}
        case _:
            return {}


#: Who asks without a token.
NOBODY = Principal("", "enroll", frozenset(), "", 0.0, 0.0)
