"""Submits jobs held, releases and cancels them.

A job goes through `_check` (could it ever run here?) and `_submit` for each of its parts in turn. It ends in one
message: `submitted`, `refused` with a reject code, or `undecided` when Flux is away.
"""

from __future__ import annotations

import contextlib
import errno
import json
from typing import Any

import flux.constants
import flux.job
from flux.core.inner import lib

from .channel import Json
from .connection import Connection
from .jobs import JobTable, Key, Part, key_of, name_of
from .validating import Validating

#: Seconds for one answer; the validator may have to be started first.
SUBMIT_WITHIN = 30.0
#: Shapes of feasible jobs that are remembered.
_SHAPES = 10_000

#: Errors that say that Flux is away, not that the job is wrong.
AWAY = {errno.ENOSYS, errno.EPIPE, errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.EAGAIN, errno.ENOSPC}
#: Reject codes for what the scheduler finds out. sched-simple says EOVERFLOW where Fluxion says ENODEV.
_INFEASIBLE = {
    errno.EOVERFLOW: "no-fit",
    errno.ENODEV: "no-fit",
    errno.EINVAL: "bad-spec",
    errno.EPERM: "bad-spec",
    errno.EPROTO: "bad-spec",
}
#: Reject codes for a submission that fails: EPERM comes from the validator, EINVAL from a limit of the site.
_UNSUBMITTED = {
    errno.EOVERFLOW: "no-fit",
    errno.ENODEV: "no-fit",
    errno.EPERM: "bad-spec",
    errno.EPROTO: "bad-spec",
    errno.EINVAL: "policy",
}


class Submission:
    """`jobs` learns each part as soon as Flux has it."""

    def __init__(self, connection: Connection, jobs: JobTable, validating: Validating) -> None:
        self._connection = connection
        self._jobs = jobs
        self._validating = validating
        self._looking = False
        self._open: dict[Key, Json] = {}
        self._queues: Json = {}
        self._feasibility = True
        self._feasible: dict[str, bool] = {}

    def configured(self, config: Json) -> None:
        self._queues = config.get("queues") or {}
        self._validating.configured(config)

    def resources_changed(self) -> None:
        self._feasible.clear()

    def give_up(self, reason: str) -> None:
        """The connection ended: jobs under way have no outcome."""
        for mark in self._open.values():
            self._connection.channel.queue("undecided", mark=mark, detail=reason)
        self._open.clear()

    def submit(self, request: Json) -> None:
        for job in request["jobs"]:
            self._open[key_of(job["mark"])] = job["mark"]
            try:
                self._check(job, 0, [])
            except (KeyError, TypeError, ValueError) as exc:  # a jobspec of a shape that nothing here expects
                self._outcome(job, "refused", code="bad-spec", detail=f"its jobspec cannot be read: {exc!r}")

    # -- one job ---------------------------------------------------------------------------------------------------

    def _check(self, job: Json, index: int, numbers: list[int]) -> None:
        """Ask the scheduler whether this part could ever run, where it answers that."""
        spec = self._with_queue(job["units"][index]["spec"])
        # The answer depends on the resources and the constraints alone, and most jobs are like others.
        shape = json.dumps([spec["resources"], spec["attributes"]["system"].get("constraints")], sort_keys=True)
        if not self._feasibility or shape in self._feasible:
            self._submit(job, index, numbers)
            return

        def answered(future: Any) -> None:
            try:
                future.get()
            except OSError as exc:
                if exc.errno != errno.ENOSYS:
                    self._failed(job, numbers, exc, future, _INFEASIBLE)
                    return
                self._feasibility = False
            if len(self._feasible) < _SHAPES:
                self._feasible[shape] = True
            self._submit(job, index, numbers)

        self._connection.rpc("feasibility.check", {"jobspec": spec}, answered, timeout=SUBMIT_WITHIN)

    def _with_queue(self, spec: Json) -> Json:
        """Return the jobspec with what its queue requires of nodes, which the check does not look up by itself."""
        system = spec["attributes"]["system"]
        requires = (self._queues.get(system.get("queue")) or {}).get("requires")
        if not requires:
            return spec
        wanted = {"properties": requires}
        both = {"and": [system["constraints"], wanted]} if system.get("constraints") else wanted
        return dict(spec, attributes=dict(spec["attributes"], system=dict(system, constraints=both)))

    def _submit(self, job: Json, index: int, numbers: list[int]) -> None:
        """Submit one part, held (urgency 0). The next one follows when its id is known, since it may depend on it."""
        unit = job["units"][index]
        spec = unit["spec"]
        if unit["needs"]:
            waits = [{"scheme": "afterok", "value": name_of(numbers[n])} for n in unit["needs"]]
            system = spec["attributes"]["system"]
            system["dependencies"] = list(system.get("dependencies") or ()) + waits
        known = self._validating.passes(spec)
        future = flux.job.submit_async(self._connection.handle, json.dumps(spec), urgency=0, novalidate=known)

        def answered(future: Any) -> None:
            try:
                number = int(flux.job.submit_get_id(future))
            except OSError as exc:
                self._failed(job, numbers, exc, future, _UNSUBMITTED)
                return
            if not known:
                self._look_at_validator()
            if number not in self._jobs.by_number:
                part = self._jobs.add(Part(number, dict(job["mark"], part=index, parts=len(job["units"]))))
                part.urgency = 0
            numbers.append(number)
            if index + 1 < len(job["units"]):
                self._check(job, index + 1, numbers)
                return
            names = [name_of(n) for n in numbers]
            self._outcome(job, "submitted", names=names, incarnation=self._connection.incarnation)

        future.then(self._connection.guarded(answered), timeout=SUBMIT_WITHIN)

    def _failed(self, job: Json, numbers: list[int], exc: OSError, future: Any, codes: dict[int, str]) -> None:
        for number in numbers:  # parts that went in before
            flux.job.cancel_async(self._connection.handle, number, "another part was refused").then(ignore)
        text = error_text(future) or exc.strerror or str(exc)
        if exc.errno in AWAY:
            self._outcome(job, "undecided", detail=text)
            return
        code = codes.get(exc.errno or 0, "error")
        if code == "policy" and "is disabled" in text:  # an operator closed the queue, and may open it again
            code = "busy"
        self._outcome(job, "refused", code=code, detail=text)

    def _outcome(self, job: Json, what: str, **fields: Any) -> None:
        if self._open.pop(key_of(job["mark"]), None) is not None:
            self._connection.emit(what, mark=job["mark"], **fields)

    def _look_at_validator(self) -> None:
        """A job was just validated, so the process that did it can be looked at."""
        if self._looking or not self._validating.unseen:
            return
        self._looking = True

        def answered(future: Any) -> None:
            self._looking = False
            with contextlib.suppress(OSError, KeyError, TypeError):
                self._validating.look(future.get())

        # Of this broker's own: those of another are on another host.
        self._connection.rpc("job-ingest.stats-get", {}, answered, nodeid=self._connection.handle.get_rank())

    # -- releasing, cancelling ---------------------------------------------------------------------------------------

    def release(self, request: Json) -> None:
        # Nothing waits for the answer: `recovery` shows whether it arrived. So no future is made for it.
        handle, no_response = self._connection.handle.handle, flux.constants.FLUX_RPC_NORESPONSE
        for job in request["jobs"]:
            for part in self._jobs.parts(job["mark"]):
                if part.ended is None:
                    payload = b'{"id":%d,"urgency":%d}' % (part.number, job["urgency"])
                    lib.flux_future_destroy(lib.flux_rpc(handle, b"job-manager.urgency", payload, 0, no_response))

    def cancel(self, request: Json) -> None:
        for job in request["jobs"]:
            for part in self._jobs.parts(job["mark"]):
                if part.ended is None:
                    flux.job.cancel_async(self._connection.handle, part.number, request["reason"]).then(ignore)


def ignore(future: Any) -> None:
    """For calls whose failure shows elsewhere: the job ended meanwhile, or Flux is gone."""
    with contextlib.suppress(OSError):
        future.get()


def error_text(future: Any) -> str | None:
    try:
        text = future.error_string()
    except (OSError, AttributeError):
        return None
    return str(text) if text else None
