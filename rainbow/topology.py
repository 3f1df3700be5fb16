"""Names of exchanges and queues, and what is declared: the only place that knows them.

Declared by one side (`rainbow broker setup`, or the scheduler on start when allowed), never by agents or
submitters. Types and arguments work on RabbitMQ 3.10 and 4.x:

- topic exchanges bound with ``#`` where any routing key must reach the queue (also on transports where a
  fanout exchange is not durable);
- quorum queues by default; dead-lettering is at-least-once, which RabbitMQ grants only together with
  ``x-overflow: reject-publish`` (rabbitmq.com/docs/quorum-queues#dead-lettering);
- `x-delivery-limit` is only a last fence against a message that kills its consumer: rejects are counted
  by us, since newer brokers do not count ``basic.nack``. For the workers' own queues it is far away: each loss of a
  connection counts for everything that was taken, and an outage of ours must not put jobs aside.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from rainbow.errors import InvalidInput

SUBMIT = "rainbow.submit"
JOBS = "rainbow.jobs"
REJECTED = "rainbow.rejected"
EVENTS = "rainbow.events"
CONTROL = "rainbow.control"
AGENTS = "rainbow.agents"
HOLD = "rainbow.hold"
WAITING = "rainbow.waiting"
BIDS = "rainbow.bids"
DEAD = "rainbow.dead"

SCHEDULER_QUEUE = "rainbow.scheduler"
REJECTED_QUEUE = "rainbow.rejected"
RECORDER_QUEUE = "rainbow.records"
#: The recorders' queue of earlier releases, whose events had no order among several recorders. It is emptied into
#: RECORDER_QUEUE and deleted (`rainbow_workers.records.former_queue`).
FORMER_RECORDER_QUEUE = "rainbow.recorder"
CONTROL_QUEUE = "rainbow.control"
BIDS_QUEUE = "rainbow.bids"
DEAD_QUEUE = "rainbow.dead"
#: Is there while `rainbow broker migrate` moves messages; what it moves waits in queues whose names begin so.
MIGRATION = "rainbow.migration"
_QUEUES = frozenset(
    {
        SCHEDULER_QUEUE,
        REJECTED_QUEUE,
        RECORDER_QUEUE,
        FORMER_RECORDER_QUEUE,
        CONTROL_QUEUE,
        BIDS_QUEUE,
        DEAD_QUEUE,
    }
)

#: Queues for jobs that wait for room. A user's jobs are all in one of them, so that one user's many jobs are at most in
#: the way of those who share the queue.
WAITING_LANES = 8

#: Routing key of the queue for jobs that wait for other jobs.
DEPENDENTS = "after"
DEPENDENTS_QUEUE = f"{WAITING}.{DEPENDENTS}"
#: Routing key of the queue for job arrays, whose elements become jobs bit by bit.
ARRAYS = "array"
ARRAYS_QUEUE = f"{WAITING}.{ARRAYS}"

#: Seconds a held submission waits before it is looked at again: one queue per delay, so that no message
#: waits behind one with a longer time to live.
HOLD_DELAYS = (1, 5, 15, 60, 300)

_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def may_be_answered(address: str | None) -> bool:
    """Whether this is an address for an answer, and none of our own queues.

    Workers may write into all queues; clients may not.
    """
    if not address:
        return False
    return address not in _QUEUES and not address.startswith(_OURS)


def check_cluster_name(name: str) -> str:
    """`name` itself when it can name a cluster (it becomes a queue name and a routing key), else InvalidInput."""
    if not _CLUSTER.fullmatch(name):
        raise InvalidInput(
            f"{name[:80]!r} cannot name a cluster: use 1 to 63 letters, digits, '_' or '-', "
            "starting with a letter or digit"
        )
    return name


def skeleton(name: str) -> str:
    """What a cluster's name looks like: names with the same skeleton are taken for each other (``bIue``, ``blue``)."""
    return name.casefold().translate(_ALIKE)


#: Letters and digits that look alike in many fonts. An upper-case I is an i once case is folded.
_ALIKE = str.maketrans({"1": "l", "i": "l", "0": "o", "_": "-"})


def jobs_queue(cluster: str) -> str:
    """The queue from which a cluster's agent receives jobs."""
    return f"{JOBS}.{check_cluster_name(cluster)}"


def agent_queue(cluster: str) -> str:
    """The queue from which a cluster's agent receives commands."""
    return f"rainbow.agent.{check_cluster_name(cluster)}"


def hold_queue(delay: int) -> str:
    """The delay queue for jobs that wait `delay` seconds."""
    return f"{HOLD}.{delay}"


def waiting_lane(user: str) -> str:
    """Routing key of the waiting queue for a user's jobs: the same in every process and release."""
    return str(zlib.crc32(user.encode("utf-8", "surrogatepass")) % WAITING_LANES)


def waiting_queues() -> list[str]:
    """Return the names of all waiting queues."""
    return [f"{WAITING}.{lane}" for lane in range(WAITING_LANES)]


def hold_delay(wanted: float) -> int:
    """The longest delay that has a queue and is not over `wanted` seconds (the shortest one at least)."""
    return max((d for d in HOLD_DELAYS if d <= wanted), default=HOLD_DELAYS[0])


def queues_for(exchange: str, routing_key: str, declared: Iterable[Queue] = ()) -> list[str]:
    """The queues that get a message: of ours, and of those that were `declared` as well."""
    if not exchange:
        return [routing_key]
    if exchange == JOBS:
        return [jobs_queue(routing_key)]
    if exchange == AGENTS:
        return [agent_queue(routing_key)]
    bound = {(exchange, "#"), (exchange, routing_key)}
    return [queue.name for queue in (*_core_queues(), *declared) if bound.intersection(queue.bindings)]


@lru_cache(maxsize=1)
def _core_queues() -> tuple[Queue, ...]:
    return core().queues


#: Beginnings of the names of our other queues.
_OURS = (MIGRATION, f"{JOBS}.", f"{HOLD}.", f"{WAITING}.", "rainbow.agent.")

#: For a queue whose messages must stay however often they are looked at: without a limit of its own, RabbitMQ 4 drops
#: them from a quorum queue after 20 deliveries. RabbitMQ 3 then has none, and is given none.
NO_DELIVERY_LIMIT = 1 << 30

QueueKind = Literal["quorum", "classic"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A durable exchange."""

    name: str
    type: Literal["direct", "topic"]


@dataclass(frozen=True, slots=True)
class Queue:
    """A durable queue. `message_ttl` is in seconds; `dead_letter` is the exchange for rejected and expired messages.

    With `single_active` one consumer gets all messages, and the next one takes over when that one is gone
    (rabbitmq.com/docs/consumers#single-active-consumer). What was published after a takeover comes after what the
    consumer before it held; a quorum queue may hand out messages that were ready at the takeover before those.
    """

    name: str
    bindings: tuple[tuple[str, str], ...] = ()
    message_ttl: float | None = None
    dead_letter: str | None = None
    max_length: int | None = None
    delivery_limit: int | None = None
    kind: QueueKind = "quorum"
    single_active: bool = False

    def arguments(self) -> dict[str, Any]:
        """The AMQP arguments of ``queue.declare``."""
        args: dict[str, Any] = {"x-queue-type": self.kind}
        if self.message_ttl is not None:
            args["x-message-ttl"] = int(self.message_ttl * 1000)
        if self.max_length is not None:
            args["x-max-length"] = self.max_length
        if self.max_length is not None or self.dead_letter is not None:
            args["x-overflow"] = "reject-publish"
        if self.dead_letter is not None:
            args["x-dead-letter-exchange"] = self.dead_letter
            if self.kind == "quorum":
                args["x-dead-letter-strategy"] = "at-least-once"
        if self.delivery_limit is not None and self.kind == "quorum":
            args["x-delivery-limit"] = self.delivery_limit
        if self.single_active:
            args["x-single-active-consumer"] = True
        return args


@dataclass(frozen=True, slots=True)
class Topology:
    """Exchanges and queues that are declared together."""

    exchanges: tuple[Exchange, ...] = ()
    queues: tuple[Queue, ...] = ()

    def __add__(self, other: Topology) -> Topology:
        return Topology(self.exchanges + other.exchanges, self.queues + other.queues)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the queues, from the settings. Lengths in messages, times in seconds."""

    kind: QueueKind = "quorum"
    dispatch_timeout: float = 900.0
    max_submissions: int = 1_000_000
    max_cluster_jobs: int = 100_000
    max_other: int = 2_000_000
    delivery_limit: int = 20
    core_delivery_limit: int = 1000


def core(limits: Limits | None = None) -> Topology:
    """Everything that exists once per virtual host."""
    lim = limits or Limits()

    def queue(name: str, exchange: str, length: int, *, dead_letter: str | None = DEAD) -> Queue:
        return Queue(
            name,
            bindings=((exchange, "#"),),
            dead_letter=dead_letter,
            max_length=length,
            delivery_limit=lim.core_delivery_limit,
            kind=lim.kind,
        )

    holds = tuple(
        Queue(
            hold_queue(d),
            bindings=((HOLD, str(d)),),
            message_ttl=d,
            dead_letter=SUBMIT,
            max_length=lim.max_submissions,
            kind=lim.kind,
        )
        for d in HOLD_DELAYS
    )
    waiting = tuple(
        replace(queue(name, WAITING, lim.max_submissions), bindings=((WAITING, str(lane)),))
        for lane, name in enumerate(waiting_queues())
    )
    return Topology(
        exchanges=(
            Exchange(SUBMIT, "topic"),
            Exchange(JOBS, "direct"),
            Exchange(REJECTED, "topic"),
            Exchange(EVENTS, "topic"),
            Exchange(CONTROL, "topic"),
            Exchange(AGENTS, "direct"),
            Exchange(HOLD, "direct"),
            Exchange(WAITING, "direct"),
            Exchange(BIDS, "topic"),
            Exchange(DEAD, "topic"),
        ),
        queues=(
            queue(SCHEDULER_QUEUE, SUBMIT, lim.max_submissions),
            queue(REJECTED_QUEUE, REJECTED, lim.max_other),
            replace(queue(RECORDER_QUEUE, EVENTS, lim.max_other), single_active=True),
            queue(CONTROL_QUEUE, CONTROL, lim.max_other),
            queue(BIDS_QUEUE, BIDS, lim.max_submissions),
            replace(queue(DEAD_QUEUE, DEAD, lim.max_other, dead_letter=None), delivery_limit=NO_DELIVERY_LIMIT),
            *holds,
            *waiting,
            *(
                replace(queue(f"{WAITING}.{key}", WAITING, lim.max_submissions), bindings=((WAITING, key),))
                for key in (DEPENDENTS, ARRAYS)
            ),
        ),
    )


def cluster(name: str, limits: Limits | None = None) -> Topology:
    """The two queues of one cluster: its jobs, and the commands to its agent."""
    lim = limits or Limits()
    check_cluster_name(name)
    return Topology(
        queues=(
            Queue(
                jobs_queue(name),
                bindings=((JOBS, name),),
                message_ttl=lim.dispatch_timeout,
                dead_letter=REJECTED,
                max_length=lim.max_cluster_jobs,
                delivery_limit=lim.delivery_limit,
                kind=lim.kind,
            ),
            Queue(
                agent_queue(name),
                bindings=((AGENTS, name),),
                dead_letter=DEAD,
                max_length=lim.max_cluster_jobs,
                delivery_limit=lim.core_delivery_limit,
                kind=lim.kind,
            ),
        )
    )


def cluster_queues(name: str) -> Iterable[str]:
    """The queues of one cluster."""
    return (jobs_queue(name), agent_queue(name))


def event_key(cluster: str | None, state: str) -> str:
    """Routing key of a job event: ``job.<cluster or ->.<state>``."""
    return f"job.{cluster or '-'}.{state}"
