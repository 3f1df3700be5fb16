"""The bidding worker: asks clusters for bids, and has the job placed once they are in (level 2).

Jobs that are to be bid for come here on a queue of their own, so that no other waits behind them, and stay with the
broker, unacked, until they are decided: a worker that dies loses nothing, the next one asks again. Many are under way
at a time. One command asks a cluster about many jobs, and its answer comes back through the registrar.

A job is decided when all that were asked have answered, or when their time is up; if all of them say no, the next best
clusters are asked. What is missing, late, or makes no sense counts as silence.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rainbow import codec, topology
from rainbow.brokers.base import Broker, Consumer, Delivery, Message
from rainbow.client.mailbox import Mailbox, Slot
from rainbow.client.rpc import Rpc
from rainbow.errors import InvalidInput, RainbowError
from rainbow.models.control import AgentCommand
from rainbow.models.requests import Bid, BidAsk
from rainbow.models.wire import parse
from rainbow.security.tokens import KeyRing
from rainbow_workers import addresses, commands
from rainbow_workers.clusters.bid_accuracy import BidAccuracy
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.clusters.sync import CacheSync
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.scheduling.decide import Decider, Job
from rainbow_workers.scheduling.dispatcher import Dispatcher
from rainbow_workers.scheduling.pending_job import PendingJob, of_two
from rainbow_workers.scheduling.submissions import SubmissionReader
from rainbow_workers.selection.base import Asking, Offer
from rainbow_workers.worker import Task

log = logging.getLogger(__name__)

#: Jobs under way at a time in one worker; further ones wait in the queue.
AT_ONCE = 4000
#: Bytes of one command: it must fit what an agent reads.
_COMMAND = 400_000
#: Answers read at a time.
_MOST = 10_000
#: Seconds for which the own address for answers is taken to be the same, and those to find it out.
_ADDRESS_FOR = 30.0
_ADDRESS_WITHIN = 3.0


@dataclass(slots=True, eq=False)
class Round:
    """One job for which bids are out. `waiting` are the clusters that have not answered yet."""

    ticket: PendingJob
    job: Job
    selection: Asking
    deadline: float
    waiting: set[str]
    number: int = 1


class Bidding(Task):
    name = "bidding"
    queue = topology.BIDS_QUEUE

    def __init__(
        self,
        broker: Broker,
        intake: SubmissionReader,
        dispatcher: Dispatcher,
        decider: Decider,
        world: ClusterCache,
        keys: ClusterKeys,
        ring: Callable[[], KeyRing],
        follower: CacheSync,
        promises: BidAccuracy,
        mailbox: Mailbox,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._broker = broker
        self._intake = intake
        self._dispatcher = dispatcher
        self._decider = decider
        self._world = world
        self._keys = keys
        self._ring = ring
        self._follower = follower
        self._promises = promises
        self._clock = clock
        self._mailbox = mailbox
        self._inbox: Slot | None = None
        self._rpc = Rpc(broker, timeout=_ADDRESS_WITHIN, mailbox=self._mailbox)
        self._name = str(uuid.uuid4())
        self._rng = random.Random()
        self._address: str | None = None
        self._address_until = 0.0
        self._reconnects = -1
        self._rounds: dict[str, Round] = {}
        self._consumer: Consumer | None = None

    def ready(self) -> None:
        self._follower.follow()
        self._promises.look()

    def handle(self, deliveries: Sequence[Delivery], consumer: Consumer) -> None:
        if consumer is not self._consumer:
            # What the consumer before this one had taken is with the broker again, and comes anew.
            self._rounds.clear()
            self._consumer = consumer
        decided: list[PendingJob] = self._dispatcher.pending()
        opened: list[Round] = []
        for delivery in deliveries:
            ticket = self._intake.read(delivery)
            begun = self._begin(ticket)
            if begun is None:
                decided.append(ticket)
            else:
                known = self._rounds.get(begun.job.id)
                if known is not None and known.job.user != begun.job.user:
                    # Another user's job under this id: when the bids for the first are in, the ledger has it.
                    consumer.requeue([delivery])
                    continue
                if known is not None:
                    stays, goes = of_two(known.ticket, ticket)
                    consumer.ack([goes.delivery])
                    if stays is not ticket:
                        continue
                    opened = [o for o in opened if o is not known]
                self._rounds[begun.job.id] = begun
                opened.append(begun)
        self._hear()
        now = time.monotonic()
        for current in list(self._rounds.values()):
            if current.waiting and now < current.deadline:
                continue
            following = self._next_round(current)
            if following is not None:
                opened.append(following)
            else:
                del self._rounds[current.job.id]
                decided.append(current.ticket)
        if opened:
            self._ask(opened)
            now = time.monotonic()
            for asked in opened:  # their time begins when they were asked
                asked.deadline = now + asked.selection.within
        if decided:
            self._dispatcher.dispatch(decided, consumer)
            self._promises.expect([ticket.job.id for ticket in decided if ticket.job is not None and ticket.job.offers])

    # -- rounds -------------------------------------------------------------------------------------------

    def _begin(self, ticket: PendingJob) -> Round | None:
        """The first round; None for what is decided without one."""
        job = ticket.job
        if job is None or ticket.refusal is not None:
            return None
        job.offers = {}
        return self._round(ticket, job, 1)

    def _next_round(self, over: Round) -> Round | None:
        """Others are asked when all that answered said no, or nobody did."""
        job = over.job
        assert job.offers is not None
        for name in over.waiting:
            job.offers[name] = Offer(self._clock(), None, f"no answer within {over.selection.within:g} s")
        over.waiting = set()
        if any(o.bid is not None and o.bid.will for o in job.offers.values()) or over.number >= over.selection.rounds:
            return None
        following = self._round(over.ticket, job, over.number + 1)
        if following is not None:
            self._rounds[job.id] = following
        return following

    def _round(self, ticket: PendingJob, job: Job, number: int) -> Round | None:
        with self._world.lock:
            asked = self._decider.shortlist(job, self._rng)
            if asked is None:
                return None
            selection, names = asked
            there = {n for n in names if self._answers(n)}
        assert job.offers is not None
        for name in names:
            if name not in there:
                job.offers[name] = Offer(self._clock(), None, "it has no agent that could answer")
        if not names:
            return None
        return Round(ticket, job, selection, time.monotonic() + selection.within, there, number)

    def _answers(self, name: str) -> bool:
        known = self._world.clusters.get(name)
        return known is not None and bool(known.state.heartbeat_at) and name not in self._world.unreachable

    # -- asking, hearing ------------------------------------------------------------------------------------

    def _ask(self, rounds: Iterable[Round]) -> None:
        """One command a cluster, with as many jobs as fit."""
        asks: dict[str, list[tuple[dict[str, Any], int]]] = {}
        until = 0.0
        for current in rounds:
            if not current.waiting:
                continue
            job = current.job
            ask = BidAsk(
                id=job.id,
                attempt=job.attempt,
                user=job.user,
                name=job.name,
                priority=job.priority,
                jobspec=without_environment(job.jobspec.document),
            ).model_dump(exclude_none=True)
            size = len(codec.encode_json(ask))
            if size > _COMMAND:
                assert job.offers is not None
                for name in current.waiting:
                    job.offers[name] = Offer(self._clock(), None, "the jobspec is too large to ask about")
                current.waiting = set()
                continue
            until = max(until, self._clock() + current.selection.within)
            for name in current.waiting:
                asks.setdefault(name, []).append((ask, size))
        if not asks:
            return
        inbox = self._inbox = self._mailbox.open(self._name, into=self._inbox)
        address = self._own_address()
        if address is None:
            return  # nobody could answer: they count as silent
        messages: list[Message] = []
        with self._world.lock:
            for name, listed in asks.items():
                known = self._world.clusters.get(name)
                if known is None:
                    continue
                reply = addresses.encrypt(self._ring(), addresses.Return(name, address, inbox.id, until + 5.0))
                for some in _packed(listed):
                    command = AgentCommand(command="bid", asks=some, reply=reply, until=until)
                    messages.append(commands.message(self._keys, name, known.record.registration, command))
        self._broker.publish(messages)
        log.info("bids asked", extra={"action": "bids", "clusters": len(asks), "commands": len(messages)})

    def _own_address(self) -> str | None:
        """Where answers reach us, as others know it: on RabbitMQ only who gets a message of ours can tell."""
        now, reconnects = time.monotonic(), self._mailbox.reconnects
        if now >= self._address_until or reconnects != self._reconnects:
            self._address_until, self._reconnects = now + _ADDRESS_FOR, reconnects
            try:
                self._address = str(self._rpc.call({"op": "ping"})["reply_to"])
            except (RainbowError, KeyError) as exc:
                log.warning("no bids can be heard: %s", exc, extra={"action": "bids"})
                self._address, self._address_until = None, now + _ADDRESS_WITHIN
        return self._address

    def _hear(self) -> None:
        """Note the bids that have come in. Whatever is not one is left out: its cluster counts as silent."""
        inbox = self._inbox
        for _ in range(_MOST):
            delivery = inbox.wait(0) if inbox is not None else None
            if delivery is None:
                return
            try:
                data = codec.decode(delivery.body, delivery.content_type)
                answer = data["result"]
                cluster, bids = str(answer["cluster"]), list(answer["bids"])
            except (RainbowError, KeyError, TypeError, ValueError):
                continue
            for said in bids:
                self._note(cluster, said)

    def _note(self, cluster: str, said: Any) -> None:
        current = self._rounds.get(str(said.get("id"))) if isinstance(said, dict) else None
        if current is None or cluster not in current.waiting:
            return  # late, or never asked
        assert current.job.offers is not None
        current.waiting.discard(cluster)
        try:
            offer = Offer(self._clock(), parse(Bid, said))
        except InvalidInput as exc:
            offer = Offer(self._clock(), None, f"its bid makes no sense: {exc.message}"[:200])
        current.job.offers[cluster] = offer


def without_environment(document: Mapping[str, Any]) -> dict[str, Any]:
    """A jobspec without the variables and files of the job, which may be secret: only who runs it gets them."""
    attributes = document.get("attributes")
    system = attributes.get("system") if isinstance(attributes, Mapping) else None
    if not isinstance(attributes, Mapping) or not isinstance(system, Mapping):
        return dict(document)
    kept = {key: value for key, value in system.items() if key not in ("environment", "files")}
    return {**document, "attributes": {**attributes, "system": kept}}


def _packed(listed: Sequence[tuple[dict[str, Any], int]]) -> Iterable[list[BidAsk]]:
    """In lists that fit a command."""
    some: list[BidAsk] = []
    room = _COMMAND
    for ask, size in listed:
        if some and size > room:
            yield some
            some, room = [], _COMMAND
        some.append(BidAsk.model_construct(**ask))
        room -= size
    if some:
        yield some
