"""May this dispatch run here? From bytes to a checked job, before anything is written down or asked of the executor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rainbow import codec, plugins
from rainbow.brokers.base import Delivery
from rainbow.errors import BadSignature, InvalidInput, InvalidJobspec
from rainbow.jobspec import Jobspec, read_cached
from rainbow.jobspec.flux.elements import for_element
from rainbow.jobspec.flux.v1 import FluxJob
from rainbow.models.job import Dispatch
from rainbow.models.wire import parse
from rainbow.security import signing
from rainbow_agents.intake.admission.policies import Refusal


class NotADispatch(InvalidInput):
    """The message cannot be read, so that not even an event could name its job."""

    code = "not-a-dispatch"


@dataclass(slots=True, eq=False)
class Job:
    """A delivery that could be read. `signed` says why its signature does not hold, None when it does."""

    delivery: Delivery
    dispatch: Dispatch
    signed: str | None = None
    spec: Jobspec | None = None
    units: tuple[FluxJob, ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        return self.dispatch.id, self.dispatch.attempt


class Checks:
    """The checks that need nothing but the message itself: signature, cluster, expiry, jobspec."""

    def __init__(
        self,
        cluster: str,
        verify: Callable[[bytes, object], None],
        *,
        translator: str = "v1",
        max_bytes: int = 1 << 20,
        max_depth: int = 64,
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._verify = verify
        self._translate = plugins.load("rainbow.translators", translator)().translate
        self._max_bytes = max_bytes
        self._max_depth = max_depth
        self._clock = clock

    def open(self, delivery: Delivery) -> Job:
        """Read it. Raises NotADispatch."""
        try:
            data = codec.decode(
                delivery.body, delivery.content_type, max_bytes=self._max_bytes, max_depth=self._max_depth
            )
            job = Job(delivery, parse(Dispatch, data))
        except InvalidInput as exc:
            raise NotADispatch(str(exc)) from None
        self.verify(job)
        return job

    def verify(self, job: Job) -> None:
        """Set `signed` by the keys as they are now."""
        try:
            self._verify(job.delivery.body, job.delivery.headers.get(signing.HEADER))
            job.signed = None
        except BadSignature as exc:
            job.signed = str(exc)

    def refuse(self, job: Job) -> Refusal | None:
        """Why it may not run, as far as the message tells; reads and translates its jobspec."""
        d = job.dispatch
        if job.signed is not None:
            return Refusal("bad-signature", job.signed)
        if d.cluster != self._cluster:
            return Refusal("bad-signature", f"the dispatch is for cluster {d.cluster[:80]}, this is {self._cluster}")
        # Both times are of the scheduler's clock: this host's may differ. Time in the queue is limited by the queue.
        if d.expires_at is not None and d.expires_at < d.assigned_at:
            late = d.assigned_at - d.expires_at
            return Refusal("expired", f"it was assigned {late:.0f} s after it had expired")
        try:
            job.spec, job.units = self.plan(d.jobspec)
            if d.element is not None:
                job.units = tuple(for_element(job.units, d.element))
        except InvalidJobspec as exc:
            return Refusal("bad-spec", str(exc))
        return None

    def plan(self, document: dict[str, Any]) -> tuple[Jobspec, tuple[FluxJob, ...]]:
        """A jobspec read, and what it is here. Raises InvalidJobspec, also for what nothing here can say."""
        spec = read_cached(document)
        units = tuple(self._translate(spec))
        if not units:
            raise InvalidJobspec("the jobspec has no task: there is nothing to run")
        return spec, units
