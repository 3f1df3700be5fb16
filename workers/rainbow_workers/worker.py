"""A worker: a thread that takes deliveries from one queue until it is told to stop.

What all workers share: batches, giving everything back while the store is away, and that no message ends the
process: what nobody foresaw becomes one dead letter.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from rainbow.backoff import Backoff
from rainbow.brokers.base import Broker, Consumer, Delivery, Receipt
from rainbow.errors import BadCredentials, Denied, InvalidInput, RainbowError, StoreUnavailable, TooLarge
from rainbow_workers import dead_letters

log = logging.getLogger(__name__)


class Task(Protocol):
    """What a worker does. `handle` settles every delivery, now or when its own messages are confirmed."""

    name: str
    queue: str

    @property
    def under_way(self) -> bool:
        """Something was begun that the next call of `handle` ends, with deliveries or without: it comes at once."""
        return False

    @property
    def listens(self) -> bool:
        """`ready` waits for what may happen: deliveries are taken as they are, without waiting for one."""
        return False

    def consume(self, broker: Broker, prefetch: int) -> Consumer:
        return broker.consume(self.queue, prefetch=prefetch)

    def ready(self) -> None:
        """Before each batch, also an empty one. Raises StoreUnavailable when nothing can be handled now."""

    def handle(self, deliveries: Sequence[Delivery], consumer: Consumer) -> None:
        """Raises StoreUnavailable when nothing of the batch was done."""

    def abandon(self) -> Sequence[Delivery]:
        """Forget what was begun with earlier deliveries, and return those: `handle` failed, and they come again."""
        return ()


class DelayedRequeue:
    """A consumer that gives a delivery back only after a pause, so that what cannot be handled now does not spin
    through the broker, nor use up its delivery limit. None goes back while the broker takes no messages (`blocked`):
    it could not be handled then either."""

    def __init__(self, consumer: Consumer, pause: float = 1.0, blocked: Callable[[], bool] = lambda: False) -> None:
        self.consumer = consumer
        self._blocked = blocked
        self.address = consumer.address
        self._pause = pause
        self._lock = threading.Lock()
        self._held: list[tuple[float, Delivery]] = []
        self._open: set[Delivery] = set()

    def unsettled(self, delivery: Delivery) -> bool:
        return delivery in self._open

    def take(self, limit: int, timeout: float) -> list[Delivery]:
        self.give_back(time.monotonic())
        taken = self.consumer.take(limit, timeout)
        self._open.update(taken)
        return taken

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        self._open.difference_update(deliveries)
        self.consumer.ack(deliveries)

    def reject(self, deliveries: Sequence[Delivery]) -> None:
        self._open.difference_update(deliveries)
        self.consumer.reject(deliveries)

    def requeue(self, deliveries: Sequence[Delivery]) -> None:
        self._open.difference_update(deliveries)
        due = time.monotonic() + self._pause
        with self._lock:
            self._held.extend((due, d) for d in deliveries)

    def cancel(self) -> None:
        """The broker gives back what is held: it was never settled."""
        self.consumer.cancel()

    def give_back(self, now: float) -> None:
        if self._held and self._blocked():
            return
        with self._lock:
            due = [d for at, d in self._held if at <= now]
            self._held = [(at, d) for at, d in self._held if at > now]
        if due:
            self.consumer.requeue(due)


#: What `handle` may raise: nothing is wrong with the deliveries.
_FORESEEN = (StoreUnavailable, BadCredentials)


class _NobodyToBlame(RainbowError):
    """The task failed, and not because of one of the deliveries at hand: everything goes back to the broker."""

    code = "unforeseen"


class Worker(threading.Thread):
    """Runs one task. `error` holds what ended it, if it did not end because it was told to."""

    def __init__(self, task: Task, broker: Broker, *, batch: int, prefetch: int, poll: float = 0.5) -> None:
        super().__init__(name=f"rainbow-{task.name}", daemon=True)
        self._task = task
        self._broker = broker
        self._batch = batch
        self._prefetch = prefetch
        self._poll = poll
        self._stopping = threading.Event()
        self.error: BaseException | None = None
        self.handled = 0
        #: Is its queue consumed? Not while the store is away.
        self.consuming = False
        self.looked_at = time.monotonic()

    @property
    def task_name(self) -> str:
        return self._task.name

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        try:
            self._run()
        except RainbowError as exc:  # ours says all there is to say
            self.error = exc
            log.error("worker ended: %s", exc, extra={"action": "worker-ended", "worker": self._task.name})  # noqa: TRY400
        except BaseException as exc:
            self.error = exc
            log.exception("worker ended", extra={"action": "worker-ended", "worker": self._task.name})

    def _run(self) -> None:
        backoff = Backoff(first=0.2, most=5.0)
        consumer: DelayedRequeue | None = None
        try:
            while not self._stopping.is_set():
                self.looked_at = time.monotonic()
                try:
                    self._task.ready()
                    if consumer is None:
                        made = self._task.consume(self._broker, self._prefetch)
                        consumer = DelayedRequeue(made, blocked=lambda: self._broker.status.blocked is not None)
                        self.consuming = True
                        log.info("worker consumes", extra={"action": "consume", "queue": self._task.queue})
                    at_once = self._task.under_way or self._task.listens
                    deliveries = consumer.take(self._batch, 0.0 if at_once else self._poll)
                    self._handle(deliveries, consumer)
                    self.handled += len(deliveries)
                    backoff.reset()
                except (StoreUnavailable, _NobodyToBlame) as exc:
                    what = "store unavailable" if isinstance(exc, StoreUnavailable) else "begins again"
                    log.warning(what, extra={"action": what.replace(" ", "-"), "detail": exc.message})
                    self._task.abandon()
                    if consumer is not None:
                        # Nothing is held while nothing can be decided; other workers may reach the store.
                        consumer.cancel()
                        consumer = None
                    self.consuming = False
                    backoff.wait(self._stopping)
            if consumer is not None:
                self._end(consumer)
        finally:
            if consumer is not None:
                consumer.cancel()

    def _handle(self, deliveries: Sequence[Delivery], consumer: DelayedRequeue) -> None:
        """Have the task handle deliveries. What one of them says never ends this thread: if it raises what nobody
        foresaw, each is handled alone, and the one that raises again becomes a dead letter."""
        good = [d for d in deliveries if self._sent_once(d, consumer)]
        try:
            self._task.handle(good, consumer)
        except _FORESEEN:
            raise
        except Exception as exc:
            log.exception("unforeseen", extra={"action": "unforeseen", "worker": self._task.name})
            suspects = [d for d in dict.fromkeys((*self._task.abandon(), *good)) if consumer.unsettled(d)]
            if not suspects:
                raise _NobodyToBlame(f"{type(exc).__name__}: {exc}") from exc
            for delivery in suspects:
                self._alone(delivery, consumer)

    def _alone(self, delivery: Delivery, consumer: DelayedRequeue) -> None:
        # The try before may have written to the ledger and not published: as after the loss of a process.
        delivery.redelivered = True
        try:
            self._task.handle([delivery], consumer)
            while self._task.under_way:
                self._task.handle((), consumer)
        except _FORESEEN:
            raise
        except Exception as exc:
            log.exception("unforeseen, of one message", extra={"action": "unforeseen", "worker": self._task.name})
            for other in self._task.abandon():
                if other is not delivery and consumer.unsettled(other):
                    consumer.requeue([other])
            if consumer.unsettled(delivery):
                self._bury(delivery, "unforeseen", f"{type(exc).__name__}: {exc}", consumer)

    def _sent_once(self, delivery: Delivery, consumer: DelayedRequeue) -> bool:
        """False, and a dead letter, for a message that names further routing keys (AMQP headers CC and BCC, a RabbitMQ
        extension): the broker checks the sender's right to the first one only."""
        if not any(name in delivery.headers for name in ("CC", "BCC")):
            return True
        self._bury(delivery, "invalid", "the headers CC and BCC are not taken: publish one for each key", consumer)
        return False

    def _bury(self, delivery: Delivery, code: str, detail: str, consumer: Consumer) -> None:
        def settle(receipt: Receipt) -> None:
            [outcome] = receipt.outcomes
            if isinstance(outcome, InvalidInput | TooLarge | Denied):
                # Trying again cannot help: without what the sender wrote.
                bare = dead_letters.bare(delivery, code, detail)
                self._broker.publish([bare]).then(lambda last: done(last.outcomes[0]))
            else:
                done(outcome)

        def done(outcome: RainbowError | None) -> None:
            consumer.ack([delivery]) if outcome is None else consumer.requeue([delivery])

        self._broker.publish([dead_letters.letter(delivery, code, detail)]).then(settle)

    def _end(self, consumer: Consumer) -> None:
        """Let what was begun end."""
        try:
            while self._task.under_way:
                self._task.handle((), consumer)
        except StoreUnavailable:
            pass  # it comes again, here or elsewhere
