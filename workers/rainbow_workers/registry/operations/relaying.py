"""Operations that go through to a cluster's agent: its answers to questions, and the output of a job."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rainbow import codec
from rainbow.brokers.base import Broker, Message
from rainbow.errors import Denied, InvalidInput, NotFound
from rainbow.models.control import AgentAnswer, AgentCommand, ControlReply, GetOutput
from rainbow.models.job import JobRecord
from rainbow.models.requests import OutputAsk
from rainbow.security import access
from rainbow.security.tokens import KeyRing, Principal
from rainbow_workers import addresses, commands
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.registry.registrar import Address
from rainbow_workers.stores.base import Store

#: Seconds that whoever asks for output listens for it.
_LISTENS = 60.0


class RelayOperations:
    def __init__(
        self,
        broker: Broker,
        store: Store,
        world: ClusterCache,
        keys: ClusterKeys,
        ring: Callable[[], KeyRing],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._broker = broker
        self._store = store
        self._world = world
        self._keys = keys
        self._ring = ring
        self._clock = clock

    def answer(self, request: AgentAnswer, caller: Principal, address: Address | None) -> dict[str, Any]:
        """Hand an agent's answer to who asked; too late, it is dropped. Which cluster says so is not its own word."""
        if not caller.covers(request.cluster, self._world.groups):
            raise Denied(f"only the agent of cluster {request.cluster} may answer for it")
        to = addresses.decrypt(self._ring(), request.reply)
        if to.cluster != request.cluster:
            raise Denied(f"cluster {request.cluster} was not asked this")
        if self._clock() <= to.until:
            reply = ControlReply(ok=True, result={**request.body, "cluster": request.cluster})
            body = codec.encode_json(reply.model_dump(exclude_none=True))
            self._broker.publish([Message("", to.reply_to, body, correlation_id=to.correlation_id, mandatory=False)])
        return {}

    def output(self, request: GetOutput, caller: Principal, address: Address | None) -> dict[str, Any] | None:
        """Ask the job's cluster for its output; it answers by itself. Where it cannot, the recorded tail is all."""
        record = self._store.jobs.get([request.id])[0]
        mine = access.allowed(request.op, caller.role) == "any" or (record is not None and caller.sub == record.user)
        if record is None or not mine:
            raise NotFound(f"no job {request.id} (or it is another user's)")
        if record.indices is not None:
            raise InvalidInput(f"an array has no output of its own: name an element, such as {record.id}[1]")
        if record.cluster is None or "accepted" not in record.times:
            return tail(record, "it has not started yet" if not record.terminal else "it never started")
        with self._world.lock:
            known = self._world.clusters.get(record.cluster)
            away = known is None or record.cluster in self._world.unreachable
        if known is None or away or address is None:
            return tail(record, f"cluster {record.cluster} cannot be asked now")
        until = self._clock() + _LISTENS
        ask = OutputAsk(
            id=record.id, attempt=record.attempt, stdout=request.stdout, stderr=request.stderr, limit=request.limit
        )
        reply = addresses.encrypt(self._ring(), addresses.Return(record.cluster, *address, until))
        command = AgentCommand(command="output", output=ask, reply=reply, until=until)
        self._broker.publish([commands.message(self._keys, record.cluster, known.record.registration, command)]).check(
            15.0
        )
        return None


def tail(record: JobRecord, why: str) -> dict[str, Any]:
    """What was recorded of the job's output with its last event."""
    return {
        "id": record.id,
        "attempt": record.attempt,
        "source": "tail",
        "stdout": record.output or "",
        "ended": record.terminal,
        "detail": why,
    }
