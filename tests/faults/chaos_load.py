"""What is submitted amid faults: jobs and arrays of several users, repeated, waiting for each other, cancelled."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Sequence
from typing import Any

from faults.chaos_yard import USERS, Yard
from rainbow.client import Client
from rainbow.errors import RainbowError
from rainbow.models.ids import element_id


class Load:
    """Submits jobs of users until told to stop, each until the broker has confirmed it, and some once more; lets
    some wait for others, and cancels some."""

    def __init__(self, yard: Yard, seed: int) -> None:
        self._rng = random.Random(seed)
        self._yard = yard
        self._body = yard.folder / "bodies"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        #: By id, of jobs and of elements of arrays: what the body exits with, and whether a cancel was asked for.
        self.jobs: dict[str, int] = {}
        self.cancelled: set[str] = set()
        #: The elements of each array. An array is none of the `jobs`.
        self.arrays: dict[str, list[str]] = {}
        #: When each was first tried.
        self.submitted_at: dict[str, float] = {}
        #: Those that may be with the broker more than once: only a store that lost its data may run them again.
        self.repeated: set[str] = set()
        #: What a job waits for: the kind of its dependency, and the id.
        self.waits: dict[str, tuple[str, str]] = {}
        self._recent: dict[str, deque[dict[str, Any]]] = {user: deque(maxlen=20) for user in USERS}
        self.tries = 0
        self.problems: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What was begun is finished: call after healing, too."""
        self._stop.set()
        self._thread.join(120)
        if self._thread.is_alive():
            self.problems.append("the submitter did not get its last jobs confirmed")

    def _run(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                clients = {
                    user: stack.enter_context(self._yard.client(self._yard.submitter, timeout=8.0, user=user))
                    for user in USERS
                }
                while not self._stop.wait(self._rng.expovariate(4.0)):
                    user = self._rng.choice(USERS)
                    client, recent = clients[user], self._recent[user]
                    if self._rng.random() < 0.05:
                        self._submit(client, recent, [self._array()])
                    self._submit(client, recent, [self._job(recent) for _ in range(self._rng.choice((1, 1, 2, 5)))])
                    if self._rng.random() < 0.1:
                        self._cancel(client, self._rng.choice(list(recent)[-10:])["id"])
                    if self._rng.random() < 0.1:
                        self._again(client, self._rng.choice(recent))
        except Exception as exc:
            self.problems.append(f"the submitter ended: {exc!r}")

    def _job(self, before: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """A job; some wait for one of those `before`."""
        job_id, more = str(uuid.UUID(int=self._rng.getrandbits(128), version=4)), {}
        if before and self._rng.random() < 0.15:
            kind, on = self._rng.choice(("afterok", "afterany")), self._rng.choice(before)["id"]
            self.waits[job_id] = kind, on
            more = {"dependency": f"{kind}:{on}"}
        return {**more, **self._body_of(job_id, self._rng.choice((0.0, 0.1, 0.5, 0.5, 2.0, 6.0)))}

    def _array(self) -> dict[str, Any]:
        job_id = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        size, limit = self._rng.choice((3, 10, 30)), self._rng.choice(("", "", "%2", "%5"))
        self.arrays[job_id] = [element_id(job_id, index) for index in range(1, size + 1)]
        return {"array": f"1-{size}{limit}", **self._body_of(job_id, self._rng.choice((0.0, 0.3, 1.0)))}

    def _body_of(self, job_id: str, seconds: float) -> dict[str, Any]:
        code = self._rng.choice((0, 0, 0, 3))
        line = f'printf "%s $RAINBOW_JOB_ID $RAINBOW_ATTEMPT\\n" {{}} >> {self._body}'
        script = f"{line.format('start')}; sleep {seconds}; {line.format('end')}; exit {code}"
        return {
            "id": job_id,
            "command": ["/bin/sh", "-c", script],
            "hold": 600,
            "priority": self._rng.choice((8, 16, 16, 24)),
            "environment": {"PATH": "/usr/bin:/bin"},
            "cwd": str(self._yard.folder),
            "name": f"exit-{code}",
        }

    def _submit(self, client: Client, recent: deque[dict[str, Any]], jobs: Sequence[dict[str, Any]]) -> None:
        ids = [name for job in jobs for name in self.all_of(job["id"])]
        self.submitted_at |= dict.fromkeys(ids, time.time())
        while True:
            self.tries += 1
            try:
                client.submit_many(jobs, timeout=8.0)  # type: ignore[arg-type]
                break
            except RainbowError:
                time.sleep(0.2)  # all of them again, with the same ids
                self.repeated |= {*ids}
        recent.extend(jobs)
        for job in jobs:
            code = int(job["name"].removeprefix("exit-"))
            self.jobs |= dict.fromkeys(self.arrays.get(job["id"], [job["id"]]), code)

    def all_of(self, job: str) -> list[str]:
        """The job, and its elements if it is an array."""
        return [job, *self.arrays.get(job, ())]

    def waits_for_lost(self, last_loss: float) -> set[str]:
        """Jobs that may wait for good, as is documented: the store has lost the end of what they wait for."""
        found: set[str] = set()
        for job, (_, on) in self.waits.items():  # in the order of submission
            if on in found or self.submitted_at.get(on, last_loss) < last_loss:
                found.add(job)
        return found

    def _again(self, client: Client, job: dict[str, Any]) -> None:
        """By a submitter who forgot that it was confirmed: waiting, running or over by now, it is the same job."""
        self.repeated.update(self.all_of(job["id"]))
        with contextlib.suppress(RainbowError):  # then it may be there twice or not
            client.submit_many([job], timeout=8.0)  # type: ignore[list-item]

    def _cancel(self, client: Client, job: str) -> None:
        self.cancelled.update(self.all_of(job))
        with contextlib.suppress(RainbowError):  # then it may be cancelled or not
            client.cancel([job])
