"""Jobs that were taken and have not started are given back, when another cluster has room (the command `recall`).

Nothing starts twice, and nothing is lost:

1. The journal says that the job is to be taken back, and the executor ends it if it has not started. One that starts
   first runs here, and nothing more comes of the recall.
2. When the executor says that it ended, the job is `returned` in the journal: as if it had never been taken. If the
   agent dies now, its delivery comes again, and it is submitted again.
3. `rejected` with the code `recalled` is published, and the delivery is rejected once the broker has confirmed it: as
   for any job that is refused. Then a scheduler places the job elsewhere, as its next attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from rainbow.models.control import AgentCommand
from rainbow_agents.executors.base import Ended, Executor, Recalls, Started
from rainbow_agents.intake.admission.policies import Refusal
from rainbow_agents.intake.in_flight import InFlight
from rainbow_agents.intake.validation import Job
from rainbow_agents.journal import Journal, JournalDown

log = logging.getLogger(__name__)


class Recaller:
    """`recall` is called with commands, `follow` with what the executor reports, once it is in the journal.
    `give_back` refuses a job that was taken (`Finalizer.decided`)."""

    def __init__(
        self, journal: Journal, in_flight: InFlight, executor: Executor, give_back: Callable[[Job, Refusal], None]
    ) -> None:
        self._journal = journal
        self._in_flight = in_flight
        self._kept = in_flight.kept
        self._executor = executor
        self._give_back = give_back
        self._kept.wanted = isinstance(executor, Recalls)

    def recall(self, commands: Sequence[AgentCommand]) -> None:
        """A recall that comes to nothing is asked for again, so none has to be remembered."""
        wanted = self._kept.recall({(c.id or "", c.attempt): c.reason or "another has room" for c in commands})
        if not wanted or not isinstance(self._executor, Recalls):
            return
        try:
            rows = self._journal.recalls.begin(wanted)
        except JournalDown as exc:
            log.warning("nothing is recalled: %s", exc, extra={"action": "recall"})
            return
        self._executor.recall([row.held for row in rows], "another cluster has room for it")

    def follow(self, news: Sequence[Started | Ended]) -> None:
        over: list[tuple[str, int]] = []
        for event in news:
            key = event.mark.id, event.mark.attempt
            kept = self._kept.get(key)
            if kept is None:
                continue
            row = self._journal.get(*key) if kept.reason and isinstance(event, Ended) else None
            if row is None or row.state != "returned" or row.claim != event.mark.claim:
                over.append(key)
                continue
            log.info("job given back: %s", kept.reason, extra={"action": "recall", "id": key[0], "attempt": key[1]})
            copies = [d for d in self._kept.pop(key) if d is not kept.job.delivery]
            self._in_flight.settle(ack=copies)
            self._give_back(kept.job, Refusal("recalled", f"taken back before it started: {kept.reason}"))
        self._kept.ack(over)


__all__ = ["Recaller"]
