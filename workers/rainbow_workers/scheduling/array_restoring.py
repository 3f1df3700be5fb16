"""An array compared with a store that lost its data, or some of it, once clusters have reported what they have.

Each of its elements is known to the store (a cluster has reported it), or has ended earlier (which the array's message
says: it is recorded again), or neither: it is in a queue, was never sent, or its end is lost. These are sent again:
one that is in a queue has the same id, and runs once.
"""

from __future__ import annotations

from rainbow.models.ids import element_id
from rainbow.models.job import JobEvent, JobRecord
from rainbow_workers.clusters.cache import REPORTED_EPOCH, ClusterCache
from rainbow_workers.scheduling.array_progress import Progress
from rainbow_workers.scheduling.decide import Job
from rainbow_workers.stores.base import Store

#: Elements that are looked at in one step, and in one call.
_STEP, _BATCH = 5000, 500


class Restoring:
    """`step` is called until it says that it is done; no elements are sent before."""

    def __init__(self, store: Store, job: Job, progress: Progress, epoch: int, keep: float) -> None:
        """`keep` is for how many seconds the store knows what has ended."""
        self._store = store
        self._job = job
        self._progress = progress
        self.epoch = epoch
        self._keep = keep
        self._position = 0
        self._last = -1
        self._runs: list[range] = []

    def step(self, now: float) -> bool:
        """Look at some more elements. Returns whether that were all."""
        progress = self._progress
        end = min(self._position + _STEP, progress.array.size)
        for start in range(self._position, end, _BATCH):
            self._compare(range(start, min(start + _BATCH, end)), now)
        self._position = end
        if end < progress.array.size:
            return False
        progress.restored, progress.epoch = True, self.epoch
        progress.next = self._last + 1
        progress.gaps.clear()
        progress.gaps.extend(run for run in self._runs if run.start < progress.next)
        return True

    def _compare(self, run: range, now: float) -> None:
        progress, job = self._progress, self._job
        numbered = progress.numbered(run)
        records = self._store.jobs.get([element_id(job.id, index) for _, index in numbered])
        lost: list[JobEvent] = []
        for (position, index), found in zip(numbered, records, strict=True):
            end = progress.ends.get(position)
            progress.open.pop(position, None)
            if found is not None and known(found):
                if found.terminal:
                    progress.ended(position, (found.state, found.returncode))
                else:
                    progress.open[position] = index
                self._last = position
            elif end is not None:
                lost.append(self._end(index, *end, now))
                self._last = position
            elif self._runs and self._runs[-1].stop == position:
                self._runs[-1] = range(self._runs[-1].start, position + 1)
            else:
                self._runs.append(range(position, position + 1))
        if lost and now - job.submitted_at < self._keep:
            # Later, the store may have counted and forgotten it, as it does.
            self._store.jobs.record(lost)

    def _end(self, index: int, state: str, code: int | None, now: float) -> JobEvent:
        """The end of an element whose record the store has lost."""
        job = self._job
        return JobEvent(
            id=element_id(job.id, index),
            attempt=1,
            state=state,
            at=now,
            user=job.user,
            account=job.account,
            name=job.name,
            array=job.id,
            index=index,
            returncode=code,
            detail="it ended before the store lost its data",
        )


def unheard(world: ClusterCache) -> list[str]:
    """The clusters that may have jobs of which the store lost the record: they reported for an epoch before this.

    Disabled ones are not among them, nor agents of earlier releases, which do not report epochs.
    """
    reported = {n: c.state.values.get(REPORTED_EPOCH) for n, c in world.clusters.items() if not c.record.barred_at}
    return sorted(name for name, epoch in reported.items() if epoch and epoch != world.epoch)


def known(record: JobRecord | None) -> bool:
    """Whether the store knows more of an element than that its cancel was asked for."""
    return record is not None and record.state != "submitted"
